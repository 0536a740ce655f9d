"""Wires each command out of the settings; the only place beside `__main__` that sees them."""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain
from pathlib import Path
from typing import Final

from indexer import backfill_command, calibrate_command, deletions_command, live, reembed_command, resync_command
from indexer import embed as embed_process
from indexer import repair as repair_process
from indexer.arrivals import RestoreOrdered, Source, SourceKind, TakedownOrdered
from indexer.companion import Companion, give_way
from indexer.deletions_command import Applied
from indexer.doctor import examination
from indexer.doctor.examination import Subject
from indexer.doctor.machine import Port
from indexer.doctor.network import Network
from indexer.doctor.report import Report
from indexer.doctor.spaces import SpaceFiles
from indexer.embed import Embed
from indexer.live import Daemon
from indexer.metrics import IndexerMetrics
from indexer.pipeline import collect_garbage_seldom
from indexer.quota import QuotaLimits
from indexer.recording import merge_by_seq
from indexer.repair import OpenRepair, Repair, crew_of, open_worker
from indexer.replay import PersistentWriter, Replay
from indexer.report import ReplayReport
from indexer.resync.crew import Crew, processes_for
from indexer.resync.disk import DiskBudget
from indexer.resync.hosts import HostBudget
from indexer.rotate_command import Rotated, rotate
from indexer.spaces import process as space_process
from indexer.spaces.process import SpaceWork
from indexer.spaces.sync import SpacePolicy
from indexer.status_text import SpacesSetUp
from indexer.store import leases
from indexer.store.status import IndexStatus, index_status
from indexer.writer import Writer
from memory.database import Database, connect_database
from memory.embedders import open_embedder
from memory.embedding import Absent, Embedder
from memory.errors import Misconfigured
from memory.identifiers import NAMESPACE
from memory.identity import PlcExport
from memory.sealed import SealingKeys
from memory.service_did import service_did
from memory.settings import EmbeddingSettings, IndexerSettings, Settings
from memory.space_protocol import SYNCER_FRAGMENT

CONNECTIONS: Final = 8  # of the daemon, beside two a source
SPACE_CONNECTIONS: Final = 20  # as many pulls as are under way at a time, and what looks for more
EMBED_CONNECTIONS: Final = 3  # of which building an index takes one for as long as it lasts


async def replay(
    settings: Settings, files: Sequence[Path], source: Source, identities: Path, *, use_cursor: bool
) -> ReplayReport:
    """Replays `files`, merged by seq, as `source` sent them. `Misconfigured`: one cannot be used, or all are empty."""
    collect_garbage_seldom()
    export = PlcExport.read(identities)
    frames = merge_by_seq(files)
    first = next(frames, None)
    if first is None:
        raise Misconfigured(f"There is nothing to replay: no frame in {', '.join(map(str, files))}.")
    async with _connect(settings, connections=2) as database:
        return await Replay(
            database,
            PersistentWriter(database, quota_limits(settings.indexer)),
            source=source,
            export=export,
            admits=admission(settings.indexer),
            batch_events=settings.indexer.batch_events,
            use_cursor=use_cursor,
            progress=_progress(),
        ).run(chain([first], frames))


async def run(settings: Settings) -> None:
    """Follows every source of the settings until a signal stops it. `Misconfigured`: there is none."""
    given = settings.indexer
    relays = [Source(url, SourceKind.RELAY) for url in given.relay_urls]
    sources = relays + [Source(url, SourceKind.PDS) for url in given.pds_urls if url not in given.relay_urls]
    if not sources:
        words = "Nothing to follow: name relays in INDEXER_RELAY_URLS, or PDSes in INDEXER_PDS_URLS"
        alone = "" if settings.spaces.key_file is None else " (`python -m indexer spaces` keeps private Spaces alone)"
        raise Misconfigured(f"{words}{alone}.", setting="INDEXER_RELAY_URLS")
    if settings.spaces.key_file is not None:
        _sealing_keys(settings)  # said here rather than by a companion that cannot begin
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
        deletions_kept=timedelta(days=given.deletion_days),
        health=(given.health_host, given.health_port) if given.health_port else None,
        clock=_utc_now,
        repair=Companion(("repair",)),
        embed=None if settings.embedding.backend == "none" else Companion(("embed",)),
        spaces=None if settings.spaces.key_file is None else Companion(("spaces",)),
    )

    def connect() -> AbstractAsyncContextManager[Database]:
        return _connect(settings, connections=CONNECTIONS + 2 * len(sources))

    if settings.database.url is not None:
        await live.run(daemon, connect, IndexerMetrics())
        return
    async with connect() as database:  # ours to start: where it does not, waiting mends nothing
        await live.run(daemon, lambda: nullcontext(database), IndexerMetrics())


async def repair(settings: Settings, *, with_parent: bool) -> None:
    """Asks hosts what waits to be asked of them, until a signal or the parent's end stops it."""
    collect_garbage_seldom()
    if with_parent:
        give_way()
    await repair_process.run(
        repair_of(settings.indexer), lambda: _connect(settings, connections=CONNECTIONS), with_parent=with_parent
    )


async def embed(settings: Settings, *, with_parent: bool) -> int:
    """Fills vectors until a signal or the parent's end stops it; for how many contents."""
    if with_parent:
        give_way()
    return await embed_process.run(
        embed_of(settings.embedding),
        lambda: _connect(settings, connections=EMBED_CONNECTIONS),
        with_parent=with_parent,
    )


async def spaces(settings: Settings, *, with_parent: bool) -> int:
    """Keeps Spaces in step until a signal or the parent's end stops it; how many repos were pulled."""
    collect_garbage_seldom()
    if with_parent:
        give_way()
    given = settings.indexer
    work = SpaceWork(
        plc_url=given.plc_url,
        handle_resolvers=given.handle_resolver,
        private_networks=given.allow_private_addresses,
        limits=quota_limits(given),
        keys=_sealing_keys(settings),
        clock=_utc_now,
        random_bytes=secrets.token_bytes,
        policy=SpacePolicy(
            timedelta(seconds=settings.spaces.max_staleness_s), timedelta(days=settings.spaces.kept_days)
        ),
        syncer=_syncer(settings),
    )
    return await space_process.run(
        work, lambda: _connect(settings, connections=SPACE_CONNECTIONS), with_parent=with_parent
    )


def spaces_set_up(settings: Settings) -> SpacesSetUp:
    """What there is to say of Spaces beside what is in the index."""
    return SpacesSetUp(settings.spaces.key_file is not None, _syncer(settings))


def _syncer(settings: Settings) -> str | None:
    """What hosts of Spaces tell of writes; None: they cannot."""
    url = settings.appview.public_url
    did = None if url is None else service_did(url)
    return None if did is None else did + SYNCER_FRAGMENT


async def rotate_key(settings: Settings) -> Rotated:
    """Seals what other keys sealed by the current one."""
    keys = _sealing_keys(settings)
    async with _connect(settings, connections=1) as database:
        return await rotate(database, keys)


def _sealing_keys(settings: Settings) -> SealingKeys:
    file = settings.spaces.key_file
    if file is None:
        raise Misconfigured(
            "There are no keys for Spaces: name their file in SPACES_KEY_FILE.", setting="SPACES_KEY_FILE"
        )
    return SealingKeys.read(file, random_bytes=secrets.token_bytes)


async def reembed(settings: Settings, options: argparse.Namespace) -> int:
    """Changes models of embeddings; the exit status."""
    plan = reembed_command.plan(options)
    async with _connect(settings, connections=reembed_command.CONNECTIONS) as database:
        return await reembed_command.run(plan, database, embed_of(settings.embedding))


async def calibrate(settings: Settings, model: str | None) -> int:
    """Measures what a model's likenesses mean; the exit status."""
    async with _connect(settings, connections=1) as database:
        return await calibrate_command.run(database, embed_of(settings.embedding).open_embedder, model)


def embed_of(given: EmbeddingSettings) -> Embed:
    """What a worker is run with."""

    async def opened(model: str | None) -> Embedder | Absent:
        return await open_embedder(given, model=model)

    return Embed(opened, allow_private=given.allow_private)


async def join_crew(settings: Settings, processes: int) -> tuple[int, int]:
    """Fetches as one of so many processes until the parent ends; how many repos, and with how many records."""
    collect_garbage_seldom()
    return await repair_process.run(
        repair_of(settings.indexer).shared(processes),
        lambda: _connect(settings, connections=CONNECTIONS),
        with_parent=True,
        rounds=False,
    )


def repair_of(given: IndexerSettings) -> Repair:
    """What a worker is run with."""
    return Repair(
        plc_url=given.plc_url,
        handle_resolvers=given.handle_resolver,
        private_networks=given.allow_private_addresses,
        limits=quota_limits(given),
        clock=_utc_now,
        budget=HostBudget(requests_per_s=given.host_rate),
        disk=_disk(given),
        fetches_at_once=given.fetches_at_once,
        audit_every=timedelta(days=given.audit_days) if given.audit_days else None,
        named_hosts=(*given.relay_urls, *given.pds_urls),
    )


async def backfill(settings: Settings, options: argparse.Namespace) -> int:
    """Fetches repos that were named or are discovered; the exit status."""
    given = settings.indexer
    listed = None if isinstance(given.repos, str) else given.repos
    plan = backfill_command.plan(options, relays=given.relay_urls, pdses=given.pds_urls, listed=listed)
    expected = len(plan.subjects) if plan.origin is None else None
    async with _open_repair(settings, options, expected) as (database, opened, crew):
        return await backfill_command.run(plan, database, opened, crew, clock=_utc_now, admits=admission(given))


async def resync(settings: Settings, options: argparse.Namespace) -> int:
    """Has tracked repos fetched anew; the exit status."""
    plan = resync_command.plan(options)
    async with _open_repair(settings, options, len(plan.subjects) or None) as (database, opened, crew):
        return await resync_command.run(plan, database, opened, crew)


@asynccontextmanager
async def _open_repair(
    settings: Settings, options: argparse.Namespace, expected: int | None
) -> AsyncGenerator[tuple[Database, OpenRepair, Crew]]:
    """A worker by the settings, and by what the command line says over them; and who fetches along with it.

    `expected`: how many repos; null: any number.
    """
    collect_garbage_seldom()
    what = repair_of(settings.indexer)
    if options.concurrency is not None:
        what = replace(what, fetches_at_once=options.concurrency)
    if options.host_rate is not None:
        what = replace(what, budget=replace(what.budget, requests_per_s=options.host_rate))
    processes = options.processes or processes_for(
        what.fetches_at_once, _usable_cores(), what.budget.repos_at_once, expected
    )
    crew = crew_of(what, processes, os.environ)
    what = what.shared(processes)
    async with _connect(settings, connections=CONNECTIONS) as database, open_worker(database, what) as opened:
        yield database, opened, crew


async def set_cursor(settings: Settings, source: Source, seq: int) -> None:
    """Lets a source go on after `seq`, also one that was stopped."""
    async with _connect(settings, connections=1) as database, database.transaction() as conn:
        await leases.set_cursor(conn, source.url, seq, _utc_now())


async def order(settings: Settings, given: TakedownOrdered | RestoreOrdered) -> str:
    """Carries out an operator's word, beside whatever daemons run; what became of it."""
    async with _connect(settings, connections=2) as database:
        return await deletions_command.carry_out(Writer(database, quota_limits(settings.indexer)), given, _utc_now())


async def export_deletions(settings: Settings, since: datetime | None, out: Path | None) -> int:
    """Writes down what was deleted; how many lines."""
    async with _connect(settings, connections=1) as database:
        return await deletions_command.export(database, since, out)


async def apply_deletions(settings: Settings, file: Path) -> Applied:
    """Deletes again what a restored backup brought back."""
    async with _connect(settings, connections=2) as database:
        writer = Writer(database, quota_limits(settings.indexer))
        return await deletions_command.apply(database, writer, file, _utc_now())


async def examine(settings: Settings) -> Report:
    """Looks for what keeps this machine from following, keeping and serving."""
    url, given, api = settings.database.url, settings.indexer, settings.appview
    stats = f"/xrpc/{NAMESPACE}getStats?repo=did:web:nobody.invalid"
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
        _disk(given),
        api.public_url,
        None if settings.embedding.backend == "none" else lambda: open_embedder(settings.embedding),
        SpaceFiles(settings.spaces.key_file, settings.spaces.client_key_file),
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


def _usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _utc_now() -> datetime:
    return datetime.now(UTC)


def quota_limits(settings: IndexerSettings) -> QuotaLimits:
    """What one repo may hold."""
    return QuotaLimits(settings.repo_max_memories, int(settings.repo_max_bytes), settings.repo_max_edges)


def _disk(settings: IndexerSettings) -> DiskBudget:
    """What repos may take of the disk while they are fetched."""
    return DiskBudget(settings.spool_dir, int(settings.spool_max_bytes))


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
