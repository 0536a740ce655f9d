"""Repos that find no room on our disk: neither they nor their hosts are blamed, and it is told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from indexer.resync.disk import FIRST_PAUSE_S, DiskBudget
from indexer.status_text import problems
from indexer.store.status import index_status
from indexer.store.upkeep import gauges
from memory.database import Database
from tests.builders import RepoBuilder, memory
from tests.feed import rkey
from tests.mending import Mending, mending


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the disk will be."""
    return tmp_path / "disk"


@pytest.fixture
async def world(database: Database, folder: Path) -> AsyncGenerator[Mending]:
    async with mending(database, disk=DiskBudget(folder, kept_free_bytes=0, memory_bytes=0)) as opened:
        yield opened


def written(world: Mending, seed: str) -> RepoBuilder:
    person = world.account(seed)
    person.create(rkey(1), memory(seed))
    return person


async def until_it_is_noticed(world: Mending, *people: RepoBuilder) -> None:
    query = "select count(*) from requests where failure = 'disk_unavailable' and attempts = 0 and repo = any($1)"
    await world.until(lambda: world.value(query, [person.did for person in people]), len(people))


async def test_repo_and_host_are_as_before_and_it_is_told_why(world: Mending):
    alice = written(world, "alice")
    await world.ask(alice)
    before = await world.state(alice)
    with capture_logs() as logs:
        world.start()
        await until_it_is_noticed(world, alice)
    assert await world.state(alice) == before
    assert (await world.row(alice))["fetch_after"] is None
    assert world.hosts.available_in_s(world.pds.url) == 0
    assert world.worker.failures == {"disk_unavailable": 1}
    [told] = [each for each in logs if each["event"] == "disk_unavailable"]
    assert "INDEXER_SPOOL_DIR" in told["hint"]


async def test_status_and_metrics_have_a_word_for_it(world: Mending):
    alice = written(world, "alice")
    await world.ask(alice)
    world.start()
    await until_it_is_noticed(world, alice)
    async with world.database.connection() as conn:
        status, counted = await index_status(conn), await gauges(conn)
    assert [(failed.reason, failed.repos) for failed in status.fetches.failed] == [("disk_unavailable", 1)]
    told = "\n".join(problems(status, world.clock()))
    assert "1 repo found no room on the disk of INDEXER_SPOOL_DIR" in told
    assert counted.without_disk == 1


async def test_no_other_fetch_begins_meanwhile_and_all_go_on_once_there_is_room(world: Mending, folder: Path):
    alice, bob = written(world, "alice"), written(world, "bob")
    await world.ask(alice)
    world.start()
    await until_it_is_noticed(world, alice)
    await world.ask(bob)
    asked = world.pds.asked_for("getRepo")
    assert await world.worker._claim_fetches(8) == []
    assert world.pds.asked_for("getRepo") == asked
    await asyncio.to_thread(folder.mkdir)
    world.clock.advance(seconds=2 * FIRST_PAUSE_S)
    await world.until_answered(alice, bob)
    assert (await world.contents(alice), await world.contents(bob)) == (["alice"], ["bob"])
    assert await world.worker._claim_fetches(8) == []
    assert world.worker._disk.pause_s() == 0
