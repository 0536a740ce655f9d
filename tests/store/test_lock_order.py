"""Strangers have no row in `repos` that a writer could lock: what it touches of them, it touches in one order."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from indexer.arrivals import (
    Arrival,
    Batch,
    CommitParked,
    CommitUnparked,
    FrameIgnored,
    Place,
    RequestAnswered,
    SourceKind,
)
from indexer.books import RequestKind
from indexer.repo_state import SourceStatus
from indexer.store import repos
from indexer.writer import Writer
from memory.database import Database, open_database
from memory.tasks import TaskGroup
from tests.builders import tid
from tests.deadline import DEADLINE_S
from tests.feed import LIMITS, LONG_AGO, RELAY, Feed

STRANGERS = [f"did:plc:{letter * 24}" for letter in "abcdefgh"]
FIRST, SECOND = 1, 2
# Plans that go through the rows as they lie in the table, and as the batch names them.
BY_TABLE = ("enable_nestloop", "enable_mergejoin")
BY_BATCH = ("enable_hashjoin", "enable_mergejoin", "enable_seqscan")
LOCK_REQUEST = "select from requests where repo = $1 for update"
LOCK_PARKED = "select from parked_commits where repo = $1 for update"


def place() -> Place:
    return Place(RELAY, 1, LONG_AGO)


def answered(did: str) -> Arrival:
    return RequestAnswered(place(), did, RequestKind.IDENTITY, LONG_AGO)


def unparked(did: str) -> Arrival:
    return CommitUnparked(place(), did, tid(LONG_AGO))


def parked(did: str, number: int = FIRST) -> Arrival:
    return CommitParked(place(), did, tid(LONG_AGO + timedelta(number - 1)), b"frame", "key_unknown")


@asynccontextmanager
async def planning(database: Database, url: str, *without: str) -> AsyncGenerator[Database]:
    """One more connection, whose plans do without these."""
    async with database.connection() as conn:
        name = await conn.fetchval("select current_database()")
        for setting in without:
            await conn.execute(f"alter database {name} set {setting} to off")
        async with open_database(url, application_name="planning", connections=1) as opened:
            await conn.execute(f"alter database {name} reset all")
            yield opened


async def write(database: Database, arrivals: Sequence[Arrival]) -> None:
    await Writer(database, LIMITS).apply(Batch(list(arrivals)), LONG_AGO)


async def meet(database: Database, stopper: str, middle: str, *writes: Callable[[], object]) -> None:
    """Each write begins once those before it wait for a lock; the first waits for what `stopper` locks of `middle`."""
    async with asyncio.timeout(DEADLINE_S), TaskGroup() as tasks, database.transaction() as conn:
        await conn.execute(stopper, middle)
        for count, begin in enumerate(writes, start=1):
            tasks.create_task(begin())  # pyright: ignore[reportArgumentType]
            await waiting(database, count)


async def waiting(database: Database, statements: int) -> None:
    """Returns once so many statements wait for a lock."""
    async with database.connection() as conn:
        query = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
        while await conn.fetchval(query) < statements:
            pass


@pytest.mark.parametrize(
    ("settling", "stopper"), [(answered, LOCK_REQUEST), (unparked, LOCK_PARKED)], ids=["requests", "parked_commits"]
)
async def test_writers_that_settle_the_same_strangers_never_wait_in_a_circle(
    database: Database, database_url: str, settling: Callable[[str], Arrival], stopper: str
):
    """Wherever the first is stopped, and however each of them goes about it: a circle would end one with 40P01."""
    async with (
        planning(database, database_url, *BY_BATCH) as first,
        planning(database, database_url, *BY_TABLE) as second,
    ):
        batch = [settling(did) for did in reversed(STRANGERS)]
        for middle in STRANGERS:
            await write(database, [parked(did) for did in STRANGERS])
            await meet(database, stopper, middle, lambda: write(first, batch), lambda: write(second, batch))
            async with database.connection() as conn:
                await conn.execute("truncate parked_commits, requests")


async def test_writers_that_settle_some_and_ask_for_others_never_wait_in_a_circle(database: Database):
    a, b, c = STRANGERS[:3]
    await write(database, [parked(did) for did in STRANGERS])
    one = [answered(a), answered(b), parked(c, SECOND)]
    other = [answered(c), parked(a, SECOND)]
    await meet(database, LOCK_REQUEST, b, lambda: write(database, one), lambda: write(database, other))


async def test_writers_that_store_the_same_words_on_strangers_never_wait_in_a_circle(database: Database):
    def word(did: str) -> tuple[str, SourceStatus]:
        return did, SourceStatus(RELAY.url, SourceKind.RELAY, 1, True, None, LONG_AGO)

    async def store(dids: Sequence[str]) -> None:
        async with database.transaction() as conn:
            await repos.upsert_account_statuses(conn, [word(did) for did in dids])

    await store(STRANGERS)
    stopper = "select from account_status where repo = $1 for update"
    await meet(database, stopper, STRANGERS[4], lambda: store(STRANGERS), lambda: store(list(reversed(STRANGERS))))


async def test_rejections_of_several_takes_are_counted_once_and_last(database: Database):
    """Whoever holds rows of every writer's must wait for nothing any more, or two wait for each other."""
    feed = Feed(database)
    ignored = FrameIgnored(place(), "awaiting_resync")
    async with feed.writer.transaction(LONG_AGO) as taking:
        for _ in range(2):
            await taking.take([ignored])
        await taking.take_storable([ignored])
        assert await taking.conn.fetchval("select count(*) from rejections") == 0
    assert (await feed.row("select times from rejections where reason = 'awaiting_resync'"))["times"] == 3
