"""`space_sync`: private Spaces, from local hosts to their reader, by `python -m indexer spaces`.

1,000 Spaces (SPACE_SYNC_SPACES), each of an authority of its own, of ten authors with 50 memories each; hosts, sync and
API are processes of their own, on one embedded Postgres. Authors' identities are cached; authorities are looked up, in
a directory beside the hosts. `value` is memories per second of the first sync: from when one viewer's grants for all
Spaces are committed until the last repo may be read. `peer_value` is the floor: some of the same repos
(SPACE_SYNC_FLOOR), verified and interpreted beforehand, through the writer alone, one after another in one process.

Then authors write, each once: SPACE_SYNC_WRITES one at a time, some time after the one before was found, and as many at
an even pace. `write_p95_ms` and `write_paced_p95_ms` are from when a Space's host hands `notifyWrite` to the API's
socket to when a search of the viewer has answered with the memory. At last all Spaces are due to be listed again, and
nothing has changed: `sweep_cpu_s` is what that takes of the process that syncs, the median of some times.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from time import perf_counter
from typing import Final

from appview.tokens import AccessToken
from benchmarks.backfill import until_joined
from benchmarks.population import know
from benchmarks.processes import Service, ended_by_signals, percentile, workplace
from benchmarks.result import Result
from benchmarks.space_floor import stored_alone
from benchmarks.space_people import AUTHORS_EACH, MEMORIES_EACH, Community, communities
from benchmarks.space_services import SpaceHosts, open_all, settings_for, space_api, space_hosts, space_process
from benchmarks.space_writes import Measure
from memory.database import Database, open_database
from tests.builders import RepoBuilder

SPACES: Final = 1_000
FLOOR_REPOS: Final = 1_000
WRITES: Final = 200
HOSTS: Final = 128
PROCESSES: Final = 1  # as `run` starts
LOOK_S: Final = 0.25
IDLE_S: Final = 10.0
SWEEPS: Final = 5
PATIENCE_S: Final = 900.0
_TO_DO: Final = """
select (select count(*) from space_inbox)
    + (select count(*) from spaces where due_at <= clock_timestamp() or claimed_until > clock_timestamp())
    + (select count(*) from space_repos where pull_after is not null)
    + (select $1 - count(*) from space_repos where rev is not null)
"""
_HELD: Final = """
select
    (select count(*) from memories where space <> ''),
    (select count(*) from repos where space <> '' and visible),
    (select count(*) from spaces where state = 'ready' and fresh_until > clock_timestamp())
"""
_SWEEP: Final = "update spaces set sweep_after = clock_timestamp(), due_at = clock_timestamp()"
_LATER: Final = "update spaces set sweep_after = sweep_after + '1 hour', due_at = due_at + '1 hour'"
_NOT_LISTED: Final = "select count(*) from spaces where listed_at < $1 or claimed_until > clock_timestamp()"


async def run() -> Result:
    """Memories per second of the first sync, milliseconds until a write is found, seconds of a core of a sweep."""
    spaces, floor_repos, writes, processes = (
        int(os.environ.get(f"SPACE_SYNC_{name}") or default)
        for name, default in (
            ("SPACES", SPACES),
            ("FLOOR", FLOOR_REPOS),
            ("WRITES", WRITES),
            ("PROCESSES", PROCESSES),
        )
    )
    with ended_by_signals(), workplace() as place:
        floor = await stored_alone(place, floor_repos)
        async with space_hosts(spaces, 2 * writes, HOSTS, place.folder) as hosts, AsyncExitStack() as stack:
            url = place.database("spaces")
            database = await stack.enter_async_context(open_database(url, application_name="bench", connections=2))
            setup = Setup(database, hosts, communities(spaces, hosts.urls), place.folder)
            await know(database, setup.accounts())
            settings = settings_for(url, hosts, place.folder)
            api = await stack.enter_async_context(space_api(settings, place.folder))
            syncs = [
                await stack.enter_async_context(space_process(settings, place.folder, f"spaces{number}"))
                for number in range(processes)
            ]
            await until_joined(database, processes)
            token, first = await setup.first_sync(syncs, settings.key_file)
            measure = Measure(hosts, api, settings.audience, token.text)
            delays_ms = sorted(await measure.one_at_a_time(range(writes)))
            paced_ms = sorted(await measure.paced(range(writes, 2 * writes)))
            await setup.until_idle(syncs)
            idle = await setup.idle(syncs)
            sweeps = [await setup.sweep(syncs) for _ in range(SWEEPS)]
            asked = (await hosts.tell(count=True))["asked"]
    sweep = sorted(sweeps, key=attrgetter("cpu_s"))[SWEEPS // 2]
    repos, memories = spaces * AUTHORS_EACH, spaces * AUTHORS_EACH * MEMORIES_EACH
    value, p95, paced_p95 = memories / first.seconds, percentile(delays_ms, 0.95), percentile(paced_ms, 0.95)
    core_ms = 1000 * first.cpu_s / repos
    notes = (
        f"first sync of {memories:,} memories: {first.seconds:.1f} s, {core_ms:.1f} ms of a core a repo",
        f"the writer alone, one repo after another: {floor:.0f} memories/s",
        f"one at a time: p50 {percentile(delays_ms, 0.5):.0f} ms, p95 {p95:.0f} ms, max {delays_ms[-1]:.0f} ms",
        f"paced: p50 {percentile(paced_ms, 0.5):.0f} ms, p95 {paced_p95:.0f} ms, max {paced_ms[-1]:.0f} ms",
        f"a sweep of {spaces} Spaces that are all due: {sweep.cpu_s:.2f} s of a core in {sweep.seconds:.1f} s",
        f"while nothing is due: {100 * idle.cpu_s / idle.seconds:.1f}% of a core",
        f"asked of the hosts in all: {asked}",
    )
    figures = {
        "write_p95_ms": round(p95, 1),
        "write_paced_p95_ms": round(paced_p95, 1),
        "sweep_cpu_s": round(sweep.cpu_s, 2),
        "sweep_s": round(sweep.seconds, 1),
        "idle_cpu_share": round(idle.cpu_s / idle.seconds, 4),
    }
    return Result("space_sync", round(value), "memories/s", round(floor), round(value / floor, 3), notes, figures)


@dataclass(frozen=True, slots=True)
class Took:
    """How long something took, and how much of a core it took of the processes that sync."""

    seconds: float
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Setup:
    """What is synced, and where to."""

    database: Database
    hosts: SpaceHosts
    made: Sequence[Community]
    folder: Path

    def accounts(self) -> list[RepoBuilder]:
        """Authorities and authors."""
        return [account for each in self.made for account in (each.authority, *each.authors)]

    async def first_sync(self, syncs: Sequence[Service], key_file: Path) -> tuple[AccessToken, Took]:
        """From when a viewer has opened all Spaces until all of it may be read; their access token."""
        token = await open_all(self.database, key_file, self.made, RepoBuilder("viewer"))
        took = await self._until(syncs, self._idle)
        async with self.database.connection() as conn:
            row = await conn.fetchrow(_HELD)
        repos = len(self.made) * AUTHORS_EACH
        assert row is not None
        assert tuple(row) == (repos * MEMORIES_EACH, repos, len(self.made)), tuple(row)
        return token, took

    async def until_idle(self, syncs: Sequence[Service]) -> None:
        """Waits until nothing is to be done."""
        await self._until(syncs, self._idle)

    async def idle(self, syncs: Sequence[Service]) -> Took:
        """Some time in which nothing is to be done, nor comes to be."""
        async with self.database.connection() as conn:
            await conn.execute(_LATER)
        ends_at = perf_counter() + IDLE_S

        async def over() -> bool:
            return perf_counter() >= ends_at

        return await self._until(syncs, over)

    async def sweep(self, syncs: Sequence[Service]) -> Took:
        """All Spaces are due, until all are listed."""
        async with self.database.connection() as conn:
            began_at = await conn.fetchval("select clock_timestamp()")
            await conn.execute(_SWEEP)

        async def listed() -> bool:
            async with self.database.connection() as conn:
                return not await conn.fetchval(_NOT_LISTED, began_at)

        return await self._until(syncs, listed)

    async def _idle(self) -> bool:
        async with self.database.connection() as conn:
            return not await conn.fetchval(_TO_DO, len(self.made) * AUTHORS_EACH)

    async def _until(self, syncs: Sequence[Service], done: Callable[[], Awaitable[bool]]) -> Took:
        cpu_s, began = sum(each.cpu_s for each in syncs), perf_counter()
        async with asyncio.timeout(PATIENCE_S):
            while not await done():
                for each in (self.hosts.child, *(sync.child for sync in syncs)):
                    each.require_running()
                await asyncio.sleep(LOOK_S)
        return Took(perf_counter() - began, sum(each.cpu_s for each in syncs) - cpu_s)
