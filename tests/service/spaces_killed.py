"""A worker that keeps Spaces in step until nothing is to be done, and is killed (-9) at its nth word to the database;
run as a program by `test_kill_space_sync.py`.

    python -m tests.service.spaces_killed URL N DIRECTORY NOW      N = 0: lives, and prints how many words there were

A word is a statement, a begin or a commit: every seam between two writes is before one and after another.
"""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import suppress
from datetime import datetime

from indexer.spaces.hosts import Proofs, open_space_hosts
from indexer.spaces.sync import SpacePolicy
from indexer.spaces.worker import SpaceWorker
from indexer.writer import Writer
from memory.database import Database, open_database
from memory.handles import AskedHandles
from memory.resolver import IdentityResolver
from memory.space_authorities import SpaceAuthorities
from memory.tasks import TaskGroup
from tests.fakes.internet import LOOPBACK, Names, plain_outbound
from tests.feed import LIMITS
from tests.service.fetch_killed import Counted
from tests.service.replay_killed import Countdown, CountedDatabase
from tests.spaces_world import BUDGET, POLL_S, TO_DO, sealing_keys

SLICE_OPS = 3


async def main(url: str, kill_at: int, plc_url: str, now: datetime) -> None:
    """Works until nothing is to be done, up to the nth word."""
    CountedDatabase.countdown = Countdown(kill_at)
    proofs = Proofs(lambda: now, random.SystemRandom().randbytes)
    async with (
        open_database(url, application_name="killed", connections=4) as opened,
        plain_outbound() as outbound,
        open_space_hosts(Names(), BUDGET, proofs, allowed=LOOPBACK) as hosts,
        TaskGroup() as tasks,
    ):
        database = Counted(opened.pool)
        handles = AskedHandles(outbound, (plc_url,))
        worker = SpaceWorker(
            database,
            Writer(database, LIMITS),
            IdentityResolver(outbound, handles, database, tasks, plc_url=plc_url, clock=lambda: now),
            SpaceAuthorities(outbound, plc_url=plc_url, clock=lambda: now),
            hosts,
            sealing_keys(),
            policy=SpacePolicy(),
            clock=lambda: now,
            randomness=random.Random(1),
            slice_ops=SLICE_OPS,
            poll_s=POLL_S,
            shared_clock=lambda: now,
            monotonic=lambda: 0.0,
        )
        working = tasks.create_task(worker.run())
        await _until_nothing_is_to_be_done(opened, now)
        working.cancel()
        with suppress(asyncio.CancelledError):
            await working
    print(CountedDatabase.countdown.words)


async def _until_nothing_is_to_be_done(database: Database, now: datetime) -> None:
    while True:
        async with database.connection() as conn:
            left = await conn.fetchval(TO_DO, None, now)
            if not left and not await conn.fetchval("select count(*) from space_repos where not in_step"):
                return
        await asyncio.sleep(POLL_S)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3], datetime.fromisoformat(sys.argv[4])))
