"""Commits that come live while their repo is fetched join what it brings: none is lost, twice, or out of order."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from indexer.arrivals import Source, SourceKind
from indexer.parking_lot import ParkingLimits
from memory.database import Database
from memory.identifiers import cid_text
from tests.builders import CommitParts, RepoBuilder, SigningKey, memory
from tests.fakes.pds import Fault
from tests.feed import rkey
from tests.mending import Mending, mending

OTHER_RELAY = Source("https://other-relay.test", SourceKind.RELAY)
MOST_PARKED = ParkingLimits().max_commits
every_beginning = pytest.mark.parametrize("beginning", ["unknown", "pending", "active", "desynchronized"])


@pytest.fixture
async def world(database: Database) -> AsyncGenerator[Mending]:
    async with mending(database) as opened:
        yield opened


async def begun(world: Mending, beginning: str) -> RepoBuilder:
    """A repo with one memory, of which as much is known; its host has another that nobody told the index."""
    alice = world.account("alice")
    await world.track(alice)
    frames = alice.genesis()
    frames.append(alice.create("self", {"text": "none of ours"}, collection="app.bsky.actor.profile"))
    frames.append(alice.create(rkey(1), memory("1")))
    match beginning:
        case "active":
            await world.live(*frames)
        case "pending":
            await world.live(frames[-1])
        case "desynchronized":
            await world.live(*frames)
            alice.create(rkey(2), memory("2"))
            await world.live(alice.create(rkey(3), memory("3")))
            alice.delete(rkey(3))
        case _:
            pass
    expected = {"unknown": "pending"}.get(beginning, beginning)
    assert (await world.state(alice))[0] == expected
    await world.value("delete from requests")
    world.start()
    return alice


@asynccontextmanager
async def fetching(world: Mending, person: RepoBuilder, fault: Fault) -> AsyncGenerator[None]:
    """While the repo is fetched: SLOW reads it at the end of the block, STALLED has read it at its beginning."""
    times = world.pds.asked_for("getRepo") + 1
    world.pds.misbehave(fault, "getRepo")
    await world.ask(person)
    await world.pds.until_asked("getRepo", times)
    assert (await world.state(person))[0] == "resyncing"
    yield
    world.pds.misbehave(None, "getRepo")
    world.pds.release.set()


async def assert_whole(world: Mending, person: RepoBuilder, *contents: str) -> None:
    await world.until_state(person, "active")
    await world.until_answered(person)
    assert await world.contents(person) == list(contents)
    row = await world.row(person)
    assert (row["rev"], row["data_cid"], row["fetch_token"]) == (person.rev, data_cid(person), None)
    assert row["memory_count"] == len(contents)
    assert await world.parked(person) == 0


def data_cid(person: RepoBuilder) -> str:
    assert person.data is not None
    return cid_text(person.data)


@every_beginning
async def test_commit_that_comes_before_the_repo_is_read_is_in_what_was_read(world: Mending, beginning: str):
    alice = await begun(world, beginning)
    async with fetching(world, alice, Fault.SLOW):
        await world.live(alice.create(rkey(5), memory("5")), alice.update(rkey(1), memory("one")))
        assert await world.parked(alice) == 2
        assert "5" not in await world.contents(alice)
    await assert_whole(world, alice, "one", *["2"] * (beginning == "desynchronized"), "5")


@every_beginning
async def test_commit_that_comes_after_the_repo_was_read_chains_on(world: Mending, beginning: str):
    alice = await begun(world, beginning)
    async with fetching(world, alice, Fault.STALLED):
        await world.live(alice.create(rkey(5), memory("5")))
        await world.live(
            alice.update(rkey(1), memory("one")), alice.delete(rkey(5)), alice.create(rkey(6), memory("6"))
        )
        assert await world.parked(alice) == 4
    await assert_whole(world, alice, "one", *["2"] * (beginning == "desynchronized"), "6")


@every_beginning
async def test_commits_before_and_after_are_told_apart_by_their_revs(world: Mending, beginning: str):
    alice = await begun(world, beginning)
    async with fetching(world, alice, Fault.SLOW):
        await world.live(alice.create(rkey(5), memory("5")), alice.update(rkey(1), memory("one")))
        world.pds.freeze(alice.did)
        await world.live(alice.delete(rkey(1)), alice.create(rkey(6), memory("6")))
    await assert_whole(world, alice, *["2"] * (beginning == "desynchronized"), "5", "6")


async def test_versions_are_those_of_a_repo_that_came_all_live(world: Mending):
    alice = await begun(world, "active")
    async with fetching(world, alice, Fault.STALLED):
        await world.live(alice.update(rkey(1), memory("one")), alice.update(rkey(1), memory("uno")))
    await world.until_state(alice, "active")
    versions = await world.rows("select number, operation, record is not null as kept from memory_versions order by 1")
    assert [tuple(row) for row in versions] == [(1, "created", True), (2, "updated", True), (3, "updated", False)]


async def test_commit_that_comes_of_two_relays_is_applied_once(world: Mending):
    alice = await begun(world, "active")
    async with fetching(world, alice, Fault.STALLED):
        frames = [alice.create(rkey(number), memory(f"{number}")) for number in (5, 6)]
        await world.live(*frames, source=OTHER_RELAY)
        await world.live(*frames)
        await world.live(*frames)
        assert await world.parked(alice) == 4
    await assert_whole(world, alice, "1", "5", "6")


async def test_commit_that_is_held_does_not_wait_for_the_fetch(world: Mending):
    alice = await begun(world, "active")
    await world.live(frame := alice.update(rkey(1), memory("one")))
    async with fetching(world, alice, Fault.SLOW):
        await world.live(frame)
        assert await world.parked(alice) == 0
    await assert_whole(world, alice, "one")


async def test_commit_that_does_not_chain_on_has_the_repo_fetched_again(world: Mending):
    alice = await begun(world, "active")
    async with fetching(world, alice, Fault.STALLED):
        alice.create(rkey(5), memory("5"))  # a frame that was lost
        await world.live(alice.create(rkey(6), memory("6")))
    await world.until_state(alice, "desynchronized", "since_mismatch")
    assert await world.parked(alice) == 0
    assert await world.requests(alice) == {"fetch": "since_mismatch"}
    world.clock.advance(minutes=10)
    await assert_whole(world, alice, "1", "5", "6")


async def test_more_commits_than_may_wait_have_the_repo_fetched_again(world: Mending):
    alice = await begun(world, "active")
    numbers = range(5, 5 + MOST_PARKED + 3)
    async with fetching(world, alice, Fault.STALLED):
        for number in numbers:
            await world.live(alice.create(rkey(number), memory(f"{number}")))
        assert await world.parked(alice) == MOST_PARKED
        assert await world.requests(alice) == {"fetch": "parked_overflow"}
    await world.until_state(alice, "active")
    kept = numbers[:MOST_PARKED]
    assert await world.contents(alice) == ["1", *(f"{number}" for number in kept)]
    assert await world.requests(alice) == {"fetch": "parked_overflow"}, "asked again while it was answered"
    world.clock.advance(minutes=10)
    await world.until_answered(alice)
    await assert_whole(world, alice, "1", *(f"{number}" for number in numbers))


async def test_sync_during_a_fetch_has_the_repo_fetched_again(world: Mending):
    alice = await begun(world, "active")
    async with fetching(world, alice, Fault.STALLED):
        alice.create(rkey(5), memory("5"))  # of which no commit is sent
        await world.live(alice.sync_frame())
    await world.until_state(alice, "active")
    assert await world.contents(alice) == ["1"]
    world.clock.advance(minutes=10)
    await world.until_answered(alice)
    await assert_whole(world, alice, "1", "5")


async def test_commit_of_a_key_that_holds_no_more_is_refused_and_asked_about(world: Mending):
    alice = await begun(world, "active")
    async with fetching(world, alice, Fault.STALLED):
        await world.live(alice.create(rkey(5), memory("5")))
        await world.value("update parked_commits set frame = $1", alice.create(rkey(6), memory("6"), tamper=forge))
    # It is active in between, until its host is asked about: for less time than it takes to look.
    await world.until_state(alice, "desynchronized", "behind_host")
    assert await world.contents(alice) == ["1"]
    rejected = await world.rows("select reason, effect from rejections where reason = 'bad_signature'")
    assert [tuple(row) for row in rejected] == [("bad_signature", "unattributable")]
    world.clock.advance(minutes=10)
    await world.until_answered(alice)
    await assert_whole(world, alice, "1", "5", "6")


def forge(parts: CommitParts) -> None:
    parts.key = SigningKey("mallory")


# Fetches that come to nothing


@pytest.mark.parametrize("beginning", ["pending", "active"])
async def test_repo_that_was_chained_goes_on_with_what_waited_when_its_fetch_fails(world: Mending, beginning: str):
    alice = await begun(world, beginning)
    before = await world.state(alice)
    async with fetching(world, alice, Fault.SLOW):
        await world.live(alice.create(rkey(5), memory("5")), alice.delete(rkey(1)))
        spoil(world, alice)
    assert await world.until_failed(alice) == "truncated_car"
    assert await world.state(alice) == before
    assert await world.contents(alice) == ["5"]
    await world.live(alice.create(rkey(6), memory("6")))
    assert await world.contents(alice) == ["5", "6"]
    assert ((await world.row(alice))["rev"], await world.parked(alice)) == (alice.rev, 0)


async def test_repo_that_was_never_chained_begins_with_what_waited_when_its_fetch_fails(world: Mending):
    alice = await begun(world, "unknown")
    async with fetching(world, alice, Fault.SLOW):
        await world.live(alice.create(rkey(5), memory("5")))
        spoil(world, alice)
    await world.until_failed(alice)
    assert await world.state(alice) == ("pending", "first_seen_in_the_middle")
    assert await world.contents(alice) == ["5"]


async def test_repo_of_which_nothing_came_says_why_its_fetch_failed(world: Mending):
    alice = await begun(world, "unknown")
    async with fetching(world, alice, Fault.SLOW):
        spoil(world, alice)
    await world.until_failed(alice)
    assert await world.state(alice) == ("error", "truncated_car")


async def test_repo_that_lost_its_chain_says_why_its_fetch_failed_and_drops_what_the_next_brings(world: Mending):
    alice = await begun(world, "desynchronized")
    async with fetching(world, alice, Fault.SLOW):
        await world.live(alice.create(rkey(5), memory("5")))
        spoil(world, alice)
    await world.until_failed(alice)
    assert await world.state(alice) == ("error", "truncated_car")
    assert (await world.contents(alice), await world.parked(alice)) == (["1"], 0)
    world.pds.frozen.clear()
    world.clock.advance(minutes=1)
    await assert_whole(world, alice, "1", "2", "5")


async def test_what_waited_for_a_fetch_that_was_killed_waits_for_the_next(world: Mending):
    alice = await begun(world, "active")
    async with fetching(world, alice, Fault.STALLED):
        await world.live(alice.create(rkey(5), memory("5")))
        await world.stop()
        await world.live(alice.create(rkey(6), memory("6")))
        assert await world.parked(alice) == 2
    world.start()
    world.clock.advance(minutes=3)
    await world.until_answered(alice)
    await assert_whole(world, alice, "1", "5", "6")


async def test_what_waited_for_a_forsaken_fetch_is_joined_by_the_next(world: Mending):
    alice = await begun(world, "active")
    async with fetching(world, alice, Fault.STALLED):
        await world.live(alice.create(rkey(5), memory("5")))
        await world.stop()
    world.clock.advance(minutes=3)
    await world.rounds.round()
    assert await world.state(alice) == ("desynchronized", "fetch_interrupted")
    await world.live(alice.create(rkey(6), memory("6")))
    world.pds.misbehave(Fault.STALLED, "getRepo")
    world.pds.release.clear()
    world.start()
    await world.pds.until_asked("getRepo", 2)
    await world.live(alice.create(rkey(7), memory("7")))
    world.pds.release.set()
    await assert_whole(world, alice, "1", "5", "6", "7")


def spoil(world: Mending, person: RepoBuilder) -> None:
    """From now on the host cuts off a repo's end."""
    world.pds.freeze(person.did)
    car, commit, rev = world.pds.frozen[person.did]
    world.pds.frozen[person.did] = (car[:-1], commit, rev)
