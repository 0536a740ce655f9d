"""What came of the work on Spaces, counted in memory and added to the index now and then."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import Final

from indexer.store import space_counts
from indexer.store.fetches import SharedClock, database_clock
from indexer.store.space_counts import Work
from memory.database import Database
from memory.errors import Unavailable

STORED_EVERY_S: Final = 15.0
_FAREWELL_S: Final = 2.0

DONE: Final = "done"


class SpaceTally:
    """One for one process. What was counted since the last time is lost with a process that is killed."""

    def __init__(self, database: Database, shared_clock: SharedClock = database_clock) -> None:
        self._database = database
        self._shared_clock = shared_clock
        self._waiting: Counter[tuple[Work, str]] = Counter()

    def count(self, work: Work, outcome: str) -> None:
        """One more; `outcome` is a word of ours, for metrics tell it."""
        self._waiting[work, outcome] += 1

    async def keep(self) -> None:
        """Stores what was counted until cancelled, and what is left then."""
        try:
            while True:
                await asyncio.sleep(STORED_EVERY_S)
                with suppress(Unavailable):  # it is tried again
                    await self.store()
        finally:
            with suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(_FAREWELL_S):
                    await self.store()

    async def store(self) -> None:
        """Adds what waits to what is stored. If that fails, it waits still."""
        if not self._waiting:
            return
        taken, self._waiting = self._waiting, Counter()
        try:
            async with self._database.connection() as conn:
                await space_counts.add_tallies(conn, taken, self._shared_clock())
        except BaseException:
            self._waiting += taken
            raise
