"""Handles that could not be verified, and come to be: after an outage, after a restart, after a takedown."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from memory.database import Database
from memory.resolver import HANDLE_RETRY_FIRST, HANDLE_RETRY_JITTER
from tests.builders import RepoBuilder, Sequence, memory
from tests.daemons import Clock, Running, daemon, register
from tests.fakes.directory import Directory, Mood, directory
from tests.fakes.relay import Relay
from tests.feed import rkey

HANDLE = "select handle from identities"
RESOLVED = "select resolved_at from identities"
UNSETTLED = "select count(*) from identities where handle_retry_at is not null"
ASKED = "select count(*) from requests where kind = 'identity'"
RETRIED = HANDLE_RETRY_FIRST * HANDLE_RETRY_JITTER


@pytest.fixture
async def handles() -> AsyncGenerator[Directory]:
    """Who says whose handles are."""
    async with directory() as listening:
        yield listening


@pytest.fixture
def alice(plc: Directory, handles: Directory) -> RepoBuilder:
    builder = RepoBuilder("alice", stream=Sequence(100))
    register(plc, builder)
    register(handles, builder)
    return builder


@asynccontextmanager
async def following(
    database: Database, fake: Relay, plc: Directory, handles: Directory, clock: Clock
) -> AsyncGenerator[Running]:
    connected = len(fake.cursors)
    async with daemon(database, fake.source, plc_url=plc.url, handles_url=handles.url, clock=clock) as running:
        await fake.until_connected(connected + 1)
        yield running


async def test_handle_whose_side_was_away_is_found_later_though_nothing_comes_of_the_account(
    database: Database, fake: Relay, plc: Directory, handles: Directory, alice: RepoBuilder
):
    clock = Clock()
    handles.mood = Mood.OUTAGE
    async with following(database, fake, plc, handles, clock) as running:
        await fake.send(alice.create(rkey(1), memory("1")))
        await running.until_memories(alice, "1")
        assert await running.value(HANDLE) is None
        handles.mood = Mood.HONEST
        clock.now += RETRIED
        await running.until(HANDLE, is_=alice.handle)
        assert await running.value(UNSETTLED) == 0
        await running.until(ASKED, is_=0)


async def test_handle_whose_side_was_away_is_found_after_a_restart(
    database: Database, fake: Relay, plc: Directory, handles: Directory, alice: RepoBuilder
):
    clock = Clock()
    handles.mood = Mood.OUTAGE
    async with following(database, fake, plc, handles, clock) as running:
        await fake.send(alice.create(rkey(1), memory("1")))
        await running.until_memories(alice, "1")
        await running.until_cursor(fake.source, 101)
    handles.mood = Mood.HONEST
    clock.now += RETRIED
    async with following(database, fake, plc, handles, clock) as running:
        await running.until(HANDLE, is_=alice.handle)


async def test_handle_whose_side_stays_away_is_asked_for_seldom_and_holds_up_nothing(
    database: Database, fake: Relay, plc: Directory, handles: Directory, alice: RepoBuilder
):
    clock = Clock()
    handles.mood = Mood.OUTAGE
    async with following(database, fake, plc, handles, clock) as running:
        await fake.send(alice.create(rkey(1), memory("1")))
        await running.until_memories(alice, "1")
        for number in range(2, 6):
            clock.now += timedelta(hours=number)
            await running.until(RESOLVED, is_=clock.now)
            await fake.send(alice.create(rkey(number), memory(f"{number}")))
            await running.until_memories(alice, *(f"{each}" for each in range(1, number + 1)))
        assert plc.asked_for(f"/{alice.did}") == 5
        await running.until(ASKED, is_=0)


@pytest.mark.parametrize("status", ["takendown", "deactivated"])
async def test_handle_that_is_refused_while_the_account_is_away_is_found_when_it_comes_back(
    database: Database, fake: Relay, plc: Directory, handles: Directory, alice: RepoBuilder, status: str
):
    clock = Clock()
    async with following(database, fake, plc, handles, clock) as running:
        await fake.send(alice.create(rkey(1), memory("1")))
        await running.until_memories(alice, "1")
        del handles.handles[alice.handle]  # its host serves nothing of it
        clock.now += timedelta(seconds=1)
        await fake.send(alice.account_frame(active=False, status=status), alice.identity_frame())
        await running.until(HANDLE, is_=None)
        await running.until(ASKED, is_=0)
        register(handles, alice)
        clock.now += timedelta(minutes=10)
        await fake.send(alice.account_frame(active=True))
        await running.until(HANDLE, is_=alice.handle)


async def test_account_that_comes_back_soon_after_it_was_looked_up_is_looked_up_again_as_soon_as_may_be(
    database: Database, fake: Relay, plc: Directory, handles: Directory, alice: RepoBuilder
):
    clock = Clock()
    async with following(database, fake, plc, handles, clock) as running:
        await fake.send(alice.create(rkey(1), memory("1")))
        await running.until_memories(alice, "1")
        del handles.handles[alice.handle]
        clock.now += timedelta(seconds=1)
        await fake.send(alice.account_frame(active=False, status="takendown"), alice.identity_frame())
        await running.until(HANDLE, is_=None)
        await running.until(ASKED, is_=0)
        register(handles, alice)
        clock.now += timedelta(seconds=1)
        await fake.send(alice.account_frame(active=True))
        await running.until("select count(*) from requests where kind = 'identity' and attempts = 1", is_=1)
        clock.now += timedelta(minutes=10)
        await running.until(HANDLE, is_=alice.handle)
        await running.until(ASKED, is_=0)
