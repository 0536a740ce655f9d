"""What is looked for again and again: gaps that have to be compared, repos that nobody compared for long, fetches that
were killed.

Each piece of work is a statement over a bounded number of rows, so that any number of processes may do it at once.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

from indexer.store import fetches
from indexer.store.fetches import SharedClock, database_clock
from memory.database import Database
from memory.errors import Misconfigured, Unavailable
from memory.telemetry import get_logger

ROUND_S: Final = 5.0
COMPARED_A_PIECE: Final = 5_000
PIECES_A_ROUND: Final = 20
ASKED_A_ROUND: Final = 1_000


class Rounds:
    """Writes down what has to be asked; the worker asks it."""

    def __init__(
        self,
        database: Database,
        *,
        audit_every: timedelta | None,
        round_s: float = ROUND_S,
        shared_clock: SharedClock = database_clock,
    ) -> None:
        """`audit_every`: how old a comparison with a repo's host may become; null: any age."""
        self._database = database
        self.failed = 0  # rounds that went wrong
        self._shared_clock = shared_clock
        self._audit_every = audit_every
        self._round_s = round_s

    async def run(self) -> None:
        """Works until cancelled; a database that is away is somebody else's to report."""
        while True:
            try:
                await self.round()
            except Unavailable as outage:
                get_logger().warning("round_skipped", sqlstate=outage.context.get("sqlstate"))
            except Misconfigured:
                raise
            except Exception as failure:  # noqa: BLE001  the edge: the worker beside it must go on
                self.failed += 1
                get_logger().error("round_failed", times=self.failed, exc_info=failure)
            await asyncio.sleep(self._round_s)

    async def round(self) -> None:
        """One look at everything."""
        now = self._shared_clock()
        async with self._database.transaction() as conn:
            forsaken = await fetches.take_back_forsaken(conn, now)
        if forsaken:
            get_logger().warning("fetches_forsaken", repos=forsaken)
        async with self._database.transaction() as conn:
            await fetches.ask_unasked(conn, ASKED_A_ROUND, now)
        for _ in range(PIECES_A_ROUND):
            async with self._database.transaction() as conn:
                source = await fetches.compare_next(conn, COMPARED_A_PIECE, now)
            if source is None:
                break
            get_logger().info("gap_compared", source=source)
        if self._audit_every is not None:
            async with self._database.transaction() as conn:
                await fetches.audit(conn, self._audit_every, ASKED_A_ROUND, now)
