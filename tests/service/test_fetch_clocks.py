"""Machines whose clocks lie apart share the work as if they did not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from indexer.repair import OpenRepair, open_worker
from indexer.store.fetches import database_clock
from memory.database import Database
from tests.backfilling import World, backfilling
from tests.deadline import until
from tests.fakes.pds import Fault

APART = timedelta(hours=1)


@pytest.fixture
async def world(database: Database) -> AsyncGenerator[World]:
    async with backfilling(database) as opened:
        yield opened


@pytest.fixture
async def workers(database: Database, world: World) -> AsyncGenerator[list[OpenRepair]]:
    """Of two machines: one is ahead of the database, the other behind it."""
    async with AsyncExitStack() as stack:
        opened: list[OpenRepair] = []
        for ahead in (APART, -APART):
            repair = replace(
                world.repair, clock=lambda ahead=ahead: datetime.now(UTC) + ahead, shared_clock=database_clock
            )
            opened.append(await stack.enter_async_context(open_worker(database, repair)))
        yield opened


async def test_repo_that_one_fetches_is_not_taken_by_the_other(world: World, workers: list[OpenRepair]):
    alice, bob = world.account("alice"), world.account("bob")
    world.pds.misbehave(Fault.STALLED, "getRepo", alice.did)
    for first, second in (workers, workers[::-1]):
        await world.rows("delete from requests")
        await world.rows("delete from repos")
        asked = world.pds.asked_for("getRepo", alice.did)
        await world.track(alice)
        fetching = asyncio.create_task(first.worker.run())
        await until(lambda asked=asked: _is_asked(world, alice.did, asked + 1))
        other = asyncio.create_task(second.worker.run())
        await world.track(bob)
        await until(lambda: _is_answered(world, bob.did))
        assert world.pds.asked_for("getRepo", alice.did) == asked + 1
        for task in (fetching, other):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def _is_asked(world: World, did: str, times: int) -> bool:
    return world.pds.asked_for("getRepo", did) == times


async def _is_answered(world: World, did: str) -> bool:
    return await world.value("select count(*) from requests where repo = $1", did) == 0


async def _has_failed(world: World, did: str) -> bool:
    return await world.value("select count(*) from requests where repo = $1 and failure is not null", did) == 1


async def test_what_rests_and_what_failed_waits_by_the_clock_of_all(world: World, workers: list[OpenRepair]):
    for number, opened in enumerate(workers):
        whole, failing = world.account(f"whole {number}"), world.account(f"failing {number}")
        world.pds.misbehave(Fault.GIBBERISH, "getRepo", failing.did)
        await world.track(whole, failing)
        working = asyncio.create_task(opened.worker.run())
        await until(lambda whole=whole: _is_answered(world, whole.did))
        await until(lambda failing=failing: _has_failed(world, failing.did))
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        rests = "select abs(extract(epoch from fetch_after - clock_timestamp())) from repos where repo = any($1)"
        waits = "select abs(extract(epoch from not_before - clock_timestamp())) from requests where repo = $1"
        told = await world.rows(rests, [whole.did, failing.did]) + await world.rows(waits, failing.did)
        assert len(told) == 3
        assert all(row[0] < APART.total_seconds() / 2 for row in told)
