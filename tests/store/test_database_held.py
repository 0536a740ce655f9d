"""A database that neither answers nor ends its connections: whoever gives up on it is let go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from typing import Any

import pytest

from memory import database as connections
from memory.database import Database, open_database
from tests.deadline import DEADLINE_S, until
from tests.fakes.gate import Gate, gate

Sleep = Callable[[Database], Coroutine[Any, Any, None]]
ASLEEP = "select count(*) from pg_stat_activity where datname = current_database() and query like 'select pg_sleep%'"


@pytest.fixture
async def way(database_url: str) -> AsyncGenerator[Gate]:
    async with gate(database_url) as standing:
        await standing.open()
        yield standing


@pytest.fixture
async def behind(way: Gate, monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Database]:
    """One connection through the gate."""
    monkeypatch.setattr(connections, "GIVE_UP_TIMEOUT_S", 0.05)
    async with open_database(way.url, application_name="behind", connections=1) as opened:
        yield opened
        await way.open()


async def sleep_in_a_statement(database: Database) -> None:
    async with database.connection() as conn:
        await conn.execute("select pg_sleep(1000)")


async def sleep_in_a_transaction(database: Database) -> None:
    async with database.transaction() as conn:
        await conn.execute("select pg_sleep(1000)")


async def give_up(sleep: Sleep, behind: Database, way: Gate, database: Database) -> asyncio.Task[None]:
    """A statement that was cancelled after the database fell silent."""

    async def asleep() -> int:
        async with database.connection() as conn:
            return await conn.fetchval(ASLEEP)

    sleeping = asyncio.create_task(sleep(behind))
    await until(asleep)
    way.hold()
    sleeping.cancel()
    async with asyncio.timeout(DEADLINE_S):
        await asyncio.wait([sleeping])
    return sleeping


@pytest.mark.parametrize("sleep", [sleep_in_a_statement, sleep_in_a_transaction])
async def test_cancellation_while_the_database_is_silent_is_not_lost(
    database: Database, way: Gate, behind: Database, sleep: Sleep
):
    assert (await give_up(sleep, behind, way, database)).cancelled()


async def test_connection_that_was_given_up_is_replaced(database: Database, way: Gate, behind: Database):
    await give_up(sleep_in_a_transaction, behind, way, database)
    await way.open()
    async with behind.connection() as conn:
        assert await conn.fetchval("select 1") == 1
