"""Hosts that are slow, dead, lying or busy: each is told by its reason, tried again, and delays nobody else's."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace

import pytest

from indexer.books import RequestKind
from indexer.resync.answers import AccountStatus
from indexer.resync.worker import CLAIM
from memory.database import Database
from tests.builders import RepoBuilder, memory
from tests.fakes.pds import Fault, Pds
from tests.feed import rkey
from tests.mending import BUDGET, Mending, mending

PATIENT = replace(BUDGET.repo, max_bytes=1024 * 1024)
IMPATIENT = replace(PATIENT, grace_s=0.3, total_s=0.5)


@pytest.fixture
async def world(database: Database) -> AsyncGenerator[Mending]:
    """Whoever does not answer is waited for longer than any test takes."""
    async with mending(database, budget=replace(BUDGET, repo=PATIENT)) as opened:
        yield opened


@pytest.fixture
def hasty(world: Mending, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """DIDs whose repos are hardly waited for: those alone, for a slow machine must not give up anybody else's."""
    dids: set[str] = set()
    repo = world.hosts.repo

    def limited(host: str, did: str) -> AbstractAsyncContextManager[AsyncIterator[bytes] | AccountStatus]:
        return repo(host, did, IMPATIENT if did in dids else None)

    monkeypatch.setattr(world.hosts, "repo", limited)
    return dids


def written(world: Mending, seed: str, host: Pds | None = None, memories: int = 3) -> RepoBuilder:
    person = world.account(seed, host)
    for number in range(memories):
        person.create(rkey(number), memory(f"{number}"))
    return person


async def assert_whole(world: Mending, person: RepoBuilder) -> None:
    await world.until_state(person, "active")
    assert await world.contents(person) == ["0", "1", "2"]


# What is the repo's matter

FAILURES = {
    Fault.DEAD: "host_unavailable",
    Fault.STALLED: "host_unavailable",
    Fault.CUT: "host_unavailable",
    Fault.BROKEN: "host_unavailable",
    Fault.TRUNCATED: "truncated_car",
    Fault.WRONG_CIDS: "block_hash",
    Fault.FOREIGN: "did_mismatch",
    Fault.ENDLESS: "block_hash",
    Fault.BOASTING: "answer_too_large",
    Fault.MOVED: "redirected",
    Fault.REFUSING: "host_refused",
    Fault.GIBBERISH: "truncated_car",
    Fault.BOMB: "unreadable_answer",
}
SILENT = (Fault.DEAD, Fault.STALLED)
every_failure = pytest.mark.parametrize(
    ("fault", "reason"), FAILURES.items(), ids=lambda each: getattr(each, "name", "")
)


@every_failure
async def test_failure_of_a_repo_is_told_and_tried_again_and_nobody_else_waits(
    world: Mending, hasty: set[str], fault: Fault, reason: str
):
    alice, bob = written(world, "alice"), written(world, "bob", world.other_pds)
    written(world, "carol")  # whose repo a lying host gives away
    if fault in SILENT:
        hasty.add(alice.did)
    world.pds.misbehave(fault, "getRepo")
    await world.ask(alice, bob)
    world.start()
    assert await world.until_failed(alice) == reason
    assert await world.state(alice) == ("error", reason)
    assert 7.5 <= await world.wait_s(alice) <= 10
    assert (await world.row(alice))["fetch_token"] is None
    await assert_whole(world, bob)
    hasty.clear()
    world.pds.misbehave(None, "getRepo")
    world.pds.release.set()
    world.clock.advance(minutes=6)
    await assert_whole(world, alice)


@every_failure
async def test_failure_leaves_a_repo_that_is_whole_as_it_was(
    world: Mending, hasty: set[str], fault: Fault, reason: str
):
    alice = world.account("alice")
    if fault in SILENT:
        hasty.add(alice.did)
    await world.live(*alice.genesis(), *(alice.create(rkey(number), memory(f"{number}")) for number in range(3)))
    await world.value("delete from requests")
    written(world, "carol")
    world.pds.misbehave(fault, "getRepo")
    await world.ask(alice)
    world.start()
    assert await world.until_failed(alice) == reason
    await assert_whole(world, alice)
    await world.live(alice.delete(rkey(0)))
    assert await world.contents(alice) == ["1", "2"]


async def test_redirect_to_a_private_address_is_followed_nowhere(world: Mending):
    alice = written(world, "alice")
    world.pds.location = f"{world.other_pds.url}/xrpc/com.atproto.sync.getRepo"
    world.pds.misbehave(Fault.MOVED)
    await world.ask(alice)
    world.start()
    assert await world.until_failed(alice) == "redirected"
    assert world.other_pds.asked == []


async def test_host_at_a_private_address_is_not_asked(world: Mending):
    alice = written(world, "alice")
    alice.host = "http://10.0.0.1"
    world.register(alice)
    await world.ask(alice)
    world.start()
    assert await world.until_failed(alice) == "forbidden_address"
    assert await world.state(alice) == ("error", "forbidden_address")


async def test_repo_that_is_larger_than_a_repo_may_be_is_cut_off(world: Mending):
    alice = written(world, "alice")
    for number in range(3, 9):
        alice.create(rkey(number), memory("x", padding="x" * 200_000))
    await world.ask(alice)
    world.start()
    assert await world.until_failed(alice) == "answer_too_large"
    assert world.pds.sent_bytes < 2 * 1024 * 1024


async def test_every_failed_attempt_waits_longer_up_to_a_day(world: Mending):
    alice = written(world, "alice")
    world.pds.misbehave(Fault.GIBBERISH)
    await world.ask(alice)
    world.start()
    for attempt in range(1, 18):
        await world.until_failed(alice, attempt)
        wait_s = await world.wait_s(alice)
        most = min(10 * 2 ** (attempt - 1), 24 * 3600)
        assert 0.75 * most <= wait_s <= most
        world.clock.advance(seconds=wait_s)
    world.pds.misbehave(None)
    await assert_whole(world, alice)


# What is the host's matter

BUSY = {Fault.BUSY: 7, Fault.OVERLOADED: 7, Fault.BUSY_WITHOUT_A_WORD: 30}
every_busy_host = pytest.mark.parametrize(("fault", "wait_s"), BUSY.items(), ids=lambda each: getattr(each, "name", ""))


@every_busy_host
async def test_busy_host_is_left_alone_and_it_is_no_attempt_of_any_repo(world: Mending, fault: Fault, wait_s: int):
    people = [written(world, f"{number}") for number in range(12)]
    bob = written(world, "bob", world.other_pds)
    world.pds.misbehave(fault, "getRepo")
    await world.ask(*people, bob)
    world.start()
    await assert_whole(world, bob)
    asked = world.pds.asked_for("getRepo")
    assert 1 <= asked <= BUDGET.repos_at_once, "those that were under way"
    for person in people:
        assert await world.state(person) == ("pending", "discovered")
        assert (await world.request(person))["failure"] is None
    world.pds.misbehave(None, "getRepo")
    await world.pass_time_until_answered(*people)
    for person in people:
        await assert_whole(world, person)


@every_busy_host
async def test_repo_of_a_busy_host_waits_as_long_as_it_says(world: Mending, fault: Fault, wait_s: int):
    alice = written(world, "alice")
    world.pds.misbehave(fault, "getRepo")
    await world.ask(alice)
    world.start()
    await world.until_put_back(alice)
    assert wait_s <= await world.wait_s(alice) <= wait_s * 1.25
    assert await world.state(alice) == ("pending", "discovered")


async def test_question_to_a_busy_host_is_no_attempt_either(world: Mending):
    alice = written(world, "alice")
    world.pds.misbehave(Fault.BUSY)
    await world.ask(alice, kind=RequestKind.REPO_STATUS)
    world.start()
    await world.until_put_back(alice, RequestKind.REPO_STATUS)
    assert 7 <= await world.wait_s(alice, RequestKind.REPO_STATUS) <= 7 * 1.25


async def test_host_is_known_before_it_is_free(world: Mending):
    """So that what waits for it is not looked at again and again."""
    alice, bob = written(world, "alice"), written(world, "bob")
    world.pds.misbehave(Fault.BUSY, "getRepo")
    await world.ask(alice)
    world.start()
    await world.until_put_back(alice)
    await world.ask(bob)
    await world.until_put_back(bob)
    assert (await world.row(bob))["host"] == world.pds.url
    assert world.pds.asked_for("getRepo", bob.did) == 0


# Many at one host

SLOW = [Fault.DEAD, Fault.STALLED, Fault.SLOW]


@pytest.mark.parametrize("fault", SLOW, ids=lambda fault: fault.name)
async def test_host_that_does_not_answer_takes_no_more_than_its_share(world: Mending, fault: Fault):
    people = [written(world, f"{number}") for number in range(20)]
    bob = written(world, "bob", world.other_pds)
    world.pds.misbehave(fault, "getRepo")
    await world.ask(*people)
    world.start()
    await world.pds.until(lambda fake: fake.at_once["getRepo"] == BUDGET.repos_per_site)
    await world.ask(bob)
    await assert_whole(world, bob)
    assert world.pds.at_once["getRepo"] == BUDGET.repos_per_site, "they are still waited for"
    assert await world.value("select count(*) from repos where state = 'resyncing'") == BUDGET.repos_per_site


@pytest.mark.parametrize("kind", [RequestKind.LATEST_COMMIT, RequestKind.REPO_STATUS, RequestKind.CONFIRM_DELETION])
async def test_host_that_does_not_answer_questions_takes_no_more_than_its_share(world: Mending, kind: RequestKind):
    people = [written(world, f"{number}") for number in range(40)]
    bob = written(world, "bob", world.other_pds)
    world.pds.misbehave(Fault.SLOW)
    await world.ask(*people, kind=kind)
    world.start()
    await world.pds.until(lambda fake: fake.at_once[""] == BUDGET.questions_at_once)
    await world.ask(bob, kind=kind)
    await world.until_answered(bob, kind=kind)
    assert world.pds.at_once[""] == BUDGET.questions_at_once
    world.pds.misbehave(None)
    world.pds.release.set()
    await world.pass_time_until_answered(*people, kind=kind)


async def test_slow_host_that_answers_in_the_end_is_fetched_from(world: Mending):
    alice = written(world, "alice")
    world.pds.misbehave(Fault.STALLED, "getRepo")
    await world.ask(alice)
    world.start()
    await world.pds.until_asked("getRepo")
    world.pds.release.set()
    await assert_whole(world, alice)


async def test_claim_is_kept_while_a_host_is_slow(world: Mending, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("indexer.resync.fetch.CLAIM_KEPT_EVERY_S", 0.01)
    alice = written(world, "alice")
    world.pds.misbehave(Fault.STALLED, "getRepo")
    await world.ask(alice)
    world.start()
    await world.pds.until_asked("getRepo")
    for _ in range(3):
        world.clock.advance(seconds=0.8 * CLAIM.total_seconds())
        await world.until(lambda: world.wait_s(alice), CLAIM.total_seconds())
        await world.rounds.round()
        assert (await world.state(alice))[0] == "resyncing"
    world.pds.release.set()
    await assert_whole(world, alice)
    assert world.pds.asked_for("getRepo") == 1
