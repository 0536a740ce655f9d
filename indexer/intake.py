"""From the sockets to the judge: what concerns us waits in order, bounded in bytes; the rest only moves its position.

A full intake holds back the sockets. One repo that fills its lane is cut off instead, so that it holds back nobody:
what more it sends before the cut is judged is dropped, and its host is asked.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from indexer.arrivals import Arrival, FrameBroken, Place, Position, RepoCutOff, RequestAnswered, Source
from memory.datetimes import parse_datetime

INTAKE_BYTES_MAX: Final = 64 * 1024 * 1024
LANE_BYTES_MAX: Final = 16 * 1024 * 1024
# A cursor that only passes over frames of others is stored at most so often.
POSITIONS_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class WaitingFrame:
    """A frame that has to be judged."""

    source: Source
    seq: int | None
    repo: str  # whom it names; '' = nobody
    frame: bytes  # not what it decodes to, which can take many times as much


@dataclass(frozen=True, slots=True)
class WaitingArrival:
    """What needs no judging, at its place between the frames."""

    arrival: Arrival


@dataclass(frozen=True, slots=True)
class WaitingRelease:
    """A repo whose parked commits can be judged now."""

    repo: str
    settled: bool  # its identity was just looked up: what cannot be judged now never will be
    answer: RequestAnswered | None = None  # to be written once all are judged


Waiting = WaitingFrame | WaitingArrival | WaitingRelease


@dataclass(frozen=True, slots=True)
class Load:
    """What the next batch is made of."""

    waiting: list[Waiting]
    positions: dict[str, Position]


@dataclass(slots=True)
class _Stream:
    """How far one source was read: its last frame, whether or not that waits."""

    waiting: int = 0  # what of it must be written before its position may pass
    seq: int = 0
    claimed_time: str | None = None
    moved: bool = False  # since its position was last given away


class Intake:
    """A queue with any number of givers and one taker."""

    def __init__(
        self,
        clock: Callable[[], float],
        now: Callable[[], datetime],
        *,
        bytes_max: int = INTAKE_BYTES_MAX,
        lane_bytes_max: int = LANE_BYTES_MAX,
    ) -> None:
        """`clock` is monotonic, in seconds; `now` is the time of day."""
        self._clock = clock
        self._now = now
        self._bytes_max = bytes_max
        self._lane_bytes_max = lane_bytes_max
        self._queue: deque[Waiting] = deque()
        self._lanes: Counter[str] = Counter()  # repo → bytes
        self._cut_off: set[tuple[str, str]] = set()  # (source, repo) whose cut waits in the queue
        self._streams: dict[str, _Stream] = {}
        self._due_at: float | None = None  # when positions that moved alone are given away
        self._room = asyncio.Event()
        self._news = asyncio.Event()
        self.buffered_bytes = 0

    def __len__(self) -> int:
        return len(self._queue)

    def received(self) -> dict[str, int]:
        """Source → seq of the last frame that came from it."""
        return {url: stream.seq for url, stream in self._streams.items()}

    def pass_over(self, source: Source, seq: int, claimed_time: object) -> None:
        """A frame of others, or one whose meaning is waiting already: only the position moves."""
        stream = self._streams.setdefault(source.url, _Stream())
        stream.seq, stream.moved = seq, True
        stream.claimed_time = claimed_time if isinstance(claimed_time, str) else None
        if self._due_at is None:
            self._due_at = self._clock() + POSITIONS_EVERY_S
            self._news.set()

    async def put(self, waiting: Waiting) -> None:
        """Appends; bytes of a stream wait while there is no room."""
        if _bytes_of(waiting):
            while self.buffered_bytes >= self._bytes_max:
                self._room.clear()
                await self._room.wait()
        if isinstance(waiting, WaitingFrame) and waiting.repo:
            if (waiting.source.url, waiting.repo) in self._cut_off:
                return
            if self._lanes[waiting.repo] + len(waiting.frame) > self._lane_bytes_max:
                self._cut_off.add((waiting.source.url, waiting.repo))
                place = Place(waiting.source, waiting.seq or 0, self._now())
                waiting = WaitingArrival(RepoCutOff(place, waiting.repo))
        self._account(waiting, 1)
        self._queue.append(waiting)
        self._news.set()

    async def take(self, frames_max: int, bytes_max: int) -> Load:
        """The next frames in order, with the positions that they bring; positions alone at most every second.

        Up to so many frames, and bytes but for the last of them.
        """
        while not self._queue:
            self._news.clear()
            if self._due_at is None:
                await self._news.wait()
                continue
            patience = self._due_at - self._clock()
            if patience <= 0:
                break
            try:
                async with asyncio.timeout(patience):
                    await self._news.wait()
            except TimeoutError:
                break
        taken: list[Waiting] = []
        taken_bytes = 0
        while self._queue and len(taken) < frames_max and taken_bytes < bytes_max:
            waiting = self._queue.popleft()
            self._account(waiting, -1)
            taken_bytes += _bytes_of(waiting)
            taken.append(waiting)
        self._room.set()
        return Load(taken, self._positions(taken))

    def _account(self, waiting: Waiting, sign: int) -> None:
        """Adds what waits to the bounds that it counts against, or takes it off."""
        size = _bytes_of(waiting) * sign
        self.buffered_bytes += size
        match waiting:
            case WaitingFrame():
                self._streams.setdefault(waiting.source.url, _Stream()).waiting += sign
                self._lanes[waiting.repo] += size
                if not self._lanes[waiting.repo]:
                    del self._lanes[waiting.repo]
            case WaitingArrival():
                source_url = waiting.arrival.place.source.url
                self._streams.setdefault(source_url, _Stream()).waiting += sign
                if isinstance(waiting.arrival, RepoCutOff) and sign < 0:
                    self._cut_off.discard((source_url, waiting.arrival.repo))
            case WaitingRelease():
                pass

    def _positions(self, taken: list[Waiting]) -> dict[str, Position]:
        """A source that still has frames waiting is covered up to the last that was taken, others wholly."""
        positions: dict[str, Position] = {}
        for waiting in taken:
            if isinstance(waiting, WaitingFrame) and waiting.seq is not None:
                positions[waiting.source.url] = Position(waiting.seq, None)
        for url, stream in self._streams.items():
            if stream.moved and not stream.waiting:
                positions[url] = Position(stream.seq, parse_datetime(stream.claimed_time or ""))
                stream.moved = False
        if not any(stream.moved for stream in self._streams.values()):
            self._due_at = None
        return positions


def _bytes_of(waiting: Waiting) -> int:
    """What of it came from a socket."""
    match waiting:
        case WaitingFrame():
            return len(waiting.frame)
        case WaitingArrival(arrival=FrameBroken(frame=frame)):
            return len(frame)
        case _:
            return 0
