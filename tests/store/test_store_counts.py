"""What a repo counts as a memory store stays true in the transaction of every write."""

from __future__ import annotations

from indexer.arrivals import TakedownOrdered
from indexer.quota import QuotaLimits
from memory.database import Database
from memory.identifiers import COLLECTION
from tests.builders import RepoBuilder, memory
from tests.feed import Feed, rkey

INVALID = {"$type": COLLECTION}


def uri(person: RepoBuilder, number: int) -> str:
    return f"at://{person.did}/{COLLECTION}/{rkey(number)}"


async def counts(feed: Feed, person: RepoBuilder) -> tuple[int, int]:
    """How many, and how many bytes; as kept, and as they are."""
    repo = await feed.repo(person)
    rows = await feed.rows(
        "select content_bytes from memories where repo = $1 and space = '' and masked_from is null", person.did
    )
    assert (repo["entry_count"], repo["entry_bytes"]) == (len(rows), sum(row["content_bytes"] for row in rows))
    return repo["entry_count"], repo["entry_bytes"]


async def test_counts_follow_creates_updates_and_deletes(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("tea")), alice.create(rkey(2), memory("très")))
    assert await counts(feed, alice) == (2, 8)
    await feed.send(alice.update(rkey(1), memory("green tea")))
    assert await counts(feed, alice) == (2, 14)
    await feed.send(alice.delete(rkey(2)))
    assert await counts(feed, alice) == (1, 9)
    await feed.send(alice.update(rkey(1), INVALID))
    assert await counts(feed, alice) == (0, 0)
    await feed.send(alice.update(rkey(1), memory("back")))
    assert await counts(feed, alice) == (1, 4)


async def test_counts_follow_what_is_masked_and_comes_back(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("old")))
    await feed.send(alice.create(rkey(2), memory("newer", supersedes=[uri(alice, 1)])))
    assert await counts(feed, alice) == (1, 5)
    await feed.send(alice.update(rkey(1), memory("changed while masked")))
    assert await counts(feed, alice) == (1, 5)
    await feed.send(alice.delete(rkey(2)))
    assert await counts(feed, alice) == (1, 20)
    await feed.send(alice.create(rkey(3), memory("early", supersedes=[uri(alice, 4)])))
    await feed.send(alice.create(rkey(4), memory("masked on arrival")))
    assert await counts(feed, alice) == (2, 25)


async def test_counts_follow_circles(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(
        alice.create(rkey(1), memory("one", supersedes=[uri(alice, 3)])),
        alice.create(rkey(2), memory("three", supersedes=[uri(alice, 1)])),
    )
    assert await counts(feed, alice) == (1, 5)
    await feed.send(alice.create(rkey(3), memory("newest", supersedes=[uri(alice, 2)])))
    assert await counts(feed, alice) == (1, 6)
    await feed.send(alice.delete(rkey(2)))
    await counts(feed, alice)
    await feed.send(alice.delete(rkey(1)), alice.delete(rkey(3)))
    assert await counts(feed, alice) == (0, 0)


async def test_counts_are_of_what_the_quota_lets_in(database: Database):
    feed = Feed(database, limits=QuotaLimits(max_memories=2, max_bytes=10**9, max_edges=10**6))
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(5), memory("last", supersedes=[uri(alice, 4)])))
    await feed.send(alice.create(rkey(4), memory("masked")))
    assert await counts(feed, alice) == (1, 4)
    await feed.send(alice.create(rkey(1), memory("first")))
    assert await counts(feed, alice) == (2, 11)
    await feed.send(alice.create(rkey(2), memory("second")))
    assert await counts(feed, alice) == (2, 11)


async def test_a_purge_counts_nothing(database: Database):
    feed = Feed(database)
    alice, bob = feed.account("alice"), feed.account("bob")
    await feed.send(alice.create(rkey(1), memory("tea")), bob.create(rkey(1), memory("tea")))
    await feed.write(TakedownOrdered(feed.place(), alice.did, None))
    assert await counts(feed, alice) == (0, 0)
    assert await counts(feed, bob) == (1, 3)


async def test_it_is_noted_when_an_accounts_status_became_another(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(1), memory("tea")))
    assert (await feed.repo(alice))["status_changed_at"] is None
    await feed.send(alice.account_frame(active=False, status="deactivated"))
    noted = (await feed.repo(alice))["status_changed_at"]
    assert noted == feed.clock
    await feed.send(alice.account_frame(active=False, status="deactivated"))
    assert (await feed.repo(alice))["status_changed_at"] == noted
    await feed.send(alice.account_frame())
    assert (await feed.repo(alice))["status_changed_at"] == feed.clock


async def test_ids_of_versions_do_not_depend_on_how_writes_came_together(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    frames = [
        alice.create(rkey(1), memory("one")),
        alice.update(rkey(1), memory("two")),
        alice.delete(rkey(1)),
        alice.create(rkey(1), memory("one")),
    ]
    found: list[list[bytes]] = []
    for cut in (1, 2, 4):
        await feed.send(*frames, cut=cut)
        rows = await feed.rows("select id_hash from memory_versions where repo = $1 order by number", alice.did)
        found.append([row["id_hash"] for row in rows])
        async with database.transaction() as conn:
            for table in ("memories", "memory_versions", "repos", "sources"):
                await conn.execute(f"delete from {table}")
        feed = Feed(database)
        feed.directory.announce(alice, feed.clock)
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) == 4


async def test_it_is_noted_when_a_repo_was_first_indexed(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.write(TakedownOrdered(feed.place(), alice.did, rkey(9)))  # makes a row of which nothing is known
    assert (await feed.repo(alice))["first_indexed_at"] is None
    await feed.send(alice.create(rkey(1), memory("tea")))
    noted = (await feed.repo(alice))["first_indexed_at"]
    assert noted == feed.clock
    await feed.send(alice.create(rkey(2), memory("more tea")))
    await feed.write(TakedownOrdered(feed.place(), alice.did, None))
    assert (await feed.repo(alice))["first_indexed_at"] == noted
