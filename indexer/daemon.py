"""What the daemon does with what its followers bring: judge, write, and wait out an outage of the database."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from datetime import datetime
from typing import Final

from indexer.arrivals import Arrival, Batch, Source
from indexer.consumer import Consumer
from indexer.intake import Intake, Load, WaitingArrival, WaitingFrame, WaitingRelease
from indexer.judging import judge
from indexer.metrics import IndexerMetrics
from indexer.parking import release
from indexer.patience import patiently
from indexer.pipeline import BATCH_BYTES_MAX, Pipeline
from indexer.quota import QuotaLimits
from indexer.writer import Outcome, Writer
from memory.database import Database
from memory.resolver import IdentityResolver

# The event loop goes back to the sockets after so much judging: how long a frame takes is up to its author.
JUDGING_BETWEEN_YIELDS_S: Final = 0.01


class PatientWriter(Writer):
    """Writes a batch until it is written: what is behind it cannot be judged before."""

    def __init__(self, database: Database, limits: QuotaLimits, metrics: IndexerMetrics) -> None:
        super().__init__(database, limits)
        self._metrics = metrics

    async def apply(self, batch: Batch, now: datetime) -> Outcome:
        """As the writer's, for as long as it takes."""
        with self._metrics.batch_seconds.time():
            return await patiently(lambda: super(PatientWriter, self).apply(batch, now), "batch", self._retried)

    def _retried(self) -> None:
        self._metrics.write_retries.inc()


class Judge:
    """Makes batches of what waits in the intake, as fast as the writer takes them."""

    def __init__(
        self,
        database: Database,
        intake: Intake,
        consumer: Consumer,
        resolver: IdentityResolver,
        metrics: IndexerMetrics,
        *,
        source_of: Callable[[str], Source],
        batch_events: int,
    ) -> None:
        self._database = database
        self._intake = intake
        self._consumer = consumer
        self._resolver = resolver
        self._metrics = metrics
        self._source_of = source_of
        self._batch_events = batch_events

    async def batches(self, pipeline: Pipeline) -> AsyncGenerator[Batch]:
        """Endless; `pipeline` is who takes them."""
        time = asyncio.get_running_loop().time
        while True:
            load = await self._intake.take(self._batch_events, BATCH_BYTES_MAX)
            await patiently(
                lambda load=load: self._load_identities(load), "identities", self._metrics.write_retries.inc
            )
            batch = Batch()
            yielded = time()
            for waiting in load.waiting:
                match waiting:
                    case WaitingFrame():
                        batch.arrivals += await judge(self._consumer, waiting.source, waiting.frame)
                    case WaitingArrival():
                        batch.arrivals.append(waiting.arrival)
                    case WaitingRelease():
                        pass  # at the end: until then, what comes of its repo joins what is parked
                if time() - yielded >= JUDGING_BETWEEN_YIELDS_S:
                    await asyncio.sleep(0)
                    yielded = time()
            if releases := [waiting for waiting in load.waiting if isinstance(waiting, WaitingRelease)]:
                if batch:
                    yield batch
                await pipeline.settled()
                batch = Batch(await self._released(releases))
            batch.positions = load.positions
            if batch:
                yield batch

    async def _load_identities(self, load: Load) -> None:
        await self._resolver.load({waiting.repo for waiting in load.waiting if isinstance(waiting, WaitingFrame)})
        released = {waiting.repo for waiting in load.waiting if isinstance(waiting, WaitingRelease)}
        await self._resolver.reload(released)  # another process may have looked them up

    async def _released(self, releases: list[WaitingRelease]) -> list[Arrival]:
        """What is parked of these repos, once each; what is too much for one batch waits for another."""
        arrivals: list[Arrival] = []
        released_bytes = 0
        for waiting in {each.repo: each for each in sorted(releases, key=lambda each: each.settled)}.values():
            if released_bytes >= BATCH_BYTES_MAX:
                await self._intake.put(waiting)
                continue
            released = await patiently(
                lambda each=waiting: release(
                    self._database, self._consumer, each.repo, self._source_of, settled=each.settled
                ),
                "release",
                self._metrics.write_retries.inc,
            )
            arrivals += released.arrivals
            released_bytes += released.frame_bytes
            if not released.complete:
                await self._intake.put(waiting)
            elif waiting.answer is not None:
                arrivals.append(waiting.answer)
        return arrivals


def count_outcome(metrics: IndexerMetrics, outcome: Outcome) -> None:
    """Adds what became of a batch."""
    by_reason: Counter[tuple[str, str]] = Counter()
    for (_, reason, effect), times in outcome.tally.items():
        by_reason[reason, effect] += times
    for (reason, effect), times in by_reason.items():
        if effect == "accepted":
            metrics.commits.inc(times)
        else:
            metrics.rejections.labels(reason, effect).inc(times)
