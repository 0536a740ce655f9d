"""`memory`, `memory_tracked` and `memory_replay`: how much memory a daemon process holds resident.

`memory`: megabytes of a daemon that is connected to a relay that sends nothing, on an empty index; `with_companion_mb`
counts the process that it keeps to fetch repos too, and of pages that processes share each one's part.
`memory_tracked`: how many megabytes more it is with a million tracked repos. `memory_replay`: how its memory grows
while it reads a network mix at 2,000 frames a second, in megabytes an hour, by least squares over the second half
of MEMORY_SECONDS. All of it is the resident set as Linux counts it, with the pages of libraries that other
processes may share.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from benchmarks.memory_network import TRACKED
from benchmarks.population import know, population
from benchmarks.processes import (
    Network,
    Service,
    Workplace,
    daemon,
    ended_by_signals,
    network,
    seconds_of,
    sleep_until,
    until_first_written,
    workplace,
)
from benchmarks.result import Result
from memory.database import Database, open_database

REPOS: Final = 1_000_000
SETTLED_AFTER_S: Final = 10.0
REPLAY_SECONDS: Final = 240.0
SAMPLE_EVERY_S: Final = 10.0
MB: Final = 1_000_000
_MODULE: Final = "benchmarks.memory_network"
# DIDs as the directory makes them: 24 characters of base32.
_TRACK: Final = """
insert into repos (repo, space, state, rev, tracked_at, changed_at)
select 'did:plc:' || translate(substr(md5(n::text), 1, 24), '0189', 'wxyz'), '', 'active',
    '3l' || lpad(n::text, 11, '2'), now() - interval '30 days', now() - interval '30 days'
from generate_series(1, $1::int) as n
"""


async def run_idle() -> Result:
    """Megabytes of an idle daemon."""
    with ended_by_signals(), workplace() as place:
        held = await idle(place, "idle", 0)
    note = f"at most {held.peak / MB:.1f} MB since it began"
    beside = {"with_companion_mb": round(held.of_all / MB, 1)}
    return Result("memory", round(held.resident / MB, 1), "MB", notes=(note,), beside=beside)


async def run_tracked() -> Result:
    """Megabytes more of an idle daemon for a million tracked repos."""
    with ended_by_signals(), workplace() as place:
        without, held = await idle(place, "without", 0), await idle(place, "tracked", REPOS)
    notes = (
        f"{held.resident / MB:.1f} MB with {REPOS:,} tracked repos, {without.resident / MB:.1f} MB without",
        f"at most {held.peak / MB:.1f} MB while it began",
    )
    more, more_of_all = (
        round(1_000_000 / REPOS * (after - before) / MB, 1)
        for before, after in ((without.resident, held.resident), (without.of_all, held.of_all))
    )
    return Result("memory_tracked", more, "MB", notes=notes, beside={"with_companion_mb": more_of_all})


@dataclass(frozen=True, slots=True)
class Held:
    """Bytes of a daemon."""

    resident: int
    peak: int  # the most that ever were resident
    of_all: int  # with the process that it keeps beside it


async def idle(place: Workplace, name: str, repos: int) -> Held:
    """What a daemon on a quiet relay holds some seconds after it began."""
    url = place.database(name)
    async with (
        open_database(url, application_name="bench", connections=1) as database,
        network(_MODULE, "idle", folder=place.folder) as net,
    ):
        if repos:
            async with database.connection() as conn:
                await conn.execute(_TRACK, repos)
                await conn.execute("analyze repos")
        async with daemon(url, net, place.folder) as indexer:
            await until_first_written(database, net, indexer)
            await asyncio.sleep(SETTLED_AFTER_S)
            assert (await indexer.metrics())["indexer_tracked_repos"] == repos
            return Held(indexer.resident_bytes, indexer.peak_resident_bytes, indexer.bytes_with_companions)


async def run_replay() -> Result:
    """Megabytes an hour by which a daemon grows."""
    seconds = seconds_of("MEMORY_SECONDS", REPLAY_SECONDS)
    with ended_by_signals(), workplace() as place:
        url = place.database("replay")
        async with (
            open_database(url, application_name="bench", connections=1) as database,
            network(_MODULE, "replay", str(seconds), folder=place.folder) as net,
        ):
            await know(database, population("memory", TRACKED))
            async with daemon(url, net, place.folder) as indexer:
                samples, frames = await replay(database, net, indexer, seconds)
    half = samples[len(samples) // 2 :]
    first, last, most = half[0][1], half[-1][1], max(resident for _, resident in samples)
    notes = (
        f"{frames:,} frames in {seconds:.0f} s",
        f"{samples[0][1] / MB:.1f} MB at the beginning, {first / MB:.1f} MB at half, {last / MB:.1f} MB at the end",
        f"never more than {most / MB:.1f} MB",
    )
    return Result("memory_replay", round(slope(half) * 3600 / MB, 1), "MB/h", notes=notes)


async def replay(
    database: Database, net: Network, indexer: Service, seconds: float
) -> tuple[list[tuple[float, int]], int]:
    """(Seconds, resident bytes) while the flows run, and how many frames they had."""
    await until_first_written(database, net, indexer)
    net.go()
    started = perf_counter()
    samples: list[tuple[float, int]] = []
    while not net.done.done():
        indexer.child.require_running()
        net.child.require_running()
        samples.append((perf_counter() - started, indexer.resident_bytes))
        await sleep_until(started + len(samples) * min(SAMPLE_EVERY_S, seconds / 20))
    sent = sum(net.done.result()["sent"].values())

    async def all_read() -> bool:
        return (await indexer.metrics())["indexer_frames_total"] >= sent

    await indexer.child.until(all_read)
    return samples, sent


def slope(points: Sequence[tuple[float, int]]) -> float:
    """Of the line through the points that is nearest to them by least squares."""
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x, _ in points)
