"""What the daemon does beside the stream, again and again: expiry, repos that others track, gauges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from indexer.books import RequestKind
from indexer.consumer import Consumer
from indexer.intake import Intake, WaitingRelease
from indexer.metrics import IndexerMetrics
from indexer.repo_state import RepoState
from indexer.store import fetches, requests, space_repos, streams, upkeep
from indexer.store.upkeep import Expiry
from memory.database import Database
from memory.errors import Unavailable
from memory.queries import Connection
from memory.resolver import HANDLE_RETRY_FIRST, HANDLE_RETRY_MAX
from memory.telemetry import get_logger

PUT_ASIDE_KEPT: Final = timedelta(days=7)
# Whoever signs in again and again is looked up anew each day.
STRANGERS_KEPT: Final = timedelta(days=30)
EXPIRY_EVERY: Final = timedelta(hours=1)
# So that locks are short and the log of the database stays small, whatever has piled up.
SLICE_ROWS: Final = 1000
EXPIRY_BUDGET_S: Final = 0.5  # of a round
# Counting goes through whole tables, which a flood can make long: it never takes more than a twentieth of the time.
COUNT_EVERY: Final = timedelta(seconds=15)
COUNTING_SHARE: Final = 20
# Handles that could not be verified are asked for again, and are the least of all worries: so many at a time, and so no
# more than sixty a minute, however many are dead.
HANDLES_EVERY: Final = timedelta(seconds=10)
HANDLES_AT_ONCE: Final = 10
ROUND_S: Final = 1.0
HELD_BACK_A_ROUND: Final = 1000
# Who has something in Spaces is known to the Space worker first.
WATCHED_EVERY: Final = timedelta(seconds=10)
# A clock may stand a little behind another's.
OVERLAP: Final = timedelta(seconds=30)


class Upkeep:
    """One round a second. Expiry begins once an hour, and goes on for as many rounds as it takes."""

    def __init__(
        self,
        database: Database,
        intake: Intake,
        consumer: Consumer,
        tracked: set[str],
        metrics: IndexerMetrics,
        *,
        holder: UUID,
        clock: Callable[[], datetime],
        version_content: timedelta,
        deletions_kept: timedelta,
        watched: set[str] | None = None,
    ) -> None:
        """`tracked` gains what other processes track, which the leases of `holder` then say; `watched` is kept true."""
        self._database = database
        self._intake = intake
        self._consumer = consumer
        self._tracked = tracked
        self._metrics = metrics
        self._clock = clock
        self._version_content = version_content
        self._deletions_kept = deletions_kept
        self._tracked_until = clock()
        self._holder = holder
        self._expired_at: datetime | None = None
        self._expiring: list[Expiry] = []
        self._handles_asked_at: datetime | None = None
        self._counted_at: datetime | None = None
        self._count_every = COUNT_EVERY
        self._watched = watched
        self._watched_at: datetime | None = None
        self._to_look_at: list[str] = []
        self._unasked: set[str] = set()  # at the last look

    async def run(self) -> None:
        """Works until cancelled; a database that is away is somebody else's to report."""
        while True:
            try:
                await self._round()
            except Unavailable as outage:
                get_logger().warning("upkeep_skipped", sqlstate=outage.context.get("sqlstate"))
            await asyncio.sleep(ROUND_S)

    async def _round(self) -> None:
        now = self._clock()
        async with self._database.connection() as conn:
            as_of = await fetches.database_time(conn)
            since = min(self._tracked_until, as_of)  # a clock of ours that is ahead must hide nobody
            for repo, tracked_at in await upkeep.repos_tracked_since(conn, since - OVERLAP):
                self._tracked.add(repo)
                self._tracked_until = max(self._tracked_until, tracked_at)
            await fetches.acknowledge_tracking(conn, self._holder, as_of)
            await self._let_go(conn)
            if self._watched is not None and _is_due(self._watched_at, WATCHED_EVERY, now):
                found = await space_repos.accounts_in_spaces(conn)
                self._watched |= found
                self._watched &= found
                self._watched_at = now
            if _is_due(self._handles_asked_at, HANDLES_EVERY, now):
                await self._ask_for_handles(conn, now)
            if _is_due(self._counted_at, self._count_every, now):
                await self._count(conn, now)
            for source, seq, frame_time in await streams.positions(conn):
                self._metrics.durable_seq.labels(source).set(seq)
                if frame_time is not None:
                    self._metrics.lag_seconds.labels(source).set(max(0.0, (now - frame_time).total_seconds()))
        self._tell()
        await self._expire(now)

    async def _let_go(self, conn: Connection) -> None:
        """Releases repos whose key nobody has to be asked for any more: another process did, or nothing is parked.

        What is being written just now is not asked for yet, so it takes two looks to tell.
        """
        if not self._to_look_at:
            self._to_look_at = list(self._consumer.held_back())
        looked_at = self._unasked.union(self._to_look_at[-HELD_BACK_A_ROUND:])
        del self._to_look_at[-HELD_BACK_A_ROUND:]
        unasked = await upkeep.unasked(conn, looked_at) if looked_at else set[str]()
        released, self._unasked = unasked & self._unasked, unasked - self._unasked
        for repo in released:
            await self._intake.put(WaitingRelease(repo, settled=True))

    async def _ask_for_handles(self, conn: Connection, now: datetime) -> None:
        await requests.ask_for_handles(
            conn, now, at_most=HANDLES_AT_ONCE, shortest=HANDLE_RETRY_FIRST, longest=HANDLE_RETRY_MAX
        )
        self._handles_asked_at = now

    async def _expire(self, now: datetime) -> None:
        """Forgets slices until none is left, or the round has had its time; the next goes on from there."""
        if not self._expiring and _is_due(self._expired_at, EXPIRY_EVERY, now):
            self._expired_at = now
            self._expiring = upkeep.expiries(
                kept_since=now - PUT_ASIDE_KEPT,
                content_since=now - self._version_content,
                deletions_since=now - self._deletions_kept,
                resolved_since=now - STRANGERS_KEPT,
            )
        time = asyncio.get_running_loop().time
        total, deadline = 0, time() + EXPIRY_BUDGET_S
        while self._expiring:
            async with self._database.connection() as conn:
                total += await self._expiring[0].take_slice(conn, SLICE_ROWS)
            if self._expiring[0].ended:
                del self._expiring[0]
            if time() >= deadline:
                break
        if total:
            get_logger().info("rows_expired", rows=total)

    async def _count(self, conn: Connection, now: datetime) -> None:
        gauges = await upkeep.gauges(conn)
        self._counted_at = now
        self._count_every = max(COUNT_EVERY, COUNTING_SHARE * (self._clock() - now))
        self._metrics.parked_commits.set(gauges.parked_commits)
        self._metrics.quarantined_frames.set(gauges.quarantined_frames)
        self._metrics.fetches_without_disk.set(gauges.without_disk)
        self._metrics.embeddings_waiting.clear()  # of models that are gone
        for model, waiting in gauges.embeddings.items():
            self._metrics.embeddings_waiting.labels(model).set(waiting)
        for state in RepoState:
            if state is not RepoState.ACTIVE:
                self._metrics.unwhole_repos.labels(state).set(gauges.unwhole_repos.get(state, 0))
        for kind in RequestKind:
            self._metrics.open_requests.labels(kind).set(gauges.requests.get(kind, 0))

    def _tell(self) -> None:
        self._metrics.tracked_repos.set(len(self._tracked))
        for source, seq in self._intake.received().items():
            self._metrics.received_seq.labels(source).set(seq)
        self._metrics.buffered_bytes.set(self._intake.buffered_bytes)
        self._metrics.buffered_frames.set(len(self._intake))


def _is_due(last: datetime | None, every: timedelta, now: datetime) -> bool:
    """Whether something is to be done again; a clock that was set back makes it so."""
    return last is None or not timedelta(0) <= now - last < every
