"""`backfill`: whole repos from local hosts to committed rows, by the workers that the command of that name runs.

500 repos (BACKFILL_REPOS) of 200 memories and 1,000 other records, their blocks in random order, served by hosts in
processes of their own, which are asked as often as they can be. Authors' identities are cached. The time is from when
the fetches of all repos are written down, as by a discovery, to the commit of the last. `value` is memories per second.
The floor is the same memories, verified and interpreted beforehand, through the writer alone, into the same tables:
`peer_value` of one process that writes one repo after another, and, in `ratio_to_even_floor`, of as many processes with
as many repos at a time as the workers have. `rate_beside_others` is the rate with a million repos (BACKFILL_TRACKED) in
the tables, as a part of that without. All of it is done three times (BACKFILL_ROUNDS), and the medians count.
BACKFILL_AT_ONCE and BACKFILL_PROCESSES are the command's --concurrency and --processes.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_network
from operator import attrgetter
from pathlib import Path
from time import perf_counter, process_time
from typing import Final

from benchmarks.dense import LIMITS
from benchmarks.population import know
from benchmarks.processes import (
    LOOPBACK,
    START_TIMEOUT_S,
    Child,
    Workplace,
    child,
    ended_by_signals,
    next_told,
    workplace,
)
from benchmarks.repo_hosts import repo_name
from benchmarks.result import Result
from benchmarks.whole_repo import MEMORIES, OTHERS
from indexer.repair import Repair, crew_of, open_worker
from indexer.resync.crew import processes_for
from indexer.resync.hosts import HostBudget
from indexer.store import fetches
from memory.database import Database, open_database
from memory.tasks import TaskGroup
from tests.builders import RepoBuilder

REPOS: Final = 500
TRACKED: Final = 1_000_000
ROUNDS: Final = 3
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
    """How long one took, and how much of that some of its processes computed."""

    repos: int
    seconds: float
    cpu_s: float
    cpu_repos: int  # of which that is

    @property
    def memories_per_s(self) -> float:
        """Of all processes."""
        return self.repos * MEMORIES / self.seconds

    @property
    def records_per_s(self) -> float:
        """The same of all collections."""
        return self.memories_per_s * (MEMORIES + OTHERS) / MEMORIES

    def __str__(self) -> str:
        core_ms = 1000 * self.cpu_s / max(1, self.cpu_repos)
        rates = f"{self.memories_per_s:.0f} memories/s, {self.records_per_s:.0f} records/s"
        return f"{rates}, {core_ms:.1f} ms of a core a repo"


@dataclass(frozen=True, slots=True)
class Round:
    """One of each; they follow each other closely, for the machine's speed drifts."""

    floor: Run
    even_floor: Run
    alone: Run
    beside_others: Run


async def run() -> Result:
    """Memories per second of the workers and of the writer alone."""
    repos, tracked, at_once, rounds = (
        int(os.environ.get(f"BACKFILL_{name}") or default)
        for name, default in (("REPOS", REPOS), ("TRACKED", TRACKED), ("AT_ONCE", AT_ONCE), ("ROUNDS", ROUNDS))
    )
    cores = os.cpu_count() or 1
    processes = int(os.environ.get("BACKFILL_PROCESSES") or processes_for(at_once, cores, BUDGET.repos_at_once))
    authors = [RepoBuilder(repo_name(number)) for number in range(repos)]
    with ended_by_signals(), workplace() as place:
        folder = place.folder / "repos"
        folder.mkdir()
        async with hosting(folder, repos) as hosts, full_database(place, "others", tracked):
            for number, author in enumerate(authors):
                author.host = hosts.urls[number % len(hosts.urls)]
            work = Work(place, folder, hosts, authors)
            done = [
                Round(
                    await work.insert("floor", 1, 1),
                    await work.insert("even_floor", processes, -(-at_once // processes)),
                    await work.fetch("alone", processes, at_once),
                    await work.fetch("beside_others", processes, at_once, template="others"),
                )
                for _ in range(rounds)
            ]
    floor, even, alone, beside = (
        median(attrgetter(name)(each) for each in done) for name in ("floor", "even_floor", "alone", "beside_others")
    )
    shares = sorted(each.alone.seconds / each.beside_others.seconds for each in done)
    spread = ", ".join(f"{each.alone.records_per_s:.0f}" for each in done)
    notes = (
        f"insert-only, one repo after another in one process: {floor}",
        f"insert-only, {at_once} repos at a time in {processes} processes: {even}",
        f"{repos} repos, {at_once} at a time in {processes} processes: {alone}; records/s of all rounds: {spread}",
        f"beside {tracked:,} other repos: {beside}; {', '.join(f'{share:.2f}' for share in shares)} of that rate",
    )
    value, peer = alone.memories_per_s, floor.memories_per_s
    figures = {
        "records_per_s": round(alone.records_per_s),
        "ratio_to_even_floor": round(value / even.memories_per_s, 3),
        "rate_beside_others": round(shares[len(shares) // 2], 3),
    }
    return Result("backfill", round(value), "memories/s", round(peer), round(value / peer, 3), notes, figures)


def median(runs: Iterable[Run]) -> Run:
    """The one in the middle."""
    ordered = sorted(runs, key=attrgetter("seconds"))
    return ordered[len(ordered) // 2]


@dataclass(frozen=True, slots=True)
class Hosts:
    """Processes of hosts, each of which serves all repos."""

    children: list[Child]
    urls: list[str]

    def require_running(self) -> None:
        """Raises ChildEnded."""
        for each in self.children:
            each.require_running()


@asynccontextmanager
async def hosting(folder: Path, repos: int) -> AsyncGenerator[Hosts]:
    """Hosts, once every repo is made."""
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
        ports = [port for host in hosts for port in (await next_told(host))["ports"]]
        yield Hosts(hosts, [f"http://127.0.0.1:{port}" for port in ports])


@asynccontextmanager
async def new_database(
    place: Workplace, name: str, template: str | None = None
) -> AsyncGenerator[tuple[str, Database]]:
    """A database that is gone afterwards: what Postgres still has to tidy up of one is not to slow down the next."""
    if template is not None:
        await administer(place, f"create database {name} template {template} strategy file_copy")
    url = place.database(name)
    async with open_database(url, application_name="bench", connections=CONNECTIONS) as database:
        yield url, database
    await administer(place, f"drop database {name} with (force)", "checkpoint")


async def administer(place: Workplace, *statements: str) -> None:
    """Has the cluster do something that no transaction can."""
    async with (
        open_database(place.cluster.url("postgres"), application_name="bench", connections=1) as database,
        database.connection() as conn,
    ):
        for statement in statements:
            await conn.execute(statement)


@asynccontextmanager
async def full_database(place: Workplace, name: str, repos: int) -> AsyncGenerator[None]:
    """A database with so many repos, to be copied."""
    async with open_database(place.database(name), application_name="bench", connections=1) as database:
        await add_others(database, repos)
    yield


async def add_others(database: Database, count: int) -> None:
    """Repos that are whole, and their authors; tables are as they are once Postgres has tidied up."""
    async with database.connection() as conn:
        await conn.execute(_OTHERS, count)
        await conn.execute("vacuum (analyze) repos, identities")
        await conn.execute("checkpoint")


@dataclass(frozen=True, slots=True)
class Work:
    """What there is to store, or to fetch: each time into a database of its own."""

    place: Workplace
    folder: Path  # with the repos
    hosts: Hosts
    authors: Sequence[RepoBuilder]

    async def insert(self, name: str, processes: int, at_once_each: int) -> Run:
        """What is verified and interpreted before, into repos whose fetches have begun."""
        async with new_database(self.place, name) as (url, database), AsyncExitStack() as stack:
            await know(database, self.authors)
            await ask(database, self.authors)
            numbers = [(str(first), str(len(self.authors)), str(processes)) for first in range(processes)]
            inserting = [
                await stack.enter_async_context(
                    child(
                        f"{name}{share[0]}",
                        ["benchmarks.insert_only", str(self.folder), *share, str(at_once_each)],
                        self.place.folder,
                        environ={"DATABASE_URL": url},
                        piped=True,
                    )
                )
                for share in numbers
            ]
            for each in inserting:
                await next_told(each)
            started = perf_counter()
            for each in inserting:
                each.say_go()
            told = [await next_told(each) for each in inserting]
            seconds = perf_counter() - started
            await check(database, self.authors)
        return Run(len(self.authors), seconds, sum(each["cpu_s"] for each in told), len(self.authors))

    async def fetch(self, name: str, processes: int, at_once: int, template: str | None = None) -> Run:
        """From when the fetches are asked for until the last repo is whole."""
        async with new_database(self.place, name, template) as (url, database):
            await know(database, self.authors)
            return await timed_backfill(url, database, self.hosts, self.authors, at_once, processes)


async def timed_backfill(
    url: str, database: Database, hosts: Hosts, authors: Sequence[RepoBuilder], at_once: int, processes: int
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
    async with open_worker(database, repair.shared(processes)) as opened, TaskGroup() as tasks:
        crew = crew_of(repair, processes, {**os.environ, "DATABASE_URL": url, **SETTINGS})
        working = [tasks.create_task(opened.worker.run()), tasks.create_task(crew.run())]
        await until_joined(database, processes - 1)
        started, cpu_started = perf_counter(), process_time()
        await ask(database, authors)
        await until_fetched(database, hosts)
        seconds, cpu_s = perf_counter() - started, process_time() - cpu_started
        for task in working:
            task.cancel()
    assert opened.worker.fetched + crew.fetched == len(authors)
    assert crew.fetched or processes == 1
    await check(database, authors)
    return Run(len(authors), seconds, cpu_s, opened.worker.fetched)


async def until_joined(database: Database, others: int) -> None:
    """Waits until so many processes beside this one look for work."""
    async with asyncio.timeout(START_TIMEOUT_S):
        while True:
            async with database.connection() as conn:
                if await conn.fetchval(_CONNECTED) >= others:
                    break
            await asyncio.sleep(LOOK_S)
    await asyncio.sleep(JOINED_AFTER_S)


async def until_fetched(database: Database, hosts: Hosts) -> None:
    """Waits until no fetch waits any more."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            hosts.require_running()
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
