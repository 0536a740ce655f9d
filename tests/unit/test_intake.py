from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from indexer.arrivals import FrameBroken, FrameIgnored, Place, Position, RepoCutOff, Source, SourceKind
from indexer.intake import Intake, Load, Waiting, WaitingArrival, WaitingFrame, WaitingRelease
from tests.builders import START

RELAY = Source("https://relay.test", SourceKind.RELAY)
OTHER = Source("https://other.test", SourceKind.RELAY)
ALICE, BOB = "did:plc:alice", "did:plc:bob"
ALL = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def intake(clock: Clock | None = None, **bounds: int) -> Intake:
    return Intake(clock or Clock(), lambda: START, **bounds)


def frame(seq: int, repo: str = ALICE, *, size: int = 10, source: Source = RELAY) -> WaitingFrame:
    return WaitingFrame(source, seq, repo, b"x" * size)


async def receive(into: Intake, *frames: WaitingFrame) -> None:
    """As a follower does."""
    for each in frames:
        await into.put(each)
        assert each.seq is not None
        into.pass_over(each.source, each.seq, None)


def seqs(load: Load) -> list[int | None]:
    return [waiting.seq for waiting in load.waiting if isinstance(waiting, WaitingFrame)]


def cuts(waiting: list[Waiting]) -> list[RepoCutOff]:
    arrivals = [each.arrival for each in waiting if isinstance(each, WaitingArrival)]
    return [arrival for arrival in arrivals if isinstance(arrival, RepoCutOff)]


async def blocked(action: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """A task that got as far as it can by itself, and is not done."""
    task = asyncio.ensure_future(action)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    return task


async def give_up(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


# Order and bounds


async def test_what_was_put_first_is_taken_first():
    into = intake()
    broken = WaitingArrival(FrameBroken(Place(RELAY, 1, START), b"no frame", "broken_frame"))
    release = WaitingRelease(ALICE, settled=True)
    for waiting in (frame(1), broken, frame(2, BOB), release):
        await into.put(waiting)
    assert (await into.take(3, ALL)).waiting == [frame(1), broken, frame(2, BOB)]
    assert (await into.take(3, ALL)).waiting == [release]


async def test_taker_waits_for_the_first():
    into = intake()
    taking = await blocked(into.take(10, ALL))
    await into.put(frame(1))
    assert seqs(await taking) == [1]


async def test_load_ends_with_the_frame_that_fills_it():
    into = intake()
    await receive(into, *(frame(n, size=10) for n in range(1, 5)))
    assert seqs(await into.take(10, 15)) == [1, 2]


async def test_full_intake_holds_back_whoever_puts_and_goes_on_when_there_is_room():
    into = intake(bytes_max=20)
    await receive(into, frame(1), frame(2))
    waiting = await blocked(into.put(frame(3)))
    other = await blocked(into.put(frame(1, BOB, source=OTHER)))
    await into.take(1, ALL)
    await waiting
    assert into.buffered_bytes == 20
    assert not other.done()
    assert seqs(await into.take(10, ALL)) == [2, 3]
    await other
    assert seqs(await into.take(10, ALL)) == [1]
    assert into.buffered_bytes == 0


async def test_bytes_that_are_no_frame_count_against_the_bound_too():
    into = intake(bytes_max=20)
    broken = WaitingArrival(FrameBroken(Place(RELAY, 1, START), b"x" * 20, "broken_frame"))
    await into.put(broken)
    waiting = await blocked(into.put(broken))
    await into.take(1, ALL)
    await waiting


async def test_what_has_no_bytes_is_never_held_back():
    into = intake(bytes_max=10)
    await into.put(frame(1))
    await into.put(WaitingRelease(ALICE, settled=True))
    await into.put(WaitingArrival(FrameIgnored(Place(RELAY, 1, START), "info")))
    assert len(into) == 3


async def test_putter_that_is_cancelled_leaves_nothing():
    into = intake(bytes_max=10)
    await into.put(frame(1))
    await give_up(await blocked(into.put(frame(2))))
    assert seqs(await into.take(10, ALL)) == [1]
    assert into.buffered_bytes == 0


# Lanes


async def test_repo_that_fills_its_lane_is_cut_off_and_nobody_else():
    into = intake(lane_bytes_max=20)
    await receive(into, frame(1), frame(2), frame(3), frame(4, BOB))
    load = await into.take(10, ALL)
    assert seqs(load) == [1, 2, 4]
    assert cuts(load.waiting) == [RepoCutOff(Place(RELAY, 3, START), ALICE)]


async def test_repo_that_is_cut_off_costs_one_entry_whatever_it_sends():
    into = intake(lane_bytes_max=20)
    await receive(into, frame(1, size=20), *(frame(n, size=1 + n % 30) for n in range(2, 100)))
    assert len(into) == 2
    assert into.buffered_bytes == 20


async def test_repo_has_its_lane_again_once_the_cut_is_taken():
    into = intake(lane_bytes_max=20)
    await receive(into, frame(1, size=20), frame(2))
    await into.take(10, ALL)
    await receive(into, frame(3))
    assert seqs(await into.take(10, ALL)) == [3]


async def test_what_names_nobody_has_no_lane():
    into = intake(lane_bytes_max=20)
    await receive(into, frame(1, ""), frame(2, ""), frame(3, ""))
    assert seqs(await into.take(10, ALL)) == [1, 2, 3]


# Positions


async def test_position_never_passes_a_frame_that_waits():
    into = intake()
    await receive(into, frame(1), frame(2))
    into.pass_over(RELAY, 9, None)
    assert (await into.take(1, ALL)).positions == {RELAY.url: Position(1, None)}
    assert (await into.take(1, ALL)).positions == {RELAY.url: Position(9, None)}


async def test_position_never_passes_a_cut_that_waits():
    into = intake(lane_bytes_max=10)
    await receive(into, frame(1), frame(2))
    assert (await into.take(1, ALL)).positions == {RELAY.url: Position(1, None)}
    assert (await into.take(1, ALL)).positions == {RELAY.url: Position(2, None)}


async def test_position_never_passes_a_broken_frame_that_waits():
    into = intake()
    await receive(into, frame(1))
    await into.put(WaitingArrival(FrameBroken(Place(RELAY, 1, START), b"no frame", "broken_frame")))
    into.pass_over(RELAY, 5, None)
    assert (await into.take(1, ALL)).positions == {RELAY.url: Position(1, None)}
    assert (await into.take(1, ALL)).positions == {RELAY.url: Position(5, None)}


async def test_every_source_has_its_own_position():
    into = intake()
    await receive(into, frame(1), frame(7, BOB, source=OTHER), frame(2))
    into.pass_over(OTHER, 8, None)
    assert (await into.take(2, ALL)).positions == {RELAY.url: Position(1, None), OTHER.url: Position(8, None)}


async def test_source_whose_frames_wait_is_not_moved_by_anothers():
    into = intake()
    await receive(into, frame(1, BOB, source=OTHER), frame(1), frame(2))
    assert OTHER.url in (await into.take(1, ALL)).positions
    into.pass_over(RELAY, 3, None)
    into.pass_over(OTHER, 2, None)
    assert (await into.take(1, ALL)).positions == {RELAY.url: Position(1, None), OTHER.url: Position(2, None)}


async def test_position_brings_the_time_that_its_frame_claims():
    into = intake()
    await into.put(frame(1))
    into.pass_over(RELAY, 2, "2026-11-01T00:00:00.000Z")
    assert (await into.take(1, ALL)).positions == {RELAY.url: Position(2, START)}


async def test_time_that_is_none_leaves_the_position_without():
    into = intake()
    for claimed in ("yesterday", 12, None):
        await into.put(frame(1))
        into.pass_over(RELAY, 2, claimed)
        assert (await into.take(1, ALL)).positions == {RELAY.url: Position(2, None)}


async def test_position_alone_is_given_away_at_most_every_second():
    clock = Clock()
    into = intake(clock)
    into.pass_over(RELAY, 1, None)
    await give_up(await blocked(into.take(10, ALL)))
    clock.now = 0.9
    into.pass_over(RELAY, 2, None)
    await give_up(await blocked(into.take(10, ALL)))
    clock.now = 1.0
    assert await into.take(10, ALL) == Load([], {RELAY.url: Position(2, None)})
    into.pass_over(RELAY, 3, None)
    await give_up(await blocked(into.take(10, ALL)))
    clock.now = 2.0
    assert await into.take(10, ALL) == Load([], {RELAY.url: Position(3, None)})


async def test_position_that_did_not_move_is_not_given_away_again():
    clock = Clock()
    into = intake(clock)
    await receive(into, frame(1))
    await into.take(10, ALL)
    clock.now = 100.0
    await give_up(await blocked(into.take(10, ALL)))
