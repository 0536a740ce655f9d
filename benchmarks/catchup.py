"""`catchup`: a daemon that was away makes up for what it missed, while people search.

A daemon, an API and a relay, each a process of its own. The daemon has tracked 1,000 people with 20,000 memories, and
was stopped. Meanwhile a million frames (CATCHUP_FRAMES) of a network mix went by: 1% of tracked repos, 0.1% with a
memory. It starts again, from its cursor. `value` is frames per second from the relay's first to the cursor at the last.
All the while 20 searches a second are asked of the API, whether or not those before are answered, each for two words
among one author's memories. `search_p95_ms` is the 95th percentile of how long they took, from when each was due. Once
a second somebody else asks over all authors. How long that takes is noted, and all of it before the daemon starts
again.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from time import perf_counter
from typing import Final

from benchmarks.catchup_network import FIRST_MEMORIES, OTHERS, TRACKED, people
from benchmarks.freshness import searcher
from benchmarks.population import know
from benchmarks.processes import (
    Network,
    Service,
    api,
    daemon,
    ended_by_signals,
    network,
    percentile,
    seconds_of,
    sleep_until,
    until_first_written,
    workplace,
)
from benchmarks.result import Result
from benchmarks.workload import OBJECTS
from memory.database import Database, open_database
from memory.tasks import TaskGroup

FRAMES: Final = 1_000_000
SEARCHES_PER_S: Final = 20
ASKERS: Final = 8  # each with a connection of its own, in turn
SEARCHES_OF_ALL_PER_S: Final = 1
QUIET_S: Final = 5.0
LOOK_S: Final = 0.02
PATIENCE_S: Final = 300.0


async def run() -> Result:
    """Frames per second, and how long searches take beside them."""
    frames = int(seconds_of("CATCHUP_FRAMES", FRAMES)) // (OTHERS + 1) * (OTHERS + 1)
    with ended_by_signals(), workplace() as place:
        url, known = place.database("catchup"), people()
        async with (
            open_database(url, application_name="bench", connections=2) as database,
            network("benchmarks.catchup_network", str(frames), folder=place.folder) as net,
        ):
            await know(database, known)
            async with daemon(url, net, place.folder) as indexer:
                await until_first_written(database, net, indexer)
            await put_in_order(database)
            async with (
                api(url, place.folder) as service,
                searching(service, SEARCHES_PER_S, [[each.did] for each in known]) as searches,
                searching(service, SEARCHES_OF_ALL_PER_S, [[]]) as searches_of_all,
            ):
                await asyncio.sleep(QUIET_S)
                async with daemon(url, net, place.folder) as indexer:
                    gap = await until_caught_up(database, net, indexer)
            async with database.connection() as conn:
                found = await conn.fetchval("select count(*) from memories")
                assert found == TRACKED * FIRST_MEMORIES + gap.memories, f"{found} memories"
    rate, busy_ms = frames / (gap.ended - gap.began), took_ms(searches, gap.began, gap.ended)
    notes = (
        f"{frames:,} frames, {gap.memories} memories among them, in {gap.ended - gap.began:.1f} s",
        f"{gap.core_us:.1f} µs of a core a frame in the daemon's process",
        f"searches: {_spread(busy_ms)}; before: {_spread(took_ms(searches, 0.0, gap.began))}",
        f"over all authors: {_spread(took_ms(searches_of_all, 0.0, gap.ended))}, before and meanwhile",
    )
    beside = {"search_p95_ms": round(percentile(busy_ms, 0.95), 1)}
    return Result("catchup", round(rate), "frames/s", notes=notes, beside=beside)


def _spread(sorted_ms: list[float]) -> str:
    p50_ms, p95_ms = (percentile(sorted_ms, share) for share in (0.5, 0.95))
    return f"{len(sorted_ms)}, p50 {p50_ms:.1f} ms, p95 {p95_ms:.1f} ms, max {sorted_ms[-1]:.0f} ms"


async def put_in_order(database: Database) -> None:
    """What is there when a daemon has been away for a while."""
    async with database.connection() as conn:
        assert await conn.fetchval("select count(*) from memories") == TRACKED * FIRST_MEMORIES
        await conn.execute("delete from requests")  # to hosts that there are not
        await conn.execute("vacuum (analyze)")


@dataclass(frozen=True, slots=True)
class Gap:
    """How it was worked off; times as `perf_counter` tells them."""

    began: float
    ended: float
    memories: int
    core_us: float  # of the daemon, a frame


async def until_caught_up(database: Database, net: Network, indexer: Service) -> Gap:
    """Waits until the cursor is at the last frame."""
    metrics, cpu_s = await indexer.metrics(), indexer.cpu_s
    told = await net.heard.get()

    async def caught_up() -> bool:
        async with database.connection() as conn:
            return await conn.fetchval("select seq from sources") >= told["seq"]

    await indexer.child.until(caught_up, PATIENCE_S, LOOK_S)
    ended = perf_counter()
    cpu_s = indexer.cpu_s - cpu_s
    read = (await indexer.metrics())["indexer_frames_total"] - metrics["indexer_frames_total"]
    return Gap(told["at"], ended, int(told["label"]), 1e6 * cpu_s / read)


@dataclass(frozen=True, slots=True)
class Searched:
    """One search."""

    due: float  # as `perf_counter` tells it
    took_ms: float  # from then on


def took_ms(searches: Iterable[Searched], since: float, until: float) -> list[float]:
    """Of those that were due then, in order."""
    return sorted(search.took_ms for search in searches if since <= search.due < until)


@asynccontextmanager
async def searching(service: Service, per_s: float, among: Sequence[Sequence[str]]) -> AsyncGenerator[list[Searched]]:
    """All searches so far, of which more are asked while the block is open, each among some of these authors."""
    searches: list[Searched] = []
    async with TaskGroup() as tasks:
        began = perf_counter()
        asking = [tasks.create_task(ask(service, per_s, among, searches, began, first)) for first in range(ASKERS)]
        yield searches
        for task in asking:
            task.cancel()


async def ask(
    service: Service,
    per_s: float,
    among: Sequence[Sequence[str]],
    searches: list[Searched],
    began: float,
    first: int,
) -> None:
    """One of ASKERS takes its turns, and is asked anew only when its last is answered."""
    draw = random.Random(first)
    with searcher(service) as search:
        for number in count(first, ASKERS):
            due = began + number / per_s
            await sleep_until(due)
            await asyncio.to_thread(search, [draw.choice(OBJECTS), str(draw.randrange(9999))], draw.choice(among))
            searches.append(Searched(due, 1000 * (perf_counter() - due)))
