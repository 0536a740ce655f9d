"""The process that keeps Spaces in step, wired: names, ways out, identities, authorities, hosts, keys, writer."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime

from indexer.companion import stop_with_parent
from indexer.patience import Connect, connected
from indexer.quota import QuotaLimits
from indexer.resync.hosts import HostBudget
from indexer.spaces.hosts import Proofs, open_space_hosts
from indexer.spaces.sync import SpacePolicy
from indexer.spaces.worker import SpaceWorker
from indexer.stopping import Stopped, stop_at_signal
from indexer.store.fetches import SharedClock, database_clock
from indexer.writer import Writer
from memory.database import Database
from memory.identities import open_identities
from memory.outbound import Outbound
from memory.outbound_addresses import Network
from memory.outbound_hosts import Hosts
from memory.resolver import PLC_LIMITS
from memory.sealed import SealingKeys
from memory.space_authorities import SpaceAuthorities
from memory.tasks import TaskGroup
from memory.telemetry import get_logger


@dataclass(frozen=True, slots=True, repr=False)
class SpaceWork:
    """What a worker is run with."""

    plc_url: str
    handle_resolvers: Sequence[str]  # instead of DNS, in development
    private_networks: Sequence[Network]  # that may be asked, in development
    limits: QuotaLimits
    keys: SealingKeys
    clock: Callable[[], datetime]
    random_bytes: Callable[[int], bytes]  # that nobody can foresee
    policy: SpacePolicy = field(default_factory=SpacePolicy)
    syncer: str | None = None  # as in SpaceWorker
    budget: HostBudget = field(default_factory=HostBudget)
    spaces_at_once: int = 16
    pulls_at_once: int = 16
    shared_clock: SharedClock = database_clock


async def run(work: SpaceWork, connect: Connect, *, with_parent: bool) -> int:
    """Keeps Spaces in step until a signal, or until the parent ends; says how many repos were pulled.

    A database that is not there yet is waited for. What is under way at the end is begun anew by whoever comes next.
    """
    worker: SpaceWorker | None = None
    try:
        async with TaskGroup() as tasks:
            tasks.create_task(stop_at_signal())
            if with_parent:
                tasks.create_task(stop_with_parent())
            async with connected(connect) as database, open_worker(database, work) as worker:
                await worker.run()
    except Stopped:
        get_logger().info("space_sync_stopped")
    return 0 if worker is None else worker.pulled


@asynccontextmanager
async def open_worker(database: Database, work: SpaceWork) -> AsyncGenerator[SpaceWorker]:
    """A worker that does not run yet, for as long as the block is open."""
    identities = open_identities(
        database,
        plc_url=work.plc_url,
        handle_resolvers=work.handle_resolvers,
        private_networks=work.private_networks,
        clock=work.clock,
    )
    async with (
        identities as opened,
        Outbound(opened.names, Hosts(named={work.plc_url: PLC_LIMITS}), allowed=work.private_networks) as outbound,
        open_space_hosts(
            opened.names,
            work.budget,
            Proofs(work.clock, work.random_bytes),
            allowed=work.private_networks,
        ) as hosts,
    ):
        yield SpaceWorker(
            database,
            Writer(database, work.limits),
            opened.resolver,
            SpaceAuthorities(outbound, plc_url=work.plc_url, clock=work.clock),
            hosts,
            work.keys,
            policy=work.policy,
            clock=work.clock,
            randomness=random.Random(),  # noqa: S311  spreads attempts, hides nothing
            syncer=work.syncer,
            spaces_at_once=work.spaces_at_once,
            pulls_at_once=work.pulls_at_once,
            shared_clock=work.shared_clock,
        )
