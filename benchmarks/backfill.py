"""`backfill`: whole repos from local hosts to committed rows, by the workers that the command of that name runs.

500 repos (BACKFILL_REPOS) of 200 memories and 1,000 other records, their blocks in random order, served by hosts in
processes of their own, which are asked as often as they can be. Authors' identities are cached. The time is from when
the fetches of all repos are written down, as by a discovery, to the commit of the last. `value` is memories per second,
`peer_value` the run's own floor: the same memories, verified and interpreted beforehand, repo by repo through the
writer alone. A second run has a million repos (BACKFILL_TRACKED) in the tables beside them; its rate is in the notes.
BACKFILL_AT_ONCE and BACKFILL_PROCESSES are the command's --concurrency and --processes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_network
from pathlib import Path
from time import perf_counter, process_time
from typing import Final
from uuid import uuid4

from benchmarks.dense import LIMITS
from benchmarks.population import know
from benchmarks.processes import LOOPBACK, Workplace, child, ended_by_signals, first_told, workplace
from benchmarks.repo_hosts import car_of, repo_name
from benchmarks.result import Result
from benchmarks.whole_repo import CHUNK_BYTES, MEMORIES, OTHERS
from indexer.arrivals import Arrival, Batch, ContentsFetched, FetchApplied, FetchBegun, FetchedHead
from indexer.interpret import MemoryOp, interpret_block
from indexer.repair import Repair, crew_of, open_worker
from indexer.resync.apply import at_hosts
from indexer.resync.crew import processes_for
from indexer.resync.download import download
from indexer.resync.hosts import HostBudget
from indexer.store import fetches
from indexer.writer import Writer
from memory.database import Database, open_database
from memory.space import PUBLIC
from memory.tasks import TaskGroup
from tests.builders import RepoBuilder

REPOS: Final = 500
TRACKED: Final = 1_000_000
AT_ONCE: Final = 8
HOST_PROCESSES, HOSTS_EACH = 2, 128
CONNECTIONS: Final = 8  # as the commands have
BUDGET: Final = HostBudget(requests_per_s=1000.0)
NO_DIRECTORY: Final = "http://127.0.0.1:9"
SETTINGS: Final = {"INDEXER_PLC_URL": NO_DIRECTORY, "INDEXER_ALLOW_PRIVATE_ADDRESSES": LOOPBACK}
LOOK_S: Final = 0.05
JOINED_AFTER_S: Final = 1.0
PATIENCE_S: Final = 600.0
_CONNECTED: Final = (
    "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'indexer'"
)
# DIDs as the directory makes them: 24 characters of base32.
_OTHERS: Final = """
with others as (
    select 'did:plc:' || translate(substr(md5(n::text), 1, 24), '0189', 'wxyz') as repo, n
    from generate_series(1, $1::int) as n
), tracked as (
    insert into repos (
        repo, space, state, rev, commit_cid, data_cid, tracked_at, changed_at, host, signing_key, memory_count
    )
    select repo, '', 'active', '3l' || lpad(n::text, 11, '2'), 'bafyreib' || md5(n::text),
        'bafyreic' || md5(n::text), now() - interval '30 days', now() - interval '30 days',
        'https://pds' || n % 100 || '.example.com', 'did:key:zQ3sh' || md5(n::text), 10
    from others
)
insert into identities (repo, handle, host, signing_key, resolved_at)
select repo, 'h' || n || '.example.com', 'https://pds' || n % 100 || '.example.com', 'did:key:zQ3sh' || md5(n::text),
    now() - interval '1 day'
from others
"""


@dataclass(frozen=True, slots=True)
class Run:
    """How long one took, and how much of it this process computed."""

    repos: int
    seconds: float
    cpu_s: float
    fetched: int  # by this process

    @property
    def memories_per_s(self) -> float:
        """Of all processes."""
        return self.repos * MEMORIES / self.seconds

    @property
    def records_per_s(self) -> float:
        """The same of all collections."""
        return self.memories_per_s * (MEMORIES + OTHERS) / MEMORIES

    def __str__(self) -> str:
        core_ms = 1000 * self.cpu_s / self.fetched
        rates = f"{self.memories_per_s:.0f} memories/s, {self.records_per_s:.0f} records/s"
        return f"{rates}, {core_ms:.1f} ms of a core a repo"


async def run() -> Result:
    """Memories per second of the worker and of the writer alone."""
    repos, tracked, at_once = (
        int(os.environ.get(f"BACKFILL_{name}") or default)
        for name, default in (("REPOS", REPOS), ("TRACKED", TRACKED), ("AT_ONCE", AT_ONCE))
    )
    cores = os.cpu_count() or 1
    processes = int(os.environ.get("BACKFILL_PROCESSES") or processes_for(at_once, cores, BUDGET.repos_at_once))
    authors = [RepoBuilder(repo_name(number)) for number in range(repos)]
    with ended_by_signals(), workplace() as place:
        folder = place.folder / "repos"
        folder.mkdir()
        async with hosting(folder, repos) as urls:
            for number, author in enumerate(authors):
                author.host = urls[number % len(urls)]
            async with new_database(place, "insert_only") as (_, database):
                floor = await timed_insert(database, folder, authors)
            async with new_database(place, "alone") as (url, database):
                alone = await timed_backfill(url, database, authors, at_once, processes)
            async with new_database(place, "among") as (url, database):
                await add_others(database, tracked)
                among = await timed_backfill(url, database, authors, at_once, processes)
    notes = (
        f"insert-only: {floor}",
        f"{repos} repos, {at_once} at a time in {processes} processes: {alone}",
        f"beside {tracked:,} other repos: {among}; {alone.seconds / among.seconds:.2f} of that rate",
    )
    value, peer = alone.memories_per_s, floor.memories_per_s
    beside = {
        "records_per_s": round(alone.records_per_s),
        "rate_beside_others": round(alone.seconds / among.seconds, 3),
    }
    return Result("backfill", round(value), "memories/s", round(peer), round(value / peer, 3), notes, beside)


@asynccontextmanager
async def hosting(folder: Path, repos: int) -> AsyncGenerator[list[str]]:
    """The hosts' URLs, once every repo is made; all of them serve all repos."""
    shares = [range(repos)[number::HOST_PROCESSES] for number in range(HOST_PROCESSES)]
    async with AsyncExitStack() as stack:
        hosts = [
            await stack.enter_async_context(
                child(
                    f"hosts{number}",
                    ["benchmarks.repo_hosts", str(folder), *map(str, (share.start, repos, share.step, HOSTS_EACH))],
                    folder.parent,
                    piped=True,
                )
            )
            for number, share in enumerate(shares)
        ]
        yield [f"http://127.0.0.1:{port}" for host in hosts for port in (await first_told(host))["ports"]]


@asynccontextmanager
async def new_database(place: Workplace, name: str) -> AsyncGenerator[tuple[str, Database]]:
    """A database that is gone afterwards: what Postgres still has to tidy up of one is not to slow down the next."""
    url = place.database(name)
    async with open_database(url, application_name="bench", connections=CONNECTIONS) as database:
        yield url, database
    async with (
        open_database(place.cluster.url("postgres"), application_name="bench", connections=1) as others,
        others.connection() as conn,
    ):
        await conn.execute(f"drop database {name} with (force)")
        await conn.execute("checkpoint")


async def timed_insert(database: Database, folder: Path, authors: Sequence[RepoBuilder]) -> Run:
    """Everything is verified and interpreted before; the fetches have begun, and only their contents are missing."""
    await know(database, authors)
    await ask(database, authors)
    now = datetime.now(UTC)
    begun: list[Arrival] = []
    contents: list[list[Arrival]] = []
    for author in authors:
        token, (head, ops) = uuid4(), await read(folder, author.did)
        begun.append(FetchBegun(at_hosts(now), author.did, token))
        slice_ = ContentsFetched(at_hosts(now), author.did, token, head.rev, ops, first=True, fresh=True)
        contents.append([slice_, FetchApplied(at_hosts(now), author.did, token, head, now, now)])
    writer = Writer(database, LIMITS)
    await writer.apply(Batch(begun), now)
    started, cpu_started = perf_counter(), process_time()
    for arrivals in contents:
        await writer.apply(Batch(arrivals), now)
    took = Run(len(authors), perf_counter() - started, process_time() - cpu_started, len(authors))
    await check(database, authors)
    return took


async def read(folder: Path, did: str) -> tuple[FetchedHead, tuple[MemoryOp, ...]]:
    """What there is to write of a repo."""
    car = car_of(folder, did).read_bytes()

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(car), CHUNK_BYTES):
            yield car[start : start + CHUNK_BYTES]

    async with download(chunks(), did, None) as repo:
        commit = repo.commit
        ops = tuple(
            MemoryOp(found.rkey, interpret_block(did, PUBLIC, found.rkey, found.cid, found.block), created=True)
            for found in repo.memories()
        )
    return FetchedHead(commit.rev, commit.commit_cid, commit.data_cid), ops


async def add_others(database: Database, count: int) -> None:
    """Repos that are whole, and their authors; tables are as they are once Postgres has tidied up."""
    async with database.connection() as conn:
        await conn.execute(_OTHERS, count)
        await conn.execute("vacuum (analyze) repos, identities")
        await conn.execute("checkpoint")


async def timed_backfill(
    url: str, database: Database, authors: Sequence[RepoBuilder], at_once: int, processes: int
) -> Run:
    """From when the fetches are asked for until the last repo is whole."""
    repair = Repair(
        plc_url=NO_DIRECTORY,
        handle_resolvers=(),
        private_networks=[ip_network(network) for network in LOOPBACK.split(",")],
        limits=LIMITS,
        clock=lambda: datetime.now(UTC),
        budget=BUDGET,
        fetches_at_once=at_once,
    )
    await know(database, authors)
    async with open_worker(database, repair.shared(processes)) as opened, TaskGroup() as tasks:
        crew = crew_of(repair, processes, {**os.environ, "DATABASE_URL": url, **SETTINGS})
        working = [tasks.create_task(opened.worker.run()), tasks.create_task(crew.run())]
        await until_joined(database, processes - 1)
        started, cpu_started = perf_counter(), process_time()
        await ask(database, authors)
        await until_fetched(database)
        seconds, cpu_s = perf_counter() - started, process_time() - cpu_started
        for task in working:
            task.cancel()
    assert opened.worker.fetched + crew.fetched == len(authors)
    await check(database, authors)
    return Run(len(authors), seconds, cpu_s, opened.worker.fetched)


async def until_joined(database: Database, others: int) -> None:
    """Waits until so many processes beside this one look for work."""
    while others:
        async with database.connection() as conn:
            if await conn.fetchval(_CONNECTED) >= others:
                break
        await asyncio.sleep(LOOK_S)
    await asyncio.sleep(JOINED_AFTER_S)


async def until_fetched(database: Database) -> None:
    """Waits until no fetch waits any more."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            async with database.connection() as conn:
                if not await fetches.count_fetches(conn):
                    return
            await asyncio.sleep(LOOK_S)


async def ask(database: Database, authors: Sequence[RepoBuilder]) -> None:
    """Has the repos tracked and asked for, as a discovery does."""
    dids, now = [author.did for author in authors], datetime.now(UTC)
    async with database.transaction() as conn:
        await fetches.track(conn, [(author.did, author.host) for author in authors], now)
        await fetches.fetch_unfetched(conn, dids, now)


async def check(database: Database, authors: Sequence[RepoBuilder]) -> None:
    """Every memory is there, and every repo whole."""
    async with database.connection() as conn:
        assert await conn.fetchval("select count(*) from memories") == len(authors) * MEMORIES
        assert await fetches.count_whole(conn, [author.did for author in authors]) == len(authors)
        assert not await fetches.count_fetches(conn)
