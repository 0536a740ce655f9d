"""An invalid record behind the quota edge is forgotten without being taken for a memory that the quota kept out."""

from __future__ import annotations

from memory.database import Database
from tests.builders import RepoBuilder, memory
from tests.feed import Feed, rkey
from tests.store.expiry import INSTANT, WEEK, expire
from tests.store.quotas import INVALID, state
from tests.store.test_quota import full


async def invalid(feed: Feed, alice: RepoBuilder) -> dict[str, bytes]:
    """Rkey → what is kept of the record."""
    rows = await feed.rows("select rkey, excerpt from invalid_records where repo = $1", alice.did)
    return {row["rkey"]: row["excerpt"] for row in rows}


async def week_later(feed: Feed) -> None:
    await expire(feed.database, feed.clock + WEEK + INSTANT)


async def test_excerpt_of_an_invalid_record_behind_the_edge_goes_and_its_row_stays(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.create(rkey(13), INVALID))
    assert (await invalid(feed, alice))[rkey(13)] != b""
    await week_later(feed)
    assert await invalid(feed, alice) == {rkey(13): b""}
    assert await state(feed, alice) == ([1, 2], 2)


async def test_invalid_record_before_the_edge_goes_whole(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.create(rkey(3), INVALID))
    await week_later(feed)
    assert await invalid(feed, alice) == {}


async def test_invalid_record_of_another_repo_goes_whole_whatever_its_rkey(database: Database):
    feed, _ = await full(database)
    bob = feed.account("bob")
    await feed.send(bob.create(rkey(39), INVALID))
    await week_later(feed)
    assert await invalid(feed, bob) == {}


async def test_deletion_of_an_expired_invalid_record_behind_the_edge_is_counted_as_nothing(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.create(rkey(13), INVALID))
    await week_later(feed)
    await feed.send(alice.delete(rkey(13)))
    assert await state(feed, alice) == ([1, 2], 2)
    assert await invalid(feed, alice) == {}


async def test_expired_invalid_record_behind_the_edge_that_becomes_a_memory_is_kept_out(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.create(rkey(13), INVALID))
    await week_later(feed)
    await feed.send(alice.update(rkey(13), memory("tea")))
    assert await state(feed, alice) == ([1, 2], 3)


async def test_memory_at_the_edge_that_became_invalid_and_expired_is_counted_as_nothing(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.update(rkey(11), INVALID))
    await week_later(feed)
    await feed.send(alice.delete(rkey(11)))
    assert await state(feed, alice) == ([1, 2], 1)


async def test_row_that_stayed_goes_once_the_edge_is_gone(database: Database):
    feed, alice = await full(database)
    await feed.send(alice.create(rkey(13), INVALID))
    await week_later(feed)
    await feed.send(alice.delete(rkey(11)), alice.delete(rkey(12)))
    await week_later(feed)
    assert await invalid(feed, alice) == {}
