"""An operator's word about a repo that is not here: a takedown of it can be lifted like any other."""

from __future__ import annotations

import pytest

from indexer.arrivals import RestoreOrdered, TakedownOrdered
from memory.database import Database
from tests.builders import memory
from tests.feed import Feed, rkey


@pytest.mark.parametrize("key", [None, rkey(1)], ids=["repo", "record"])
async def test_what_was_never_seen_can_be_restored(database: Database, key: str | None):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.write(RestoreOrdered(feed.place(), alice.did, key))
    assert await feed.rows("select * from repos") == []


async def test_takedown_whose_repo_is_gone_can_be_lifted(database: Database):
    """As after a restore of the database: what was taken down is known by its hash alone."""
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.write(TakedownOrdered(feed.place(), alice.did, None))
    async with database.connection() as conn:
        await conn.execute("delete from repos")
    await feed.restart()
    await feed.write(RestoreOrdered(feed.place(), alice.did, None))
    assert await feed.rows("select * from denials") == []
    await feed.send(alice.create(rkey(1), memory("tea")))
    assert await feed.memories(alice) == {rkey(1): "tea"}
