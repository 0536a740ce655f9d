"""Repos at hosts and in a directory, and backfills of them: in this process, and as commands.

async with backfilling(database) as world:
    alice = world.account("alice")                     # with one memory, at `world.pds`
    report = await world.backfill(world.pds.url)       # discovers there
    report = await world.backfill(named=[alice.did])
    ended = await world.command(database_url, "backfill", "--discover", world.pds.url)
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from indexer.repair import OpenRepair, Repair, open_worker
from indexer.resync.backfill import Backfill, Report
from indexer.resync.discovery import Discovery
from indexer.resync.hosts import HostBudget
from indexer.resync.named import Named, Outcome
from indexer.resync.search import Pages, Room, Search
from indexer.resync.watch import FetchWatch
from memory.database import Database
from memory.queries import Row
from tests.builders import RepoBuilder, memory
from tests.daemons import Clock, register
from tests.deadline import DEADLINE_S
from tests.fakes.directory import Directory, directory
from tests.fakes.internet import LOOPBACK
from tests.fakes.pds import Pds, pds
from tests.feed import LIMITS, rkey

ROOT = Path(__file__).parents[1]
NOISE = "app.bsky.feed.post"
LOOK_S = 0.02
BUDGET = HostBudget(requests_per_s=10_000.0, burst=1000)


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said."""

    status: int
    output: str
    errors: str


@dataclass
class World:
    """What a test moves."""

    database: Database
    pds: Pds
    relay: Pds  # lists by collection who is at `pds`
    directory: Directory
    repair: Repair
    opened: OpenRepair
    clock: Clock
    told: list[Outcome] = field(default_factory=list[Outcome])
    slept: list[float] = field(default_factory=list[float])

    def account(self, seed: str, *, host: Pds | None = None, memories: int = 1, listed: bool = True) -> RepoBuilder:
        """Someone whom the host, the relay and the directory know."""
        builder = (host or self.pds).add(RepoBuilder(seed))
        for number in range(memories):
            builder.create(rkey(number), memory(f"{seed} {number}"))
        if not memories:
            builder.create("self", {"text": "none of ours"}, collection=NOISE)
        register(self.directory, builder)
        if listed:
            self.relay.repos[builder.did] = builder
        return builder

    def search(
        self,
        origin: str,
        *,
        pages: Pages | None = None,
        database: Database | None = None,
        admits: Callable[[str], bool] = lambda _: True,
        room: Room | None = None,
    ) -> Search:
        """At a server, or through these pages."""
        resolver = self.opened.resolver

        async def host_of(did: str) -> str | None:
            return (await resolver.resolve(did)).identity.host

        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)

        randomness = random.Random(1)
        discovery = Discovery(self.opened.hosts, origin, randomness=randomness, host_of=host_of, sleep=sleep)
        return Search(
            database or self.database,
            origin,
            pages or discovery.pages,
            clock=self.clock,
            randomness=randomness,
            admits=admits,
            sleep=sleep,
            room=room,
            shared_clock=self.clock,
        )

    def prepared(
        self,
        search: Search | None,
        *,
        opened: OpenRepair | None = None,
        admits: Callable[[str], bool] = lambda _: True,
    ) -> Backfill:
        """A run that did not begin yet."""
        opened = opened or self.opened
        named = Named(
            self.database,
            opened.handles,
            opened.resolver,
            tell=self.told.append,
            admits=admits,
            shared_clock=self.clock,
        )
        watch = FetchWatch(self.database, opened.hosts, look_s=LOOK_S, shared_clock=self.clock)
        return Backfill(opened.worker, watch, search=search, named=named)

    async def backfill(self, origin: str | None = None, *, named: Sequence[str] = (), **options: Any) -> Report:
        """A whole run."""
        search = None if origin is None else self.search(origin)
        if search is not None:
            await search.prepare()
        async with asyncio.timeout(DEADLINE_S):
            return await self.prepared(search, **options).run(named)

    async def track(self, *builders: RepoBuilder, state: str = "pending", asked: bool = True) -> None:
        """Tracks them in some state, and has their repos asked for."""
        dids = [builder.did for builder in builders]
        await self.rows(
            "insert into repos (repo, state, reason, tracked_at, changed_at)"
            " select repo, $2, 'x', now(), now() from unnest($1::text[]) as n (repo)",
            dids,
            state,
        )
        if asked:
            await self.rows(
                "insert into requests (repo, kind, reason, requested_at, not_before)"
                " select repo, 'fetch', 'x', $2, $2 from unnest($1::text[]) as n (repo)",
                dids,
                self.clock.now,
            )

    async def rows(self, query: str, *arguments: object) -> list[Row]:
        async with self.database.connection() as conn:
            return await conn.fetch(query, *arguments)

    async def value(self, query: str, *arguments: object) -> Any:
        async with self.database.connection() as conn:
            return await conn.fetchval(query, *arguments)

    async def states(self) -> dict[str, str]:
        """DID → state of every repo that is tracked."""
        return {row["repo"]: row["state"] for row in await self.rows("select repo, state from repos")}

    async def contents(self) -> list[str]:
        return [row["content"] for row in await self.rows("select content from memories order by content")]

    def environment(self, database_url: str) -> dict[str, str]:
        """The settings of a command in this world."""
        return {
            "DATABASE_URL": database_url,
            "INDEXER_PLC_URL": self.directory.url,
            "INDEXER_HANDLE_RESOLVER": self.directory.url,
            "INDEXER_ALLOW_PRIVATE_ADDRESSES": "127.0.0.0/8",
            "INDEXER_HOST_RATE": "1000",
        }

    async def command(self, database_url: str, *arguments: object, **environment: str) -> Ended:
        """Runs a command to its end."""
        process = await self.begin(database_url, *arguments, **environment)
        return await ended(process)

    async def begin(self, database_url: str, *arguments: object, **environment: str) -> asyncio.subprocess.Process:
        """Begins a command."""
        inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "indexer", *map(str, arguments)),
            cwd=ROOT,
            env=inherited | self.environment(database_url) | environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )


async def ended(process: asyncio.subprocess.Process, *, interrupt: bool = False) -> Ended:
    """Waits for a command's end, as by Ctrl-C if told so."""
    if interrupt:
        process.send_signal(signal.SIGINT)
    output, errors = await process.communicate()
    assert process.returncode is not None
    assert b"Traceback" not in output + errors, errors.decode()
    return Ended(process.returncode, output.decode(), errors.decode())


@asynccontextmanager
async def backfilling(database: Database, *, fetches_at_once: int = 8) -> AsyncGenerator[World]:
    """A world in which nothing was fetched yet."""
    async with AsyncExitStack() as stack:
        fake, relay = await stack.enter_async_context(pds()), await stack.enter_async_context(pds())
        relay.lists_collections = True
        known = await stack.enter_async_context(directory())
        clock = Clock()
        repair = Repair(
            plc_url=known.url,
            handle_resolvers=(known.url,),
            private_networks=LOOPBACK,
            limits=LIMITS,
            clock=clock,
            budget=BUDGET,
            fetches_at_once=fetches_at_once,
            shared_clock=clock,
        )
        opened = await stack.enter_async_context(open_worker(database, repair))
        yield World(database, fake, relay, known, repair, opened, clock)
        for host in (fake, relay):
            host.release.set()
        known.release.set()
