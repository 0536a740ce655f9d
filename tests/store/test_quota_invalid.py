"""Of records that fail the lexicon those with the smallest rkeys are kept, so many of a repo; the rest is counted."""

from __future__ import annotations

import pytest

from indexer.quota import QuotaLimits
from memory.database import Database
from tests.builders import RepoBuilder, memory
from tests.feed import Feed, rkey
from tests.store.quotas import INVALID, invalid, refill, state

ONE_INVALID = QuotaLimits(max_memories=100, max_bytes=10**9, max_edges=10**6, max_invalid=1)


def test_thousand_invalid_records_of_a_repo_are_kept():
    assert QuotaLimits(1, 1, 1).max_invalid == 1_000


async def one_invalid(database: Database, *numbers: int) -> tuple[Feed, RepoBuilder]:
    """Invalid records, of which one may be kept, and a memory at 30."""
    feed = Feed(database, limits=ONE_INVALID)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(30), memory("tea")))
    for number in numbers:
        await feed.send(alice.create(rkey(number), INVALID))
    return feed, alice


@pytest.mark.parametrize("numbers", [(1, 2, 3), (3, 2, 1), (2, 3, 1)])
async def test_invalid_record_with_the_smallest_rkey_is_kept_and_the_others_are_counted(
    database: Database, numbers: tuple[int, ...]
):
    feed, alice = await one_invalid(database, *numbers)
    assert (await state(feed, alice), await invalid(feed)) == (([30], 2), [1])


async def test_many_invalid_records_keep_no_memory_out(database: Database):
    feed, alice = await one_invalid(database, 1, 2, 3)
    await feed.send(alice.create(rkey(20), memory("tea")), alice.update(rkey(2), memory("tea")))
    assert (await state(feed, alice), await invalid(feed)) == (([2, 20, 30], 1), [1])
    assert not await refill(feed, alice)


async def test_memory_that_becomes_invalid_and_is_kept_out_leaves_no_version(database: Database):
    feed, alice = await one_invalid(database, 1)
    await feed.send(alice.update(rkey(30), INVALID))
    assert (await state(feed, alice), await invalid(feed)) == (([], 1), [1])
    assert await feed.rows("select from memory_versions") == []


async def test_invalid_record_that_is_kept_out_later_leaves_no_version(database: Database):
    feed, alice = await one_invalid(database)
    await feed.send(alice.update(rkey(30), INVALID))
    assert len(await feed.rows("select from memory_versions")) == 1
    await feed.send(alice.create(rkey(1), INVALID))
    assert (await state(feed, alice), await invalid(feed)) == (([], 1), [1])
    assert await feed.rows("select from memory_versions") == []


@pytest.mark.parametrize("becomes", ["memory", "nothing"])
async def test_invalid_record_that_is_none_any_more_leaves_its_place_to_another(database: Database, becomes: str):
    feed, alice = await one_invalid(database, 1, 2)
    await feed.send(alice.update(rkey(1), memory("tea")) if becomes == "memory" else alice.delete(rkey(1)))
    assert await invalid(feed) == []
    assert await refill(feed, alice)


async def test_invalid_record_that_is_kept_out_and_goes_frees_nothing(database: Database):
    feed, alice = await one_invalid(database, 1, 2, 3)
    await feed.send(alice.delete(rkey(3)))
    assert (await state(feed, alice), await invalid(feed)) == (([30], 1), [1])
    assert not await refill(feed, alice)


async def test_last_invalid_record_that_was_kept_out_leaves_no_edge(database: Database):
    feed, alice = await one_invalid(database, 1, 2)
    await feed.send(alice.delete(rkey(2)), alice.delete(rkey(1)))
    await feed.send(alice.create(rkey(5), INVALID))
    assert (await state(feed, alice), await invalid(feed)) == (([30], 0), [5])


async def test_invalid_records_of_one_repo_are_not_anothers(database: Database):
    feed, alice = await one_invalid(database, 1, 2)
    bob = feed.account("bob")
    await feed.send(bob.create(rkey(9), INVALID))
    assert (await invalid(feed, alice), await invalid(feed, bob)) == ([1], [9])
