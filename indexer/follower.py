"""Follows one source for as long as the daemon lives: lease, cursor, socket, back-off.

Nothing is decided here about memories. Frames go to the intake in their order; what the stream says of itself, or fails
to, is acted on.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from indexer.arrivals import FrameBroken, Place, Source
from indexer.back_off import back_off_s
from indexer.frames import (
    OVERCLAIMING,
    BrokenFrame,
    ErrorEvent,
    InfoEvent,
    OpenFrame,
    event_of_others,
    open_frame,
    read_event,
)
from indexer.intake import Intake, WaitingArrival, WaitingFrame
from indexer.messages import Text, TooLarge
from indexer.metrics import IndexerMetrics
from indexer.socket import Interest, Liveness, SourceUnavailable, Stream, subscribe
from indexer.store import leases
from memory.database import Database
from memory.errors import MemoryAppviewError, Unavailable
from memory.queries import Connection
from memory.tasks import TaskGroup
from memory.telemetry import get_logger

GOOD_CONNECTION_S: Final = 30.0  # after which the next failure starts with the first back-off again
GIVE_UP_S: Final = 2.0  # for a lease; without an answer it is left to run out
STEPPED_OVER_AT: Final = 3  # broken framing that is met so often is no accident of one connection
WRITTEN_AFTER_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)  # waits for the writer, which tells nobody
_TOO_LARGE: Final = "too_large"


class SourceStopped(MemoryAppviewError):
    """The source cannot go on without an operator."""


class LeaseLost(MemoryAppviewError):
    """Another daemon follows the source now."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a follower waits for what."""

    lease_ttl: timedelta = timedelta(seconds=10)
    lease_renewal_s: float = 3.0
    back_off_first_s: float = 0.5
    back_off_max_s: float = 60.0
    stopped_poll_s: float = 5.0
    liveness: Liveness = field(default_factory=Liveness)


@dataclass(frozen=True, slots=True)
class Following:
    """What all followers of a daemon share."""

    database: Database
    intake: Intake
    concerned: Callable[[str], bool]  # whose events are read further than their names
    notice: Callable[[OpenFrame], str]  # hears of a frame that concerns us before the next is read; says whom it names
    holder: UUID
    clock: Callable[[], datetime]
    metrics: IndexerMetrics
    patience: Patience = field(default_factory=Patience)


class Follower:
    """One source of one daemon."""

    def __init__(self, source: Source, following: Following) -> None:
        self._source = source
        self._following = following
        self._patience = following.patience
        self._seq: int | None = None  # of the last frame that was taken; null: none, the cursor decides
        self._passed: tuple[int, object] | None = None  # seq and time of the last that the intake has to hear of
        self._stepped_over: tuple[int | None, TooLarge] | None = None  # the last, and the seq before it
        self._past_cursor = False  # it leads to what cannot be passed: the next connection is live
        self._starts = 0  # first starts that brought no frame yet
        self._interest = Interest(self._pass_over, self._count)
        self._frames = following.metrics.frames.labels(source.url)
        self._log = get_logger(source=source.url)

    async def run(self) -> None:
        """Follows until cancelled."""
        failures = 0
        while True:
            started = asyncio.get_running_loop().time()
            try:
                await self._follow_under_lease()
            except SourceStopped:
                self._seq = None  # where it goes on is the operator's to say, and may be further back
                await asyncio.sleep(self._patience.stopped_poll_s)
            except LeaseLost:
                self._log.warning("lease_lost")
            except Unavailable as failure:
                lasted = asyncio.get_running_loop().time() - started
                failures = 1 if lasted > GOOD_CONNECTION_S else failures + 1
                await self._back_off(failure, failures)
            finally:
                self._following.metrics.connected.labels(self._source.url).set(0)

    async def _follow_under_lease(self) -> None:
        patience, url = self._patience, self._source.url
        while not await self._renew_lease():
            self._seq = None  # whoever has it knows better where it stands
            await asyncio.sleep(patience.lease_renewal_s)
        try:
            async with TaskGroup() as tasks:
                tasks.create_task(self._keep_lease())
                tasks.create_task(self._follow())
        finally:
            # Without a database the lease runs out; an error from here would stand for the one that ended it.
            with suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(GIVE_UP_S), self._following.database.connection() as conn:
                    await leases.give_up_lease(conn, url, self._following.holder)

    async def _keep_lease(self) -> None:
        while True:
            await asyncio.sleep(self._patience.lease_renewal_s)
            if not await self._renew_lease():
                raise LeaseLost

    async def _renew_lease(self) -> bool:
        """Takes it or keeps it, if that can be told before it would have run out."""
        patience = self._patience
        try:
            async with asyncio.timeout(patience.lease_ttl.total_seconds() - patience.lease_renewal_s):
                async with self._following.database.connection() as conn:
                    return await leases.take_lease(conn, self._source.url, self._following.holder, patience.lease_ttl)
        except TimeoutError:
            raise Unavailable from None

    async def _follow(self) -> None:
        async with self._following.database.connection() as conn:
            state = await leases.source_state(conn, self._source.url)
        if state.stopped_reason is not None:
            raise SourceStopped
        if self._seq is None or (state.cursor is not None and state.cursor > self._seq):
            self._seq = state.cursor
        cursor = None if self._past_cursor else state.cursor
        async with subscribe(self._source.url, cursor, self._patience.liveness, self._interest) as stream:
            self._following.metrics.connected.labels(self._source.url).set(1)
            self._log.info("source_connected", cursor=cursor)
            if self._seq is None:
                self._starts += 1
            await self._read(stream)

    async def _read(self, stream: Stream) -> None:
        while True:
            match await stream.receive():
                case bytes() as frame:
                    if self._pass_over(frame):
                        self._tell_position()
                    else:
                        await self._take(frame)
                case Text() as text:
                    await self._broken(text.data, BrokenFrame.reason)
                case TooLarge() as message:
                    await self._step_over(message)

    def _pass_over(self, frame: bytes) -> bool:
        """Whether a frame was nothing but one more event of others. This is run for every frame of the network."""
        event = event_of_others(frame, self._following.concerned)
        if event is None or self._seq is None or event[0] <= self._seq:
            return False
        self._seq = event[0]
        self._passed = event
        return True

    def _count(self, messages: int) -> None:
        """After each read: what is done once for many frames."""
        self._frames.inc(messages)
        self._past_cursor = False
        self._tell_position()

    def _tell_position(self) -> None:
        if self._passed is not None:
            self._following.intake.pass_over(self._source, *self._passed)
            self._passed = None

    async def _take(self, frame: bytes) -> None:
        try:
            opened = open_frame(frame)
        except BrokenFrame as broken:
            if broken.reason == OVERCLAIMING:
                await self._put_aside(frame, broken.reason)
            else:
                await self._broken(frame, broken.reason)
            return
        seq = opened.seq
        if seq is None or _is_about_the_stream(opened):
            await self._take_unnumbered(frame, opened)
            return
        if self._seq is None:
            await self._begin(seq)
        elif seq <= self._seq:
            return
        if opened.concerns(self._following.concerned):
            repo = self._following.notice(opened)
            await self._following.intake.put(WaitingFrame(self._source, seq, repo, frame))
        self._seq = seq  # not before: whoever waits for room can be cancelled, and has to be sent the frame again
        self._following.intake.pass_over(self._source, seq, opened.body.get("time"))

    async def _begin(self, first_seq: int) -> None:
        """A first start: the cursor is stored before anything else of the stream.

        A connection that was lost before it brought a frame left no cursor: what came until the next one is not known.
        """
        async with self._following.database.transaction() as conn:
            await leases.begin_source(conn, self._source.url, first_seq - 1, self._following.clock())
            if self._starts > 1:
                await self._note_gap(conn, "first_start")
        self._starts = 0

    async def _take_unnumbered(self, frame: bytes, opened: OpenFrame) -> None:
        """What a stream says of itself; and events that lack a seq, which are put aside as they are judged."""
        try:
            event = read_event(opened)
        except BrokenFrame as broken:
            await self._put_aside(frame, broken.reason)
            return
        match event:
            case ErrorEvent():
                await self._end(event.error)
            case InfoEvent(name="OutdatedCursor"):
                async with self._following.database.connection() as conn:
                    await self._note_gap(conn, "OutdatedCursor")
            case _:
                await self._following.intake.put(WaitingFrame(self._source, None, "", frame))

    async def _end(self, error: str) -> None:
        if error == "FutureCursor" and self._seq is not None:
            # Its numbering began anew, or the cursor is of another source: to go on from anywhere would be a guess.
            self._log.error("source_stopped", reason=error, cursor=self._seq)
            async with self._following.database.connection() as conn:
                await leases.stop_source(conn, self._source.url, error, self._following.clock())
            raise SourceStopped
        raise SourceUnavailable("consumer_too_slow" if error == "ConsumerTooSlow" else "error_frame")

    async def _broken(self, frame: bytes, reason: str, ends: str = "broken_frame") -> None:
        """Broken framing is quarantined, and read again on a new connection; met a third time, it is stepped over."""
        times = await self._times_met(frame) + 1
        await self._put_aside(frame, reason)
        if times < STEPPED_OVER_AT:
            await self._until_written(frame, times)
            raise SourceUnavailable(ends)
        self._log.error("frame_stepped_over", reason=reason, seq=self._seq, bytes=len(frame))

    async def _until_written(self, frame: bytes, times: int) -> None:
        """Met again before that, it would be counted as if for the first time."""
        for wait_s in WRITTEN_AFTER_S:
            if await self._times_met(frame) >= times:
                return
            await asyncio.sleep(wait_s)

    async def _times_met(self, frame: bytes) -> int:
        async with self._following.database.connection() as conn:
            return await leases.times_met(conn, self._source.url, self._seq or 0, frame)

    async def _step_over(self, message: TooLarge) -> None:
        """As broken framing. If it has no end, the source goes on live, and what comes between is noted as lost."""
        seq, last = self._stepped_over or (None, None)
        if last is not None and not last.ended and (seq, last.beginning) == (self._seq, message.beginning):
            async with self._following.database.connection() as conn:
                await self._note_gap(conn, _TOO_LARGE)
            self._past_cursor = True
            raise SourceUnavailable("message_too_big")
        await self._broken(message.beginning, _TOO_LARGE, ends="message_too_big")
        self._stepped_over = self._seq, message

    async def _note_gap(self, conn: Connection, reason: str) -> None:
        """Frames of this source were lost: every repo has to be compared."""
        await leases.note_gap(conn, self._source.url, self._following.clock())
        self._log.warning("frames_lost", reason=reason, seq=self._seq)
        self._following.metrics.gaps.labels(self._source.url, reason).inc()

    async def _put_aside(self, frame: bytes, reason: str) -> None:
        place = Place(self._source, self._seq or 0, self._following.clock())
        await self._following.intake.put(WaitingArrival(FrameBroken(place, frame, reason)))

    async def _back_off(self, failure: Unavailable, failures: int) -> None:
        reason = failure.reason if isinstance(failure, SourceUnavailable) else "database"
        wait_s = back_off_s(failures, self._patience.back_off_first_s, self._patience.back_off_max_s)
        if isinstance(failure, SourceUnavailable) and failure.retry_after_s is not None:
            wait_s = max(wait_s, failure.retry_after_s)  # and never come back before that
        wait_s *= random.uniform(1, 1.5)  # noqa: S311  spreads reconnections, hides nothing
        self._following.metrics.disconnects.labels(self._source.url, reason).inc()
        self._log.warning("source_unavailable", reason=reason, attempts=failures, seconds=round(wait_s, 1))
        await asyncio.sleep(wait_s)


def _is_about_the_stream(opened: OpenFrame) -> bool:
    """An error or a word of information: no event of the stream, whatever numbers it has."""
    op = opened.header.get("op")
    return op == -1 or (op == 1 and opened.header.get("t") == "#info")
