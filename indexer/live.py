"""The daemon, put together: followers, judge, writer, identities, upkeep and health, in one group of tasks."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic
from typing import Final
from uuid import uuid4

from indexer.arrivals import Source, SourceKind
from indexer.companion import Companion
from indexer.consumer import KEYLESS_MAX, Consumer
from indexer.daemon import Judge, PatientWriter, count_outcome
from indexer.erasure import Erasure
from indexer.follower import Follower, Following, Patience
from indexer.identity_worker import IdentityWorker
from indexer.intake import Intake
from indexer.metrics import IndexerMetrics
from indexer.patience import Connect, connected, patiently
from indexer.pipeline import Pipeline
from indexer.quota import QuotaLimits
from indexer.spaces.watch import SpaceWatch
from indexer.stopping import Stopped, stop_at_signal
from indexer.store import repos, space_repos, streams
from indexer.upkeep import Upkeep
from memory.database import Database
from memory.errors import Unavailable
from memory.health import build_health_app, serve_health
from memory.identities import open_identities
from memory.identity import Identity
from memory.outbound_addresses import Network
from memory.resolver import IdentityResolver
from memory.tasks import TaskGroup
from memory.telemetry import get_logger

REFRESH_INTERVAL: Final = timedelta(minutes=10)
REFRESHES_REMEMBERED: Final = 100_000
HEALTH_PATIENCE_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Daemon:
    """What a daemon is run with."""

    sources: Sequence[Source]
    plc_url: str
    handle_resolvers: Sequence[str]  # instead of DNS, in development
    private_networks: Sequence[Network]  # that may be asked, in development
    admits: Callable[[str], bool]
    limits: QuotaLimits
    batch_events: int
    version_content: timedelta
    deletions_kept: timedelta
    health: tuple[str, int] | None
    clock: Callable[[], datetime]
    patience: Patience = field(default_factory=Patience)
    repair: Companion | None = None  # what asks hosts; null: somebody else does
    embed: Companion | None = None  # what fills vectors
    spaces: Companion | None = None  # what keeps Spaces in step


class _LiveIdentities:
    """What is known of identities without asking; and how often a key may be asked for anew."""

    def __init__(self, resolver: IdentityResolver, clock: Callable[[], datetime]) -> None:
        self._resolver = resolver
        self._clock = clock
        self._refreshed: OrderedDict[str, datetime] = OrderedDict()

    def at(self, did: str, time: datetime) -> Identity | None:  # noqa: ARG002
        """The cached one; the present is the only time."""
        return self._resolver.cached(did)

    def announced(self, did: str, time: datetime) -> Identity | None:  # noqa: ARG002
        """Has to be asked."""
        return None

    def may_refresh(self, did: str) -> bool:
        """Once in a while, so that a forger's signatures cost us little; True counts as the once."""
        now = self._clock()
        last = self._refreshed.get(did)
        if last is not None and now - last < REFRESH_INTERVAL:
            return False
        self._refreshed[did] = now
        self._refreshed.move_to_end(did)
        if len(self._refreshed) > REFRESHES_REMEMBERED:
            self._refreshed.popitem(last=False)
        return True


class _Readiness:
    """Whether a daemon can do its work."""

    def __init__(self) -> None:
        self.database: Database | None = None  # null: it has not answered yet

    async def reason(self) -> str | None:
        """Why it cannot; null: it can."""
        if self.database is None:
            return "the database does not answer"
        try:
            async with asyncio.timeout(HEALTH_PATIENCE_S), self.database.connection() as conn:
                await repos.ping(conn)
        except (Unavailable, TimeoutError):
            return "the database does not answer"
        return None


async def run(daemon: Daemon, connect: Connect, metrics: IndexerMetrics) -> None:
    """Runs until a signal; what is under way then is rolled back, and done again at the next start.

    A database that is not there yet is waited for; meanwhile the health port is served, and says so.
    """
    readiness = _Readiness()
    try:
        async with TaskGroup() as tasks:
            tasks.create_task(stop_at_signal())
            if daemon.health is not None:
                health = build_health_app(metrics.registry, readiness.reason)
                tasks.create_task(serve_health(*daemon.health, health, setting="INDEXER_HEALTH_PORT"))
            async with connected(connect) as database:
                readiness.database = database
                await _follow(daemon, database, metrics)
    except Stopped:
        get_logger().info("daemon_stopped")


async def _follow(daemon: Daemon, database: Database, metrics: IndexerMetrics) -> None:
    async def load() -> tuple[set[str], set[str], set[str]]:
        async with database.connection() as conn:
            held_back = await streams.parked_repos(conn, KEYLESS_MAX)
            return await repos.tracked_repos(conn), held_back, await space_repos.accounts_in_spaces(conn)

    tracked, held_back, watched = await patiently(load, "start", metrics.write_retries.inc)
    identities = open_identities(
        database,
        plc_url=daemon.plc_url,
        handle_resolvers=daemon.handle_resolvers,
        private_networks=daemon.private_networks,
        clock=daemon.clock,
    )
    async with identities as opened, TaskGroup() as tasks:
        await _start(daemon, database, metrics, tasks, opened.resolver, tracked, held_back, watched)


async def _start(
    daemon: Daemon,
    database: Database,
    metrics: IndexerMetrics,
    tasks: TaskGroup,
    resolver: IdentityResolver,
    tracked: set[str],
    held_back: set[str],
    watched: set[str],
) -> None:
    identities = _LiveIdentities(resolver, daemon.clock)
    consumer = Consumer(
        identities=identities,
        clock=lambda _: daemon.clock(),
        tracked=tracked,
        admits=daemon.admits,
        cursors={},
        may_refresh=identities.may_refresh,
        watched=watched,
    )
    consumer.keyless |= held_back
    intake = Intake(monotonic, daemon.clock)
    kinds = {source.url: source for source in daemon.sources}
    judge = Judge(
        database,
        intake,
        consumer,
        resolver,
        metrics,
        source_of=lambda url: kinds.get(url) or Source(url, SourceKind.RELAY),
        batch_events=daemon.batch_events,
    )
    pipeline = Pipeline(
        PatientWriter(database, daemon.limits, metrics), daemon.clock, lambda outcome: count_outcome(metrics, outcome)
    )
    following = Following(
        database=database,
        intake=intake,
        concerned=consumer.concerned,
        notice=consumer.notice,
        holder=uuid4(),
        clock=daemon.clock,
        metrics=metrics,
        patience=daemon.patience,
    )
    tasks.create_task(pipeline.run(judge.batches(pipeline)))
    tasks.create_task(IdentityWorker(database, resolver, intake, metrics, daemon.clock).run())
    upkeep = Upkeep(
        database,
        intake,
        consumer,
        tracked,
        metrics,
        holder=following.holder,
        clock=daemon.clock,
        version_content=daemon.version_content,
        deletions_kept=daemon.deletions_kept,
        watched=watched,
    )
    tasks.create_task(upkeep.run())
    tasks.create_task(Erasure(database).run())
    tasks.create_task(SpaceWatch(database, metrics).run())
    for source in daemon.sources:
        tasks.create_task(Follower(source, following).run())
    if daemon.repair is not None:
        tasks.create_task(daemon.repair.keep(metrics.repair_ends.inc))
    if daemon.embed is not None:
        tasks.create_task(daemon.embed.keep(metrics.embed_ends.inc))
    if daemon.spaces is not None:
        tasks.create_task(daemon.spaces.keep(metrics.spaces_ends.inc))
