"""The judge shares the event loop with the sockets, whatever a frame costs."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from itertools import groupby
from typing import Any, cast

import pytest

from indexer.arrivals import FrameIgnored, Place, Source, SourceKind
from indexer.daemon import JUDGING_BETWEEN_YIELDS_S, Judge
from indexer.intake import Intake, WaitingFrame
from indexer.metrics import IndexerMetrics
from tests.builders import START, RepoBuilder

RELAY = Source("https://relay.test", SourceKind.RELAY)


class Known:
    """A resolver that has nothing to load."""

    async def load(self, dids: set[str]) -> None:
        """At once."""

    async def reload(self, dids: set[str]) -> None:
        """At once."""


class Slow:
    """A consumer that takes so many seconds of the loop's time a frame; tells in which turn it judged each."""

    def __init__(self, frame_s: float) -> None:
        self._frame_s = frame_s
        self.now = 0.0
        self.turn = 0
        self.judged_in: list[int] = []

    def judge(self, source: Source, *_: object) -> tuple[list[FrameIgnored], None]:
        self.now += self._frame_s
        self.judged_in.append(self.turn)
        return [FrameIgnored(Place(source, 1, START), "ignored")], None

    async def count_turns(self) -> None:
        """Stands for the sockets."""
        while True:
            self.turn += 1
            await asyncio.sleep(0)


async def frames_a_turn(monkeypatch: pytest.MonkeyPatch, frames: int, frame_s: float) -> list[int]:
    """How many frames of one batch are judged before others have a turn, and then, and so on."""
    consumer = Slow(frame_s)
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: consumer.now)
    intake = Intake(lambda: 0.0, lambda: START)
    alice = RepoBuilder("alice")
    for number in range(frames):
        await intake.put(WaitingFrame(RELAY, number, alice.did, alice.identity_frame()))
    judge = Judge(
        cast("Any", None),
        intake,
        cast("Any", consumer),
        cast("Any", Known()),
        IndexerMetrics(),
        source_of=lambda _: RELAY,
        batch_events=frames,
    )
    sockets = asyncio.create_task(consumer.count_turns())
    async with aclosing(judge.batches(cast("Any", None))) as batches:
        batch = await anext(batches)
    sockets.cancel()
    assert len(batch.arrivals) == frames
    return [len(list(judged)) for _, judged in groupby(consumer.judged_in)]


async def test_others_have_a_turn_behind_each_frame_that_takes_long(monkeypatch: pytest.MonkeyPatch):
    assert await frames_a_turn(monkeypatch, 5, 2 * JUDGING_BETWEEN_YIELDS_S) == [1] * 5


async def test_frames_that_take_little_are_judged_together_for_a_while(monkeypatch: pytest.MonkeyPatch):
    assert await frames_a_turn(monkeypatch, 8, 0.4 * JUDGING_BETWEEN_YIELDS_S) == [3, 3, 2]
