"""Joins the commits that came live during a fetch to what is held at its end, piece by piece.

What waits is judged before the repo's row is locked, for its author decides how long that takes. Each piece is a
transaction that holds the row for as long as some hundred records take. Between two pieces the repo is as `resyncing`
as before: what comes live waits behind the rest, so that none overtakes another; and only where nothing waits any more
is it let go. Killed in between, a repo holds all up to its rev, and the next fetch joins what still waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, Protocol
from uuid import UUID

from indexer.arrivals import (
    Arrival,
    CommitArrived,
    CommitParked,
    CommitRefused,
    CommitUnparked,
    FetchBegun,
    FetchLifted,
    FetchOrdered,
    FrameIgnored,
    Place,
    Source,
    SourceKind,
)
from indexer.consumer import Consumer
from indexer.judging import judge
from indexer.patience import despite_conflicts
from indexer.repo_state import RepoRow, RepoState
from indexer.store import repos as repo_rows
from indexer.store import streams
from indexer.store.streams import WaitingCommit
from indexer.writer import Taking, Writer
from memory.database import Database
from memory.errors import Rejected
from memory.identity import Identity
from memory.queries import Connection
from memory.space import PUBLIC

# Of judged commits, in memory at once; one at least.
JUDGED_BYTES: Final = 2 * 1024 * 1024
# What one piece may be: a unit is a commit, an op, and so many bytes of a frame. To write that takes 30 ms mostly, and
# 200 ms where every word of every text is another. A commit is not cut: it takes as long as live, 2 s at the worst.
PIECE_UNITS: Final = 600
BYTES_A_UNIT: Final = 256
# Whoever writes on and on, faster than that is joined, is fetched again instead: this is more than may wait at once.
DRAINED_COMMITS_MAX: Final = 200

# What is asked of hosts belongs to no stream.
HOSTS: Final = Source("hosts:", SourceKind.PDS)


def at_hosts(now: datetime) -> Place:
    """Where an answer of a host is met."""
    return Place(HOSTS, 0, now)


class FetchOvertaken(Rejected):
    """The repo was emptied, or taken up by another fetch, while this one was under way."""

    reason = "fetch_overtaken"


class Begin(Protocol):
    """What ends a fetch, in the transaction of the first piece; `closing` goes with it."""

    async def __call__(self, taking: Taking, closing: Sequence[Arrival]) -> None: ...


@dataclass(frozen=True, slots=True)
class Seam:
    """A fetch at its end, and what came meanwhile."""

    repo: str
    token: UUID
    identity: Identity  # by which what waits is judged
    require_newest: Callable[[Connection], Awaitable[None]]  # raises where somebody else is the author now
    closing: Callable[[datetime], list[Arrival]]  # once all is joined
    between: Callable[[RepoState, str | None], None]  # is told what the repo is again, if nothing comes of the rest


@dataclass(frozen=True, slots=True)
class _Judged:
    """What a commit that waits means."""

    arrivals: list[Arrival]
    units: int


class Drain:
    """What waits for the fetch of one repo. Raises FetchOvertaken where the repo is no longer that fetch's."""

    def __init__(
        self,
        database: Database,
        writer: Writer,
        clock: Callable[[], datetime],
        seam: Seam,
        *,
        piece_units: int = PIECE_UNITS,
        commits_max: int = DRAINED_COMMITS_MAX,
    ) -> None:
        self._database = database
        self._writer = writer
        self._clock = clock
        self._seam = seam
        self._piece_units = piece_units
        self._left = commits_max
        self._judged: dict[WaitingCommit, _Judged] = {}
        self._between: tuple[RepoState, str | None] | None = None  # null: nothing is left
        self._consumer = Consumer(
            identities=_Known(seam.identity),
            clock=lambda _: clock(),
            tracked={seam.repo},
            admits=lambda _: True,
            cursors={},
        )

    async def take_first(self, begin: Begin, units: int) -> None:
        """The first piece, in one transaction behind what `begin` does, which is about so many units."""
        while not await self._take_piece(begin, self._piece_units - units):
            await self.judge()

    async def take_rest(self) -> None:
        """What the first piece left, each piece taken again where the database rolled it back for another's sake."""
        while self._between is not None:
            begin = self._go_on if self._left > 0 else self._break_off
            await despite_conflicts(lambda begin=begin: self.take_first(begin, 0), "fetch_drain")

    async def judge(self) -> None:
        """Judges what waits next, and lets others run in between."""
        async with self._database.connection() as conn:
            parked = await streams.parked_frames(conn, self._seam.repo, JUDGED_BYTES, for_fetch=True)
        for rev, source_url, seq, frame in parked:
            if (commit := WaitingCommit(rev, source_url, seq)) not in self._judged:
                self._judged[commit] = await self._judge(commit, frame)
                await asyncio.sleep(0)

    async def _judge(self, commit: WaitingCommit, frame: bytes) -> _Judged:
        place = _place(commit, self._clock())
        found = await judge(self._consumer, place.source, frame)
        arrivals: list[Arrival] = [CommitUnparked(place, self._seam.repo, commit.rev)]
        arrivals += [
            CommitRefused(place, self._seam.repo, each.reason) if isinstance(each, CommitParked) else each
            for each in found
        ]
        ops = sum(len(each.ops) for each in found if isinstance(each, CommitArrived))
        return _Judged(arrivals, 1 + ops + len(frame) // BYTES_A_UNIT)

    async def _take_piece(self, begin: Begin, room: int) -> bool:
        """Takes what is judged, as far as there is room; False: nothing was done, for something has to be judged."""
        now, between = self._clock(), None
        async with self._writer.transaction(now) as taking:
            row = await self._lock(taking.conn)
            if row is None or row.fetch_token != self._seam.token:
                raise FetchOvertaken
            waiting = await streams.waiting_commits(taking.conn, self._seam.repo)
            self._judged = {commit: self._judged[commit] for commit in waiting if commit in self._judged}
            piece = self._next(waiting, room)
            if waiting and not piece and waiting[0] not in self._judged:
                return False
            rest = waiting[len(piece) :]
            await begin(taking, [] if rest else self._seam.closing(now))
            await self._seam.require_newest(taking.conn)
            if piece:
                arrivals = [
                    replace(arrival, place=_place(commit, now))
                    for commit in piece
                    for arrival in self._judged[commit].arrivals
                ]
                await taking.take_storable(arrivals)
            if rest:
                between = await self._leave(taking, rest)
        self._left -= len(piece)
        self._between = between
        if between is not None:
            self._seam.between(*between)
        return True

    def _next(self, waiting: Sequence[WaitingCommit], room: int) -> Sequence[WaitingCommit]:
        """Of what waits, the first that are judged and for which there is room; a whole piece has it for one."""
        units = 0
        for count, commit in enumerate(waiting):
            judged = self._judged.get(commit)
            if judged is None:
                return waiting[:count]
            units += judged.units
            if units > room and (count or room < self._piece_units):
                return waiting[:count]
        return waiting

    async def _leave(self, taking: Taking, rest: Sequence[WaitingCommit]) -> tuple[RepoState, str | None] | None:
        """Has the rest wait on, and what comes live behind it; null: nothing waits, for nothing will be applied."""
        now = taking.now
        row = await self._lock(taking.conn)
        if row is not None and (row.state in (RepoState.ACTIVE, RepoState.PENDING) or not row.chained):
            before = row.state, row.reason
            await taking.take([FetchBegun(at_hosts(now), row.repo, self._seam.token)])
            return before
        await taking.take([*self._passed_over(rest, now), *self._seam.closing(now)])
        return None

    async def _go_on(self, taking: Taking, closing: Sequence[Arrival]) -> None:
        """Begins another piece."""
        assert self._between is not None
        lifted = FetchLifted(at_hosts(taking.now), self._seam.repo, self._seam.token, *self._between)
        await taking.take([lifted, *closing])

    async def _break_off(self, taking: Taking, closing: Sequence[Arrival]) -> None:
        """More comes than is joined: another fetch brings it."""
        place, repo, reason = at_hosts(taking.now), self._seam.repo, "parked_overflow"
        lifted = FetchLifted(place, repo, self._seam.token, RepoState.DESYNCHRONIZED, reason)
        await taking.take([lifted, *closing, FetchOrdered(place, repo, reason)])

    def _passed_over(self, rest: Sequence[WaitingCommit], now: datetime) -> Iterator[Arrival]:
        """What the fetch brings that the repo waits for next."""
        for commit in rest:
            place = _place(commit, now)
            yield CommitUnparked(place, self._seam.repo, commit.rev)
            yield FrameIgnored(place, "awaiting_resync")

    async def _lock(self, conn: Connection) -> RepoRow | None:
        key = self._seam.repo, PUBLIC
        return (await repo_rows.lock_repos(conn, [key])).get(key)


def _place(commit: WaitingCommit, now: datetime) -> Place:
    return Place(Source(commit.source, SourceKind.RELAY), commit.seq, now)


class _Known:
    """One identity, whatever the time."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    def at(self, did: str, time: datetime) -> Identity | None:  # noqa: ARG002
        """It, for its own DID."""
        return self._identity if did == self._identity.did else None

    def announced(self, did: str, time: datetime) -> Identity | None:  # noqa: ARG002
        """Is not told here."""
        return None
