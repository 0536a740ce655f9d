"""A worker that asks hosts, with two hosts, a directory, and a feed that writes beside it.

async with mending(database) as world:
    world.start()                                 # the worker; `await world.stop()` kills it
    alice = world.account("alice")                # hosted by `world.pds`, known to the directory
    alice.create(rkey(1), memory("one"))          # at her host; nobody told the index
    await world.ask(alice)                        # her repo is tracked, and to be fetched
    await world.until_answered(alice)
    await world.live(alice.create(…))             # commits that come live, as a running daemon writes them
    world.clock.advance(hours=1)                  # the time of day, and that of pauses of hosts
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest import mock

from indexer.arrivals import Arrival, Batch, Source
from indexer.books import RequestKind
from indexer.consumer import Consumer
from indexer.quota import QuotaLimits
from indexer.resync.apply import SLICE_OPS
from indexer.resync.disk import Disk, DiskBudget
from indexer.resync.hosts import HostBudget, RepoHosts, open_repo_hosts
from indexer.resync.rounds import Rounds
from indexer.resync.worker import CLAIM, HostWorker
from indexer.store import fetches
from indexer.writer import Writer
from memory.database import Database
from memory.handles import AskedHandles
from memory.outbound import Outbound, StreamLimits
from memory.queries import Row
from memory.resolver import IdentityResolver
from memory.tasks import TaskGroup
from tests.builders import START, RepoBuilder
from tests.deadline import until
from tests.fakes.directory import Directory, directory, document
from tests.fakes.internet import LOOPBACK, Names, plain_outbound
from tests.fakes.pds import Pds, pds
from tests.feed import LIMITS, LONG_AGO, RELAY
from tests.feed import Directory as Known

BUDGET = HostBudget(
    requests_per_s=10_000.0,
    burst=1000,
    repos_at_once=4,
    repos_per_site=4,
    repo=StreamLimits(max_bytes=64 * 1024 * 1024, grace_s=20.0, total_s=20.0),
)
POLL_S = 0.02
MOMENT_S = 0.0001
AUDIT_EVERY = timedelta(days=30)
OPEN_QUESTIONS = """
select count(*) from requests where repo = any($1) and kind <> 'identity' and ($2::text is null or kind = $2)
"""


class Clock:
    """The time of day as a test sets it."""

    def __init__(self) -> None:
        self.now = START + timedelta(hours=1)
        self._advanced_s = 0.0

    def __call__(self) -> datetime:
        return self.now

    def advance(self, **time: float) -> None:
        """Moves on by so many hours, minutes, seconds."""
        step = timedelta(**time)
        self.now += step
        self._advanced_s += step.total_seconds()

    def monotonic(self) -> float:
        """Seconds that went by: those of `advance`, and a moment for each look, however slow the machine is."""
        self._advanced_s += MOMENT_S
        return self._advanced_s


@dataclass
class Mending:
    """What a test moves."""

    database: Database
    pds: Pds
    other_pds: Pds
    directory: Directory
    clock: Clock
    writer: Writer
    worker: HostWorker
    new_worker: Callable[[], HostWorker]  # another process'
    rounds: Rounds
    hosts: RepoHosts
    known: Known = field(default_factory=Known)  # whom the daemon that writes beside knows
    tracked: set[str] = field(default_factory=set[str])
    running: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    def __post_init__(self) -> None:
        self.consumer = Consumer(
            identities=self.known, clock=lambda _: self.clock(), tracked=self.tracked, admits=lambda _: True, cursors={}
        )

    # Who there is

    def account(self, seed: str, host: Pds | None = None) -> RepoBuilder:
        """Someone whom host and directory know; their repo is empty, and has its first commit."""
        builder = (host or self.pds).add(RepoBuilder(seed))
        self.register(builder)
        builder.apply()
        return builder

    def register(self, builder: RepoBuilder) -> None:
        """Has everybody know who the builder is now."""
        self.directory.documents[builder.did] = document(
            builder.did, handle=builder.handle, pds=builder.host, key=builder.did_key
        )
        self.known.announce(builder, LONG_AGO if builder.did not in self.directory.audit_logs else self.clock.now)
        log = self.directory.audit_logs.setdefault(builder.did, [])
        log.append(json.loads(builder.export_line(self.clock.now if log else LONG_AGO)))

    # What is asked, and what comes

    async def track(self, *builders: RepoBuilder) -> None:
        """Has repos tracked of which nothing is known."""
        async with self.database.transaction() as conn:
            await fetches.track(conn, [(builder.did, None) for builder in builders], self.clock())
        self.tracked |= {builder.did for builder in builders}

    async def ask(self, *builders: RepoBuilder, kind: RequestKind = RequestKind.FETCH, reason: str = "test") -> None:
        """Tracks repos, and has something asked of their hosts."""
        await self.track(*builders)
        async with self.database.transaction() as conn:
            await conn.execute(
                "insert into requests (repo, kind, reason, requested_at, not_before)"
                " select repo, $2, $3, $4, $4 from unnest($1::text[]) as n (repo)",
                [builder.did for builder in builders],
                kind,
                reason,
                self.clock(),
            )

    async def live(self, *frames: bytes, source: Source = RELAY) -> None:
        """What comes of a relay, written as one batch."""
        arrivals: list[Arrival] = []
        for frame in frames:
            arrivals += self.consumer.take(source, frame)[0]
        await self.write(*arrivals)

    async def write(self, *arrivals: Arrival) -> None:
        """Writes arrivals as one batch."""
        await self.writer.apply(Batch(list(arrivals)), self.clock())

    # What there is then

    async def rows(self, query: str, *arguments: object) -> list[Row]:
        async with self.database.connection() as conn:
            return await conn.fetch(query, *arguments)

    async def value(self, query: str, *arguments: object) -> Any:
        async with self.database.connection() as conn:
            return await conn.fetchval(query, *arguments)

    async def row(self, builder: RepoBuilder) -> Row:
        [row] = await self.rows("select * from repos where repo = $1", builder.did)
        return row

    async def state(self, builder: RepoBuilder) -> tuple[str, str | None]:
        """Of the repo, with its reason."""
        row = await self.row(builder)
        return row["state"], row["reason"]

    async def request(self, builder: RepoBuilder, kind: RequestKind = RequestKind.FETCH) -> Row:
        """What waits to be asked."""
        [row] = await self.rows("select * from requests where repo = $1 and kind = $2", builder.did, kind)
        return row

    async def requests(self, builder: RepoBuilder) -> dict[str, str]:
        """Kind → reason."""
        rows = await self.rows("select kind, reason from requests where repo = $1", builder.did)
        return {row["kind"]: row["reason"] for row in rows}

    async def wait_s(self, builder: RepoBuilder, kind: RequestKind = RequestKind.FETCH) -> float:
        """How long what is to be asked waits from now on."""
        return ((await self.request(builder, kind))["not_before"] - self.clock.now).total_seconds()

    async def contents(self, builder: RepoBuilder) -> list[str]:
        """In the order of their rkeys."""
        rows = await self.rows("select content from memories where repo = $1 order by rkey", builder.did)
        return [row["content"] for row in rows]

    async def parked(self, builder: RepoBuilder) -> int:
        return await self.value("select count(*) from parked_commits where repo = $1", builder.did)

    # Until when to wait

    async def until(self, ask: Callable[[], Awaitable[Any]], is_: Any) -> None:
        """Waits until something is so; a worker that dies meanwhile raises what it died of."""

        async def look() -> Any:
            for task in self.running:
                if task.done():
                    task.result()
            return await ask()

        await until(look, lambda value: value == is_)

    async def until_state(self, builder: RepoBuilder, state: str, reason: str | None = None) -> None:
        await self.until(lambda: self.state(builder), (state, reason))

    async def until_answered(self, *builders: RepoBuilder, kind: RequestKind | None = None) -> None:
        """Waits until no host is to be asked about the repos any more; of one kind, if it is given."""
        await self.until(lambda: self.value(OPEN_QUESTIONS, [builder.did for builder in builders], kind), 0)

    async def pass_time_until_answered(self, *builders: RepoBuilder, kind: RequestKind | None = None) -> None:
        """The same, while time goes by."""
        dids = [builder.did for builder in builders]

        async def left() -> int:
            self.clock.advance(seconds=1)
            return await self.value(OPEN_QUESTIONS, dids, kind)

        await self.until(left, 0)

    async def until_failed(self, builder: RepoBuilder, attempts: int = 1, kind: RequestKind = RequestKind.FETCH) -> str:
        """Waits until so many attempts have failed, and the next one waits; why the last did."""
        query = (
            "select count(*) from requests"
            " where repo = $1 and kind = $2 and attempts = $3 and failure is not null and not_before > $4"
            " and not_before <> $5"  # that is a claim's
        )
        claimed_until = self.clock.now + CLAIM
        await self.until(lambda: self.value(query, builder.did, kind, attempts, self.clock.now, claimed_until), 1)
        return (await self.request(builder, kind))["failure"]

    async def until_put_back(self, builder: RepoBuilder, kind: RequestKind = RequestKind.FETCH) -> None:
        """Waits until something was not even attempted, and waits."""
        query = "select count(*) from requests where repo = $1 and kind = $2 and attempts = 0 and not_before > $3"
        await self.until(lambda: self.value(query, builder.did, kind, self.clock.now), 1)

    # Processes

    def start(self, worker: HostWorker | None = None) -> None:
        self.running.append(asyncio.create_task((worker or self.worker).run()))

    async def stop(self) -> None:
        """As kill -9 does: what is under way is left as it is."""
        for task in self.running:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        self.running.clear()


@asynccontextmanager
async def mending(
    database: Database,
    *,
    limits: QuotaLimits = LIMITS,
    budget: HostBudget = BUDGET,
    disk: DiskBudget | None = None,
    slice_ops: int = SLICE_OPS,
) -> AsyncGenerator[Mending]:
    """A world whose worker does not run yet."""
    clock = Clock()
    async with AsyncExitStack() as stack:
        fake, other = await stack.enter_async_context(pds()), await stack.enter_async_context(pds())
        known = await stack.enter_async_context(directory())
        outbound = await stack.enter_async_context(plain_outbound(monotonic=clock.monotonic))
        tasks = await stack.enter_async_context(TaskGroup())
        hosts = await stack.enter_async_context(
            open_repo_hosts(Names(), budget, allowed=LOOPBACK, monotonic=clock.monotonic)
        )
        writer = Writer(database, limits)

        def new_worker() -> HostWorker:
            return HostWorker(
                database,
                writer,
                _resolver(database, outbound, tasks, known, clock),
                hosts,
                clock=clock,
                randomness=random.Random(1),
                disk=Disk(disk or DiskBudget(), clock.monotonic),
                slice_ops=slice_ops,
                poll_s=POLL_S,
                shared_clock=clock,
            )

        rounds = Rounds(database, audit_every=AUDIT_EVERY, shared_clock=clock)
        world = Mending(database, fake, other, known, clock, writer, new_worker(), new_worker, rounds, hosts)
        # By this clock every fetch takes a moment: on a slow machine, repos would rest longer than tests advance.
        fetch_time = SimpleNamespace(monotonic=count(step=MOMENT_S).__next__)
        stack.enter_context(mock.patch("indexer.resync.fetch.time", fetch_time))
        try:
            yield world
        finally:
            await world.stop()
            for host in (fake, other, known):
                host.release.set()


def _resolver(
    database: Database, outbound: Outbound, tasks: TaskGroup, known: Directory, clock: Clock
) -> IdentityResolver:
    return IdentityResolver(
        outbound, AskedHandles(outbound, (known.url,)), database, tasks, plc_url=known.url, clock=clock
    )


# Of every row of a repo what does not say when it was written.
_WITHOUT_TIMES = {
    "memories": (
        "select rkey, cid, rev, record, content, kind, scope, version, created_at, terms::text, masked_from,"
        " masked_spans, component from memories where repo = $1 order by rkey"
    ),
    "edges": "select rkey, target, upward, ignored from memory_edges where repo = $1 order by rkey, target",
    "versions": (
        "select rkey, number, operation, cid, content_sha256, record, overwritten_at is null, redacted_at is null"
        " from memory_versions where repo = $1 order by rkey, number"
    ),
    "invalid": "select rkey, cid, reason, excerpt from invalid_records where repo = $1 order by rkey",
    "repo": (
        "select state, reason, rev, commit_cid, data_cid, visible, status, memory_count, memory_bytes, edge_count,"
        " over_quota_count, quota_edge, fetch_token, invalid_count, invalid_edge from repos where repo = $1"
    ),
    "parked": "select rev, source, frame from parked_commits where repo = $1 order by rev, source",
}


async def tables(database: Database, did: str) -> dict[str, list[tuple[Any, ...]]]:
    """All that is held of one repo, but for times: to compare two ways to it."""
    async with database.connection() as conn:
        return {name: [tuple(row) for row in await conn.fetch(query, did)] for name, query in _WITHOUT_TIMES.items()}
