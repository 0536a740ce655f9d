"""One record of a fetched repo never takes another along: what is wrong with it is told of it alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from indexer.interpret import InvalidMemory, StoredMemory, interpret_block
from indexer.verify.car import encode_block
from memory.database import Database
from tests.builders import RepoBuilder, memory
from tests.feed import Feed, holdings, rkey
from tests.mending import mending
from tests.store.test_hostile_records import RECORDS

BROKEN_TERMS = "'"
NUMBERS = range(6)
# What differs between a memory that was fetched and the same that came live.
TOLD = (
    "select rkey, cid, record, content, kind, scope, agent, client, terms::text, term_count from memories order by rkey"
)


def hostile(person: RepoBuilder) -> list[bytes]:
    """A repo of everything that does harm, between good records; the frames of it."""
    frames = [*person.genesis(), person.create(rkey(0), memory("good"))]
    frames += [person.create(rkey(number), each.record) for number, each in enumerate(RECORDS.values(), 1)]
    return [*frames, person.create(rkey(1000), memory("good"))]


async def test_hostile_records_are_rejected_one_by_one_and_the_repo_is_kept(database: Database):
    async with mending(database) as world:
        world.start()
        alice = world.account("alice")
        hostile(alice)
        await world.ask(alice)
        await world.until_answered(alice)
        assert await world.state(alice) == ("active", None)
        told = await world.rows("select rkey, reason from invalid_records")
        reasons = {rkey(number): each.reason for number, each in enumerate(RECORDS.values(), 1)}
        assert {row["rkey"]: row["reason"] for row in told} == {
            key: reason for key, reason in reasons.items() if reason is not None
        }
        held = {row["rkey"] for row in await world.rows("select rkey from memories")}
        assert held == {key for key, reason in reasons.items() if reason is None} | {rkey(0), rkey(1000)}


async def test_hostile_records_are_the_same_whether_they_were_fetched_or_came_live(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(*hostile(alice), cut=1)
    live = [tuple(row) for row in await feed.rows(TOLD)]
    async with database.connection() as conn:
        await conn.execute("truncate memories, memory_edges, memory_versions, invalid_records, repos, requests")
    async with mending(database) as world:
        world.start()
        hostile(again := world.account("alice"))
        await world.ask(again)
        await world.until_answered(again)
        assert [tuple(row) for row in await world.rows(TOLD)] == live


async def test_record_just_too_large_is_told_apart_from_the_largest(database: Database):
    async with mending(database) as world:
        world.start()
        alice = world.account("alice")
        padding = 1_000_000 - len(encode_block(memory("tea", padding="x" * 900_000))) + 900_000
        alice.create(rkey(1), memory("tea", padding="x" * padding))
        alice.create(rkey(2), memory("tea", padding="x" * (padding + 1)))
        await world.ask(alice)
        await world.until_answered(alice)
        assert [row["rkey"] for row in await world.rows("select rkey from memories")] == [rkey(1)]
        [invalid] = await world.rows("select rkey, reason, octet_length(excerpt) as size from invalid_records")
        assert tuple(invalid) == (rkey(2), "recordTooBig", 4096)


@pytest.fixture
def unstorable(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Contents of which the terms are none to Postgres."""
    contents: set[str] = set()

    def interpret(author: str, space: str, rkey: str, cid: str, block: bytes) -> StoredMemory | InvalidMemory:
        found = interpret_block(author, space, rkey, cid, block)
        broken = isinstance(found, StoredMemory) and found.memory.content in contents
        return replace(found, terms=BROKEN_TERMS) if broken else found

    monkeypatch.setattr("indexer.interpret.interpret_block", interpret)
    return contents


@pytest.mark.parametrize("slice_ops", [1, 2, 500])
@pytest.mark.parametrize("broken", [{0}, {3}, {5}, {1, 2}, set(NUMBERS)])
async def test_record_that_the_database_cannot_hold_becomes_invalid_and_takes_no_other_along(
    database: Database, unstorable: set[str], broken: set[int], slice_ops: int
):
    unstorable |= {f"{number}" for number in broken}
    async with mending(database, slice_ops=slice_ops) as world:
        world.start()
        alice = world.account("alice")
        for number in NUMBERS:
            alice.create(rkey(number), memory(f"{number}"))
        await world.ask(alice)
        await world.until_answered(alice)
        assert await world.contents(alice) == [f"{number}" for number in NUMBERS if number not in broken]
        told = await world.rows("select rkey, reason, excerpt from invalid_records order by rkey")
        assert [tuple(row) for row in told] == [(rkey(number), "unstorable", b"") for number in sorted(broken)]
        assert await world.state(alice) == ("active", None)
        assert (await world.row(alice))["memory_count"] == len(NUMBERS) - len(broken)


async def test_record_that_the_database_cannot_hold_is_not_tried_again(database: Database, unstorable: set[str]):
    unstorable.add("1")
    async with mending(database) as world:
        world.start()
        alice = world.account("alice")
        alice.create(rkey(1), memory("1"))
        await world.ask(alice)
        await world.until_answered(alice)
        before = await holdings(database, alice.did)
        unstorable.clear()
        world.clock.advance(days=1)
        await world.ask(alice)
        await world.until_answered(alice)
        after = await holdings(database, alice.did)
        assert after["invalid"] == before["invalid"]
