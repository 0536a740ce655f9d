"""`python -m indexer resync` as its users call it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest

from indexer.repo_state import RepoState
from indexer.resync import named
from indexer.resync.named import order_all
from memory.database import Database
from tests.backfilling import World, backfilling, ended
from tests.builders import RepoBuilder
from tests.fakes.pds import Fault


@pytest.fixture
async def world(database: Database) -> AsyncGenerator[World]:
    async with backfilling(database) as opened:
        yield opened


async def ordered(world: World) -> set[str]:
    """Those whose fetch is due."""
    return {
        row["repo"]
        for row in await world.rows(
            "select repo from requests where kind = 'fetch' and reason = 'ordered' and not_before <= now()"
        )
    }


async def test_named_repos_are_ordered_also_where_they_are_whole(world: World, database_url: str):
    alice, bob, carol = (world.account(name) for name in ("alice", "bob", "carol"))
    await world.track(alice, bob, carol, state="active", asked=False)
    run = await world.command(database_url, "resync", alice.did, bob.handle)
    assert (run.status, run.errors) == (0, "")
    assert run.output == "Ordered 2 fetches: `python -m indexer run` makes them, or `repair`.\n"
    assert await ordered(world) == {alice.did, bob.did}
    assert world.pds.asked_for("getRepo") == 0


async def test_who_is_not_tracked_is_told_and_stays_so(world: World, database_url: str):
    alice, bob = world.account("alice"), world.account("bob")
    await world.track(alice, state="active", asked=False)
    run = await world.command(database_url, "resync", alice.did, bob.did, "nobody.test")
    assert run.status == 1
    assert sorted(run.errors.splitlines()) == [
        f"{bob.did}: not tracked; `python -m indexer backfill` takes it in",
        "nobody.test: no such handle",
    ]
    assert await ordered(world) == {alice.did}
    assert (await world.states()).keys() == {alice.did}


@pytest.mark.parametrize("state", ["error", "pending", "desynchronized"])
async def test_all_in_a_state_are_ordered_and_no_others(world: World, database_url: str, state: str):
    builders = {each: world.account(each) for each in ("active", "error", "pending", "desynchronized", "resyncing")}
    for each, builder in builders.items():
        await world.track(builder, state=each, asked=False)
    run = await world.command(database_url, "resync", "--state", state)
    assert (run.status, run.output.startswith("Ordered 1 fetches: ")) == (0, True)
    assert await ordered(world) == {builders[state].did}


async def test_wait_for_another_attempt_ends_with_an_order(world: World, database_url: str):
    alice = world.account("alice")
    await world.track(alice, state="error")
    await world.rows("update requests set attempts = 5, failure = 'block_hash', not_before = now() + interval '1 day'")
    await world.command(database_url, "resync", "--all")
    assert await ordered(world) == {alice.did}
    assert await world.value("select failure from requests") is None


async def test_all_are_ordered_page_by_page(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(named, "ORDERED_AT_ONCE", 3)
    builders = [RepoBuilder(f"person {number}") for number in range(7)]
    await world.track(*builders, asked=False)
    so_far: list[int] = []
    count = await order_all(world.database, None, so_far.append, lambda: world.clock.now - timedelta(days=90))
    assert (count, so_far) == (7, [3, 6, 7])
    assert await ordered(world) == {builder.did for builder in builders}
    assert await order_all(world.database, RepoState.ERROR, so_far.append, world.clock) == 0


async def test_nothing_tracked_is_told(world: World, database_url: str):
    run = await world.command(database_url, "resync", "--all")
    assert (run.status, run.output) == (0, "There is nothing to fetch.\n")


# Waited for


async def test_waiting_fetches_all_here(world: World, database_url: str):
    alice, bob = world.account("alice"), world.account("bob")
    await world.track(alice, bob, state="desynchronized")
    run = await world.command(database_url, "resync", "--all", "--wait")
    assert run.status == 0
    assert run.output == "Fetched 2 with 2 records, all verified.\n"
    assert await world.states() == {alice.did: "active", bob.did: "active"}


async def test_waiting_for_all_tells_what_failed_and_is_no_failure(world: World, database_url: str):
    alice, bob = world.account("alice"), world.account("bob")
    await world.track(alice, bob, state="desynchronized")
    world.pds.misbehave(Fault.WRONG_CIDS, "getRepo", bob.did)
    run = await world.command(database_url, "resync", "--all", "--wait")
    assert run.status == 0
    assert "Failed: 1 (block_hash 1); `python -m indexer run` tries again." in run.output


async def test_waiting_for_named_ones_tells_each_that_failed(world: World, database_url: str):
    alice, bob = world.account("alice"), world.account("bob")
    await world.track(alice, bob, state="active", asked=False)
    world.pds.misbehave(Fault.WRONG_CIDS, "getRepo", bob.did)
    run = await world.command(database_url, "resync", alice.did, bob.did, "--wait")
    assert run.status == 1
    assert run.output == "Fetched 1 with 1 records, all verified.\n"
    assert run.errors.startswith(f"{bob.did}: not fetched: block_hash; tried again from ")


async def test_interrupt_leaves_the_orders(world: World, database_url: str):
    alice = world.account("alice")
    await world.track(alice, state="active", asked=False)
    world.pds.misbehave(Fault.SLOW, "getRepo")
    process = await world.begin(database_url, "resync", alice.did, "--wait")
    await world.pds.until_asked("getRepo")
    run = await ended(process, interrupt=True)
    assert (run.status, run.output) == (130, "")
    assert run.errors == "Interrupted: what was ordered by then stays ordered.\n"
    assert await world.value("select count(*) from requests where reason = 'ordered'") == 1


# Calls that cannot be carried out: `tests/unit/test_command_lines.py` has all of them


async def test_call_that_makes_no_sense_is_refused(world: World, database_url: str):
    run = await world.command(database_url, "resync")
    assert (run.status, run.output) == (2, "")
    assert run.errors == "error: One of these is needed: DIDs or handles, --all, or --state.\n"
