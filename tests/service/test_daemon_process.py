"""`python -m indexer run` as whoever keeps it running meets it: it waits, says so, comes back, and ends when told."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

from indexer.store import leases
from memory.database import Database, open_database
from memory.embedded import hold_cluster
from memory.schema import apply_migrations
from tests.builders import RepoBuilder, Sequence, memory
from tests.conftest import shared_memory
from tests.daemons import know
from tests.deadline import until
from tests.doctor_servers import free_port
from tests.fakes.gate import Gate, gate
from tests.fakes.relay import Relay, error_frame
from tests.feed import rkey
from tests.processes import daemon_process
from tests.store.clusters import FAST, folder_in, is_running, server_pid, wait_until_stopped


@pytest.fixture
async def way(database_url: str) -> AsyncGenerator[Gate]:
    """To the database."""
    async with gate(database_url) as standing:
        yield standing


async def until_stored(database: Database, *contents: str) -> None:
    async def ask() -> list[str]:
        async with database.connection() as conn:
            return [row["content"] for row in await conn.fetch("select content from memories order by rkey")]

    await until(ask, lambda stored: stored == list(contents))


# How it ends


async def test_daemon_that_is_connected_ends_when_told_to(database: Database, database_url: str, fake: Relay):
    async with daemon_process(DATABASE_URL=database_url, INDEXER_RELAY_URLS=fake.source.url) as running:
        await fake.until_connected()
        assert await running.terminate() == 0
    async with database.connection() as conn:
        assert await conn.fetchval("select count(*) from leases") == 0


async def test_daemon_that_backs_off_ends_when_told_to(database_url: str):
    nowhere = f"http://127.0.0.1:{free_port()}"
    async with daemon_process(DATABASE_URL=database_url, INDEXER_RELAY_URLS=nowhere) as running:
        await running.until_said("source_unavailable", times=2)
        assert await running.terminate() == 0


async def test_daemon_whose_source_is_stopped_ends_when_told_to(database: Database, database_url: str, fake: Relay):
    async with database.transaction() as conn:
        await leases.set_cursor(conn, fake.source.url, 1000, Sequence(1).time)
    fake.openings = [[error_frame("FutureCursor")]]
    async with daemon_process(DATABASE_URL=database_url, INDEXER_RELAY_URLS=fake.source.url) as running:
        await running.until_said("source_stopped", reason="FutureCursor")
        assert await running.terminate() == 0


@pytest.mark.parametrize("away", ["shut", "held"])
async def test_daemon_whose_database_is_away_ends_when_told_to(fake: Relay, way: Gate, away: str):
    await way.open()
    async with daemon_process(DATABASE_URL=way.url, INDEXER_RELAY_URLS=fake.source.url) as running:
        await fake.until_connected()
        await shut_or_hold(way, away)
        await running.until_ready(is_=False)
        assert await running.terminate() == 0


@pytest.mark.parametrize("away", ["shut", "held"])
async def test_daemon_that_waits_for_its_database_ends_when_told_to(fake: Relay, way: Gate, away: str):
    if away == "held":
        await way.open()
        way.hold()
    async with daemon_process(DATABASE_URL=way.url, INDEXER_RELAY_URLS=fake.source.url) as running:
        await running.until_ready(is_=False)
        assert await running.terminate() == 0
    assert fake.cursors == []


async def shut_or_hold(way: Gate, away: str) -> None:
    if away == "shut":
        await way.shut()
    else:
        way.hold()


# A database that comes and goes


async def test_database_that_is_away_at_the_start_is_waited_for(database: Database, fake: Relay, way: Gate):
    alice = RepoBuilder("alice", stream=Sequence(100))
    await know(database, alice)
    async with daemon_process(DATABASE_URL=way.url, INDEXER_RELAY_URLS=fake.source.url) as running:
        await running.until_said("connection_retried", message="The database of DATABASE_URL does not answer.")
        assert await running.ask("/ready") == (503, "the database does not answer\n")
        assert await running.ask("/live") == (200, "live\n")
        assert fake.cursors == []
        await way.open()
        await fake.until_connected()
        await running.until_ready(is_=True)
        await fake.send(alice.create(rkey(1), memory("tea")))
        await until_stored(database, "tea")


@pytest.mark.parametrize("away", ["shut", "held"])
async def test_database_that_goes_and_comes_back_is_told_and_loses_nothing(
    database: Database, fake: Relay, way: Gate, away: str
):
    alice = RepoBuilder("alice", stream=Sequence(100))
    await know(database, alice)
    await way.open()
    async with daemon_process(DATABASE_URL=way.url, INDEXER_RELAY_URLS=fake.source.url) as running:
        await fake.until_connected()
        await fake.send(alice.create(rkey(1), memory("tea")))
        await until_stored(database, "tea")
        await running.until_ready(is_=True)
        await shut_or_hold(way, away)
        await fake.send(alice.create(rkey(2), memory("coffee")))
        await running.until_ready(is_=False)
        await way.open()
        await running.until_ready(is_=True)
        await until_stored(database, "tea", "coffee")
        assert await running.terminate() == 0


# The embedded cluster


@pytest.fixture
def data_dir() -> Generator[Path]:
    folder = folder_in(shared_memory(), 0o711)
    yield folder / "postgres"
    shutil.rmtree(folder)


async def test_embedded_cluster_that_stops_and_starts_again_is_told_and_loses_nothing(fake: Relay, data_dir: Path):
    alice = RepoBuilder("alice", stream=Sequence(100))
    with hold_cluster(data_dir, FAST) as cluster:
        apply_migrations(cluster.url())
        async with daemon_process(DATABASE_DATA_DIR=str(data_dir), INDEXER_RELAY_URLS=fake.source.url) as running:
            await fake.until_connected()
            async with open_database(cluster.url(), application_name="tests", connections=1) as database:
                await know(database, alice)
                await fake.send(alice.create(rkey(1), memory("tea")))
                await until_stored(database, "tea")
            os.kill(server_pid(cluster), signal.SIGQUIT)
            await asyncio.to_thread(wait_until_stopped, cluster)
            await fake.send(alice.create(rkey(2), memory("coffee")))
            await running.until_ready(is_=False)
            await asyncio.to_thread(start_again, data_dir)
            await running.until_ready(is_=True)
            async with open_database(cluster.url(), application_name="tests", connections=1) as database:
                await until_stored(database, "tea", "coffee")
            assert await running.terminate() == 0
        assert is_running(cluster), "whoever else holds it keeps it"
    assert not is_running(cluster)


def start_again(data_dir: Path) -> None:
    """As any command does that comes and goes."""
    with hold_cluster(data_dir, FAST):
        pass
