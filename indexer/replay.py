"""Replays recordings through the path that live data takes.

The clock is each frame's own `time`, and identities are read from a PLC export as they stood then. What a live daemon
would ask of a host is answered from that export, as the clock advances and once more at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from datetime import UTC, datetime
from time import perf_counter

from indexer.arrivals import Arrival, Batch, IdentityResolved, Place, RequestAnswered, Source
from indexer.books import CAME_BACK, Effect, RequestKind
from indexer.consumer import Consumer, frame_clock
from indexer.patience import despite_conflicts
from indexer.pipeline import BATCH_BYTES_MAX, Pipeline
from indexer.report import ReplayReport
from indexer.store import repos, status, streams
from indexer.writer import Outcome, Writer
from memory.database import Database
from memory.identity import PlcExport

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The event loop lets the writer go on after at most this much judging.
FRAMES_BETWEEN_YIELDS = 20

Progress = Callable[[int], None]
"""Called now and then with the number of frames so far."""


class PersistentWriter(Writer):
    """Writes a batch again that met another writer's, and was rolled back for its sake."""

    async def apply(self, batch: Batch, now: datetime) -> Outcome:
        """As the writer's."""
        return await despite_conflicts(lambda: super(PersistentWriter, self).apply(batch, now), "batch")


class Replay:
    """One replay of one source's frames."""

    def __init__(
        self,
        database: Database,
        writer: Writer,
        *,
        source: Source,
        export: PlcExport,
        admits: Callable[[str], bool],
        batch_events: int,
        use_cursor: bool,
        progress: Progress,
    ) -> None:
        self._database = database
        self._writer = writer
        self._source = source
        self._export = export
        self._admits = admits
        self._batch_events = batch_events
        self._use_cursor = use_cursor
        self._progress = progress
        self._tracked: set[str] = set()
        self._clock = EPOCH
        self._frames = 0
        self._outcome = Outcome()

    async def run(self, frames: Iterable[bytes]) -> ReplayReport:
        """Replays `frames`; the report counts them, and what the index holds after."""
        started = perf_counter()
        async with self._database.connection() as conn:
            self._tracked = await repos.tracked_repos(conn)
            cursors = await streams.cursors(conn) if self._use_cursor else {}
        consumer = Consumer(
            identities=self._export,
            clock=frame_clock(EPOCH),
            tracked=self._tracked,
            admits=self._admits,
            cursors=cursors,
        )
        pipeline = Pipeline(self._writer, lambda: self._clock, self._outcome.add)
        await pipeline.run(self._batches(consumer, frames))
        await self._answer_at_end()
        async with self._database.connection() as conn:
            held = await status.memory_counts(conn)
        return self._report(held, perf_counter() - started)

    async def _batches(self, consumer: Consumer, frames: Iterable[bytes]) -> AsyncGenerator[Batch]:
        batch, buffered_bytes = Batch(), 0
        for frame in frames:
            arrivals, position = consumer.take(self._source, frame)
            self._frames += 1
            if position and position.frame_time:
                batch.arrivals += self._identities_until(position.frame_time)
            batch.arrivals += arrivals
            if position and self._use_cursor:
                batch.positions[self._source.url] = position
            buffered_bytes += len(frame) if arrivals else 0
            if len(batch.arrivals) >= self._batch_events or buffered_bytes >= BATCH_BYTES_MAX:
                yield batch
                self._progress(self._frames)
                batch, buffered_bytes = Batch(), 0
            if self._frames % FRAMES_BETWEEN_YIELDS == 0:
                await asyncio.sleep(0)
        if batch:
            yield batch
        self._progress(self._frames)

    def _identities_until(self, time: datetime) -> Iterator[Arrival]:
        """What changed in the directory since the frame before; a clock that goes back changes nothing."""
        if time <= self._clock:
            return
        changes = list(self._export.changes(self._clock, time))
        self._clock = time
        for identity in changes:
            if identity.did in self._tracked:
                yield IdentityResolved(Place(self._source, 0, time), identity)

    async def _answer_at_end(self) -> None:
        """The directory as the export leaves it, and every question that it answers."""
        async with self._database.connection() as conn:
            asked = await repos.open_requests(conn, sorted(self._tracked))
        last = [identity for did in sorted(self._tracked) if (identity := self._export.last(did))]
        end = max([self._clock, *(identity.resolved_at for identity in last)])
        place = Place(self._source, 0, end)
        arrivals: list[Arrival] = [IdentityResolved(place, identity) for identity in last]
        known = {identity.did for identity in last}
        # An export cannot say more of an account than that its DID stands. A key that was missed stays asked for, since
        # commits wait for it.
        arrivals += [
            RequestAnswered(place, did, kind)
            for did, kind, reason in asked
            if did in known and (kind == RequestKind.REPO_STATUS or (kind, reason) == (RequestKind.IDENTITY, CAME_BACK))
        ]
        self._outcome.add(await self._writer.apply(Batch(arrivals), end))

    def _report(self, held: status.MemoryCounts, seconds: float) -> ReplayReport:
        rejected: dict[str, int] = {}
        totals = dict.fromkeys(Effect, 0)
        for (_, reason, effect), times in sorted(self._outcome.tally.items()):
            totals[effect] += times
            if effect not in (Effect.ACCEPTED, Effect.ALREADY_APPLIED):
                rejected[reason] = rejected.get(reason, 0) + times
        return ReplayReport(
            frames=self._frames,
            commits_verified=totals[Effect.ACCEPTED],
            rejected=rejected,
            already_applied=totals[Effect.ALREADY_APPLIED],
            memories=held,
            seconds=round(seconds, 3),
        )
