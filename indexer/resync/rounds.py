"""What is looked for again and again: gaps that have to be compared, repos that nobody compared for long, fetches that
were killed.

Each piece of work is a statement over a bounded number of rows, so that any number of processes may do it at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from indexer.store import fetches
from memory.database import Database
from memory.errors import Unavailable
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
        clock: Callable[[], datetime],
        audit_every: timedelta | None,
        round_s: float = ROUND_S,
    ) -> None:
        """`audit_every`: how old a comparison with a repo's host may become; null: any age."""
        self._database = database
        self._clock = clock
        self._audit_every = audit_every
        self._round_s = round_s

    async def run(self) -> None:
        """Works until cancelled; a database that is away is somebody else's to report."""
        while True:
            try:
                await self.round()
            except Unavailable as outage:
                get_logger().warning("round_skipped", sqlstate=outage.context.get("sqlstate"))
            await asyncio.sleep(self._round_s)

    async def round(self) -> None:
        """One look at everything."""
        now = self._clock()
        async with self._database.transaction() as conn:
            forsaken = await fetches.take_back_forsaken(conn, now)
        if forsaken:
            get_logger().warning("fetches_forsaken", repos=forsaken)
        async with self._database.transaction() as conn:
            await fetches.ask_unasked(conn, now, ASKED_A_ROUND)
        for _ in range(PIECES_A_ROUND):
            async with self._database.transaction() as conn:
                source = await fetches.compare_next(conn, now, COMPARED_A_PIECE)
            if source is None:
                break
            get_logger().info("gap_compared", source=source)
        if self._audit_every is not None:
            async with self._database.transaction() as conn:
                await fetches.audit(conn, now, now - self._audit_every, ASKED_A_ROUND)
