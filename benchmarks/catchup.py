"""`catchup`: a daemon that was away makes up for what it missed, while people search.

A daemon, an API and a relay, each a process of its own. The daemon has tracked 1,000 people with 20,000 memories, and
was stopped. Meanwhile 200,000 frames (CATCHUP_FRAMES) of a network mix went by: 1% of tracked repos, 0.1% with a
memory. It starts again, from its cursor. `value` is frames per second from the relay's first to the cursor at the last.
All the while 20 searches a second are asked of the API, whether or not those before are answered: three of four among
one author's memories, one over all. `search_p95_ms` is how long they took, from when each was due; the same before the
daemon starts again is in the notes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
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

FRAMES: Final = 200_000
SEARCHES_PER_S: Final = 20
ASKERS: Final = 8  # each with a connection of its own, in turn
ONE_OVER_ALL: Final = 4  # of so many searches
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
            async with database.connection() as conn:
                assert await conn.fetchval("select count(*) from memories") == TRACKED * FIRST_MEMORIES
                await conn.execute("delete from requests")  # to hosts that are not there
                await conn.execute("vacuum (analyze)")
            async with api(url, place.folder) as service:
                quiet, busy = Searches(), Searches()
                async with searching(service, [each.did for each in known], quiet):
                    await asyncio.sleep(QUIET_S)
                async with searching(service, [each.did for each in known], busy):
                    seconds, cpu_s = await timed_gap(url, database, net, place.folder)
            ...
    rate = frames / seconds
    notes = ()
    return Result("catchup", round(rate), "frames/s", notes=notes, beside={"search_p95_ms": 0})
