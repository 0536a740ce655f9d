"""A command with much to fetch has other processes fetch along, as one that asks no host more than it may alone."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator

import pytest

from indexer.resync.crew import WORTH_A_PROCESS, processes_for
from indexer.resync.hosts import HostBudget
from memory.database import Database
from tests.backfilling import World, backfilling, ended
from tests.deadline import until
from tests.fakes.pds import Fault

REPOS = 12
TWO = ("--processes", "2", "--concurrency", "2")


@pytest.fixture
async def world(database: Database) -> AsyncGenerator[World]:
    async with backfilling(database) as opened:
        yield opened


async def processes(world: World) -> int:
    return await world.value("select count(*) from pg_stat_activity where application_name = 'indexer'")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (("backfill", "--json"), {"fetched": REPOS, "records": 2 * REPOS}),
        (("resync", "--all", "--wait"), f"Fetched {REPOS} with {2 * REPOS} records, all verified.\n"),
    ],
    ids=["backfill", "resync"],
)
async def test_much_is_fetched_by_several_processes_and_told_in_one(
    world: World, database_url: str, command: tuple[str, ...], said: object
):
    people = [world.account(f"a{number}", memories=2) for number in range(REPOS)]
    if command[0] == "resync":
        await world.track(*people, asked=False)
        await world.rows("update repos set host = $1", world.pds.url)
    world.pds.misbehave(Fault.SLOW, "getRepo")
    process = await world.begin(database_url, *command, *TWO, INDEXER_RELAY_URLS=world.relay.url)
    await world.pds.until(lambda fake: fake.at_once["getRepo"] == 2)  # each fetches one at a time
    world.pds.misbehave(None, "getRepo")
    world.pds.release.set()
    run = await ended(process)
    assert run.status == 0
    if isinstance(said, dict):
        report = json.loads(run.output)
        assert {name: report[name] for name in said} == said
    else:
        assert run.output == said
    assert set((await world.states()).values()) == {"active"}


async def test_crew_ends_with_its_command(world: World, database_url: str):
    for number in range(REPOS):
        world.account(f"a{number}")
    world.pds.misbehave(Fault.SLOW, "getRepo")
    process = await world.begin(database_url, "backfill", "--discover", world.relay.url, *TWO)
    await world.pds.until(lambda fake: fake.at_once["getRepo"] == 2)
    process.kill()
    await process.wait()
    await until(lambda: processes(world), lambda count: count == 0)


@pytest.mark.parametrize(
    ("at_once", "cores", "expected"), [(8, 2, 2), (8, 16, 2), (64, 16, 4), (64, 3, 3), (3, 16, 1), (1, 1, 1)]
)
def test_processes_are_no_more_than_cores_work_and_slots_of_a_host(at_once: int, cores: int, expected: int):
    assert processes_for(at_once, cores, HostBudget().repos_at_once) == expected


@pytest.mark.parametrize(("expected", "processes"), [(2 * WORTH_A_PROCESS - 1, 1), (2 * WORTH_A_PROCESS, 2)])
def test_processes_are_no_more_than_what_is_expected_is_worth(expected: int, processes: int):
    assert processes_for(8, 2, 4, expected) == processes


def test_shares_of_a_budget_are_no_more_than_it():
    whole = HostBudget(requests_per_s=5.0, burst=10, questions_at_once=4, repos_at_once=4)
    share = whole.shared(4)
    assert (share.requests_per_s * 4, share.burst * 4 <= 10) == (5.0, True)
    assert (share.questions_at_once, share.repos_at_once) == (1, 1)
    assert whole.shared(1) == whole
