"""Whatever came live, was lost, fetched, killed, overtaken: a repo that says it is whole is what its author made it."""

from __future__ import annotations

import asyncio
import os
import random

from indexer.quota import QuotaLimits
from memory.database import Database
from memory.tasks import TaskGroup
from tests.store.fetch_histories import History

CASES = int(os.environ.get("TEST_FETCH_CASES", "2000"))
AT_ONCE = 4
LIMITS = [
    *[QuotaLimits(max_memories=1000, max_bytes=10**9, max_edges=10**6)] * 2,
    QuotaLimits(max_memories=3, max_bytes=10**9, max_edges=10**6),
    QuotaLimits(max_memories=1000, max_bytes=900, max_edges=10**6),
    QuotaLimits(max_memories=1000, max_bytes=10**9, max_edges=10**6, max_invalid=1),
    QuotaLimits(max_memories=2, max_bytes=10**9, max_edges=10**6, max_invalid=1),
]


async def test_repo_that_says_it_is_whole_is_whole(database: Database, seed: int):
    numbers = iter(range(CASES))

    async def play() -> None:
        for number in numbers:
            draw = random.Random(f"{seed}-{number}")
            await History(database, draw, draw.choice(LIMITS), f"{seed}-{number}").live()
            await asyncio.sleep(0)

    async with TaskGroup() as tasks:
        for _ in range(AT_ONCE):
            tasks.create_task(play())
