"""Rows of Spaces stand beside public ones of the same repo and rkeys: what happens in public never touches them."""

from __future__ import annotations

from typing import Any

from indexer.quota import QuotaLimits
from indexer.writer import Writer
from memory.database import Database
from memory.identifiers import COLLECTION
from tests.builders import RepoBuilder, memory
from tests.feed import LIMITS, Feed, forget, holdings, rkey

SPACE = "at://did:plc:spaceaaaaaaaaaaaaaaaaaa/space/com.example.group/family"
SPACE_TABLES = ("memories", "memory_edges", "memory_versions", "invalid_records", "repos", "requests")
INVALID = {"$type": COLLECTION}


def uri(person: RepoBuilder, number: int) -> str:
    return f"at://{person.did}/{COLLECTION}/{rkey(number)}"


async def beside(feed: Feed, alice: RepoBuilder) -> dict[str, list[tuple[Any, ...]]]:
    """Copies all that she has in public into a Space: memories, masked, in a circle and invalid, versions, requests."""
    await feed.send(
        alice.create(rkey(1), memory("old")),
        alice.update(rkey(1), memory("older")),
        alice.create(rkey(2), memory("new", supersedes=[uri(alice, 1)])),
        alice.create(rkey(3), memory("circle", supersedes=[uri(alice, 4)])),
        alice.create(rkey(4), memory("circle", supersedes=[uri(alice, 3)])),
        alice.create(rkey(5), INVALID),
        alice.create(rkey(6), memory("gone")),
        alice.delete(rkey(6)),
    )
    async with feed.database.connection() as conn:
        for table in SPACE_TABLES:
            await conn.execute(
                f"insert into {table} select (jsonb_populate_record(t, jsonb_build_object('space', $1::text))).*"
                f" from {table} t where space = ''",
                SPACE,
            )
    return await in_space(feed)


async def in_space(feed: Feed) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of the Space."""
    return {
        table: sorted(map(tuple, await feed.rows(f"select * from {table} where space = $1", SPACE)), key=repr)
        for table in SPACE_TABLES
    }


async def test_there_are_rows_of_every_kind(database: Database):
    feed = Feed(database)
    rows = await beside(feed, feed.account("alice"))
    assert all(rows.values())
    assert {row[-1] for row in rows["memories"]} == {None, rkey(4)}, "members of a circle, and others"


async def test_public_writes_touch_no_row_of_a_space(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    before = await beside(feed, alice)
    await feed.send(
        alice.update(rkey(1), memory("changed", supersedes=[uri(alice, 2)])),
        alice.update(rkey(2), INVALID),
        alice.update(rkey(3), memory("no circle")),
        alice.delete(rkey(4)),
        alice.update(rkey(5), memory("valid")),
        alice.create(rkey(6), memory("again")),
        alice.create(rkey(7), memory("new", supersedes=[uri(alice, number) for number in range(1, 7)])),
    )
    assert await in_space(feed) == before


async def test_desynchronized_repo_leaves_its_spaces_alone(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    before = await beside(feed, alice)
    alice.create(rkey(7), memory("missed"))
    await feed.send(alice.create(rkey(8), memory("after a gap")))
    assert (await feed.repo(alice))["state"] == "desynchronized"
    assert await in_space(feed) == before


async def test_purge_of_a_public_repo_leaves_its_spaces_alone(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    before = await beside(feed, alice)
    feed.directory.bury(alice, feed.clock)
    await feed.send(alice.identity_frame())
    assert await feed.memories(alice) == {}
    assert await in_space(feed) == before


async def test_public_quota_counts_and_drops_no_row_of_a_space(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    before = await beside(feed, alice)
    feed.writer = Writer(database, QuotaLimits(max_memories=2, max_bytes=10**9, max_edges=10**6))
    await feed.send(alice.create(rkey(0), memory("first")))
    assert list(await feed.memories(alice)) == [rkey(0), rkey(1)]
    assert await in_space(feed) == before


async def test_full_space_leaves_the_public_quota_alone(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await beside(feed, alice)
    async with database.connection() as conn:
        await conn.execute(
            "update repos set memory_count = 10^6, memory_bytes = 10^9, over_quota_count = 9 where space <> ''"
        )
    await feed.send(alice.create(rkey(9), memory("last")))
    assert rkey(9) in await feed.memories(alice)
    assert (await feed.repo(alice))["over_quota_count"] == 0


async def test_hidden_account_leaves_its_spaces_rows_as_they_are(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    before = await beside(feed, alice)
    await feed.send(alice.account_frame(active=False, status="deleted"))
    await feed.send(alice.account_frame())
    assert await in_space(feed) == before


async def test_public_rows_are_the_same_whatever_stands_beside_them(database: Database):
    public: list[dict[str, list[tuple[Any, ...]]]] = []
    for spaces in (False, True):
        feed = Feed(database, limits=LIMITS)
        alice = feed.account("alice")
        await beside(feed, alice)
        if not spaces:
            async with database.connection() as conn:
                for table in SPACE_TABLES:
                    await conn.execute(f"delete from {table} where space <> ''")
        await feed.send(
            alice.update(rkey(1), memory("changed", supersedes=[uri(alice, 2)])),
            alice.delete(rkey(4)),
            alice.create(rkey(6), memory("again")),
            alice.create(rkey(7), memory("new", supersedes=[uri(alice, 3)])),
        )
        held = await holdings(database, alice.did)
        public.append({table: [row for row in rows if SPACE not in row] for table, rows in held.items()})
        await forget(database, alice.did)
    assert public[0] == public[1]
