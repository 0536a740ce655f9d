"""Kill -9 at any write seam loses nothing and doubles nothing."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys

from memory.database import Database
from tests.recorded import PDS1, contents, frames_of, replay

POINTS = int(os.environ.get("TEST_KILL_POINTS", "20"))


async def run_until_killed(url: str, kill_at: int) -> tuple[int, str]:
    """The exit status of a replay that is killed at that word, and what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.service.replay_killed", url, str(kill_at), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_killed_replay_resumes_without_loss_or_repetition(
    database: Database, database_url: str, seed: int
) -> None:
    status, words = await run_until_killed(database_url, 0)
    assert status == 0
    whole, once = await contents(database), await counted(database)
    draw = random.Random(seed)
    for kill_at in sorted(draw.sample(range(1, int(words) + 1), POINTS)):
        async with database.connection() as conn:
            await conn.execute("truncate memories, memory_edges, memory_versions, invalid_records, repos, identities")
            await conn.execute("truncate account_status, requests, sources, rejections")
        status, _ = await run_until_killed(database_url, kill_at)
        assert status == -signal.SIGKILL, f"word {kill_at}"
        async with database.connection() as conn:
            cursor = await conn.fetchval("select coalesce(max(seq), 0) from sources")
        await replay(database, frames_of("pds1-live.bin", "pds1-bulk.bin"), PDS1)
        assert await contents(database) == whole, f"killed at word {kill_at}, cursor at {cursor}"
        assert await counted(database) == once, f"killed at word {kill_at}: a batch was there without its cursor"


async def counted(database: Database) -> list[tuple[object, ...]]:
    """What was counted as not applied: twice for what was taken twice."""
    async with database.connection() as conn:
        rows = await conn.fetch("select source, reason, effect, times from rejections order by 1, 2, 3")
    return [tuple(row) for row in rows]
