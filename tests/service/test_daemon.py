"""The whole daemon: a relay and a directory in, rows out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from memory.database import Database
from tests.builders import RepoBuilder, Sequence, memory
from tests.daemons import Clock, Running, daemon, know, register
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


# Authors who are new


async def test_new_author_is_looked_up_and_released_in_order(
    database: Database, fake: Relay, plc: Directory, alice: RepoBuilder
):
    register(plc, alice)
    plc.mood = Mood.HELD
    async with following(database, fake, plc) as running:
        await fake.send(*(alice.create(rkey(n), memory(f"{n}")) for n in (1, 2, 3)))
        await running.until(PARKED, is_=3)
        assert await running.value("select count(*) from repos") == 0
        plc.mood = Mood.HONEST
        plc.release.set()
        await running.until_memories(alice, "1", "2", "3")
        await running.until(PARKED, is_=0)
        await running.until(ASKED, is_=0)
        assert (await running.repo(alice))["state"] == "active"
        assert await running.value("select handle from identities") == alice.handle
        await running.until_cursor(fake.source, 103)


async def test_what_comes_during_the_release_stays_behind_it(
    database: Database, fake: Relay, plc: Directory, alice: RepoBuilder
):
    register(plc, alice)
    async with following(database, fake, plc, batch_events=1) as running:
        for n in range(40):
            await fake.send(alice.create(rkey(n), memory(f"{n}")))
            await asyncio.sleep(0)
        await running.until_memories(alice, *(f"{n}" for n in range(40)))
        assert (await running.repo(alice))["state"] == "active"
        assert await running.value("select count(*) from rejections where effect <> 'parked'") == 0


async def test_author_who_is_asked_for_again_while_being_looked_up_does_not_wait_out_the_claim(
    database: Database, fake: Relay, plc: Directory, alice: RepoBuilder
):
    register(plc, alice)
    plc.mood = Mood.HELD
    async with following(database, fake, plc) as running:
        await fake.send(alice.create(rkey(1), memory("1")))
        await plc.until_asked(1)
        running.clock.now += timedelta(seconds=1)
        await fake.send(alice.create(rkey(2), memory("2")))
        await running.until(PARKED, is_=2)
        plc.mood = Mood.HONEST
        plc.release.set()
        await running.until_memories(alice, "1", "2")
        await running.until(ASKED, is_=0)
        assert plc.asked_for(f"/{alice.did}") == 1


async def test_unknown_author_is_forgotten(database: Database, fake: Relay, plc: Directory, alice: RepoBuilder):
    async with following(database, fake, plc) as running:
        await fake.send(*(alice.create(rkey(n), memory(f"{n}")) for n in (1, 2, 3)))
        await running.until("select times from rejections where effect = 'unattributable'", is_=3)
        for table in ("parked_commits", "requests", "repos", "identities", "memories"):
            assert await running.value(f"select count(*) from {table}") == 0
        assert plc.asked_for(f"/{alice.did}") == 1


async def test_unknown_author_is_asked_for_once_in_ten_minutes(
    database: Database, fake: Relay, plc: Directory, alice: RepoBuilder
):
    refused = "select times from rejections where effect = 'unattributable'"
    async with following(database, fake, plc) as running:
        for n in (1, 2, 3):
            await fake.send(alice.create(rkey(n), memory(f"{n}")))
            await running.until(refused, is_=n)
        assert plc.asked_for(f"/{alice.did}") == 1
        register(plc, alice)
        running.clock.now += timedelta(minutes=10)
        await fake.send(alice.create(rkey(4), memory("4")))
        await running.until_memories(alice, "4")
        assert plc.asked_for(f"/{alice.did}") == 2


async def test_author_whose_document_has_no_key_is_forgotten(
    database: Database, fake: Relay, plc: Directory, alice: RepoBuilder
):
    register(plc, alice)
    plc.documents[alice.did]["verificationMethod"] = []
    async with following(database, fake, plc) as running:
        await fake.send(alice.create(rkey(1), memory("1")))
        await running.until("select effect from rejections where effect = 'unattributable'", is_="unattributable")
        await running.until(PARKED, is_=0)
        await running.until(ASKED, is_=0)


async def test_parked_commits_outlive_a_restart(database: Database, fake: Relay, plc: Directory, alice: RepoBuilder):
    plc.mood = Mood.OUTAGE
    register(plc, alice)
    clock = Clock()
    async with following(database, fake, plc, clock=clock) as running:
        await fake.send(alice.create(rkey(1), memory("1")))
        await running.until(PARKED, is_=1)
        await running.until_cursor(fake.source, 101)
    plc.mood = Mood.HONEST
    clock.now += timedelta(minutes=10)
    async with following(database, fake, plc, clock=clock) as running:
        await fake.send(alice.create(rkey(2), memory("2")))
        await running.until_memories(alice, "1", "2")
        assert (await running.repo(alice))["state"] == "active"


async def test_commit_behind_parked_ones_waits_although_its_key_is_known_by_then(
    database: Database, fake: Relay, plc: Directory, alice: RepoBuilder
):
    plc.mood = Mood.OUTAGE
    clock = Clock()
    async with following(database, fake, plc, clock=clock) as running:
        await fake.send(alice.create(rkey(1), memory("1")))
        await running.until(PARKED, is_=1)
        await running.until_true(lambda: look_ups(running, "unavailable") == 1)
        await running.until_cursor(fake.source, 101)
    await know(database, alice, at=clock.now)
    register(plc, alice)
    plc.mood = Mood.HONEST
    await fake.send(alice.create(rkey(2), memory("2")))
    async with following(database, fake, plc, clock=clock) as running:
        await running.until(PARKED, is_=2)  # it is not yet time to ask again
        clock.now += timedelta(minutes=10)
        await running.until_memories(alice, "1", "2")
        assert (await running.repo(alice))["state"] == "active"


async def test_author_whom_another_daemon_looked_up_is_held_back_no_longer(
    database: Database, fake: Relay, plc: Directory, alice: RepoBuilder
):
    plc.mood = Mood.OUTAGE
    async with following(database, fake, plc) as running:
        await fake.send(alice.create(rkey(1), memory("1")))
        await running.until(PARKED, is_=1)
        await know(database, alice, at=running.clock.now)
        async with database.connection() as conn:
            await conn.execute("delete from requests")
        await running.until_memories(alice, "1")
        await fake.send(alice.create(rkey(2), memory("2")))
        await running.until_memories(alice, "1", "2")


# Keys that change


async def test_commit_under_a_new_key_is_applied_after_one_refresh(
    database: Database, fake: Relay, plc: Directory, alice: RepoBuilder
):
    clock = Clock()
    await know(database, alice, at=clock.now)
    async with following(database, fake, plc, clock=clock) as running:
        await fake.send(alice.create(rkey(1), memory("1")))
        await running.until_memories(alice, "1")
        alice.rotate_key("another")
        register(plc, alice)
        clock.now += timedelta(seconds=1)
        await fake.send(*(alice.create(rkey(n), memory(f"{n}")) for n in (2, 3, 4)))
        await running.until_memories(alice, "1", "2", "3", "4")
        assert (await running.repo(alice))["state"] == "active"
        assert plc.asked_for(f"/{alice.did}") == 1
        assert await running.value("select signing_key from identities") == alice.did_key


async def test_forger_costs_one_look_up_in_ten_minutes_and_the_author_nothing(
    database: Database, fake: Relay, plc: Directory, alice: RepoBuilder
):
    clock = Clock()
    await know(database, alice, at=clock.now)
    register(plc, alice)
    forger = RepoBuilder("alice", stream=alice.stream)
    forger.rotate_key("forged")
    plc.mood = Mood.HELD
    async with following(database, fake, plc, clock=clock) as running:
        await fake.send(alice.create(rkey(1), memory("1")))
        await running.until_memories(alice, "1")
        clock.now += timedelta(seconds=1)
        await fake.send(*(forger.create(rkey(50 + n), memory("forged")) for n in range(100)))
        await plc.until_asked(1)
        await fake.send(alice.create(rkey(2), memory("2")))
        await running.until_memories(alice, "1", "2")  # while the directory still thinks
        assert await running.value(PARKED) <= 16
        plc.mood = Mood.HONEST
        plc.release.set()
        await running.until(PARKED, is_=0)
        await running.until(ASKED, is_=0)
        await fake.send(forger.create(rkey(99), memory("forged again")))
        await running.until("select times from rejections where effect = 'unattributable'", is_=101)
        assert plc.asked_for(f"/{alice.did}") == 1
        assert (await running.repo(alice))["state"] == "active"


# The directory is down


async def test_stale_key_serves_while_the_directory_is_down(
    database: Database, fake: Relay, plc: Directory, alice: RepoBuilder
):
    clock = Clock()
    await know(database, alice, at=clock.now - 2 * DAY)
    plc.mood = Mood.OUTAGE
    async with following(database, fake, plc, clock=clock) as running:
        await fake.send(alice.create(rkey(1), memory("1")))
        await running.until_memories(alice, "1")
        clock.now += timedelta(minutes=5)
        await fake.send(alice.create(rkey(2), memory("2")))
        await running.until_memories(alice, "1", "2")
        assert await running.value(ASKED) == 1  # it is asked for as soon as it can be
        register(plc, alice)
        plc.mood = Mood.HONEST
        clock.now += timedelta(minutes=15)
        await running.until(ASKED, is_=0)
        assert await running.value("select resolved_at from identities") == clock.now


async def test_new_author_waits_for_the_directory(database: Database, fake: Relay, plc: Directory, alice: RepoBuilder):
    plc.mood = Mood.OUTAGE
    register(plc, alice)
    async with following(database, fake, plc) as running:
        await fake.send(alice.create(rkey(1), memory("1")))
        for attempt in (1, 2):  # the directory is left alone after three
            await running.until_true(lambda attempt=attempt: look_ups(running, "unavailable") == attempt)
            if attempt == 2:
                plc.mood = Mood.HONEST
            running.clock.now += timedelta(minutes=13)
        await running.until_memories(alice, "1")


async def test_identity_event_refreshes_the_handle(database: Database, fake: Relay, plc: Directory, alice: RepoBuilder):
    register(plc, alice)
    async with following(database, fake, plc) as running:
        await fake.send(alice.create(rkey(1), memory("1")))
        await running.until_memories(alice, "1")
        alice.handle = "renamed.test"
        register(plc, alice)
        running.clock.now += timedelta(minutes=10)
        await fake.send(alice.identity_frame())
        await running.until("select handle from identities", is_="renamed.test")


async def test_pds_is_not_heard_on_accounts_that_live_elsewhere(
    database: Database, fake: Relay, plc: Directory, alice: RepoBuilder
):
    bob = RepoBuilder("bob", stream=alice.stream, host=fake.source.url)
    register(plc, alice, bob)
    async with daemon(database, fake.pds, plc_url=plc.url) as running:
        await fake.until_connected()
        await fake.send(alice.create(rkey(1), memory("1")), bob.create(rkey(1), memory("bob's")))
        await running.until_memories(bob, "bob's")
        await running.until("select times from rejections where reason = 'wrong_host'", is_=1)
        await running.until_memories(alice)
