"""What an operator takes down is erased here, and stays away whatever arrives, until it is restored."""

from __future__ import annotations

import asyncio

from indexer.arrivals import RestoreOrdered, TakedownOrdered
from memory.database import Database
from memory.identifiers import COLLECTION
from tests.builders import RepoBuilder, memory
from tests.feed import Feed, forget, holdings, rkey, tally

WORDS = b"a secret that must go"


async def with_two_memories(database: Database) -> tuple[Feed, RepoBuilder]:
    """Alice, whose second memory replaces her first."""
    feed = Feed(database)
    alice = feed.account("alice")
    replaced = [f"at://{alice.did}/{COLLECTION}/{rkey(1)}"]
    await feed.send(
        alice.create(rkey(1), memory("tea")), alice.create(rkey(2), memory(WORDS.decode(), supersedes=replaced))
    )
    return feed, alice


async def found(database: Database, did: str) -> bool:
    """Whether the words stand anywhere in what is held of the repo."""
    held = await holdings(database, did)
    return any(WORDS in str(row).encode() for rows in held.values() for row in rows)


async def test_taken_down_record_is_erased_and_masks_nothing(database: Database):
    feed, alice = await with_two_memories(database)
    assert await found(database, alice.did)
    await feed.write(TakedownOrdered(feed.place(), alice.did, rkey(2)))
    assert await feed.memories(alice) == {rkey(1): "tea"}
    assert not await found(database, alice.did)
    assert await feed.rows("select rkey from memories where masked_from is not null") == []


async def test_taken_down_record_stays_away_when_it_is_written_again(database: Database):
    feed, alice = await with_two_memories(database)
    await feed.write(TakedownOrdered(feed.place(), alice.did, rkey(2)))
    await feed.send(alice.update(rkey(2), memory(WORDS.decode() + ", again")), alice.create(rkey(3), memory("jazz")))
    assert await feed.memories(alice) == {rkey(1): "tea", rkey(3): "jazz"}
    assert not await found(database, alice.did)
    assert (await feed.repo(alice))["state"] == "active"


async def test_takedown_outlives_a_rebuild(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    frames = [alice.create(rkey(1), memory("tea")), alice.create(rkey(2), memory(WORDS.decode()))]
    await feed.write(TakedownOrdered(feed.place(), alice.did, rkey(2)))
    await forget(database, alice.did)
    await feed.restart()
    await feed.send(*frames)
    assert await feed.memories(alice) == {rkey(1): "tea"}


async def test_taken_down_repo_leaves_only_its_gate_and_takes_no_commit(database: Database):
    feed, alice = await with_two_memories(database)
    await feed.write(TakedownOrdered(feed.place(), alice.did, None))
    outcome = await feed.send(alice.create(rkey(3), memory(WORDS.decode())), alice.sync_frame())
    assert await feed.memories(alice) == {}
    assert not await found(database, alice.did)
    assert tally(outcome)["denied"] == ("ignored", 1)
    row = await feed.repo(alice)
    assert (row["state"], row["reason"], row["rev"] is not None) == ("pending", "denied", True)


async def test_repo_taken_down_before_it_was_ever_seen_is_not_indexed(database: Database):
    feed = Feed(database)
    alice = feed.account("alice")
    await feed.write(TakedownOrdered(feed.place(), alice.did, None))
    await feed.send(alice.create(rkey(1), memory("tea")))
    assert await feed.memories(alice) == {}


async def test_restoring_asks_for_a_fetch_and_lets_records_in_again(database: Database):
    feed, alice = await with_two_memories(database)
    await feed.write(TakedownOrdered(feed.place(), alice.did, rkey(2)))
    await feed.write(RestoreOrdered(feed.place(), alice.did, rkey(2)))
    assert (await feed.requests(alice))["fetch"] == "restored"
    await feed.send(alice.update(rkey(2), memory("coffee")))
    assert await feed.memories(alice) == {rkey(1): "tea", rkey(2): "coffee"}


async def test_restored_repo_waits_for_a_fetch(database: Database):
    feed, alice = await with_two_memories(database)
    await feed.write(TakedownOrdered(feed.place(), alice.did, None))
    await feed.write(RestoreOrdered(feed.place(), alice.did, None))
    row = await feed.repo(alice)
    assert (row["state"], row["reason"]) == ("pending", "restored")
    assert (await feed.requests(alice))["fetch"] == "restored"


async def test_list_of_takedowns_tells_nobody_what_is_on_it(database: Database):
    feed, alice = await with_two_memories(database)
    await feed.write(TakedownOrdered(feed.place(), alice.did, rkey(2)))
    row = await feed.row("select * from denials")
    assert len(row["subject_sha256"]) == 32
    assert set(row.keys()) == {"subject_sha256", "denied_at"}


async def test_takedown_wins_over_a_first_commit_at_the_same_time(database: Database):
    for number in range(10):
        feed, other = Feed(database), Feed(database)
        alice = feed.account(f"race{number}")
        other.account(f"race{number}")
        await asyncio.gather(
            feed.send(alice.create(rkey(1), memory("tea"))),
            other.write(TakedownOrdered(other.place(), alice.did, None)),
        )
        assert await feed.memories(alice) == {}
