"""What the daemon does beside the stream, again and again: expiry, repos that others track, gauges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import astuple
from datetime import datetime, timedelta
from itertools import islice
from typing import Final

from indexer.consumer import Consumer
from indexer.intake import Intake, WaitingRelease
from indexer.metrics import IndexerMetrics
from indexer.store import streams, upkeep
from memory.database import Database
from memory.errors import Unavailable
from memory.queries import Connection
from memory.telemetry import get_logger

PUT_ASIDE_KEPT: Final = timedelta(days=7)
EXPIRY_EVERY: Final = timedelta(hours=1)
ROUND_S: Final = 1.0
HELD_BACK_A_ROUND: Final = 1000
# A clock may stand a little behind another's.
OVERLAP: Final = timedelta(minutes=5)


class Upkeep:
    """One round a second, expiry once an hour."""

    def __init__(
        self,
        database: Database,
        intake: Intake,
        consumer: Consumer,
        tracked: set[str],
        metrics: IndexerMetrics,
        *,
        clock: Callable[[], datetime],
        version_content: timedelta,
    ) -> None:
        """`tracked` gains what other processes track."""
        self._database = database
        self._intake = intake
        self._consumer = consumer
        self._tracked = tracked
        self._metrics = metrics
        self._clock = clock
        self._version_content = version_content
        self._tracked_until = clock()
        self._expired_at: datetime | None = None
        self._unasked: set[str] = set()

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
            for repo, tracked_at in await upkeep.repos_tracked_since(conn, self._tracked_until - OVERLAP):
                self._tracked.add(repo)
                self._tracked_until = max(self._tracked_until, tracked_at)
            await self._let_go(conn)
            if self._expired_at is None or now - self._expired_at >= EXPIRY_EVERY:
                await self._expire(now)
                self._expired_at = now
            self._tell(await upkeep.gauges(conn))
            for source, seq, frame_time in await streams.positions(conn):
                self._metrics.durable_seq.labels(source).set(seq)
                if frame_time is not None:
                    self._metrics.lag_seconds.labels(source).set(max(0.0, (now - frame_time).total_seconds()))

    async def _let_go(self, conn: Connection) -> None:
        """Releases repos whose key nobody has to be asked for any more: another process did, or nothing is parked.

        What is being written just now is not asked for yet, so it takes two rounds to tell.
        """
        held_back = set(islice(self._consumer.held_back(), HELD_BACK_A_ROUND))
        unasked = await upkeep.unasked(conn, held_back) if held_back else set[str]()
        for repo in unasked & self._unasked:
            await self._intake.put(WaitingRelease(repo, settled=True))
        self._unasked = unasked

    async def _expire(self, now: datetime) -> None:
        async with self._database.transaction() as conn:
            expired = await upkeep.expire(
                conn, kept_since=now - PUT_ASIDE_KEPT, content_since=now - self._version_content
            )
        total = sum(astuple(expired))
        if total:
            get_logger().info("rows_expired", rows=total)

    def _tell(self, gauges: upkeep.Gauges) -> None:
        self._metrics.parked_commits.set(gauges.parked_commits)
        self._metrics.quarantined_frames.set(gauges.quarantined_frames)
        for kind, count in gauges.requests.items():
            self._metrics.open_requests.labels(kind).set(count)
        self._metrics.tracked_repos.set(len(self._tracked))
        for source, seq in self._intake.received().items():
            self._metrics.received_seq.labels(source).set(seq)
        self._metrics.buffered_bytes.set(self._intake.buffered_bytes)
        self._metrics.buffered_frames.set(len(self._intake))
