"""Who fetches a repo, and when: one worker at a time, after every daemon tracks it, and not too often."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import timedelta
from itertools import chain, repeat
from types import SimpleNamespace
from uuid import UUID, uuid4

import pytest

from indexer.arrivals import FetchOrdered
from indexer.books import RequestKind
from indexer.resync.apply import at_hosts
from indexer.resync.worker import CLAIM
from indexer.store import fetches, leases
from indexer.store.fetches import HostClaim
from memory.database import Database
from tests.builders import RepoBuilder, memory
from tests.fakes.pds import Fault
from tests.feed import rkey
from tests.mending import Mending, mending


@pytest.fixture
async def world(database: Database) -> AsyncGenerator[Mending]:
    async with mending(database) as opened:
        yield opened


def written(world: Mending, seed: str) -> RepoBuilder:
    person = world.account(seed)
    person.create(rkey(1), memory(seed))
    return person


async def claim(world: Mending, at_most: int = 100) -> list[HostClaim]:
    """What a worker would fetch now."""
    async with world.database.connection() as conn:
        claimed = await fetches.claim(conn, RequestKind.FETCH, CLAIM, at_most=at_most, now=world.clock())
    return claimed.claims


async def put_back(world: Mending, claimed: HostClaim, wait: timedelta, *, attempted: bool = True) -> None:
    async with world.database.connection() as conn:
        await fetches.put_back(conn, claimed, wait, attempted=attempted, failure="test", now=world.clock())


# One at a time


async def test_workers_share_the_work_and_fetch_no_repo_twice(world: Mending):
    people = [written(world, f"{number}") for number in range(30)]
    await world.ask(*people)
    for worker in [world.worker, world.new_worker(), world.new_worker()]:
        world.start(worker)
    await world.pass_time_until_answered(*people)
    assert [world.pds.asked_for("getRepo", person.did) for person in people] == [1] * len(people)
    for person in people:
        assert await world.contents(person) == [person.seed]


async def test_repo_that_is_fetched_is_no_other_workers(world: Mending):
    alice, bob = written(world, "alice"), written(world, "bob")
    world.pds.misbehave(Fault.STALLED, "getRepo", alice.did)
    await world.ask(alice)
    world.start()
    await world.pds.until_asked("getRepo")
    world.start(world.new_worker())
    await world.ask(bob)
    await world.until_answered(bob)
    assert await claim(world) == []
    assert world.pds.asked_for("getRepo", alice.did) == 1


async def test_fetch_whose_claim_ran_out_is_taken_over_and_the_late_one_changes_nothing(world: Mending):
    alice = written(world, "alice")
    world.pds.misbehave(Fault.STALLED, "getRepo")
    await world.ask(alice)
    late = world.worker
    world.start(late)
    await world.pds.until_asked("getRepo")
    world.pds.misbehave(None, "getRepo")
    alice.update(rkey(1), memory("newer"))
    world.clock.advance(minutes=3)
    world.start(world.new_worker())
    await world.until_answered(alice)
    assert await world.contents(alice) == ["newer"]
    world.pds.release.set()

    async def overtaken() -> int:
        return late.failures.get("fetch_overtaken", 0)

    await world.until(overtaken, 1)
    assert await world.contents(alice) == ["newer"]
    assert (await world.state(alice), await world.requests(alice)) == (("active", None), {})


async def test_late_worker_does_not_put_back_what_another_has_claimed(world: Mending):
    alice = written(world, "alice")
    await world.ask(alice)
    [late] = await claim(world)
    world.clock.advance(minutes=3)
    [now] = await claim(world)
    assert (late.attempts, now.attempts) == (1, 2)
    await put_back(world, late, timedelta(0))
    async with world.database.connection() as conn:
        await fetches.keep_claim(conn, late, timedelta(days=1), world.clock())
    assert await world.wait_s(alice) == CLAIM.total_seconds()
    await put_back(world, now, timedelta(seconds=20))
    assert await world.wait_s(alice) == 20


async def test_what_was_no_attempt_is_not_counted(world: Mending):
    alice = written(world, "alice")
    await world.ask(alice)
    for attempted, attempts in ((True, 1), (False, 1), (True, 2)):
        [claimed] = await claim(world)
        await put_back(world, claimed, timedelta(0), attempted=attempted)
        assert (await world.request(alice))["attempts"] == attempts


async def test_longest_due_is_first(world: Mending):
    people = [written(world, f"{number}") for number in range(5)]
    for person in people:
        await world.ask(person)
        world.clock.advance(seconds=1)
    assert [claimed.repo for claimed in await claim(world, 2)] == [person.did for person in people[:2]]


async def test_claims_leave_busy_hosts_alone(world: Mending):
    alice, bob = written(world, "alice"), written(world, "bob")
    await world.ask(alice, bob)
    await world.value("update repos set host = $1 where repo = $2", world.pds.url, alice.did)
    async with world.database.connection() as conn:
        claimed = await fetches.claim(
            conn, RequestKind.FETCH, CLAIM, at_most=9, busy_hosts=[world.pds.url], now=world.clock()
        )
    assert [each.repo for each in claimed.claims] == [bob.did], "whose host is not known yet"


# Daemons that track


async def lease(world: Mending, source: str, *, ttl: timedelta = timedelta(minutes=1)) -> UUID:
    """A daemon that reads a source, and has acknowledged nothing yet."""
    holder = uuid4()
    async with world.database.connection() as conn:
        assert await leases.take_lease(conn, source, holder, ttl)
    return holder


async def acknowledge(world: Mending, holder: UUID) -> None:
    async with world.database.connection() as conn:
        await fetches.acknowledge_tracking(conn, holder, await fetches.database_time(conn))


async def test_fetch_waits_until_every_running_daemon_tracks_the_repo(world: Mending):
    first, second = await lease(world, "https://one.test"), await lease(world, "https://two.test")
    alice = written(world, "alice")
    await acknowledge(world, first)
    await acknowledge(world, second)
    await world.ask(alice)
    assert await claim(world) == [], "they said so before it was tracked"
    await acknowledge(world, first)
    assert await claim(world) == [], "one of them still may not"
    await acknowledge(world, second)
    assert [claimed.repo for claimed in await claim(world)] == [alice.did]


async def test_daemon_that_takes_over_a_source_has_to_say_so_itself(world: Mending):
    gone = await lease(world, "https://one.test", ttl=timedelta(seconds=-1))
    alice = written(world, "alice")
    await world.ask(alice)
    await acknowledge(world, gone)
    await lease(world, "https://one.test")
    assert await claim(world) == []


async def test_daemon_that_runs_no_more_is_not_waited_for(world: Mending):
    await lease(world, "https://one.test", ttl=timedelta(seconds=-1))
    alice = written(world, "alice")
    await world.ask(alice)
    assert [claimed.repo for claimed in await claim(world)] == [alice.did]


async def test_questions_wait_for_no_daemon(world: Mending):
    await lease(world, "https://one.test")
    alice = written(world, "alice")
    await world.ask(alice, kind=RequestKind.LATEST_COMMIT)
    async with world.database.connection() as conn:
        claimed = await fetches.claim(conn, RequestKind.LATEST_COMMIT, CLAIM, at_most=9, now=world.clock())
    assert claimed.claims


async def test_commit_that_comes_between_tracking_and_the_daemons_word_is_in_what_is_fetched(world: Mending):
    """Nobody had it wait, as nobody tracked its repo: it is fetched after, not before."""
    holder = await lease(world, "https://one.test")
    alice = written(world, "alice")
    await world.ask(alice)
    world.tracked.clear()  # the daemon does not know it yet
    world.start()
    alice.create(rkey(2), memory("unheard"))
    assert world.pds.asked_for("getRepo") == 0
    await acknowledge(world, holder)
    await world.until_answered(alice)
    assert await world.contents(alice) == ["alice", "unheard"]


# How often


async def test_repo_rests_after_a_fetch(world: Mending):
    alice = written(world, "alice")
    await world.ask(alice)
    world.start()
    await world.until_answered(alice)
    rested_at = (await world.row(alice))["fetch_after"]
    assert world.clock.now < rested_at <= world.clock.now + timedelta(days=1)
    await world.ask(alice)
    assert await claim(world) == []
    world.clock.advance(seconds=(rested_at - world.clock.now).total_seconds())
    await world.until_answered(alice)
    assert world.pds.asked_for("getRepo") == 2


async def test_rest_is_longer_after_a_longer_fetch_and_never_more_than_a_day(
    world: Mending, monkeypatch: pytest.MonkeyPatch
):
    rests: list[timedelta] = []
    for took_s in (10.0, 1_000.0, 1_000_000.0):
        person = written(world, f"{took_s}")
        times = chain([0.0], repeat(took_s))
        monkeypatch.setattr("indexer.resync.fetch.time", SimpleNamespace(monotonic=times.__next__))
        await world.ask(person)
        world.start(world.new_worker())
        await world.until_answered(person)
        await world.stop()
        rests.append((await world.row(person))["fetch_after"] - world.clock.now)
    assert rests == [timedelta(seconds=90), timedelta(seconds=9_000), timedelta(days=1)]


async def test_rest_is_as_long_after_a_fetch_that_failed(world: Mending, monkeypatch: pytest.MonkeyPatch):
    alice = written(world, "alice")
    world.pds.misbehave(Fault.CUT, "getRepo")
    times = chain([0.0], repeat(1_000.0))
    monkeypatch.setattr("indexer.resync.fetch.time", SimpleNamespace(monotonic=times.__next__))
    await world.ask(alice)
    world.start()
    await world.until_failed(alice)
    assert (await world.row(alice))["fetch_after"] - world.clock.now == timedelta(seconds=9_000)


async def test_account_that_is_switched_off_and_on_leaves_a_claim_alone(world: Mending):
    alice = written(world, "alice")
    await world.ask(alice)
    await world.value("update repos set state = 'error', rev = null, data_cid = null")
    [claimed] = await claim(world)
    await world.live(alice.account_frame(active=False, status="deactivated"), alice.account_frame(active=True))
    assert (await world.row(alice))["hastened_at"] == world.clock.now
    assert await claim(world) == []
    await put_back(world, claimed, timedelta(hours=1))
    world.clock.advance(minutes=11)
    await world.live(alice.account_frame(active=False, status="deactivated"), alice.account_frame(active=True))
    assert [each.repo for each in await claim(world)] == [alice.did]


async def test_operators_word_counts_over_rest_and_over_what_failed(world: Mending):
    alice, bob = written(world, "alice"), written(world, "bob")
    await world.ask(alice, bob)
    await world.value("update requests set not_before = $1, attempts = 9", world.clock.now + timedelta(days=1))
    await world.value("update repos set fetch_after = $1", world.clock.now + timedelta(days=1))
    async with world.database.transaction() as conn:
        tracked = await fetches.order_fetches(conn, [alice.did, "did:plc:nobody"], "operator", CLAIM, world.clock())
    assert tracked == {alice.did}
    assert [(claimed.repo, claimed.reason, claimed.attempts) for claimed in await claim(world)] == [
        (alice.did, "operator", 1)
    ]


async def test_operators_word_on_what_is_fetched_just_now_is_for_after(world: Mending):
    alice = written(world, "alice")
    world.pds.misbehave(Fault.STALLED, "getRepo")
    await world.ask(alice)
    world.start()
    await world.pds.until_asked("getRepo")
    async with world.database.transaction() as conn:
        await fetches.order_fetches(conn, [alice.did], "operator", CLAIM, world.clock())
    assert await claim(world) == []
    world.pds.misbehave(None, "getRepo")
    world.pds.release.set()
    await world.until_state(alice, "active")
    assert await world.requests(alice) == {"fetch": "operator"}
    await world.pass_time_until_answered(alice)
    assert world.pds.asked_for("getRepo") == 2


@pytest.mark.parametrize("skew_s", [-3600, 0, 3600])
async def test_what_is_asked_again_while_it_is_answered_is_answered_again_whatever_the_clock_says(
    world: Mending, skew_s: int
):
    """Of the process that asks again: its clock may be behind that of whoever asked first."""
    alice = written(world, "alice")
    world.pds.misbehave(Fault.STALLED, "getRepo")
    await world.ask(alice)
    world.start()
    await world.pds.until_asked("getRepo")
    await world.write(FetchOrdered(at_hosts(world.clock() + timedelta(seconds=skew_s)), alice.did, "again"))
    world.pds.misbehave(None, "getRepo")
    world.pds.release.set()
    await world.until_state(alice, "active")
    assert await world.requests(alice) == {"fetch": "again"}
    request = await world.request(alice)
    assert (request["attempts"], request["failure"]) == (0, None)
    world.clock.advance(hours=2)
    await world.until_answered(alice)
    assert world.pds.asked_for("getRepo") == 2
