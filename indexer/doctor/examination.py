"""Everything at once: each check has its own time limit, and none waits for another that it does not need."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from indexer.doctor.database import Findings, Place, check_database, unreachable
from indexer.doctor.machine import Port, check_disk, check_port, check_spool, judge_clock
from indexer.doctor.meaning import OpenEmbedder, check_embedder
from indexer.doctor.network import Network
from indexer.doctor.outside import check_directory, check_names, check_source, no_source, sources
from indexer.doctor.report import Report
from indexer.doctor.serving import check_service
from indexer.doctor.spaces import SpaceFiles, check_client, judge_keys, read_keys
from indexer.resync.disk import DiskBudget
from memory.embedded import hold_cluster
from memory.errors import MemoryAppviewError
from memory.schema import apply_migrations
from memory.sealed import SealingKeys
from memory.tasks import TaskGroup


@dataclass(frozen=True, slots=True)
class Subject:
    """What is looked at: the settings as far as they lead somewhere."""

    database_url: str | None = field(repr=False)  # null: the embedded one
    data_dir: Path  # of the embedded one
    relays: tuple[str, ...]
    pdses: tuple[str, ...]
    directory: str  # of did:plc
    ports: tuple[Port, ...]
    spool: DiskBudget
    service: str | None = None  # where the API is met by others; null: nowhere
    open_embedder: OpenEmbedder | None = field(default=None, repr=False)  # null: search is to be by words
    spaces: SpaceFiles = field(default_factory=SpaceFiles)


async def examine(subject: Subject, *, network: Network, clock: Callable[[], datetime]) -> Report:
    """Looks at all of it.

    The embedded database is started and migrated for that, as by every command; it blocks, so that comes first.
    """
    with ExitStack() as held:
        place = (
            _embedded(subject.data_dir, held) if subject.database_url is None else Place(subject.database_url, False)
        )
        followed = sources(subject.relays, subject.pdses)
        keys = read_keys(subject.spaces.keys)
        opening = keys if isinstance(keys, SealingKeys) else None
        async with TaskGroup() as tasks:
            database = tasks.create_task(_database(place, clock, opening))
            names = tasks.create_task(check_names(network, _urls(subject)))
            directory = tasks.create_task(check_directory(network, subject.directory, clock))
            firehoses = [tasks.create_task(check_source(network, source)) for source in followed]
            ports = [tasks.create_task(check_port(network, port)) for port in subject.ports]
            service = tasks.create_task(check_service(network, subject.service, clock, in_spaces=subject.spaces.in_use))
            client = tasks.create_task(check_client(network, subject.service, subject.spaces))
            spool = tasks.create_task(check_spool(subject.spool))
            embedder = subject.open_embedder
            models = [] if embedder is None else [tasks.create_task(check_embedder(embedder))]
            disks = [tasks.create_task(check_disk(subject.data_dir))] if subject.database_url is None else []
    directory_check, directory_ahead_s = directory.result()
    findings = database.result()
    return Report(
        (
            *findings.checks,
            judge_clock(findings.ahead_s, directory_ahead_s),
            names.result(),
            directory_check,
            *([firehose.result() for firehose in firehoses] or [no_source()]),
            *(port.result() for port in ports),
            service.result(),
            judge_keys(subject.spaces.keys, keys, findings.kept),
            *((shown,) if (shown := client.result()) is not None else ()),
            spool.result(),
            *(model.result() for model in models),
            *(disk.result() for disk in disks),
        )
    )


def _urls(subject: Subject) -> set[str]:
    own = {subject.service} if subject.service is not None else set[str]()
    return {*subject.relays, *subject.pdses, subject.directory} | own


def _embedded(data_dir: Path, held: ExitStack) -> Place | Findings:
    """The embedded database, running until `held` ends, or why there is none."""
    try:
        cluster = held.enter_context(hold_cluster(data_dir))
        apply_migrations(cluster.url())
    except MemoryAppviewError as failure:
        return Findings((unreachable(failure, embedded=True),))
    return Place(cluster.url(), embedded=True)


async def _database(place: Place | Findings, clock: Callable[[], datetime], keys: SealingKeys | None) -> Findings:
    return place if isinstance(place, Findings) else await check_database(place, clock, keys)
