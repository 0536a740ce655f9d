"""The worker that asks hosts, wired: names, ways out, identities, hosts, writer. Commands and daemons share it."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from indexer.companion import Companion, stop_with_parent
from indexer.patience import Connect, connected
from indexer.quota import QuotaLimits
from indexer.resync.crew import Crew
from indexer.resync.disk import Disk, DiskBudget
from indexer.resync.hosts import HostBudget, RepoHosts, open_repo_hosts
from indexer.resync.rounds import Rounds
from indexer.resync.worker import HostWorker
from indexer.stopping import Stopped, stop_at_signal
from indexer.store.fetches import SharedClock, database_clock
from indexer.writer import Writer
from memory.database import Database
from memory.handles import Handles
from memory.identities import open_identities
from memory.outbound_addresses import Network
from memory.resolver import IdentityResolver
from memory.tasks import TaskGroup
from memory.telemetry import get_logger


@dataclass(frozen=True, slots=True)
class Repair:
    """What a worker is run with."""

    plc_url: str
    handle_resolvers: Sequence[str]  # instead of DNS, in development
    private_networks: Sequence[Network]  # that may be asked, in development
    limits: QuotaLimits
    clock: Callable[[], datetime]
    budget: HostBudget = field(default_factory=HostBudget)
    disk: DiskBudget = field(default_factory=DiskBudget)
    fetches_at_once: int = 8
    audit_every: timedelta | None = None  # after which a repo is compared with its host again; null: never
    named_hosts: Sequence[str] = ()  # the operator's own, whose slots nobody else can fill
    shared_clock: SharedClock = database_clock

    def shared(self, processes: int) -> Repair:
        """What each of so many processes is run with, so that all of them together ask no more than one."""
        at_once = -(-self.fetches_at_once // processes)
        budget, disk = self.budget.shared(processes), self.disk.shared(processes)
        return replace(self, budget=budget, disk=disk, fetches_at_once=at_once)


@dataclass(frozen=True, slots=True)
class OpenRepair:
    """A worker that can be run, and what it asks with."""

    worker: HostWorker
    hosts: RepoHosts
    handles: Handles
    resolver: IdentityResolver


async def run(repair: Repair, connect: Connect, *, with_parent: bool, rounds: bool = True) -> tuple[int, int]:
    """Asks hosts until a signal, or until the parent ends; what is under way then is begun anew by whoever comes next.

    A database that is not there yet is waited for. `rounds`: also looks for what nobody asked for yet. Returns how many
    repos were fetched, and with how many records.
    """
    worker: HostWorker | None = None
    try:
        async with TaskGroup() as tasks:
            tasks.create_task(stop_at_signal())
            if with_parent:
                tasks.create_task(stop_with_parent())
            async with AsyncExitStack() as stack:
                database = await stack.enter_async_context(connected(connect))
                opened = await stack.enter_async_context(open_worker(database, repair))
                if rounds:
                    tasks.create_task(Rounds(database, audit_every=repair.audit_every).run())
                worker = opened.worker
                await worker.run()
    except Stopped:
        get_logger().info("repair_stopped")
    return (0, 0) if worker is None else (worker.fetched, worker.records)


def crew_of(repair: Repair, processes: int, environ: Mapping[str, str]) -> Crew:
    """All of so many processes but this one, with these settings."""
    settings = {
        "INDEXER_FETCHES_AT_ONCE": str(repair.fetches_at_once),
        "INDEXER_HOST_RATE": str(repair.budget.requests_per_s),
    }
    return Crew([Companion(("crew", str(processes)), {**environ, **settings})] * (processes - 1))


@asynccontextmanager
async def open_worker(database: Database, repair: Repair) -> AsyncGenerator[OpenRepair]:
    """A worker that does not run yet, for as long as the block is open."""
    identities = open_identities(
        database,
        plc_url=repair.plc_url,
        handle_resolvers=repair.handle_resolvers,
        private_networks=repair.private_networks,
        clock=repair.clock,
    )
    budget = repair.budget.for_fetches(repair.fetches_at_once)
    async with (
        identities as opened,
        open_repo_hosts(opened.names, budget, named=repair.named_hosts, allowed=repair.private_networks) as hosts,
    ):
        worker = HostWorker(
            database,
            Writer(database, repair.limits),
            opened.resolver,
            hosts,
            clock=repair.clock,
            randomness=random.Random(),  # noqa: S311  spreads attempts, hides nothing
            disk=Disk(repair.disk),
            fetches_at_once=repair.fetches_at_once,
            shared_clock=repair.shared_clock,
        )
        yield OpenRepair(worker, hosts, opened.handles, opened.resolver)
