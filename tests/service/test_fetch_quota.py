"""A repo larger than its quota is held as far as the quota goes, however often and in whatever pieces it is fetched."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from indexer.books import REFILL_INTERVAL
from indexer.interpret import InvalidMemory, StoredMemory, interpret_block
from indexer.quota import QuotaLimits
from indexer.verify.car import encode_block
from memory.database import Database
from memory.identifiers import COLLECTION
from tests.builders import RepoBuilder, memory
from tests.feed import rkey
from tests.mending import Mending, mending, tables

SIZE = len(encode_block(memory("0000")))
LIMITS = {
    "memories": QuotaLimits(max_memories=6, max_bytes=10**9, max_edges=10**6),
    "bytes": QuotaLimits(max_memories=1000, max_bytes=6 * SIZE + 10, max_edges=10**6),
}
every_limit = pytest.mark.parametrize("limit", LIMITS)
by_number = pytest.mark.parametrize("limit", ["memories"])
by_bytes = pytest.mark.parametrize("limit", ["bytes"])


@pytest.fixture(params=[1, 500], ids=lambda ops: f"slices of {ops}")
async def world(request: pytest.FixtureRequest, database: Database, limit: str) -> AsyncGenerator[Mending]:
    async with mending(database, limits=LIMITS[limit], slice_ops=request.param) as opened:
        opened.start()
        yield opened


def content(number: int) -> str:
    return f"{number:04d}"


def written(world: Mending, numbers: range) -> RepoBuilder:
    alice = world.account("alice")
    for number in numbers:
        alice.create(rkey(number), memory(content(number)))
    return alice


async def fetched(world: Mending, alice: RepoBuilder) -> None:
    await world.ask(alice)
    await world.until_answered(alice)


async def assert_held(world: Mending, alice: RepoBuilder, numbers: list[int], kept_out: int) -> None:
    assert await world.contents(alice) == [content(number) for number in numbers]
    row = await world.row(alice)
    assert (row["memory_count"], row["over_quota_count"]) == (len(numbers), kept_out)
    assert (row["quota_edge"] is not None) == (kept_out > 0)
    assert row["state"] == "active"


@every_limit
async def test_smallest_rkeys_count(world: Mending):
    alice = written(world, range(1, 10))
    await fetched(world, alice)
    await assert_held(world, alice, [1, 2, 3, 4, 5, 6], 3)
    assert (await world.row(alice))["quota_edge"] == rkey(7)


@every_limit
async def test_fetch_of_the_same_changes_nothing(world: Mending):
    alice = written(world, range(1, 10))
    await fetched(world, alice)
    once = await tables(world.database, alice.did)
    for _ in range(2):
        world.clock.advance(days=1)
        await fetched(world, alice)
        assert await tables(world.database, alice.did) == once


@by_bytes
async def test_what_came_in_before_the_edge_drives_out_what_was_held(world: Mending):
    alice = written(world, range(1, 10))
    await fetched(world, alice)
    alice.create(rkey(0), memory(content(0)))
    world.clock.advance(days=1)
    await fetched(world, alice)
    await assert_held(world, alice, [0, 1, 2, 3, 4, 5], 4)


@every_limit
async def test_deletes_make_room_for_what_was_kept_out(world: Mending):
    alice = written(world, range(1, 10))
    await fetched(world, alice)
    for number in (2, 6, 8):
        alice.delete(rkey(number))
    world.clock.advance(days=1)
    await fetched(world, alice)
    await assert_held(world, alice, [1, 3, 4, 5, 7, 9], 0)


@by_number
@pytest.mark.parametrize("number", [6, 7, 9])
async def test_update_at_the_edge_is_of_what_is_held_or_changes_nothing(world: Mending, number: int):
    alice = written(world, range(1, 10))
    await fetched(world, alice)
    alice.update(rkey(number), memory("same"))
    world.clock.advance(days=1)
    await fetched(world, alice)
    held = [content(each) for each in range(1, 7)]
    assert await world.contents(alice) == [*held[:-1], "same"] if number == 6 else held
    assert (await world.row(alice))["over_quota_count"] == 3


@by_number
async def test_delete_behind_the_edge_is_counted(world: Mending):
    alice = written(world, range(1, 10))
    await fetched(world, alice)
    alice.delete(rkey(7))
    world.clock.advance(days=1)
    await fetched(world, alice)
    await assert_held(world, alice, [1, 2, 3, 4, 5, 6], 2)
    assert (await world.row(alice))["quota_edge"] == rkey(8)


@by_bytes
async def test_invalid_records_take_no_room(world: Mending):
    alice = world.account("alice")
    for number in range(1, 10):
        alice.create(rkey(number), memory(content(number)) if number % 2 else {"$type": COLLECTION})
    await fetched(world, alice)
    await assert_held(world, alice, [1, 3, 5, 7, 9], 0)
    assert await world.value("select count(*) from invalid_records") == 4


@by_number
async def test_place_that_becomes_free_live_is_filled_by_a_fetch_after_a_while(world: Mending):
    alice = written(world, range(1, 10))
    await fetched(world, alice)
    await world.live(alice.delete(rkey(3)))
    await assert_held(world, alice, [1, 2, 4, 5, 6], 3)
    assert await world.requests(alice) == {"fetch": "quota_refill"}
    assert (await world.row(alice))["fetch_after"] >= world.clock.now + REFILL_INTERVAL
    world.clock.advance(minutes=10)
    await world.until_answered(alice)
    await assert_held(world, alice, [1, 2, 4, 5, 6, 7], 2)


@by_bytes
async def test_what_a_fetch_keeps_out_too_much_it_fetches_again(world: Mending):
    """A slice may bring what fits only once a later one has made something smaller."""
    alice = world.account("alice")
    alice.create(rkey(5), memory("x" * (4 * SIZE)))
    alice.create(rkey(9), memory(content(9)))
    await fetched(world, alice)
    assert (await world.row(alice))["memory_count"] == 2
    alice.create(rkey(1), memory(content(1)))
    alice.create(rkey(2), memory(content(2)))
    alice.update(rkey(5), memory(content(5)))
    world.clock.advance(days=1)
    await world.ask(alice)
    await world.until(lambda: world.value("select rev from repos where state = 'active'"), alice.rev)
    world.clock.advance(minutes=10)
    await world.until_answered(alice)
    await assert_held(world, alice, [1, 2, 5, 9], 0)


async def test_what_is_behind_the_edge_is_counted_and_not_read(database: Database, monkeypatch: pytest.MonkeyPatch):
    read: list[str] = []

    def interpret(author: str, space: str, rkey: str, cid: str, block: bytes) -> StoredMemory | InvalidMemory:
        read.append(rkey)
        return interpret_block(author, space, rkey, cid, block)

    monkeypatch.setattr("indexer.interpret.interpret_block", interpret)
    async with mending(database, limits=LIMITS["memories"], slice_ops=1) as world:
        world.start()
        alice = written(world, range(1, 20))
        alice.create(rkey(30), {"$type": COLLECTION})
        for _ in range(2):
            await fetched(world, alice)
            await assert_held(world, alice, [1, 2, 3, 4, 5, 6], 14)
            world.clock.advance(days=1)
    # The first that does not fit, and the one after, which is read before the first is stored.
    assert read == [rkey(number) for number in (*range(1, 9), 7, 8)]


FEW = QuotaLimits(max_memories=1000, max_bytes=10**9, max_edges=10**6, max_invalid=3)


@pytest.mark.parametrize("slice_ops", [1, 2, 500])
async def test_invalid_records_with_the_smallest_rkeys_are_kept(database: Database, slice_ops: int):
    async with mending(database, limits=FEW, slice_ops=slice_ops) as world:
        world.start()
        alice = world.account("alice")
        for number in range(1, 12):
            alice.create(rkey(number), memory(content(number)) if number % 2 else {"$type": COLLECTION})
        await fetched(world, alice)
        once = await tables(world.database, alice.did)
        assert [row[0] for row in once["invalid"]] == [rkey(2), rkey(4), rkey(6)]
        row = await world.row(alice)
        assert (row["memory_count"], row["over_quota_count"], row["quota_edge"]) == (6, 2, None)
        world.clock.advance(days=1)
        await fetched(world, alice)
        assert await tables(world.database, alice.did) == once


async def test_place_of_an_invalid_record_that_becomes_free_live_is_filled_by_a_fetch(database: Database):
    async with mending(database, limits=FEW) as world:
        world.start()
        alice = world.account("alice")
        for number in range(1, 6):
            alice.create(rkey(number), {"$type": COLLECTION})
        await fetched(world, alice)
        await world.live(alice.update(rkey(1), memory("tea")))
        assert await world.requests(alice) == {"fetch": "quota_refill"}
        world.clock.advance(minutes=10)
        await world.until_answered(alice)
        kept = [row[0] for row in (await tables(world.database, alice.did))["invalid"]]
        assert kept == [rkey(2), rkey(3), rkey(4)]
        assert (await world.row(alice))["over_quota_count"] == 1
