"""Tells metrics how Spaces do, from the index: whichever processes keep them in step, on whatever machine."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from indexer.metrics import IndexerMetrics
from indexer.store import space_counts
from indexer.store.fetches import SharedClock, database_clock
from indexer.store.space_counts import SpaceCounts, SpaceRepoState, SpaceState, Work
from memory.database import Database
from memory.errors import Unavailable
from memory.telemetry import get_logger

# Counting goes through whole tables: it never takes more than a twentieth of the time.
COUNT_EVERY_S: Final = 15.0
COUNTING_SHARE: Final = 20


class SpaceWatch:
    """Sets the gauges, and brings the counters up to what is stored."""

    def __init__(
        self,
        database: Database,
        metrics: IndexerMetrics,
        *,
        shared_clock: SharedClock = database_clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._metrics = metrics
        self._shared_clock = shared_clock
        self._monotonic = monotonic
        self._told: dict[tuple[str, str], int] = {}  # what the counters stand at
        self._counters = {
            Work.LISTING: metrics.space_listings,
            Work.PULL: metrics.space_pulls,
            Work.PURGE: metrics.space_purges,
            Work.REGISTRATION: metrics.space_registrations,
        }

    async def run(self) -> None:
        """Counts until cancelled; a database that is away is somebody else's to report."""
        while True:
            began = self._monotonic()
            try:
                await self.look()
            except Unavailable as outage:
                get_logger().warning("spaces_not_counted", sqlstate=outage.context.get("sqlstate"))
            await asyncio.sleep(max(COUNT_EVERY_S, COUNTING_SHARE * (self._monotonic() - began)))

    async def look(self) -> None:
        """Counts once."""
        async with self._database.connection() as conn:
            counts = await space_counts.count_spaces(conn, self._shared_clock())
            tallies = await space_counts.load_tallies(conn)
        self._show(counts)
        for work, counter in self._counters.items():
            for (told_of, outcome), times in tallies.items():
                if told_of == work:
                    # Fewer than before: another database is in the place of the one before.
                    more = times - self._told.get((work, outcome), 0)
                    counter.labels(outcome).inc(more if more >= 0 else times)
        self._told = tallies

    def _show(self, counts: SpaceCounts) -> None:
        metrics = self._metrics
        for state in SpaceState:
            metrics.spaces.labels(state).set(counts.spaces.get(state, 0))
        for repo_state in SpaceRepoState:
            metrics.space_repos.labels(repo_state).set(counts.repos.get(repo_state, 0))
        metrics.spaces_told.set(counts.told)
        metrics.space_pulls_waiting.set(counts.pulls)
        metrics.space_pull_wait_seconds.set(counts.pulls_late_s)
        metrics.space_notes_waiting.set(counts.notes)
        metrics.space_note_wait_seconds.set(counts.notes_late_s)
        metrics.space_sweep_seconds.set(counts.swept_s)
