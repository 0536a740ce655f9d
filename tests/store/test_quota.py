"""The smallest rkeys count; the rest is counted, stored nowhere and masks nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest

from indexer.arrivals import TakedownOrdered
from indexer.quota import QuotaLimits
from indexer.writer import Writer
from memory.database import Database
from tests.builders import RepoBuilder, Write, memory
from tests.feed import Feed, rkey
from tests.store.quotas import INVALID, invalid, refill, state, uri

TWO = QuotaLimits(max_memories=2, max_bytes=10**9, max_edges=10**6)


async def full(database: Database, *, kept_out: int = 2) -> tuple[Feed, RepoBuilder]:
    """Two places, taken by 1 and 2; 11, 12 … are kept out."""
    feed = Feed(database, limits=TWO)
    alice = feed.account("alice")
    await feed.send(*(alice.create(rkey(number), memory("tea")) for number in (1, 2)))
    await feed.send(*(alice.create(rkey(11 + number), memory("tea")) for number in range(kept_out)))
    assert await state(feed, alice) == ([1, 2], kept_out)
    return feed, alice


# What counts


async def test_memories_within_the_quota_are_held(database: Database):
    feed = Feed(database, limits=TWO)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("tea")), alice.create(rkey(2), memory("tea")))
    assert await state(feed, alice) == ([1, 2], 0)


async def test_memory_behind_a_full_quota_is_kept_out_and_counted(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.create(rkey(13), memory("tea")))
    assert await state(feed, alice) == ([1, 2], 3)


async def test_smaller_rkey_takes_the_place_of_the_greatest(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.create(rkey(0), memory("tea")))
    assert await state(feed, alice) == ([0, 1], 3)


async def test_memory_that_is_kept_out_leaves_no_version(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.create(rkey(0), memory("tea")))
    assert {row["rkey"] for row in await feed.rows("select rkey from memory_versions")} == {rkey(0), rkey(1)}


async def test_bytes_are_limited_too(database: Database):
    feed = Feed(database, limits=QuotaLimits(max_memories=100, max_bytes=700, max_edges=100))
    alice = feed.account("alice")
    await feed.send(*(alice.create(rkey(number), memory("x" * 200)) for number in (3, 1, 2)))
    assert await state(feed, alice) == ([1, 2], 1)


async def test_update_that_outgrows_the_bytes_keeps_the_last_out(database: Database):
    feed = Feed(database, limits=QuotaLimits(max_memories=100, max_bytes=700, max_edges=100))
    alice = feed.account("alice")
    await feed.send(*(alice.create(rkey(number), memory("x" * 100)) for number in (1, 2, 3)))
    await feed.send(alice.update(rkey(1), memory("x" * 300)))
    assert await state(feed, alice) == ([1, 2], 1)


async def test_record_that_is_too_big_by_itself_keeps_all_behind_it_out(database: Database):
    feed = Feed(database, limits=QuotaLimits(max_memories=100, max_bytes=700, max_edges=100))
    alice = feed.account("alice")
    await feed.send(*(alice.create(rkey(number), memory("x" * size)) for number, size in ((1, 10), (2, 900), (3, 10))))
    assert await state(feed, alice) == ([1], 2)


async def test_small_memory_behind_one_that_does_not_fit_is_kept_out_even_when_it_comes_later(database: Database):
    feed = Feed(database, limits=QuotaLimits(max_memories=100, max_bytes=700, max_edges=100))
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("x" * 10)), alice.create(rkey(3), memory("x" * 900)))
    await feed.send(alice.create(rkey(4), memory("x" * 10)))
    assert await state(feed, alice) == ([1], 2)


async def test_small_memory_before_one_that_does_not_fit_is_held_even_when_it_comes_later(database: Database):
    feed = Feed(database, limits=QuotaLimits(max_memories=100, max_bytes=700, max_edges=100))
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("x" * 10)), alice.create(rkey(3), memory("x" * 900)))
    await feed.send(alice.create(rkey(2), memory("x" * 10)))
    assert await state(feed, alice) == ([1, 2], 1)
    assert not await refill(feed, alice)


async def test_edges_are_limited_too(database: Database):
    feed = Feed(database, limits=QuotaLimits(max_memories=100, max_bytes=10**6, max_edges=3))
    alice = feed.account("alice")
    replaced = [uri(alice, 20), uri(alice, 21)]
    await feed.send(*(alice.create(rkey(number), memory("tea", supersedes=replaced)) for number in (3, 1, 2)))
    assert await state(feed, alice) == ([1], 2)


async def test_limits_that_became_smaller_drop_all_that_is_behind_them(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    for start in range(0, 800, 200):
        writes = [Write("create", rkey(number), memory("tea")) for number in range(start, start + 200)]
        await feed.send(alice.apply(writes))
    feed.writer = Writer(database, TWO)
    await feed.send(alice.create(rkey(800), memory("tea")))
    assert await state(feed, alice) == ([0, 1], 799)


# What is kept out


async def test_memory_that_is_kept_out_never_masks(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.create(rkey(13), memory("newer", supersedes=[uri(alice, 1)])))
    assert await feed.rows("select from memories where masked_from is not null") == []
    assert await feed.rows("select from memory_edges") == []


async def test_memory_that_masked_and_is_kept_out_now_masks_no_more(database: Database):
    feed = Feed(database, limits=TWO)
    alice = feed.account("alice")
    await feed.send(
        alice.create(rkey(1), memory("old")), alice.create(rkey(2), memory("new", supersedes=[uri(alice, 1)]))
    )
    assert len(await feed.rows("select from memories where masked_from is not null")) == 1
    await feed.send(alice.create(rkey(0), memory("tea")))
    assert await state(feed, alice) == ([0, 1], 1)
    assert await feed.rows("select from memories where masked_from is not null") == []


async def test_cycle_whose_member_is_kept_out_is_no_cycle(database: Database):
    feed = Feed(database, limits=QuotaLimits(max_memories=3, max_bytes=10**6, max_edges=100))
    alice = feed.account("alice")
    for number, other in ((1, 2), (2, 3), (3, 1)):
        await feed.send(alice.create(rkey(number), memory("tea", supersedes=[uri(alice, other)])))
    assert len(await feed.rows("select from memories where component is not null")) == 3
    await feed.send(alice.create(rkey(0), memory("tea")))
    rows = await feed.rows(
        "select rkey, masked_from is null as shown, component, masked_spans from memories order by rkey"
    )
    assert [tuple(row) for row in rows] == [
        (rkey(0), True, None, None),
        (rkey(1), True, None, None),
        (rkey(2), False, None, None),
    ]


async def test_update_of_a_memory_that_is_kept_out_changes_no_count(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.update(rkey(11), memory("coffee")))
    assert await state(feed, alice) == ([1, 2], 2)


async def test_deletion_of_a_memory_that_is_kept_out_is_counted(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.delete(rkey(12)))
    assert await state(feed, alice) == ([1, 2], 1)
    assert not await refill(feed, alice), "no place became free"


async def test_memory_that_comes_and_goes_while_kept_out_leaves_no_trace(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.create(rkey(13), memory("tea")), alice.delete(rkey(13)))
    assert await state(feed, alice) == ([1, 2], 2)
    assert await feed.rows("select from memory_versions where rkey = $1", rkey(13)) == []


async def test_invalid_record_takes_no_place_of_a_memory(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.create(rkey(3), INVALID))
    assert await state(feed, alice) == ([1, 2], 2)
    assert await invalid(feed) == [3]


async def test_record_behind_the_edge_is_only_counted_whatever_it_is(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.create(rkey(13), INVALID))
    assert await state(feed, alice) == ([1, 2], 3)
    assert await invalid(feed) == []


async def test_invalid_record_is_counted_among_what_is_kept_out_once_the_edge_is_before_it(database: Database):
    feed = Feed(database, limits=TWO)
    alice = feed.account("alice")
    await feed.send(*(alice.create(rkey(number), memory("tea")) for number in (1, 5)), alice.create(rkey(6), INVALID))
    assert (await state(feed, alice), await invalid(feed)) == (([1, 5], 0), [6])
    await feed.send(alice.create(rkey(2), memory("tea")))
    assert (await state(feed, alice), await invalid(feed)) == (([1, 2], 2), [])


async def test_memory_that_is_kept_out_and_becomes_invalid_is_still_counted(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.update(rkey(12), INVALID))
    assert await state(feed, alice) == ([1, 2], 2)
    assert await invalid(feed) == []
    assert not await refill(feed, alice)


@pytest.mark.parametrize("becomes", ["invalid", "nothing"])
async def test_memory_at_the_edge_that_is_none_any_more_leaves_the_edge_to_another(database: Database, becomes: str):
    """Invalid records up to there count again, though there is room for no memory."""
    feed, alice = await full(database)
    await feed.send(alice.update(rkey(11), INVALID) if becomes == "invalid" else alice.delete(rkey(11)))
    assert await refill(feed, alice)


async def test_record_that_an_operator_denied_is_not_counted(database: Database):
    feed, alice = await full(database)
    await feed.write(TakedownOrdered(feed.place(), alice.did, rkey(20)))
    await feed.send(alice.create(rkey(20), memory("tea")), alice.update(rkey(20), memory("coffee")))
    await feed.send(alice.delete(rkey(20)))
    assert await state(feed, alice) == ([1, 2], 2)


async def test_invalid_record_that_becomes_a_memory_behind_the_quota_is_kept_out(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.create(rkey(13), INVALID))
    await feed.send(alice.update(rkey(13), memory("tea")))
    assert await state(feed, alice) == ([1, 2], 3)
    assert await invalid(feed) == []


# Freed places


async def test_freed_place_asks_for_a_fetch(database: Database):
    feed, alice = await full(database)
    assert not await refill(feed, alice)
    await feed.send(alice.delete(rkey(1)))
    assert await state(feed, alice) == ([2], 2)
    assert await refill(feed, alice)


async def test_memory_that_becomes_invalid_frees_its_place(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.update(rkey(1), INVALID))
    assert await refill(feed, alice)


async def test_freed_bytes_ask_for_a_fetch(database: Database):
    feed = Feed(database, limits=QuotaLimits(max_memories=100, max_bytes=700, max_edges=100))
    alice = feed.account("alice")
    await feed.send(*(alice.create(rkey(number), memory("x" * 200)) for number in (1, 2, 3)))
    await feed.send(alice.update(rkey(1), memory("tea")))
    assert await refill(feed, alice)


async def test_memory_at_the_edge_that_goes_leaves_room_for_those_behind_it(database: Database):
    feed = Feed(database, limits=QuotaLimits(max_memories=100, max_bytes=700, max_edges=100))
    alice = feed.account("alice")
    await feed.send(*(alice.create(rkey(number), memory("x" * size)) for number, size in ((1, 10), (2, 900), (3, 10))))
    await feed.send(alice.delete(rkey(2)))
    assert await state(feed, alice) == ([1], 1)
    assert await refill(feed, alice)


async def test_memory_at_the_edge_that_becomes_smaller_may_fit(database: Database):
    feed = Feed(database, limits=QuotaLimits(max_memories=100, max_bytes=700, max_edges=100))
    alice = feed.account("alice")
    await feed.send(*(alice.create(rkey(number), memory("x" * size)) for number, size in ((1, 10), (2, 900), (3, 10))))
    await feed.send(alice.update(rkey(2), memory("x" * 20)))
    assert await state(feed, alice) == ([1], 2)
    assert await refill(feed, alice)


async def test_change_behind_the_edge_asks_for_nothing(database: Database):
    feed = Feed(database, limits=QuotaLimits(max_memories=100, max_bytes=700, max_edges=100))
    alice = feed.account("alice")
    await feed.send(*(alice.create(rkey(number), memory("x" * size)) for number, size in ((1, 10), (2, 900), (3, 10))))
    await feed.send(alice.update(rkey(3), memory("x")), alice.delete(rkey(3)))
    assert await state(feed, alice) == ([1], 1)
    assert not await refill(feed, alice)


async def test_batch_that_rewrites_all_that_was_kept_out_fills_the_freed_place_at_once(database: Database):
    feed, alice = await full(database, kept_out=1)
    await feed.send(alice.delete(rkey(1)), alice.update(rkey(11), memory("coffee")))
    assert await state(feed, alice) == ([2, 11], 0)
    assert not await refill(feed, alice)


async def test_place_that_is_taken_at_once_asks_for_nothing(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.apply([Write("delete", rkey(1)), Write("create", rkey(0), memory("tea"))]))
    assert await state(feed, alice) == ([0, 2], 2)
    assert not await refill(feed, alice)


async def test_freed_place_asks_for_nothing_when_none_is_kept_out(database: Database):
    feed = Feed(database, limits=TWO)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("tea")), alice.create(rkey(2), memory("tea")))
    await feed.send(alice.delete(rkey(1)))
    assert not await refill(feed, alice)


async def test_greater_rkey_does_not_overtake_those_that_wait_for_a_freed_place(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.delete(rkey(2)))
    await feed.send(alice.create(rkey(20), memory("tea")))
    assert await state(feed, alice) == ([1], 3)


async def test_nothing_overtakes_those_that_wait_when_all_that_was_held_is_gone(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.delete(rkey(1)), alice.delete(rkey(2)))
    await feed.send(alice.create(rkey(20), memory("tea")))
    assert await state(feed, alice) == ([], 3)
    assert await refill(feed, alice)


async def test_last_that_was_kept_out_leaves_room_for_all(database: Database):
    feed, alice = await full(database, kept_out=1)
    await feed.send(alice.delete(rkey(1)), alice.delete(rkey(11)))
    await feed.send(alice.create(rkey(20), memory("tea")))
    assert await state(feed, alice) == ([2, 20], 0)


async def test_purge_forgets_what_was_kept_out(database: Database):
    feed, alice = await full(database)
    feed.directory.bury(alice, feed.clock)
    buried = alice.identity_frame()
    feed.directory.announce(alice, feed.clock + timedelta(microseconds=1))
    await feed.send(buried, alice.identity_frame(), alice.create(rkey(13), memory("tea")))
    assert await state(feed, alice) == ([13], 0)


async def test_quota_of_one_repo_is_not_anothers(database: Database):
    feed, _ = await full(database)
    bob = feed.account("bob")
    await feed.send(bob.create(rkey(30), memory("tea")), bob.create(rkey(31), memory("tea")))
    assert await state(feed, bob) == ([30, 31], 0)
