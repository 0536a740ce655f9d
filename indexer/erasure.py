"""Sees to it that what was deleted is gone from the files within a day, also where nobody writes any more.

Autovacuum comes when many rows are dead, on a quiet table never; and what Postgres calls vacuumed is only free: an
index of terms keeps each term that it ever had, and a page keeps the bytes that nothing was written over. So twice a
day, if anything was updated or deleted since, dead rows are forgotten, the index of terms is built anew beside the old
one, and tables that are small enough for nobody to notice are written anew, in new files.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Final

from indexer.store import erasure
from indexer.store.erasure import State
from memory.database import Database
from memory.errors import Unavailable
from memory.queries import Connection, StatementFailed
from memory.telemetry import get_logger

EVERY: Final = timedelta(hours=12)
LOOK_EVERY_S: Final = 600.0
# Nobody can read a table while it is written anew.
REWRITTEN_BYTES_MAX: Final = 64 * 1024 * 1024
VECTORS_SHARE: Final = 8
LOCK_WAIT_S: Final = 2  # who waits for a lock keeps others waiting; a little more than autovacuum takes to give way
LOCK_ATTEMPTS: Final = 5
BETWEEN_ATTEMPTS_S: Final = 5.0
LOCK_NOT_AVAILABLE: Final = "55P03"


class Erasure:
    """One process of all that share a database does it; the others find it done."""

    def __init__(self, database: Database, *, rewritten_bytes_max: int = REWRITTEN_BYTES_MAX) -> None:
        self._database = database
        self._rewritten_bytes_max = rewritten_bytes_max

    async def run(self) -> None:
        """Works until cancelled; what fails is tried again at the next look."""
        while True:
            try:
                await self.look()
            except (Unavailable, StatementFailed) as failure:
                get_logger().warning("erasure_failed", sqlstate=failure.context.get("sqlstate"))
            await asyncio.sleep(LOOK_EVERY_S)

    async def look(self) -> bool:
        """Erases if it is time to, and nobody else does; whether it did."""
        async with self._database.connection() as conn, _alone(conn) as alone:
            if not alone:
                return False
            state = await erasure.load_state(conn)
            if state.last_at is None:  # a new database, or one that was never seen to: from now on it is
                await erasure.store_state(conn, state.now, "")
                return False
            if not _is_due(state.last_at, state.now):
                return False
            return await self._erase(conn, state)

    async def _erase(self, conn: Connection, state: State) -> bool:
        changed = state.changes != state.last_changes
        if changed:
            await erasure.vacuum(conn)
            sizes = await erasure.table_bytes(conn)
            small = [table for table in erasure.REWRITTEN if sizes[table] <= self._most_bytes(table)]
            rewritten = [table for table in small if await _rewrite(conn, table)]
            if "memories" not in rewritten:
                await erasure.rebuild_terms(conn)
            get_logger().info("contents_erased", count=len(rewritten))
        # What was written meanwhile may have been missed, and shows as a change at the next look.
        await erasure.store_state(conn, state.now, state.changes)
        return changed

    def _most_bytes(self, table: str) -> int:
        """What a table may have for nobody to notice; an index of vectors takes much longer to build than others."""
        return self._rewritten_bytes_max // (VECTORS_SHARE if table == "embeddings" else 1)


async def _rewrite(conn: Connection, table: str) -> bool:
    """Writes a table anew, unless others use it all the time; whether it was."""
    for attempt in range(LOCK_ATTEMPTS):
        await erasure.limit_lock_waits(conn, LOCK_WAIT_S)
        rewritten = await _rewrite_if_free(conn, table)
        await erasure.limit_lock_waits(conn, 0)
        if rewritten:
            return True
        if attempt + 1 < LOCK_ATTEMPTS:
            await asyncio.sleep(BETWEEN_ATTEMPTS_S)
    get_logger().warning("rewrite_skipped", attempts=LOCK_ATTEMPTS)
    return False


async def _rewrite_if_free(conn: Connection, table: str) -> bool:
    try:
        await erasure.rewrite(conn, table)
    except StatementFailed as failure:
        if failure.sqlstate != LOCK_NOT_AVAILABLE:
            raise
        return False
    return True


@asynccontextmanager
async def _alone(conn: Connection) -> AsyncGenerator[bool]:
    """Whether no other process erases; for as long as this lasts, none will."""
    alone = await erasure.try_lock(conn)
    try:
        yield alone
    except BaseException:
        # The lock and the limit go with the connection; a database that is away is not waited for.
        conn.terminate()
        raise
    if alone:
        await erasure.unlock(conn)


def _is_due(last_at: datetime, now: datetime) -> bool:
    """A clock that was set back makes it so."""
    return not timedelta(0) <= now - last_at < EVERY
