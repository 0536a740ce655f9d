"""A worker that fetches all that is asked for, and is killed (-9) at its nth word to the database; run as a program by
`test_kill_fetch.py`.

    python -m tests.service.fetch_killed URL N DIRECTORY NOW      N = 0: lives, and prints how many words there were

A word is a statement, a begin or a commit: every seam between two writes is before one and after another.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import cast

from indexer.resync.apply import Applier
from indexer.resync.drain import Drain, Seam
from indexer.resync.hosts import open_repo_hosts
from indexer.resync.worker import HostWorker
from indexer.writer import Writer
from memory.database import Database, open_database
from memory.handles import AskedHandles
from memory.queries import Connection
from memory.resolver import IdentityResolver
from memory.tasks import TaskGroup
from tests.fakes.internet import LOOPBACK, Names, plain_outbound
from tests.feed import LIMITS
from tests.mending import BUDGET, POLL_S
from tests.service.replay_killed import Countdown, CountedConnection, CountedDatabase

SLICE_OPS = 3
PIECE_UNITS = 3  # a commit


def drain(self: Applier, seam: Seam) -> Drain:
    """What waits is joined in pieces of one commit."""
    return Drain(self._database, self._writer, self._clock, seam, piece_units=PIECE_UNITS)


class Counted(CountedDatabase):
    """A database of which every word is counted, also those outside of transactions."""

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        async with super().connection() as conn:
            yield cast("Connection", CountedConnection(conn, self.countdown))


async def main(url: str, kill_at: int, plc_url: str, now: datetime) -> None:
    """Fetches until nothing is asked for, up to the nth word."""
    CountedDatabase.countdown = Countdown(kill_at)
    Applier._drain = drain
    async with (
        open_database(url, application_name="killed", connections=4) as opened,
        plain_outbound() as outbound,
        open_repo_hosts(Names(), BUDGET, allowed=LOOPBACK) as hosts,
        TaskGroup() as tasks,
    ):
        database = Counted(opened.pool)
        handles = AskedHandles(outbound, (plc_url,))
        resolver = IdentityResolver(outbound, handles, database, tasks, plc_url=plc_url, clock=lambda: now)
        worker = HostWorker(
            database,
            Writer(database, LIMITS),
            resolver,
            hosts,
            clock=lambda: now,
            randomness=random.Random(1),
            slice_ops=SLICE_OPS,
            poll_s=POLL_S,
            shared_clock=lambda: now,
        )
        working = tasks.create_task(worker.run())
        await _until_nothing_is_asked_for(opened)
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
    print(CountedDatabase.countdown.words)


async def _until_nothing_is_asked_for(database: Database) -> None:
    query = "select count(*) from requests where kind = 'fetch'"
    while True:
        async with database.connection() as conn:
            if not await conn.fetchval(query):
                return
        await asyncio.sleep(POLL_S)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], datetime.fromisoformat(sys.argv[4])))
