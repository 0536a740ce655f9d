"""Commits whose author's key is not known wait, bounded; nobody else waits with them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from indexer.parking_lot import ParkingLimits
from memory.database import Database
from tests.builders import RepoBuilder, memory
from tests.feed import Feed, rkey, tally
from tests.recorded import PDS1, replay

EXPECTED_MAX_COMMITS, EXPECTED_MAX_BYTES = 64, 256_000_000
HALF_A_SECOND = timedelta(milliseconds=500)


async def parked(feed: Feed, person: RepoBuilder) -> list[str]:
    """The revs that wait."""
    rows = await feed.rows("select rev from parked_commits where repo = $1 order by rev", person.did)
    return [row["rev"] for row in rows]


async def lost_key(feed: Feed) -> RepoBuilder:
    """Someone who is tracked, and whose key nobody knows any more."""
    alice = feed.account("alice")
    await feed.send(alice.create(rkey(0), memory("tea")))
    feed.directory.announce(alice, feed.clock, signing_key=None)
    return alice


def test_bounds_are_those_of_the_design():
    assert ParkingLimits() == ParkingLimits(EXPECTED_MAX_COMMITS, EXPECTED_MAX_BYTES)


async def test_commit_with_an_unknown_key_waits_whole(database: Database):
    feed = Feed(database)
    stranger = feed.account("stranger", known=False)
    frame = stranger.create(rkey(1), memory("tea"))
    outcome = await feed.send(frame)
    row = await feed.row("select * from parked_commits")
    assert (row["repo"], row["rev"], row["frame"], row["reason"]) == (stranger.did, stranger.rev, frame, "key_unknown")
    assert (row["source"], row["seq"], row["parked_at"]) == (feed.source.url, 1, feed.clock)
    assert tally(outcome) == {"key_unknown": ("parked", 1)}
    assert await feed.requests(stranger) == {"identity": "key_unknown"}
    assert await feed.cursor() == 1


async def test_stranger_who_waits_is_no_repo(database: Database):
    feed = Feed(database)
    await feed.send(feed.account("stranger", known=False).create(rkey(1), memory("tea")))
    assert await feed.rows("select from repos") == []


async def test_others_are_applied_meanwhile(database: Database):
    feed = Feed(database)
    stranger, bob = feed.account("stranger", known=False), feed.account("bob")
    await feed.send(stranger.create(rkey(1), memory("tea")), bob.create(rkey(1), memory("tea")))
    assert await feed.memories(bob) == {rkey(1): "tea"}


async def test_commit_that_waits_already_is_kept_once(database: Database):
    feed = Feed(database)
    frame = feed.account("stranger", known=False).create(rkey(1), memory("tea"))
    await feed.send(frame, frame)
    outcome = await feed.send(frame)
    assert tally(outcome) == {"already_parked": ("already_applied", 1)}
    assert len(await feed.rows("select from parked_commits")) == 1


async def test_replayed_commits_that_wait_already_never_overflow(database: Database):
    feed = Feed(database, parking=ParkingLimits(max_commits=3))
    alice = await lost_key(feed)
    frames = [alice.create(rkey(number), memory("tea")) for number in (1, 2, 3)]
    for _ in range(2):
        await feed.send(*frames)
    assert len(await parked(feed, alice)) == 3
    assert (await feed.repo(alice))["state"] == "active"


async def test_so_many_commits_of_one_repo_wait_and_no_more(database: Database):
    feed = Feed(database)
    stranger = feed.account("stranger", known=False)
    frames = [stranger.create(rkey(number), memory("tea")) for number in range(EXPECTED_MAX_COMMITS + 6)]
    outcome = await feed.send(*frames, cut=50)
    assert len(await parked(feed, stranger)) == EXPECTED_MAX_COMMITS
    assert tally(outcome) == {"key_unknown": ("parked", EXPECTED_MAX_COMMITS), "parked_overflow": ("ignored", 6)}


async def test_bound_of_one_repo_is_not_anothers(database: Database):
    feed = Feed(database, parking=ParkingLimits(max_commits=2))
    people = [feed.account(name, known=False) for name in ("carol", "dave")]
    await feed.send(*(person.create(rkey(number), memory("tea")) for person in people for number in range(4)))
    assert [len(await parked(feed, person)) for person in people] == [2, 2]


async def test_earliest_commits_are_those_that_wait(database: Database):
    feed = Feed(database, parking=ParkingLimits(max_commits=2))
    stranger = feed.account("stranger", known=False)
    revs: list[str | None] = []
    for number in range(4):
        await feed.send(stranger.create(rkey(number), memory("tea")))
        revs.append(stranger.rev)
    assert await parked(feed, stranger) == revs[:2]


@pytest.mark.parametrize("cut", [None, 1])
async def test_so_many_bytes_wait_in_all_and_no_more(database: Database, cut: int | None):
    feed = Feed(database)
    people = [feed.account(f"stranger {number}", known=False) for number in range(4)]
    frames = [person.create(rkey(1), memory("tea")) for person in people]
    feed = Feed(database, parking=ParkingLimits(max_bytes=len(frames[0]) + len(frames[1])))
    outcome = await feed.send(*frames, cut=cut)
    assert [len(await parked(feed, person)) for person in people] == [1, 1, 0, 0]
    assert tally(outcome)["parked_overflow"] == ("ignored", 2)


async def test_overflow_desynchronizes_a_tracked_repo(database: Database):
    feed = Feed(database, parking=ParkingLimits(max_commits=2))
    alice = await lost_key(feed)
    outcome = await feed.send(*(alice.create(rkey(number), memory("tea")) for number in (1, 2, 3)))
    repo = await feed.repo(alice)
    assert (repo["state"], repo["reason"]) == ("desynchronized", "parked_overflow")
    assert (await feed.requests(alice))["fetch"] == "parked_overflow"
    assert tally(outcome) == {"key_unknown": ("parked", 2), "parked_overflow": ("desynchronized", 1)}


async def test_overflow_of_a_stranger_asks_nothing(database: Database):
    """What a forger sends under invented names is bounded, requests included."""
    feed = Feed(database, parking=ParkingLimits(max_bytes=0))
    stranger = feed.account("stranger", known=False)
    await feed.send(stranger.create(rkey(1), memory("tea")))
    assert await feed.rows("select from parked_commits") == []
    assert await feed.rows("select from requests") == []


async def test_commit_behind_the_gate_does_not_wait(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    frame = alice.create(rkey(0), memory("tea"))
    await feed.send(frame)
    feed.directory.identities.clear()
    outcome = await feed.send(frame)
    assert await parked(feed, alice) == []
    assert tally(outcome) == {"already_applied": ("already_applied", 1)}


async def test_key_that_a_replay_missed_stays_asked_for(database: Database):
    """The export knows her at its end; the commit still waits, so the question does."""
    feed = Feed(database, source=PDS1)
    alice = feed.account("alice", host=PDS1.url)
    frames = [alice.create(rkey(0), memory("tea"))]
    feed.directory.announce(alice, feed.clock + HALF_A_SECOND, signing_key=None)
    frames.append(alice.create(rkey(1), memory("coffee")))
    feed.directory.announce(alice, feed.clock + HALF_A_SECOND)
    await replay(database, frames, PDS1, plc=feed.directory.export())
    assert len(await parked(feed, alice)) == 1
    assert await feed.requests(alice) == {"identity": "key_unknown", "latest_commit": "identity_changed"}
