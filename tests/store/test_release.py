"""What waited for a key is let go without holding up anybody else, and without losing sight of its author."""

from __future__ import annotations

import asyncio

import pytest

from indexer.arrivals import Arrival, CommitArrived, CommitUnparked, Source
from indexer.consumer import Consumer
from indexer.frames import OpenFrame
from indexer.judging import LARGE_FRAME_BYTES, judge
from indexer.parking import Released, release
from memory.database import Database
from tests.builders import RepoBuilder, memory
from tests.feed import LONG_AGO, RELAY, Feed, rkey

NUMBERS = range(1, 6)


class Seen:
    """What another task sees while commits are judged: one look before each."""

    def __init__(self) -> None:
        self.turns = 0
        self.looks: list[int] = []

    async def turn(self) -> None:
        while True:
            self.turns += 1
            await asyncio.sleep(0)


async def waiting(database: Database) -> tuple[Feed, RepoBuilder]:
    """A stranger whose commits wait, and whose key is known since; the process has forgotten all else."""
    feed = Feed(database)
    alice = feed.account("alice", known=False)
    await feed.send(*(alice.create(rkey(number), memory("tea")) for number in NUMBERS))
    feed.directory.announce(alice, LONG_AGO)
    feed.consumer = feed._new_consumer({})
    feed.consumer.hold_back(alice.did)
    return feed, alice


async def let_go(feed: Feed, alice: RepoBuilder) -> Released:
    return await release(feed.database, feed.consumer, alice.did, lambda _: RELAY, settled=True)


async def test_others_run_between_two_commits(database: Database, monkeypatch: pytest.MonkeyPatch):
    feed, alice = await waiting(database)
    seen, judge = Seen(), Consumer.judge

    def watched(self: Consumer, source: Source, frame: bytes, opened: OpenFrame) -> tuple[list[Arrival], object]:
        seen.looks.append(seen.turns)
        return judge(self, source, frame, opened)

    monkeypatch.setattr(Consumer, "judge", watched)
    other = asyncio.create_task(seen.turn())
    released = await let_go(feed, alice)
    other.cancel()
    assert released.complete
    assert len(seen.looks) == len(set(seen.looks)) == len(NUMBERS)


@pytest.mark.parametrize("size", [LARGE_FRAME_BYTES, 2 * LARGE_FRAME_BYTES])
async def test_others_run_while_a_large_frame_is_judged(database: Database, size: int):
    feed = Feed(database)
    alice = feed.account("alice")
    frame = alice.create(rkey(1), memory("tea", padding="x" * size))
    seen = Seen()
    other = asyncio.create_task(seen.turn())
    [_, arrived] = await judge(feed.consumer, RELAY, frame)
    other.cancel()
    assert isinstance(arrived, CommitArrived)
    assert seen.turns > 0


async def test_small_frame_is_judged_at_once(database: Database):
    feed = Feed(database)
    seen = Seen()
    other = asyncio.create_task(seen.turn())
    await judge(feed.consumer, RELAY, feed.account("alice").create(rkey(1), memory("tea")))
    other.cancel()
    assert seen.turns == 0


async def test_author_concerns_us_all_the_while(database: Database, monkeypatch: pytest.MonkeyPatch):
    """What comes of them meanwhile, and is none of ours, may be what the next commit stands on."""
    feed, alice = await waiting(database)
    concerned: list[bool] = []

    async def look() -> None:
        while True:
            concerned.append(feed.consumer.concerned(alice.did))
            await asyncio.sleep(0)

    def nothing(self: Consumer, source: Source, frame: bytes, opened: OpenFrame) -> tuple[list[Arrival], object]:
        return [], None

    monkeypatch.setattr(Consumer, "judge", nothing)
    other = asyncio.create_task(look())
    released = await let_go(feed, alice)
    other.cancel()
    assert sum(isinstance(arrival, CommitUnparked) for arrival in released.arrivals) == len(NUMBERS)
    assert len(concerned) >= len(NUMBERS)
    assert all(concerned)
    assert not feed.consumer.concerned(alice.did), "of whom nothing was verified"


async def test_what_was_let_go_is_applied_in_order(database: Database):
    feed, alice = await waiting(database)
    await feed.write(*(await let_go(feed, alice)).arrivals)
    assert list(await feed.memories(alice)) == [rkey(number) for number in NUMBERS]
    assert await feed.rows("select from parked_commits") == []
