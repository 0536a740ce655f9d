"""`hostile`: how long honest people's commits take while somebody attacks, against the same daemon undisturbed.

For each attack of `benchmarks.hostile_network` a database, a daemon and a network of its own: 200 people whose keys
are known send 50 commits a second for HOSTILE_SECONDS, and as long again under attack. A commit's time is from when
its frame is handed to the socket to when its source's cursor in the database covers it, which is looked at every 5
ms. `value` is the worst attack's 99th percentile in milliseconds, `peer_value` that of the same daemon before. Five
of the people change their key as the attack begins, so that they have to be asked for; how long the first commit
after that takes is noted apart. HOSTILE_ATTACKS names some of the attacks, separated by commas. A commit that is
not written a minute after anything was counts with the time that it has waited until then; one that is not written
because the daemon died, as if it had waited a minute.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections import deque
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final

from benchmarks.hostile_network import ATTACKS, CHANGERS, FIRST_MEMORIES, HONEST, HONEST_PER_S, a_commit, in_name_of
from benchmarks.population import know, new_stream, population
from benchmarks.processes import (
    Network,
    Service,
    Workplace,
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
from memory.database import Database, open_database
from tests.builders import RepoBuilder

SECONDS: Final = 15.0
LOOK_EVERY_S: Final = 0.005
LOOK_AROUND_EVERY_S: Final = 0.5
PATIENCE_S: Final = 60.0
MB: Final = 1_000_000
# What a minute of such a flood leaves: as much as may be parked of strangers, and a question about each.
PARKED_BEFORE: Final = 130_000
_PARKED_AT_ONCE: Final = 5000
_PARK: Final = """
insert into parked_commits (repo, rev, source, seq, frame, reason, parked_at)
select n.repo, '3l22222222222', $3, n.seq, n.frame, 'key_unknown', now()
from unnest($1::text[], $2::bytea[]) with ordinality as n (repo, frame, seq)
"""
_REQUEST: Final = """
insert into requests (repo, kind, reason, requested_at, not_before, tracked)
select repo, 'identity', reason, parked_at, parked_at, false from parked_commits
"""
_COUNTS: Final = """
select (select count(*) from parked_commits) as parked,
    (select coalesce(sum(octet_length(frame)), 0) from parked_commits) as parked_bytes,
    (select count(*) from requests) as requests
"""
_REJECTIONS: Final = """
select string_agg(reason || ' ' || times, ', ' order by times desc)
from (select reason, sum(times) as times from rejections group by reason) r
"""


@dataclass
class Seen:
    """What was seen of one attack."""

    quiet_ms: list[float] = field(default_factory=list[float])
    attacked_ms: list[float] = field(default_factory=list[float])
    changers_s: dict[str, float] = field(default_factory=dict[str, float])  # DID → seconds of the first with a new key
    resident_before: int = 0
    resident_most: int = 0
    told: dict[str, Any] = field(default_factory=dict[str, Any])  # by the network, at the end
    counts: dict[str, int] = field(default_factory=dict[str, int])  # of rows, at the end
    rejections: str = ""
    unwritten: int = 0  # commits of the honest that were given up
    died: bool = False  # the daemon, by itself


async def run() -> Result:
    """Milliseconds of honest commits, in the worst attack."""
    seconds = seconds_of("HOSTILE_SECONDS", SECONDS)
    notes, figures = list[str](), list[tuple[float, float]]()
    with ended_by_signals(), workplace() as place:
        for attack in os.environ.get("HOSTILE_ATTACKS", ",".join(ATTACKS)).split(","):
            print(f"{attack} …", file=sys.stderr)
            seen = await suffer(place, attack, seconds)
            quiet_ms, attacked_ms = sorted(seen.quiet_ms), sorted(seen.attacked_ms)
            figures.append((percentile(attacked_ms, 0.99), percentile(quiet_ms, 0.99)))
            notes += describe(attack, seen, quiet_ms, attacked_ms)
    worst, before = max(figures)
    return Result("hostile", round(worst, 1), "ms", round(before, 1), round(worst / before, 2), tuple(notes))


def describe(attack: str, seen: Seen, quiet_ms: list[float], attacked_ms: list[float]) -> list[str]:
    """Lines for people."""
    changers = sorted(seen.changers_s.values())
    found = f"at most {changers[-1]:.1f} s" if len(changers) == CHANGERS else f"not all within {PATIENCE_S:.0f} s"
    told, counts = seen.told, seen.counts
    lines = [
        f"{attack}: {_spread(attacked_ms)}; undisturbed {_spread(quiet_ms)}",
        f"  after a change of key {found}; connected {told['subscribers']} times",
        f"  sent {told['sent']}; {told['asked']} questions to the directory, {told['held']} calls of silent hosts",
        f"  {counts['parked']} commits parked ({counts['parked_bytes'] / MB:.1f} MB), {counts['requests']} requests",
        f"  resident {seen.resident_before / MB:.0f} MB before, at most {seen.resident_most / MB:.0f} MB",
        f"  {seen.rejections}",
    ]
    if seen.unwritten:
        lines.append(f"  {seen.unwritten} commits of the honest were not written{', for the daemon died' * seen.died}")
    return lines


def _spread(sorted_ms: list[float]) -> str:
    return (
        f"p50 {percentile(sorted_ms, 0.5):.0f} ms, p99 {percentile(sorted_ms, 0.99):.0f} ms, max {sorted_ms[-1]:.0f} ms"
    )


async def suffer(place: Workplace, attack: str, seconds: float) -> Seen:
    """One attack, from a new database to what it left there."""
    url, honest = place.database(attack), population("honest", HONEST)
    async with (
        open_database(url, application_name="bench", connections=2) as database,
        network("benchmarks.hostile_network", attack, str(seconds), folder=place.folder) as net,
    ):
        await know(database, [*honest, *population("attacker", 1)])
        if attack == "forged":
            await fill_parking_lot(database, net.relays[0])
        async with daemon(url, net, place.folder) as indexer:
            await until_first_written(database, net, indexer)
            watch = Watch(database, net, indexer, [person.did for person in honest[:CHANGERS]], seconds)
            await watch.run()
            seen = watch.seen
            if not seen.attacked_ms:  # it did not live to see the attack
                indexer.child.require_running()
            seen.told = await net.finished()
            async with database.connection() as conn:
                row = await conn.fetchrow(_COUNTS)
                assert row is not None
                seen.counts = {name: int(row[name]) for name in row.keys()}  # noqa: SIM118  it is no dict
                seen.rejections = await conn.fetchval(_REJECTIONS) or ""
                held = await conn.fetchval(
                    "select count(*) from memories where repo = any($1::text[])",
                    [person.did for person in honest[CHANGERS:]],
                )
            expected = (HONEST - CHANGERS) * FIRST_MEMORIES
            expected += sum(number % HONEST >= CHANGERS for number in range(2 * round(seconds * HONEST_PER_S)))
            assert held == expected or seen.unwritten, f"{held} memories of the honest are there, not {expected}"
    return seen


async def fill_parking_lot(database: Database, source: str) -> None:
    """As if the flood had gone on for long."""
    template = a_commit(RepoBuilder("template", stream=new_stream()), 0)
    async with database.connection() as conn:
        for first in range(0, PARKED_BEFORE, _PARKED_AT_ONCE):
            dids = [RepoBuilder(f"parked{number}").did for number in range(first, first + _PARKED_AT_ONCE)]
            await conn.execute(_PARK, dids, [in_name_of(template, did) for did in dids], source)
        await conn.execute(_REQUEST)
        for table in ("parked_commits", "requests"):
            await conn.execute(f"analyze {table}")


class Watch:
    """Looks at the cursor, and now and then around."""

    def __init__(self, database: Database, net: Network, indexer: Service, changers: list[str], seconds: float) -> None:
        self.seen = Seen()
        self._database = database
        self._net = net
        self._indexer = indexer
        self._changers = changers
        self._undisturbed = round(seconds * HONEST_PER_S)  # commits before the attack
        self._waiting: deque[tuple[int, float, int]] = deque()  # (seq, when it was sent, its number)
        self._told = 0
        self._changed: dict[str, tuple[str, float]] = {}  # DID → rkey of its first with the new key, when it was sent

    async def run(self) -> None:
        """Returns once all that the honest sent is written."""
        self.seen.resident_before = self._indexer.resident_bytes
        looking_around = asyncio.create_task(self._look_around())
        try:
            self._net.go()
            await self._look()
            async with asyncio.timeout(0 if self.seen.died else PATIENCE_S):
                await asyncio.shield(looking_around)
        except TimeoutError:
            pass
        finally:
            looking_around.cancel()

    async def _look(self) -> None:
        patient_until = perf_counter() + PATIENCE_S
        while self._waiting or self._told < 2 * self._undisturbed or not self._net.done.done():
            began = perf_counter()
            if began > patient_until:
                self._give_up(began)
                return
            self._net.child.require_running()
            self._hear()
            if self._indexer.child.process.returncode is not None:
                self.seen.died = True
                self._give_up(began)
                return
            async with self._database.connection() as conn:
                cursor = await conn.fetchval("select seq from sources where source = $1", self._net.relays[0])
            now = perf_counter()
            while self._waiting and self._waiting[0][0] <= cursor:
                self._count(now)
                patient_until = now + PATIENCE_S
            await sleep_until(began + LOOK_EVERY_S)

    def _count(self, now: float) -> None:
        """Takes the first of those that wait as written."""
        _, sent_at, number = self._waiting.popleft()
        delays_ms = self.seen.quiet_ms if number < self._undisturbed else self.seen.attacked_ms
        delays_ms.append(1000 * (now - sent_at))

    def _give_up(self, now: float) -> None:
        self.seen.unwritten = len(self._waiting)
        while self._waiting:
            self._count(self._waiting[0][1] + PATIENCE_S if self.seen.died else now)

    def _hear(self) -> None:
        while not self._net.heard.empty():
            told = self._net.heard.get_nowait()
            did, _, rkey = told["label"].partition(" ")[0].partition("/")
            if did in self._changers and self._told >= self._undisturbed:
                self._changed.setdefault(did, (rkey, told["at"]))
            self._waiting.append((told["seq"], told["at"], self._told))
            self._told += 1

    async def _look_around(self) -> None:
        """Until the attack is over, and everybody's first commit with a new key is there."""
        seen = self.seen
        while len(seen.changers_s) < CHANGERS or not self._net.done.done():
            async with self._database.connection() as conn:
                for did, (rkey, sent_at) in tuple(self._changed.items()):
                    there = await conn.fetchval(
                        "select count(*) from memories where repo = $1 and rkey = $2", did, rkey
                    )
                    if there:
                        seen.changers_s.setdefault(did, perf_counter() - sent_at)
            if self._indexer.child.process.returncode is None:
                seen.resident_most = max(seen.resident_most, self._indexer.resident_bytes)
            await asyncio.sleep(LOOK_AROUND_EVERY_S)
