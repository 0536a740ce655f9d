"""One reader a source, whoever runs, stops, hangs or is killed."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from indexer.follower import Patience
from indexer.store import leases
from memory.database import Database, open_database
from tests.builders import RepoBuilder, Sequence, memory
from tests.daemons import IMPATIENT, Running, daemon, know
from tests.deadline import until
from tests.fakes.relay import Relay, relay
from tests.feed import rkey
from tests.processes import WITHOUT_MODEL

TTL = timedelta(seconds=10)
TAKEOVER_MAX = timedelta(seconds=15)
SLOW = timedelta(seconds=30)  # what a machine with much else to do may add to that
SEEDS = int(os.environ.get("TEST_TWO_DAEMONS", "3"))
REAL = Patience()


async def holder(database: Database, fake: Relay) -> UUID | None:
    async with database.connection() as conn:
        return await conn.fetchval("select holder from leases where source = $1", fake.source.url)


# The lease itself


async def test_lease_has_one_holder_until_it_runs_out(database: Database):
    ours, theirs = uuid4(), uuid4()
    async with database.connection() as conn:
        assert await leases.take_lease(conn, "https://relay.test", ours, TTL)
        assert not await leases.take_lease(conn, "https://relay.test", theirs, TTL)
        assert await leases.take_lease(conn, "https://relay.test", ours, TTL)
        assert await leases.take_lease(conn, "https://other.test", theirs, TTL)
        await conn.execute("update leases set expires_at = now() - interval '1 microsecond'")
        assert await leases.take_lease(conn, "https://relay.test", theirs, TTL)
        assert not await leases.take_lease(conn, "https://relay.test", ours, TTL)


async def test_lease_of_another_cannot_be_given_up(database: Database):
    async with database.connection() as conn:
        assert await leases.take_lease(conn, "https://relay.test", uuid4(), TTL)
        await leases.give_up_lease(conn, "https://relay.test", uuid4())
        assert await conn.fetchval("select count(*) from leases") == 1


async def test_lease_lasts_by_the_databases_clock(database: Database):
    async with database.transaction() as conn:
        assert await leases.take_lease(conn, "https://relay.test", uuid4(), TTL)
        assert await conn.fetchval("select expires_at - now() from leases") == TTL


# Daemons


@pytest.fixture
async def alice(database: Database) -> RepoBuilder:
    builder = RepoBuilder("alice", stream=Sequence(100))
    await know(database, builder)
    return builder


async def test_source_has_one_reader(database: Database, fake: Relay, alice: RepoBuilder):
    async with relay() as other, daemon(database, fake.source) as first:
        await fake.until_connected()
        async with daemon(database, fake.source, other.source):
            await other.until_connected()
            await fake.send(alice.create(rkey(1), memory("one")))
            await first.until_memories(alice, "one")
            assert len(fake.cursors) == 1
            await until_applied(1, first)


async def test_standby_takes_over_at_once_at_a_regular_stop(database: Database, fake: Relay, alice: RepoBuilder):
    async with daemon(database, fake.source) as first:
        await fake.until_connected()
        await fake.send(alice.create(rkey(1), memory("one")))
        await first.until_cursor(fake.source, 101)
        mine = await holder(database, fake)
        standby = asyncio.create_task(_stand_by(database, fake, alice))
        await asyncio.sleep(0)
    async with database.connection() as conn:  # the lease was given up, and did not run out
        assert await conn.fetchval("select holder from leases where expires_at < now()") is None
    assert await standby != mine
    assert fake.cursors == [None, 101]


async def _stand_by(database: Database, fake: Relay, alice: RepoBuilder) -> UUID | None:
    async with daemon(database, fake.source) as second:
        await fake.until_connected(2)
        await fake.send(alice.create(rkey(2), memory("two")))
        await second.until_memories(alice, "one", "two")
        return await holder(database, fake)


async def test_who_loses_the_lease_stops_reading(database: Database, fake: Relay):
    async with daemon(database, fake.source) as running:
        await fake.until_connected()
        async with database.connection() as conn:
            await conn.execute("update leases set holder = $1, expires_at = now() + interval '1 hour'", uuid4())
        await fake.until(lambda relay: not relay.open)
        await running.until_true(lambda: running.metric("indexer_connected", source=fake.source.url) == 0)
        async with database.connection() as conn:
            await conn.execute("update leases set expires_at = now()")
        await fake.until_connected(2)


async def test_lease_that_cannot_be_renewed_in_time_ends_the_reading(database: Database, fake: Relay):
    patience = replace(IMPATIENT, lease_ttl=timedelta(seconds=0.5))
    async with daemon(database, fake.source, patience=patience):
        await fake.until_connected()
        async with database.transaction() as conn:
            await conn.execute("select from leases for update")
            await fake.until(lambda relay: not relay.open)
        await fake.until_connected(2)


async def test_standby_takes_over_from_a_daemon_that_is_killed(
    database: Database, database_url: str, fake: Relay, alice: RepoBuilder
):
    killed = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "indexer", "run"),
        env={**os.environ, **WITHOUT_MODEL, "DATABASE_URL": database_url, "INDEXER_RELAY_URLS": fake.source.url},
        stderr=asyncio.subprocess.DEVNULL,
    )
    await fake.until_connected()
    await fake.send(alice.identity_frame())
    async with daemon(database, fake.source, patience=REAL) as standby:
        await standby.until_cursor(fake.source, 101)
        killed.kill()
        async with database.connection() as conn:
            killed_at = await conn.fetchval("select clock_timestamp()")
        assert await killed.wait() == -signal.SIGKILL
        await fake.send(alice.create(rkey(1), memory("one")))
        await standby.until_memories(alice, "one")
        async with database.connection() as conn:
            assert await conn.fetchval("select clock_timestamp()") - killed_at < TAKEOVER_MAX + SLOW
    # It waits for no more than the lease of the dead and one look at it.
    assert REAL.lease_ttl + timedelta(seconds=REAL.lease_renewal_s) < TAKEOVER_MAX
    assert fake.cursors == [None, 101]


# Two at once


@asynccontextmanager
async def pool(database_url: str) -> AsyncGenerator[Database]:
    async with open_database(database_url, application_name="second", connections=10) as opened:
        yield opened


def scenario(draw: random.Random, people: list[RepoBuilder]) -> list[tuple[RepoBuilder, bytes]]:
    """Commits of these people, mixed, each with its author."""
    held: dict[str, list[str]] = {person.did: [] for person in people}
    frames: list[tuple[RepoBuilder, bytes]] = []
    for number in range(60):
        person = draw.choice(people)
        own = held[person.did]
        match draw.choice(["create", "create", "update", "delete"]) if own else "create":
            case "create":
                own.append(rkey(number))
                frames.append((person, person.create(own[-1], memory(f"{number}"))))
            case "update":
                frames.append((person, person.update(draw.choice(own), memory(f"{number} again"))))
            case _:
                frames.append((person, person.delete(own.pop(draw.randrange(len(own))))))
    return frames


async def settle(running: Running, people: list[RepoBuilder]) -> None:
    """Waits until the last commit of each is applied, once each."""
    for person in people:
        await running.until("select rev from repos where repo = $1 and state = 'active'", person.did, is_=person.rev)
        wanted = {path.rpartition("/")[2] for path in person.records}
        rows = await running.rows("select rkey from memories where repo = $1", person.did)
        assert {row["rkey"] for row in rows} == wanted


async def until_applied(commits: int, first: Running, *others: Running) -> None:
    """Waits until that many are counted, which is after they show; never more."""

    def are_applied() -> bool:
        applied = sum(running.metric("indexer_commits_applied_total") for running in (first, *others))
        assert applied <= commits
        return applied == commits

    await first.until_true(are_applied)


@pytest.mark.parametrize("case", range(SEEDS))
async def test_two_daemons_on_different_sources_apply_everything_once(
    database: Database, database_url: str, seed: int, case: int
):
    draw = random.Random(seed + case)
    stream = Sequence()
    people = [RepoBuilder(f"{seed} {case} {n}", stream=stream) for n in range(4)]
    await know(database, *people)
    frames = scenario(draw, people)
    async with (
        pool(database_url) as second,
        relay() as one,
        relay() as other,
        daemon(database, one.source, batch_events=draw.randint(1, 20)) as left,
        daemon(second, other.source, batch_events=draw.randint(1, 20)) as right,
    ):
        await one.until_connected()
        await other.until_connected()
        ahead = [one, other]
        sent = {one.port: 0, other.port: 0}
        while ahead:
            to = draw.choice(ahead)
            some = frames[sent[to.port] : sent[to.port] + draw.randint(1, 10)]
            await to.send(*(frame for _, frame in some))
            sent[to.port] += len(some)
            ahead = [each for each in ahead if sent[each.port] < len(frames)]
        await settle(left, people)
        for fake in (one, other):
            await left.until_cursor(fake.source, len(frames))
        await until_applied(len(frames), left, right)
        assert await left.value("select count(*) from memory_versions") == len(frames)


@pytest.mark.parametrize("case", range(SEEDS))
async def test_two_daemons_on_the_same_source_lose_nothing_while_the_lease_wanders(
    database: Database, database_url: str, seed: int, case: int
):
    draw = random.Random(seed + case)
    stream = Sequence()
    people = [RepoBuilder(f"{seed} {case} {n}", stream=stream) for n in range(4)]
    await know(database, *people)
    frames = scenario(draw, people)
    async with (
        pool(database_url) as second,
        relay() as fake,
        daemon(database, fake.source, batch_events=draw.randint(1, 20)) as left,
        daemon(second, fake.source, batch_events=draw.randint(1, 20)) as right,
    ):
        await fake.until_connected()
        for start in range(0, len(frames), 10):
            await fake.send(*(frame for _, frame in frames[start : start + 10]))
            if start == 0:  # a first start has no cursor to go on from before its first frame
                await until(lambda: left.value("select seq from sources"))
            connected = len(fake.cursors)
            await fake.cut()
            await fake.until_connected(connected + 1)
        await settle(left, people)
        await left.until_cursor(fake.source, len(frames))
        await until_applied(len(frames), left, right)
        assert await left.value("select count(*) from memory_versions") == len(frames)
