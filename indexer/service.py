"""Wires each command out of the settings; the only place beside `__main__` that sees them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from indexer.arrivals import Source
from indexer.quota import QuotaLimits
from indexer.recording import merge_by_seq
from indexer.replay import Replay
from indexer.report import ReplayReport
from indexer.store.status import IndexStatus, index_status
from indexer.writer import Writer
from memory.database import Database, connect_database
from memory.identity import PlcExport
from memory.settings import IndexerSettings, Settings


async def replay(
    settings: Settings, files: Sequence[Path], source: Source, identities: Path, *, use_cursor: bool
) -> ReplayReport:
    """Replays `files`, merged by seq, as `source` sent them. `Misconfigured`: a file cannot be used."""
    export = PlcExport.read(identities)
    frames = merge_by_seq(files)
    async with _connect(settings, connections=2) as database:
        return await Replay(
            database,
            Writer(database, quota_limits(settings.indexer)),
            source=source,
            export=export,
            admits=admission(settings.indexer),
            batch_events=settings.indexer.batch_events,
            use_cursor=use_cursor,
            progress=_progress(),
        ).run(frames)


async def read_status(settings: Settings) -> IndexStatus:
    """The index at one moment."""
    async with (
        _connect(settings, connections=1) as database,
        database.transaction(isolation="repeatable_read", readonly=True) as conn,
    ):
        return await index_status(conn)


def _connect(settings: Settings, *, connections: int) -> AbstractAsyncContextManager[Database]:
    return connect_database(settings.database, application_name="indexer", connections=connections)


def quota_limits(settings: IndexerSettings) -> QuotaLimits:
    """What one repo may hold."""
    return QuotaLimits(settings.repo_max_memories, int(settings.repo_max_bytes), settings.repo_max_edges)


def admission(settings: IndexerSettings) -> Callable[[str], bool]:
    """Which DIDs may be tracked."""
    repos = settings.repos
    return (lambda _: True) if isinstance(repos, str) else repos.__contains__


def _progress() -> Callable[[int], None]:
    """A line that is drawn over, for people; nothing where no person reads."""
    if not sys.stderr.isatty():
        return lambda _: None

    def show(frames: int) -> None:
        sys.stderr.write(f"\r{frames:,} frames")
        sys.stderr.flush()

    return show
