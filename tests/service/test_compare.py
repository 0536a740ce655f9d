"""What is held of a repo is compared with what its host has."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from indexer.books import RequestKind
from indexer.resync.worker import IN_FLIGHT, LOOK_AGAIN
from memory.database import Database
from tests.builders import RepoBuilder, memory
from tests.fakes.pds import Fault
from tests.feed import rkey
from tests.mending import Mending, mending

LATEST = RequestKind.LATEST_COMMIT


@pytest.fixture
async def world(database: Database) -> AsyncGenerator[Mending]:
    async with mending(database) as opened:
        yield opened


async def known(world: Mending, seed: str = "alice") -> RepoBuilder:
    """A repo that is held whole."""
    person = world.account(seed)
    await world.live(*person.genesis(), person.create(rkey(1), memory("one")))
    await world.value("delete from requests")
    return person


async def known_all(world: Mending, number: int) -> list[RepoBuilder]:
    return [await known(world, f"{each}") for each in range(number)]


# Where one repo stands


async def test_repo_that_stands_where_its_host_does_is_left_alone(world: Mending):
    alice = await known(world)
    await world.ask(alice, kind=LATEST)
    world.start()
    await world.until_answered(alice)
    assert await world.state(alice) == ("active", None)
    assert (await world.row(alice))["audited_at"] == world.clock.now
    assert [asked.method for asked in world.pds.asked] == ["getLatestCommit"]


async def test_host_that_has_less_than_is_held_is_left_alone(world: Mending):
    alice = await known(world)
    world.pds.freeze(alice.did)
    await world.live(alice.create(rkey(2), memory("two")))
    await world.ask(alice, kind=LATEST)
    world.start()
    await world.until_answered(alice)
    assert await world.state(alice) == ("active", None)
    assert await world.contents(alice) == ["one", "two"]


async def test_repo_behind_its_host_is_fetched(world: Mending):
    alice = await known(world)
    alice.create(rkey(2), memory("two"))
    await world.ask(alice, kind=LATEST)
    world.start()
    await world.until_answered(alice)
    assert await world.contents(alice) == ["one", "two"]
    assert await world.state(alice) == ("active", None)


async def test_repo_at_another_commit_of_the_same_rev_is_fetched(world: Mending):
    alice = await known(world)
    await world.value("update repos set commit_cid = 'bafyother'")
    await world.ask(alice, kind=LATEST)
    world.start()
    await world.until_answered(alice)
    assert world.pds.asked_for("getRepo") == 1
    assert (await world.row(alice))["commit_cid"] != "bafyother"


async def test_commit_of_a_moment_ago_is_given_time_to_come(world: Mending):
    alice = await known(world)
    frame = alice.create(rkey(2), memory("two"), time=world.clock.now - IN_FLIGHT / 2)
    await world.ask(alice, kind=LATEST)
    world.start()
    await world.pds.until_asked("getLatestCommit")
    await world.until(lambda: world.wait_s(alice, LATEST), LOOK_AGAIN.total_seconds())
    assert await world.state(alice) == ("active", None)
    await world.live(frame)
    world.clock.advance(seconds=15)
    await world.until_answered(alice)
    assert world.pds.asked_for("getRepo") == 0
    assert await world.contents(alice) == ["one", "two"]


async def test_commit_of_a_moment_ago_that_does_not_come_is_fetched(world: Mending):
    alice = await known(world)
    alice.create(rkey(2), memory("two"), time=world.clock.now - IN_FLIGHT / 2)
    await world.ask(alice, kind=LATEST)
    world.start()
    await world.pds.until_asked("getLatestCommit")
    await world.until(lambda: world.wait_s(alice, LATEST), LOOK_AGAIN.total_seconds())
    world.clock.advance(seconds=15)
    await world.until_answered(alice)
    assert world.pds.asked_for("getLatestCommit") == 2
    assert await world.contents(alice) == ["one", "two"]


async def test_older_commit_is_not_waited_for(world: Mending):
    alice = await known(world)
    alice.create(rkey(2), memory("two"), time=world.clock.now - IN_FLIGHT)
    await world.ask(alice, kind=LATEST)
    world.start()
    await world.until_answered(alice)
    assert world.pds.asked_for("getLatestCommit") == 1
    assert await world.contents(alice) == ["one", "two"]


async def test_repo_that_is_fetched_just_now_is_compared_after(world: Mending):
    alice = await known(world)
    alice.create(rkey(2), memory("two"))
    world.pds.misbehave(Fault.STALLED, "getRepo")
    await world.ask(alice)
    world.start()
    await world.pds.until_asked("getRepo")
    await world.ask(alice, kind=LATEST)
    await world.until(lambda: world.wait_s(alice, LATEST), LOOK_AGAIN.total_seconds())
    assert world.pds.asked_for("getLatestCommit") == 0
    world.pds.release.set()
    world.pds.misbehave(None, "getRepo")
    await world.until_answered(alice, kind=RequestKind.FETCH)
    world.clock.advance(seconds=15)
    await world.until_answered(alice)
    assert (world.pds.asked_for("getLatestCommit"), world.pds.asked_for("getRepo")) == (1, 1)


@pytest.mark.parametrize("status", ["deactivated", "takendown", "suspended"])
async def test_account_that_its_host_does_not_serve_is_hidden(world: Mending, status: str):
    alice = await known(world)
    world.pds.statuses[alice.did] = status
    await world.ask(alice, kind=LATEST)
    world.start()
    await world.until_answered(alice)
    row = await world.row(alice)
    assert (row["visible"], row["status"], row["state"]) == (False, status, "active")
    assert await world.contents(alice) == ["one"]


async def test_account_that_is_hidden_and_yet_served_is_shown(world: Mending):
    alice = await known(world)
    await world.live(alice.account_frame(active=False, status="deactivated"))
    await world.ask(alice, kind=LATEST)
    world.start()
    await world.until_answered(alice)
    assert (await world.row(alice))["visible"]
    assert world.pds.asked_for("getRepo") == 0


@pytest.mark.parametrize("fault", [Fault.GIBBERISH, Fault.BROKEN, Fault.MOVED, Fault.REFUSING, Fault.TRUNCATED])
async def test_host_without_an_answer_is_asked_again_later_and_changes_nothing(world: Mending, fault: Fault):
    alice = await known(world)
    world.pds.misbehave(fault)
    await world.ask(alice, kind=LATEST)
    world.start()
    await world.until_failed(alice, kind=LATEST)
    assert await world.state(alice) == ("active", None)
    assert 7.5 <= await world.wait_s(alice, LATEST) <= 10
    world.pds.misbehave(None)
    world.clock.advance(seconds=10)
    await world.until_answered(alice)
