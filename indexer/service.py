"""Wires each command out of the settings; the only place beside `__main__` that sees them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from indexer import live
from indexer.arrivals import Batch, RestoreOrdered, Source, SourceKind, TakedownOrdered
from indexer.doctor import examination
from indexer.doctor.examination import Subject
from indexer.doctor.machine import Port
from indexer.doctor.network import Network
from indexer.doctor.report import Report
from indexer.live import Daemon
from indexer.metrics import IndexerMetrics
from indexer.pipeline import collect_garbage_seldom
from indexer.quota import QuotaLimits
from indexer.recording import merge_by_seq
from indexer.replay import Replay
from indexer.report import ReplayReport
from indexer.store import leases
from indexer.store.status import IndexStatus, index_status
from indexer.writer import Writer
from memory.database import Database, connect_database
from memory.errors import Misconfigured
from memory.identity import PlcExport
from memory.settings import IndexerSettings, Settings

CONNECTIONS: Final = 8  # of the daemon, beside two a source


async def replay(
    settings: Settings, files: Sequence[Path], source: Source, identities: Path, *, use_cursor: bool
) -> ReplayReport:
    """Replays `files`, merged by seq, as `source` sent them. `Misconfigured`: a file cannot be used."""
    collect_garbage_seldom()
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


async def run(settings: Settings) -> None:
    """Follows every source of the settings until a signal stops it. `Misconfigured`: there is none."""
    given = settings.indexer
    relays = [Source(url, SourceKind.RELAY) for url in given.relay_urls]
    sources = relays + [Source(url, SourceKind.PDS) for url in given.pds_urls if url not in given.relay_urls]
    if not sources:
        raise Misconfigured(
            "Nothing to follow: name relays in INDEXER_RELAY_URLS, or PDSes in INDEXER_PDS_URLS.",
            setting="INDEXER_RELAY_URLS",
        )
    collect_garbage_seldom()
    daemon = Daemon(
        sources=sources,
        plc_url=given.plc_url,
        handle_resolvers=given.handle_resolver,
        private_networks=given.allow_private_addresses,
        admits=admission(given),
        limits=quota_limits(given),
        batch_events=given.batch_events,
        version_content=timedelta(days=given.version_content_days),
        health=(given.health_host, given.health_port) if given.health_port else None,
        clock=_utc_now,
    )
    async with _connect(settings, connections=CONNECTIONS + 2 * len(sources)) as database:
        await live.run(daemon, database, IndexerMetrics())


async def set_cursor(settings: Settings, source: Source, seq: int) -> None:
    """Lets a source go on after `seq`, also one that was stopped."""
    async with _connect(settings, connections=1) as database, database.transaction() as conn:
        await leases.set_cursor(conn, source.url, seq, _utc_now())


async def order(settings: Settings, orders: Sequence[TakedownOrdered | RestoreOrdered]) -> None:
    """Carries out an operator's word, beside whatever daemons run."""
    async with _connect(settings, connections=2) as database:
        await Writer(database, quota_limits(settings.indexer)).apply(Batch(list(orders)), _utc_now())


async def examine(settings: Settings) -> Report:
    """Looks for what keeps this machine from following, keeping and serving."""
    url, given, api = settings.database.url, settings.indexer, settings.appview
    stats = "/xrpc/dev.bastienrobert.memory.getStats?repo=did:web:nobody.invalid"
    ports = [Port(api.host, api.port, stats, "APPVIEW_")]
    if given.health_port:
        ports.append(Port(given.health_host, given.health_port, "/live", "INDEXER_HEALTH_"))
    subject = Subject(
        None if url is None else url.get_secret_value(),
        settings.database.data_dir,
        given.relay_urls,
        given.pds_urls,
        given.plc_url,
        tuple(ports),
    )
    return await examination.examine(subject, network=Network(), clock=_utc_now)


async def read_status(settings: Settings) -> IndexStatus:
    """The index at one moment."""
    async with (
        _connect(settings, connections=1) as database,
        database.transaction(isolation="repeatable_read", readonly=True) as conn,
    ):
        return await index_status(conn)


def _connect(settings: Settings, *, connections: int) -> AbstractAsyncContextManager[Database]:
    return connect_database(settings.database, application_name="indexer", connections=connections)


def _utc_now() -> datetime:
    return datetime.now(UTC)


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
