"""Kill -9 at any word to the database while memories are embedded leaves none of them without its vectors."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys

from memory.database import Database
from tests.builders import memory
from tests.embedding_double import Double, add, assert_embedded, lapse_leases, work_off, worker_of
from tests.feed import Feed, rkey

POINTS = int(os.environ.get("TEST_KILL_POINTS", "20"))
DOUBLES = (Double("a"), Double("b", gives=5))


async def begin(database: Database) -> None:
    """A model that fills beside another, memories from before it and after."""
    async with database.connection() as conn:
        await conn.execute("truncate embedding_models, embeddings, embedding_requests, memories, repos, sources")
    feed = Feed(database)
    people = [feed.account(name) for name in ("alice", "bob")]
    await add(database, DOUBLES[0])
    await feed.send(*(each.create(rkey(number), memory(f"{number}")) for each in people for number in range(6)))
    await add(database, DOUBLES[1])
    await feed.send(*(each.create(rkey(number), memory(f"{number}")) for each in people for number in range(6, 12)))


async def run(url: str, kill_at: int) -> tuple[int, str]:
    """The exit status of a worker that is killed at that word, and what it printed."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.service.embed_killed", url, str(kill_at)), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode().splitlines()[-1] if output else ""


async def test_killed_workers_leave_no_memory_without_its_vectors(database: Database, database_url: str, seed: int):
    await begin(database)
    status, words = await run(database_url, 0)
    assert status == 0
    await assert_embedded(database, *DOUBLES)
    draw, killed = random.Random(seed), 0
    for kill_at in sorted(draw.sample(range(1, int(words) + 1), POINTS)):
        await begin(database)
        status, _ = await run(database_url, kill_at)
        assert status in (-signal.SIGKILL, 0), f"word {kill_at}"
        killed += status != 0
        await lapse_leases(database)
        await work_off(database, worker_of(database, *DOUBLES))
        await assert_embedded(database, *DOUBLES)
    assert killed >= 0.75 * POINTS, "a run may take fewer words than the first"
