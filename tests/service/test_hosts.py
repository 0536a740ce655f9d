from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest

from indexer.resync.answers import AccountStatus, LatestCommit
from indexer.resync.hosts import HostBudget, RepoHosts, open_repo_hosts
from indexer.verify.car import decode_block, read_car
from memory.errors import Rejected
from memory.identifiers import COLLECTION, cid_text
from memory.outbound_hosts import LOOK_AGAIN_S
from memory.tasks import TaskGroup
from tests.asked_hosts import BUDGET, QUESTIONS, Question, car, did_of, fetch, opened, written
from tests.builders import RepoBuilder, memory
from tests.commits import grown
from tests.fakes.internet import LOOPBACK, Names
from tests.fakes.pds import Fault, Pds, pds


@pytest.fixture
async def fake() -> AsyncGenerator[Pds]:
    async with pds() as listening:
        listening.add(grown())
        yield listening
        listening.release.set()


@pytest.fixture
async def other() -> AsyncGenerator[Pds]:
    async with pds() as listening:
        listening.add(written("other"))
        yield listening


@pytest.fixture
async def hosts() -> AsyncGenerator[RepoHosts]:
    async with opened() as hosts:
        yield hosts


# Answers


async def test_repo_comes_whole_and_its_blocks_in_any_order(fake: Pds, hosts: RepoHosts, seed: int):
    fake.car_order = random.Random(seed)
    builder = fake.repos[did_of(fake)]
    fetched, expected = read_car(await car(hosts, fake)), read_car(builder.car())
    assert fetched == expected
    assert list(fetched.blocks) != list(expected.blocks)


async def test_repo_comes_in_chunks(fake: Pds, hosts: RepoHosts):
    fake.chunk_bytes = 1000
    async with hosts.repo(fake.url, did_of(fake)) as answer:
        assert not isinstance(answer, AccountStatus)
        chunks = [chunk async for chunk in answer]
    assert len(chunks) > 2
    assert b"".join(chunks) == fake.repos[did_of(fake)].car()


async def test_latest_commit_is_where_the_repo_stands(fake: Pds, hosts: RepoHosts):
    builder = fake.repos[did_of(fake)]
    assert builder.commit is not None
    standing = LatestCommit(cid_text(builder.commit[0]), builder.rev or "")
    assert await hosts.latest_commit(fake.url, builder.did) == standing
    assert await hosts.repo_status(fake.url, builder.did) == AccountStatus(active=True)


async def test_collections_of_a_repo_are_told(fake: Pds, hosts: RepoHosts):
    assert await hosts.collections(fake.url, did_of(fake)) == {COLLECTION}


@pytest.mark.parametrize("status", ["deactivated", "takendown", "suspended", "deleted"])
@pytest.mark.parametrize("question", [*QUESTIONS, fetch])
async def test_whatever_is_asked_of_an_account_that_is_not_served_the_answer_is_its_status(
    fake: Pds, hosts: RepoHosts, question: Question, status: str
):
    fake.statuses[did_of(fake)] = status
    assert await question(hosts, fake.url, did_of(fake)) == AccountStatus(active=False, status=status)


@pytest.mark.parametrize("question", [*QUESTIONS, fetch])
async def test_repo_that_a_host_does_not_know_is_deleted_there(fake: Pds, hosts: RepoHosts, question: Question):
    assert await question(hosts, fake.url, RepoBuilder("nobody").did) == AccountStatus(active=False, status="deleted")


async def test_status_that_no_error_stands_for_is_kept_as_it_is(fake: Pds, hosts: RepoHosts):
    fake.statuses[did_of(fake)] = "some-new-word"
    assert await hosts.repo_status(fake.url, did_of(fake)) == AccountStatus(active=False, status="some-new-word")
    fake.statuses[did_of(fake)] = None
    assert await hosts.repo_status(fake.url, did_of(fake)) == AccountStatus(active=False)


async def test_many_inactive_accounts_are_no_reason_to_leave_a_host_alone(fake: Pds, hosts: RepoHosts):
    fake.statuses[did_of(fake)] = "takendown"
    for _ in range(10):
        await fetch(hosts, fake.url, did_of(fake))
    assert hosts.available_in_s(fake.url) == 0.0


async def test_did_is_asked_for_as_it_is_spelled(fake: Pds, hosts: RepoHosts):
    did = "did:web:localhost%3A2583"
    await hosts.repo_status(fake.url, did)
    assert fake.asked[-1].did == did


async def test_pages_are_as_large_as_may_be_and_go_on_at_their_cursor(fake: Pds, hosts: RepoHosts):
    fake.lists_collections, fake.lists.page_repos = True, 1
    fake.add(written("second"))
    for ask in (hosts.list_repos, lambda host, cursor: hosts.list_repos_by_collection(host, COLLECTION, cursor)):
        dids: list[str] = []
        page = await ask(fake.url, None)
        while page.cursor is not None:
            dids += [each.did for each in page.repos]
            page = await ask(fake.url, page.cursor)
        assert dids == sorted(fake.repos)
    limits = {asked.method: asked.parameters["limit"] for asked in fake.asked}
    assert limits == {"listRepos": "1000", "listReposByCollection": "2000"}


async def test_list_of_repos_tells_which_are_served(fake: Pds, hosts: RepoHosts):
    builder = fake.repos[did_of(fake)]
    hidden, gone = fake.add(written("hidden")), fake.add(written("gone"))
    fake.statuses |= {hidden.did: "takendown", gone.did: "deleted"}
    page = await hosts.list_repos(fake.url)
    assert {each.did: each.active for each in page.repos} == {builder.did: True, hidden.did: False}


# What is not judged here: whoever reads a CAR checks it


@pytest.mark.parametrize(("fault", "reason"), [(Fault.TRUNCATED, "malformed_car"), (Fault.WRONG_CIDS, "block_hash")])
async def test_broken_car_comes_as_it_is(fake: Pds, hosts: RepoHosts, fault: Fault, reason: str):
    fake.misbehave(fault, "getRepo")
    with pytest.raises(Rejected) as caught:
        read_car(await car(hosts, fake))
    assert caught.value.reason == reason


async def test_car_of_another_repo_comes_as_it_is(fake: Pds, hosts: RepoHosts):
    stranger = fake.add(written("stranger"))
    fake.misbehave(Fault.FOREIGN, "getRepo", did_of(fake))
    fetched = read_car(await car(hosts, fake))
    assert decode_block(fetched.blocks[fetched.root])["did"] == stranger.did


async def test_old_export_comes_as_it_is(fake: Pds, hosts: RepoHosts):
    builder = fake.repos[did_of(fake)]
    old_car = builder.car()
    fake.freeze(builder.did)
    builder.create("3zzzzzzzzzz2a", memory("Likes black tea."))
    assert builder.car() != old_car
    assert await car(hosts, fake) == old_car


# Turns


async def test_question_does_not_wait_behind_repos(fake: Pds):
    fake.misbehave(Fault.SLOW, "getRepo")
    async with opened(repos_at_once=1, repos_in_all=1) as hosts, TaskGroup() as tasks:
        fetching = [tasks.create_task(car(hosts, fake)) for _ in range(3)]
        await fake.until_asked("getRepo")
        assert isinstance(await hosts.latest_commit(fake.url, did_of(fake)), LatestCommit)
        fake.release.set()
        await asyncio.gather(*fetching)


async def test_repos_of_one_host_are_fetched_so_many_at_a_time(fake: Pds):
    fake.misbehave(Fault.STALLED, "getRepo")
    async with opened(repos_at_once=2) as hosts, TaskGroup() as tasks:
        fetching = [tasks.create_task(car(hosts, fake)) for _ in range(6)]
        await fake.until_asked("getRepo", 2)
        assert hosts.unavailable() == {fake.url: LOOK_AGAIN_S}
        fake.release.set()
        await asyncio.gather(*fetching)
        assert hosts.unavailable() == {}
    assert fake.most_at_once["getRepo"] == 2


async def test_slow_host_holds_up_no_other(fake: Pds, other: Pds):
    fake.misbehave(Fault.SLOW)
    async with opened(repos_at_once=2, repos_in_all=3) as hosts, TaskGroup() as tasks:
        fetching = [tasks.create_task(car(hosts, fake)) for _ in range(6)]
        await fake.until_asked("getRepo", 2)
        assert hosts.available_in_s(other.url) == 0.0
        assert await car(hosts, other)
        fake.release.set()
        await asyncio.gather(*fetching)


@pytest.mark.parametrize(("fetches", "share"), [(1, 1), (3, 1), (8, 2), (64, 16)])
def test_one_site_gets_a_quarter_of_all_fetches(fetches: int, share: int):
    assert HostBudget().for_fetches(fetches).repos_per_site == share


def test_one_site_gets_a_quarter_of_what_is_fetched_by_default():
    assert HostBudget() == HostBudget().for_fetches(8)


async def test_site_is_asked_for_no_more_repos_than_its_share(fake: Pds):
    fake.misbehave(Fault.SLOW)
    budget = replace(BUDGET, repos_at_once=4).for_fetches(8)
    async with open_repo_hosts(Names(), budget, allowed=LOOPBACK) as hosts, TaskGroup() as tasks:
        fetching = [tasks.create_task(car(hosts, fake)) for _ in range(6)]
        await fake.until_asked("getRepo", 2)
        assert hosts.available_in_s(fake.url) > 0.0
        fake.release.set()
        await asyncio.gather(*fetching)
    assert fake.most_at_once["getRepo"] == 2


def test_repo_that_drips_is_given_up_soon():
    assert HostBudget().repo.min_bytes_per_s >= 128 * 1024
    assert HostBudget().repo.grace_s == 60.0


async def test_hosts_that_the_operator_named_have_slots_of_their_own(fake: Pds, other: Pds):
    fake.misbehave(Fault.SLOW)
    budget = replace(BUDGET, repos_in_all=1)
    async with (
        open_repo_hosts(Names(), budget, named=[other.url], allowed=LOOPBACK) as hosts,
        TaskGroup() as tasks,
    ):
        fetching = tasks.create_task(car(hosts, fake))
        await fake.until_asked("getRepo")
        assert await car(hosts, other)
        fake.release.set()
        await fetching


async def test_repo_that_is_left_early_frees_its_slot_and_blames_nobody(fake: Pds):
    fake.misbehave(Fault.ENDLESS, "getRepo")
    async with opened(repos_at_once=1) as hosts:
        for _ in range(5):
            async with hosts.repo(fake.url, did_of(fake)) as answer:
                assert not isinstance(answer, AccountStatus)
                async for _ in answer:
                    break
        assert hosts.unavailable() == {}


async def test_fetch_that_is_cancelled_frees_its_slot(fake: Pds):
    fake.misbehave(Fault.STALLED, "getRepo")
    async with opened(repos_at_once=1) as hosts:
        fetching = asyncio.create_task(car(hosts, fake))
        await fake.until_asked("getRepo")
        fetching.cancel()
        with pytest.raises(asyncio.CancelledError):
            await fetching
        assert hosts.unavailable() == {}
        fake.misbehave(None, "getRepo")
        assert await car(hosts, fake)


async def test_failure_of_the_reader_is_not_the_hosts(fake: Pds, hosts: RepoHosts):
    for _ in range(5):
        with pytest.raises(KeyError):
            async with hosts.repo(fake.url, did_of(fake)):
                raise KeyError
    assert hosts.unavailable() == {}


async def test_requests_of_both_kinds_keep_one_pace(fake: Pds):
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    budget = HostBudget(requests_per_s=0.001, burst=2)
    async with open_repo_hosts(Names(), budget, allowed=LOOPBACK, monotonic=lambda: 0.0, sleep=sleep) as hosts:
        await hosts.latest_commit(fake.url, did_of(fake))
        await car(hosts, fake)
        assert slept == []
        await hosts.repo_status(fake.url, did_of(fake))
        await car(hosts, fake)
    assert slept == [1000.0, 2000.0]
