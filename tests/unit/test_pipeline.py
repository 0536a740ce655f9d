from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from datetime import UTC, datetime

import pytest

from indexer.arrivals import Batch, Position
from indexer.pipeline import BATCHES_WAITING_MAX, Pipeline
from indexer.quota import QuotaLimits
from indexer.writer import Outcome, Writer
from memory.database import Database
from memory.errors import Misconfigured, Unavailable
from memory.queries import Connection

NOW = datetime(2026, 11, 1, tzinfo=UTC)
# One is written and one is held by the feeder, beside those that wait.
IN_MEMORY_MAX = BATCHES_WAITING_MAX + 2


class NoPool:
    """Stands where a pool would: this writer never asks for a connection."""

    async def acquire(self) -> Connection:
        raise AssertionError("nothing is written here")

    async def release(self, connection: Connection, *, timeout: float) -> None: ...  # noqa: ASYNC109
    async def close(self) -> None: ...
    def terminate(self) -> None: ...


class GatedWriter(Writer):
    """Writes nothing, and only while its gate is open."""

    def __init__(self) -> None:
        super().__init__(Database(NoPool()), QuotaLimits(1, 1, 1))
        self.gate = asyncio.Event()
        self.began = asyncio.Event()
        self.written: list[int] = []
        self.failure: Exception | None = None

    async def apply(self, batch: Batch, now: datetime) -> Outcome:
        self.began.set()
        await self.gate.wait()
        if self.failure:
            raise self.failure
        self.written.append(number_of(batch))
        return Outcome(tracked={str(number_of(batch))})


def batch(number: int) -> Batch:
    return Batch([], {"https://relay.test": Position(number, None)})


def number_of(batch: Batch) -> int:
    return batch.positions["https://relay.test"].seq


class Feeder:
    """Batches numbered from 1; knows how many were asked for, and whether it was closed."""

    def __init__(self, count: int, failure: Exception | None = None) -> None:
        self._count = count
        self._failure = failure
        self.made = 0
        self.held_back = asyncio.Event()
        self.closed = False

    async def batches(self) -> AsyncGenerator[Batch]:
        try:
            for number in range(1, self._count + 1):
                self.made = number
                if number == IN_MEMORY_MAX:
                    self.held_back.set()
                yield batch(number)
            if self._failure:
                raise self._failure
        finally:
            self.closed = True


def pipeline(writer: Writer, outcome: Outcome | None = None) -> Pipeline:
    return Pipeline(writer, lambda: NOW, (outcome or Outcome()).add)


def others(before: Iterable[asyncio.Task[object]]) -> set[asyncio.Task[object]]:
    """Tasks that were not there before."""
    return asyncio.all_tasks() - set(before)


async def test_batches_are_written_in_order_and_their_outcomes_told():
    writer, outcome = GatedWriter(), Outcome()
    writer.gate.set()
    await pipeline(writer, outcome).run(Feeder(9).batches())
    assert writer.written == list(range(1, 10))
    assert outcome.tracked == {str(number) for number in range(1, 10)}


async def test_run_without_batches_ends():
    await pipeline(GatedWriter()).run(Feeder(0).batches())


async def test_feeder_is_held_back_while_the_writer_is_blocked():
    writer, feeder = GatedWriter(), Feeder(50)
    running = asyncio.create_task(pipeline(writer).run(feeder.batches()))
    await writer.began.wait()
    await feeder.held_back.wait()
    for _ in range(100):  # every other task has had its turn, many times over
        await asyncio.sleep(0)
    assert (feeder.made, writer.written) == (IN_MEMORY_MAX, [])
    writer.gate.set()
    await running
    assert writer.written == list(range(1, 51))


async def test_writers_error_surfaces_as_itself():
    writer, feeder = GatedWriter(), Feeder(50)
    writer.failure = Unavailable("the database is gone")
    writer.gate.set()
    with pytest.raises(Unavailable, match="the database is gone"):
        await pipeline(writer).run(feeder.batches())
    assert feeder.closed


async def test_feeders_error_surfaces_as_itself():
    writer, feeder = GatedWriter(), Feeder(3, Misconfigured("the file is cut off"))
    writer.gate.set()
    with pytest.raises(Misconfigured, match="the file is cut off"):
        await pipeline(writer).run(feeder.batches())
    assert feeder.closed


async def test_feeders_error_surfaces_while_the_writer_is_blocked():
    writer, feeder = GatedWriter(), Feeder(1, Misconfigured("the file is cut off"))
    with pytest.raises(Misconfigured):
        await pipeline(writer).run(feeder.batches())
    assert writer.written == []


@pytest.mark.parametrize("failure", [None, Unavailable(), Misconfigured()])
async def test_end_leaves_no_task(failure: Exception | None):
    before = asyncio.all_tasks()
    writer = GatedWriter()
    writer.gate.set()
    if isinstance(failure, Unavailable):
        writer.failure = failure
    feeder = Feeder(5, failure if isinstance(failure, Misconfigured) else None)
    try:
        await pipeline(writer).run(feeder.batches())
    except (Unavailable, Misconfigured):
        assert failure is not None
    assert others(before) == set()


async def test_cancellation_leaves_no_task_and_closes_the_feeder():
    before = asyncio.all_tasks()
    writer, feeder = GatedWriter(), Feeder(50)
    running = asyncio.create_task(pipeline(writer).run(feeder.batches()))
    await feeder.held_back.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert others(before) == set()
    assert feeder.closed
    assert writer.written == []
