"""The whole daemon in trouble: outages, bugs, floods; and how it is seen to be."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import islice
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from structlog.testing import capture_logs

from indexer.store import leases
from memory.database import Database, open_database
from memory.errors import Misconfigured
from memory.outbound_hosts import HostLimits
from tests.builders import RepoBuilder, Sequence, memory
from tests.daemons import IMPATIENT, Clock, Running, daemon, know, register
from tests.deadline import DEADLINE_S, until
from tests.fakes.directory import Directory, Mood
from tests.fakes.relay import Relay
from tests.feed import rkey

PARKED = "select count(*) from parked_commits"
ASKED = "select count(*) from requests where kind = 'identity'"
DAY = timedelta(days=1)

pytestmark = pytest.mark.usefixtures("patient_look_ups")


@pytest.fixture
def alice() -> RepoBuilder:
    return RepoBuilder("alice", stream=Sequence(100))


def look_ups(running: Running, outcome: str) -> float:
    return running.metric("indexer_identity_look_ups_total", outcome=outcome)


@asynccontextmanager
async def following(database: Database, fake: Relay, plc: Directory, **options: object) -> AsyncGenerator[Running]:
    """A daemon that is connected to the relay."""
    connected = len(fake.cursors)
    async with daemon(database, fake.source, plc_url=plc.url, **options) as running:  # pyright: ignore[reportArgumentType]
        await fake.until_connected(connected + 1)
        yield running


# Outages


async def test_database_that_ends_every_connection_loses_nothing(
    database: Database, database_url: str, fake: Relay, plc: Directory, alice: RepoBuilder
):
    await know(database, alice)
    async with (
        open_database(database_url, application_name="outage", connections=10) as flaky,
        following(flaky, fake, plc, batch_events=1) as running,
    ):
        running.database = database
        await fake.send(alice.create(rkey(0), memory("0")))
        await running.until_cursor(fake.source, 101)
        for n in range(1, 20):
            await fake.send(alice.create(rkey(n), memory(f"{n}")))
            async with database.connection() as conn:
                await conn.execute(
                    "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'outage'"
                )
        await running.until_memories(alice, *(f"{n}" for n in range(20)))
        await running.until_cursor(fake.source, 120)
        assert (await running.repo(alice))["state"] == "active"


async def test_outage_while_the_intake_is_full_loses_nothing(
    database: Database, fake: Relay, plc: Directory, alice: RepoBuilder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("indexer.intake.Intake.__init__.__kwdefaults__", {"bytes_max": 1, "lane_bytes_max": 10**9})
    await know(database, alice)
    source, patience = fake.source.url, replace(IMPATIENT, lease_ttl=timedelta(seconds=0.5))
    async with database.transaction() as conn:  # so that a slow machine may lose the lease before the first frame
        await leases.set_cursor(conn, source, 100, Clock().now)
    async with following(database, fake, plc, batch_events=1, patience=patience) as running:
        await fake.send(alice.create(rkey(0), memory("0")))
        await running.until_cursor(fake.source, 101)
        async with database.transaction() as conn:
            await conn.execute("lock table repos, leases in access exclusive mode")
            await fake.send(*(alice.create(rkey(n), memory(f"{n}")) for n in range(1, 10)))
            await running.until_true(
                lambda: running.metric("indexer_disconnects_total", source=source, reason="database") >= 1
            )
        await running.until_memories(alice, *(f"{n}" for n in range(10)))
        assert (await running.repo(alice))["state"] == "active"


async def test_daemon_stops_although_the_database_is_away(database_url: str, fake: Relay, plc: Directory):
    async with (
        open_database(database_url, application_name="outage", connections=10) as flaky,
        following(flaky, fake, plc) as running,
    ):
        flaky.pool.terminate()
        running.task.cancel()
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.wait([running.task])
        assert running.task.cancelled()


# Faults of ours


async def test_bug_brings_the_daemon_down_as_itself(
    database: Database, fake: Relay, plc: Directory, alice: RepoBuilder, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("indexer.consumer.Consumer.judge", broken)
    before = asyncio.all_tasks()
    with pytest.raises(ZeroDivisionError):
        async with following(database, fake, plc) as running:
            await fake.send(alice.create(rkey(1), memory("1")))
            await asyncio.wait([running.task])
    await fake.until(lambda relay: not relay.open)
    assert await _value(database, "select count(*) from leases") == 0
    assert {task for task in asyncio.all_tasks() - before if "indexer" in repr(task.get_coro())} == set()


async def test_stop_leaves_no_task_and_no_lease(database: Database, fake: Relay, plc: Directory):
    before = asyncio.all_tasks()
    async with following(database, fake, plc, health=("127.0.0.1", free_port())):
        pass
    await fake.until(lambda relay: not relay.open)
    assert await _value(database, "select count(*) from leases") == 0
    assert {task for task in asyncio.all_tasks() - before if "indexer" in repr(task.get_coro())} == set()


async def test_logs_hold_nothing_of_a_memory(database: Database, fake: Relay, plc: Directory, alice: RepoBuilder):
    register(plc, alice)
    with capture_logs() as logs:
        async with following(database, fake, plc) as running:
            await fake.send(alice.create(rkey(1), memory("Mandarin")), b"\xff Mandarin")
            await running.until_memories(alice, "Mandarin")
            await running.until("select count(*) from quarantine", is_=1)
    assert logs
    assert "Mandarin" not in repr(logs)


async def _value(database: Database, query: str) -> object:
    async with database.connection() as conn:
        return await conn.fetchval(query)


# What is seen


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


async def test_health_port_tells_live_ready_and_metrics(database: Database, fake: Relay, plc: Directory):
    port = free_port()

    async def ask(path: str) -> tuple[int, str]:
        def read() -> tuple[int, str]:
            try:
                with urlopen(f"http://127.0.0.1:{port}{path}") as answer:
                    return answer.status, answer.read().decode()
            except HTTPError as refusal:  # the database may take too long once
                return refusal.code, refusal.read().decode()

        return await asyncio.to_thread(read)

    async with following(database, fake, plc, health=("127.0.0.1", port)):
        assert await ask("/live") == (200, "live\n")
        await until(lambda: ask("/ready"), lambda answer: answer == (200, "ready\n"))
        status, text = await ask("/metrics")
        assert status == 200
        assert f'indexer_connected{{source="{fake.source.url}"}} 1.0' in text
        await until(lambda: ask("/metrics"), lambda answer: 'indexer_spaces{state="ready"} 0.0' in answer[1])


async def test_health_port_that_is_taken_is_said(database: Database, fake: Relay, plc: Directory):
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(Misconfigured, match="cannot be listened on"),
    ):
        async with daemon(database, fake.source, health=taken.getsockname()) as running:
            await asyncio.wait([running.task])


# Expiry


async def test_what_was_put_aside_goes_after_a_week_and_old_content_after_its_days(
    database: Database, fake: Relay, plc: Directory, alice: RepoBuilder
):
    lost = RepoBuilder("lost", stream=alice.stream)
    register(plc, alice)
    clock = Clock()
    async with following(database, fake, plc, clock=clock) as running:
        await fake.send(
            alice.create(rkey(1), memory("old")),
            alice.update(rkey(1), memory("new")),
            alice.create(rkey(2), {"$type": "dev.bastienrobert.memory.record"}),
        )
        await running.until_memories(alice, "new")
        await running.until("select count(*) from invalid_records", is_=1)
        plc.mood = Mood.OUTAGE
        await fake.send(lost.create(rkey(1), memory("lost")))
        await fake.send_raw(b"\xff no frame")
        await running.until(PARKED, is_=1)
        await running.until("select count(*) from quarantine", is_=1)
        clock.now += timedelta(days=6, hours=23)
        await running.until_true(lambda: running.metric("indexer_quarantined_frames") == 1)
        assert await running.value("select count(*) from invalid_records where excerpt <> ''") == 1
        clock.now += timedelta(hours=2)
        for table in ("quarantine", "parked_commits", "invalid_records where excerpt <> ''"):
            await running.until(f"select count(*) from {table}", is_=0)
        assert await running.value("select count(*) from memory_versions where record is not null") == 1
        clock.now += timedelta(days=24)
        await running.until("select count(*) from memory_versions where record is not null", is_=0)
        assert await running.value("select count(*) from memory_versions where rkey = $1", rkey(1)) == 2
        await running.until_memories(alice, "new")


# A flood


FORGED = 1500


async def test_flood_of_forged_dids_costs_little_and_holds_up_nobody(
    database: Database, fake: Relay, plc: Directory, alice: RepoBuilder, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "memory.identities.PLC_LIMITS", HostLimits(requests_per_s=1e6, burst=1000, concurrent=8, waiting=300)
    )
    forged = (RepoBuilder(f"forged {n}", stream=alice.stream).create(rkey(1), memory("forged")) for n in range(FORGED))
    first = alice.create(rkey(1), memory("1"))
    flood = [*islice(forged, FORGED // 2), alice.create(rkey(2), memory("2")), *forged]
    clock = Clock()
    clock.now = alice.stream.time
    await know(database, alice, at=clock.now)
    async with following(database, fake, plc, clock=clock) as running:
        await fake.send(first)
        await running.until_memories(alice, "1")
        plc.mood = Mood.HELD
        await fake.send(*flood)
        await running.until_memories(alice, "1", "2")  # while not one of them is looked up
        assert len(plc.asked) <= 64
        assert await running.value("select count(*) from repos") == 1
        plc.mood = Mood.HONEST
        plc.release.set()
        await running.until("select sum(times) from rejections where effect = 'unattributable'", is_=FORGED)
        await running.until(ASKED, is_=0)
        for table, rows in {"parked_commits": 0, "repos": 1, "identities": 1, "memories": 2}.items():
            assert await running.value(f"select count(*) from {table}") == rows
        assert len(plc.asked) == FORGED
