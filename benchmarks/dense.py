"""`dense`: the same commits through the whole path into the embedded Postgres, against the run's own floors.

The floors: verifying alone, and storing alone (the same batches, verified beforehand, through the writer).
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from benchmarks.result import Result
from benchmarks.workload import Workload, one_op_commits
from indexer.arrivals import Batch, Source, SourceKind
from indexer.consumer import Consumer, frame_clock
from indexer.pipeline import Pipeline
from indexer.quota import QuotaLimits
from indexer.replay import Replay
from indexer.writer import Outcome, Writer
from memory.database import Database, open_database
from memory.embedded import hold_cluster
from memory.schema import apply_migrations

REPOS, COMMITS_EACH, BATCH_EVENTS = 1000, 30, 500
SOURCE = Source("https://relay.bench", SourceKind.RELAY)
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
LIMITS = QuotaLimits(100_000, 2**28, 200_000)


async def run() -> Result:
    """Commits per second from frame bytes to committed rows; `peer_value` is the smaller floor."""
    work = one_op_commits(REPOS, COMMITS_EACH)
    commits = REPOS * COMMITS_EACH
    with (
        tempfile.TemporaryDirectory(prefix="memory-bench-") as folder,
        hold_cluster(open_to_all(folder) / "postgres") as cluster,
    ):
        started = perf_counter()
        batches = judge(work)
        verify_only = commits / (perf_counter() - started)
        insert_only = commits / await timed_insert(cluster.url("insert_only"), batches)
        whole = commits / await timed_replay(cluster.url("whole"), work)
    floor = min(verify_only, insert_only)
    notes = (f"verify-only {verify_only:.0f}/s, insert-only {insert_only:.0f}/s, whole {whole:.0f}/s",)
    return Result("dense", round(whole), "commits/s", round(floor), round(whole / floor, 3), notes)


def open_to_all(folder: str) -> Path:
    """As root, Postgres runs as another user."""
    path = Path(folder)
    path.chmod(0o711)
    return path


def judge(work: Workload) -> list[Batch]:
    """All batches, judged as far as that takes no database."""
    consumer = Consumer(
        identities=work.export, clock=frame_clock(EPOCH), tracked=set(), admits=lambda _: True, cursors={}
    )
    batches, batch = list[Batch](), Batch()
    for frame in work.frames:
        arrivals, position = consumer.take(SOURCE, frame)
        batch.arrivals += arrivals
        if position:
            batch.positions[SOURCE.url] = position
        if len(batch.arrivals) >= BATCH_EVENTS:
            batches.append(batch)
            batch = Batch()
    return [*batches, batch]


async def timed_insert(url: str, batches: list[Batch]) -> float:
    """Seconds to store judged batches."""

    async def feed() -> AsyncGenerator[Batch]:
        for batch in batches:
            yield batch

    outcome = Outcome()
    apply_migrations(url)
    async with open_database(url, application_name="bench", connections=2) as database:
        started = perf_counter()
        await Pipeline(Writer(database, LIMITS), lambda: EPOCH, outcome.add).run(feed())
        seconds = perf_counter() - started
        await check(database)
    return seconds


async def timed_replay(url: str, work: Workload) -> float:
    """Seconds from frame bytes to committed rows."""
    apply_migrations(url)
    async with open_database(url, application_name="bench", connections=2) as database:
        replay = Replay(
            database,
            Writer(database, LIMITS),
            source=SOURCE,
            export=work.export,
            admits=lambda _: True,
            batch_events=BATCH_EVENTS,
            use_cursor=True,
            progress=lambda _: None,
        )
        started = perf_counter()
        await replay.run(work.frames)
        seconds = perf_counter() - started
        await check(database)
    return seconds


async def check(database: Database) -> None:
    """Every commit is there."""
    async with database.connection() as conn:
        assert await conn.fetchval("select count(*) from memories") == REPOS * COMMITS_EACH
