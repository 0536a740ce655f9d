"""Frames in, batches out: the next batch is judged while the one before is written.

At most two batches are in memory beside the one that is written; a slow database holds back whoever feeds the frames.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import datetime

from indexer.arrivals import Batch
from indexer.writer import Outcome, Writer
from memory.tasks import TaskGroup

BATCHES_WAITING_MAX = 1
BATCH_BYTES_MAX = 8 * 1024 * 1024


def collect_garbage_seldom() -> None:
    """For a process that judges frames: what that allocates has no cycles, and goes when its batch is written.

    Python's default looks through the young objects at every 700th, and so hundreds of times a batch, and through all
    that lives soon after: a third of the time that judging takes.
    """
    gc.collect()
    gc.freeze()  # modules, queries, settings: they stay
    gc.set_threshold(50_000, 20, 100)


class Pipeline:
    """One lane from whoever feeds batches to the writer, in order."""

    def __init__(self, writer: Writer, now: Callable[[], datetime], applied: Callable[[Outcome], None]) -> None:
        self._writer = writer
        self._now = now
        self._applied = applied
        self._waiting: asyncio.Queue[Batch | None] = asyncio.Queue(BATCHES_WAITING_MAX)

    async def run(self, batches: AsyncGenerator[Batch]) -> None:
        """Writes every batch; returns once the last is durable, and raises what the writer or the feeder raises."""
        async with TaskGroup() as tasks:
            tasks.create_task(self._feed(batches))
            tasks.create_task(self._drain())

    async def settled(self) -> None:
        """Waits until all that was fed is durable; for the feeder, between two batches."""
        await self._waiting.join()

    async def _feed(self, batches: AsyncGenerator[Batch]) -> None:
        async with aclosing(batches):
            async for batch in batches:
                await self._waiting.put(batch)
        await self._waiting.put(None)

    async def _drain(self) -> None:
        while (batch := await self._waiting.get()) is not None:
            self._applied(await self._writer.apply(batch, self._now()))
            self._waiting.task_done()
