"""Observed states: one row each time a record key's state changes, whatever batches they came in."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from memory.database import Database
from memory.identifiers import COLLECTION
from memory.queries import Row
from tests.builders import RepoBuilder, Write, memory
from tests.feed import LONG_AGO, Feed, forget, holdings, rkey

EMPTY = sha256(b"").digest()
INVALID = {"$type": COLLECTION, "note": "no content"}


async def versions(feed: Feed, alice: RepoBuilder) -> list[Row]:
    return await feed.rows("select * from memory_versions where repo = $1 order by rkey, number", alice.did)


async def story(feed: Feed, alice: RepoBuilder) -> list[tuple[int, str]]:
    """Number and operation of every version."""
    return [(row["number"], row["operation"]) for row in await versions(feed, alice)]


async def test_created_updated_deleted(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    for frame in (alice.create(rkey(1), memory("a")), alice.update(rkey(1), memory("b")), alice.delete(rkey(1))):
        await feed.send(frame)
    assert await story(feed, alice) == [(1, "created"), (2, "updated"), (3, "deleted")]


async def test_current_version_keeps_its_content_in_memories_only(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("tea", scope="drinks")))
    [version] = await versions(feed, alice)
    [current] = await feed.rows("select * from memories")
    assert (version["record"], version["overwritten_at"], version["redacted_at"]) == (None, None, None)
    assert (version["cid"], version["scope"], version["content_bytes"]) == (current["cid"], "drinks", 3)
    assert version["content_sha256"] == sha256(b"tea").digest()
    assert (version["observed_at"], current["version"]) == (feed.clock, 1)


async def test_cid_that_is_current_already_is_no_version(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("a")))
    await feed.send(alice.apply([Write("delete", rkey(1)), Write("create", rkey(1), memory("a"))]))
    assert await story(feed, alice) == [(1, "created")]
    assert (await feed.row("select rev from memories"))["rev"] < (alice.rev or "")


async def test_there_and_back_again_are_three(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    for frame in (alice.create(rkey(1), memory("a")), *(alice.update(rkey(1), memory(text)) for text in "ba")):
        await feed.send(frame)
    rows = await versions(feed, alice)
    assert [row["operation"] for row in rows] == ["created", "updated", "updated"]
    assert rows[0]["cid"] == rows[2]["cid"] != rows[1]["cid"]


async def test_recreated_rkey_goes_on_counting(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    for frame in (alice.create(rkey(1), memory("a")), alice.delete(rkey(1)), alice.create(rkey(1), memory("a"))):
        await feed.send(frame)
    assert await story(feed, alice) == [(1, "created"), (2, "deleted"), (3, "created")]
    assert (await feed.row("select first_indexed_at from memories"))["first_indexed_at"] == feed.clock


async def test_overwritten_content_is_kept_with_when_it_was_overwritten(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("a", scope="old")))
    block = alice.record_blocks[alice.records[f"{COLLECTION}/{rkey(1)}"]]
    await feed.send(alice.update(rkey(1), memory("b")))
    first, second = await versions(feed, alice)
    assert (first["record"], first["overwritten_at"], first["redacted_at"]) == (block, feed.clock, None)
    assert (first["scope"], first["content_bytes"]) == ("old", 1)
    assert (second["record"], second["overwritten_at"]) == (None, None)


async def test_overwriting_within_one_batch_keeps_the_content_too(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("a")), alice.update(rkey(1), memory("b")))
    first, second = await versions(feed, alice)
    assert (first["record"] is not None, first["overwritten_at"]) == (True, feed.clock)
    assert second["record"] is None


def is_redacted(row: Row, at: datetime) -> bool:
    erased = (row["record"], row["cid"], row["scope"], row["content_bytes"], row["content_sha256"], row["redacted_at"])
    return erased == (None, None, None, 0, EMPTY, at)


async def test_deletion_erases_every_version(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("a", scope="s")))
    await feed.send(alice.update(rkey(1), memory("b", scope="s")))
    await feed.send(alice.delete(rkey(1)))
    rows = await versions(feed, alice)
    assert [row["operation"] for row in rows] == ["created", "updated", "deleted"]
    assert all(is_redacted(row, feed.clock) for row in rows)


async def test_deletion_within_the_same_batch_erases_too(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("a", scope="s")), alice.update(rkey(1), memory("b", scope="s")))
    await feed.send(alice.update(rkey(1), memory("c", scope="s")), alice.delete(rkey(1)))
    rows = await versions(feed, alice)
    assert len(rows) == 4
    assert all(is_redacted(row, feed.clock) for row in rows)


async def test_deleted_content_is_in_no_table(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    secret = "mandarin"
    record = memory(secret, scope=secret, kind=secret, provenance={"agent": secret, "client": secret})
    await feed.send(alice.create(rkey(1), record))
    await feed.send(alice.update(rkey(1), INVALID | {"note": secret}))
    await feed.send(alice.update(rkey(1), record | {"createdAt": "2026-11-02T00:00:00Z"}))
    await feed.send(alice.delete(rkey(1)))
    async with database.connection() as conn:
        for table in await conn.fetch("select tablename from pg_tables where schemaname = 'public'"):
            for row in await conn.fetch(f"select to_json(t)::text as t from {table['tablename']} t"):
                assert secret not in row["t"]
                assert secret.encode().hex() not in row["t"]


async def test_redaction_of_an_earlier_life_keeps_its_time(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("a")))
    await feed.send(alice.delete(rkey(1)))
    first_end = feed.clock
    await feed.send(alice.create(rkey(1), memory("b")), alice.delete(rkey(1)))
    assert [row["redacted_at"] for row in await versions(feed, alice)] == [first_end, first_end, feed.clock, feed.clock]


async def test_valid_invalid_valid_are_two_versions_of_one_lineage(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("a")))
    await feed.send(alice.update(rkey(1), INVALID))
    overwritten_at = feed.clock
    assert await feed.memories(alice) == {}
    assert (await feed.row("select reason from invalid_records"))["reason"] == "contentMissing"
    await feed.send(alice.update(rkey(1), memory("b")))
    rows = await versions(feed, alice)
    assert [row["operation"] for row in rows] == ["created", "updated"]
    assert rows[0]["overwritten_at"] == overwritten_at
    assert await feed.memories(alice) == {rkey(1): "b"}
    assert await feed.rows("select from invalid_records") == []


async def test_record_that_was_never_valid_has_no_versions(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), INVALID))
    await feed.send(alice.update(rkey(1), INVALID | {"note": "still"}))
    await feed.send(alice.delete(rkey(1)))
    assert await versions(feed, alice) == []
    assert await feed.rows("select from invalid_records") == []


async def test_purge_leaves_nothing_but_the_rev_gate(database: Database):
    feed = Feed(database)
    alice, bob = feed.account("alice"), feed.account("bob")
    for person in (alice, bob):
        target = f"at://{person.did}/{COLLECTION}/{rkey(1)}"
        await feed.send(person.create(rkey(1), memory("a")), person.create(rkey(2), memory("b", supersedes=[target])))
        await feed.send(person.update(rkey(1), memory("c")), person.create(rkey(3), INVALID))
    bobs = await holdings(database, bob.did)
    feed.directory.bury(alice, feed.clock)
    await feed.send(alice.identity_frame())
    left = await holdings(database, alice.did)
    assert {table for table, rows in left.items() if rows} == {"repos"}
    repo = await feed.repo(alice)
    assert (repo["rev"], repo["data_cid"], repo["memory_count"], repo["edge_count"]) == (alice.rev, None, 0, 0)
    assert await holdings(database, bob.did) == bobs


# Whatever the batches


@dataclass(frozen=True)
class Step:
    """A write to one of three record keys, if it is possible then."""

    number: int
    content: str | None  # null: delete; "": an invalid record


STEPS = st.builds(Step, st.integers(0, 2), st.sampled_from(["a", "b", "c", "", None, None]))
COMMITS = st.lists(st.lists(STEPS, min_size=1, max_size=3, unique_by=lambda step: step.number), min_size=2, max_size=12)


def write(alice: RepoBuilder, commits: list[list[Step]]) -> list[bytes]:
    frames: list[bytes] = []
    for steps in commits:
        writes: list[Write] = []
        for step in steps:
            there = f"{COLLECTION}/{rkey(step.number)}" in alice.records
            if step.content is not None:
                record: dict[str, Any] = memory(step.content, n=len(frames) % 2) if step.content else INVALID
                writes.append(Write("update" if there else "create", rkey(step.number), record))
            elif there:
                writes.append(Write("delete", rkey(step.number)))
        frames.append(alice.apply(writes))
    return frames


@settings(max_examples=150)
@given(commits=COMMITS, cuts=st.lists(st.integers(1, 4), min_size=1, max_size=12))
async def test_versions_are_the_same_whatever_the_batches(
    database: Database, commits: list[list[Step]], cuts: list[int]
):
    feed = Feed(database)
    alice = RepoBuilder(f"{commits} {cuts}", stream=feed.stream)
    feed.directory.announce(alice, LONG_AGO)
    frames = [alice.create(rkey(9), memory("first")), *write(alice, commits)]
    await feed.send(*frames)
    at_once = await holdings(database, alice.did)
    await forget(database, alice.did)
    feed.tracked.clear()
    at = 0
    while at < len(frames):
        size = cuts[at % len(cuts)]
        await feed.send(*frames[at : at + size])
        at += size
    assert await holdings(database, alice.did) == at_once
