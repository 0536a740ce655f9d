"""What expires of an invalid record is its excerpt: that it is one stays known, and so it is counted as such."""

from __future__ import annotations

from indexer.quota import QuotaLimits
from memory.database import Database
from tests.builders import RepoBuilder, memory
from tests.feed import LIMITS, Feed, rkey
from tests.store.expiry import INSTANT, WEEK, expire
from tests.store.quotas import INVALID, refill, state
from tests.store.test_quota import TWO, full


async def excerpts(feed: Feed, alice: RepoBuilder) -> dict[str, bytes]:
    """Rkey → what is kept of the record."""
    rows = await feed.rows("select rkey, excerpt from invalid_records where repo = $1", alice.did)
    return {row["rkey"]: row["excerpt"] for row in rows}


async def week_later(feed: Feed) -> None:
    await expire(feed.database, feed.clock + WEEK + INSTANT)


async def expired(database: Database, *, limits: QuotaLimits = LIMITS) -> tuple[Feed, RepoBuilder]:
    """A memory at 1, and an invalid record at 5 that is a week old."""
    feed = Feed(database, limits=limits)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("tea")), alice.create(rkey(5), INVALID))
    assert (await excerpts(feed, alice))[rkey(5)] != b""
    await week_later(feed)
    return feed, alice


async def test_excerpt_goes_and_the_row_stays(database: Database):
    feed, alice = await expired(database)
    assert await excerpts(feed, alice) == {rkey(5): b""}
    await week_later(feed)
    assert await excerpts(feed, alice) == {rkey(5): b""}


async def test_young_excerpt_stays(database: Database):
    feed, alice = await expired(database)
    await feed.send(alice.update(rkey(5), INVALID | {"content": 1}))
    await expire(database, feed.clock + WEEK)
    assert (await excerpts(feed, alice))[rkey(5)] != b""


async def test_row_goes_with_the_record(database: Database):
    feed, alice = await expired(database)
    await feed.send(alice.delete(rkey(5)))
    assert await excerpts(feed, alice) == {}
    assert await state(feed, alice) == ([1], 0)


async def test_expired_record_that_becomes_a_memory_is_held(database: Database):
    feed, alice = await expired(database)
    await feed.send(alice.update(rkey(5), memory("tea")))
    assert await excerpts(feed, alice) == {}
    assert await state(feed, alice) == ([1, 5], 0)


async def test_expired_record_is_counted_when_the_edge_moves_before_it(database: Database):
    feed, alice = await expired(database, limits=TWO)
    await feed.send(alice.create(rkey(3), memory("tea")), alice.create(rkey(2), memory("tea")))
    assert await state(feed, alice) == ([1, 2], 2)
    assert await excerpts(feed, alice) == {}


async def test_expired_record_behind_an_edge_that_moved_before_it_frees_nothing_but_itself(database: Database):
    """Of what is kept out all stays counted but that one, so the edge stays where it is."""
    feed, alice = await expired(database, limits=TWO)
    await feed.send(alice.create(rkey(3), memory("tea")), alice.create(rkey(2), memory("tea")))
    await feed.send(alice.delete(rkey(5)))
    assert await state(feed, alice) == ([1, 2], 1)
    await feed.send(alice.create(rkey(4), memory("tea")))
    assert await state(feed, alice) == ([1, 2], 2)
    assert not await refill(feed, alice)


async def test_record_behind_the_edge_keeps_no_excerpt_at_all(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.create(rkey(13), INVALID))
    assert await excerpts(feed, alice) == {}
