from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from indexer.resync.answers import Refused
from indexer.resync.discovery import (
    DESCRIBED_A_PAGE,
    DESCRIBED_AT_ONCE,
    REFUSALS_TO_TELL,
    Found,
    NotListing,
)
from indexer.resync.hosts import RepoHosts
from indexer.resync.sweeps import CursorRefused, EndlessList, SweepLimits
from memory.errors import Rejected, Unavailable
from memory.outbound_errors import HostUnavailable
from memory.tasks import TaskGroup
from tests.asked_hosts import opened
from tests.discoveries import Reading, Sleeps, peopled
from tests.fakes.pds import Fault, Pds, pds
from tests.fakes.repo_lists import ListFault

SMALL = SweepLimits(pages=20, repos=2000, pages_without_news=5)


@pytest.fixture
def sleeps() -> Sleeps:
    return Sleeps()


@pytest.fixture
async def fake() -> AsyncGenerator[Pds]:
    async with pds() as listening:
        yield listening
        listening.release.set()


@pytest.fixture
async def hosts(sleeps: Sleeps) -> AsyncGenerator[RepoHosts]:
    async with opened(monotonic=sleeps, questions_at_once=100) as hosts:
        yield hosts


@pytest.fixture
def reading(hosts: RepoHosts, fake: Pds, sleeps: Sleeps) -> Reading:
    return Reading(hosts, fake, sleeps)


# Where repos are listed by collection


async def test_all_that_have_the_collection_are_found_and_nobody_else(fake: Pds, reading: Reading):
    fake.lists_collections, fake.lists.page_repos = True, 2
    holders = peopled(fake, holders=5, others=3)
    await reading.read()
    assert reading.found == [Found(did, None, fake.url) for did in sorted(holders)]
    assert reading.pages[-1].position is None
    assert all(page.position is not None for page in reading.pages[:-1])
    assert {asked.method for asked in fake.asked} == {"listReposByCollection"}


async def test_sweep_goes_on_after_the_last_page_that_was_kept(
    fake: Pds, reading: Reading, hosts: RepoHosts, sleeps: Sleeps
):
    fake.lists_collections, fake.lists.page_repos = True, 2
    holders = peopled(fake, holders=6)
    await reading.read(pages=2)
    later = Reading(hosts, fake, sleeps)
    await later.read(reading.pages[-1].position)
    assert reading.dids + later.dids == sorted(holders)


async def test_outage_in_the_middle_loses_no_page(fake: Pds, hosts: RepoHosts, sleeps: Sleeps):
    fake.lists_collections, fake.lists.page_repos = True, 1
    holders = peopled(fake, holders=4)
    first = Reading(hosts, fake, sleeps)
    await first.read(pages=2)
    fake.misbehave(Fault.BROKEN)
    second = Reading(hosts, fake, sleeps)
    with pytest.raises(HostUnavailable):
        await second.read(first.pages[-1].position)
    fake.misbehave(None)
    third = Reading(hosts, fake, sleeps)
    await third.read(first.pages[-1].position)
    assert (first.dids, second.dids, third.dids) == (sorted(holders)[:2], [], sorted(holders)[2:])


async def test_position_that_the_server_has_forgotten_asks_for_a_new_beginning(fake: Pds, reading: Reading):
    fake.lists_collections, fake.lists.page_repos = True, 1
    peopled(fake, holders=3)
    await reading.read(pages=1)
    fake.lists.cursors.clear()
    with pytest.raises(CursorRefused):
        await reading.read(reading.pages[-1].position)


async def test_server_that_does_not_list_by_collection_any_more_asks_for_a_new_beginning(fake: Pds, reading: Reading):
    fake.lists_collections, fake.lists.page_repos = True, 1
    peopled(fake, holders=3)
    await reading.read(pages=1)
    fake.lists_collections = False
    with pytest.raises(CursorRefused):
        await reading.read(reading.pages[-1].position)
    assert fake.asked_for("listRepos") == 0


async def test_refusal_in_the_middle_is_no_reason_to_ask_in_another_way(fake: Pds, reading: Reading):
    fake.lists_collections, fake.lists.page_repos, fake.refusal = True, 1, (404, b"")
    peopled(fake, holders=3)
    pages = reading.discovery.pages()
    page = await anext(pages)
    fake.misbehave(Fault.REFUSING, "listReposByCollection")
    with pytest.raises(Refused):
        await anext(pages)
    with pytest.raises(Refused):
        await reading.read(page.position)
    assert fake.asked_for("listRepos") == 0


@pytest.mark.parametrize("fault", list(ListFault))
@pytest.mark.parametrize("by_collection", [True, False])
async def test_list_without_an_end_is_given_up_after_all_that_it_had(
    fake: Pds, hosts: RepoHosts, sleeps: Sleeps, fault: ListFault, by_collection: bool
):
    fake.lists_collections, fake.lists.page_repos, fake.lists.fault = by_collection, 2, fault
    holders = peopled(fake, holders=5)
    reading = Reading(hosts, fake, sleeps, limits=SMALL)
    with pytest.raises(EndlessList) as caught:
        await reading.read()
    assert caught.value.reason == "endless_list"
    complete = fault in (ListFault.CIRCLE, ListFault.NOTHING_NEW)
    assert holders <= set(reading.dids) if complete else len(reading.dids) <= SMALL.repos


@pytest.mark.parametrize(
    ("fault", "reason"),
    [(Fault.MOVED, "redirected"), (Fault.GIBBERISH, "unreadable_answer"), (Fault.ENDLESS, "answer_too_large")],
)
async def test_answer_that_is_no_list_ends_the_sweep_with_its_reason(
    fake: Pds, reading: Reading, fault: Fault, reason: str
):
    fake.lists_collections = True
    fake.misbehave(fault)
    with pytest.raises(Rejected) as caught:
        await reading.read()
    assert caught.value.reason == reason
    assert fake.asked_for("listRepos") == 0


@pytest.mark.parametrize("fault", [Fault.BUSY, Fault.BROKEN, Fault.CUT])
async def test_outage_is_no_reason_to_ask_in_another_way(fake: Pds, reading: Reading, fault: Fault):
    fake.lists_collections = True
    fake.misbehave(fault, "listReposByCollection")
    with pytest.raises(HostUnavailable):
        await reading.read()
    assert fake.asked_for("listRepos") == 0


# Where each repo is asked


async def test_pds_is_asked_for_the_collections_of_each_repo(fake: Pds, reading: Reading):
    fake.lists.page_repos = 3
    holders = peopled(fake, holders=4, others=4)
    await reading.read()
    assert set(reading.found) == {Found(did, fake.url, fake.url) for did in holders}
    assert sum(page.listed for page in reading.pages) == 8
    assert fake.asked_for("describeRepo") == 8


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (404, b"<html>Not Found</html>"),
        (501, b'{"error":"MethodNotImplemented"}'),
        (400, b'{"error":"InvalidRequest"}'),
        (401, b'{"error":"AuthMissing"}'),
    ],
)
async def test_however_a_server_says_that_it_does_not_list_by_collection_each_repo_is_asked(
    fake: Pds, reading: Reading, status: int, body: bytes
):
    fake.misbehave(Fault.REFUSING, "listReposByCollection")
    fake.refusal = (status, body)
    holders = peopled(fake, holders=2, others=1)
    await reading.read()
    assert set(reading.dids) == holders


async def test_sweep_of_a_pds_goes_on_after_the_last_page_that_was_kept(
    fake: Pds, reading: Reading, hosts: RepoHosts, sleeps: Sleeps
):
    fake.lists.page_repos = 2
    holders = peopled(fake, holders=6)
    await reading.read(pages=1)
    later = Reading(hosts, fake, sleeps)
    await later.read(reading.pages[-1].position)
    assert sorted(reading.dids + later.dids) == sorted(holders)
    assert fake.asked_for("listReposByCollection") == 1


async def test_pages_are_so_small_that_little_is_asked_twice(fake: Pds, reading: Reading):
    peopled(fake, holders=1)
    await reading.read()
    limits = {asked.parameters["limit"] for asked in fake.asked if asked.method == "listRepos"}
    assert limits == {f"{DESCRIBED_A_PAGE}"}


async def test_accounts_that_are_not_served_are_not_asked(fake: Pds, reading: Reading):
    gone, *_ = sorted(peopled(fake, holders=3))
    fake.statuses[gone] = "deactivated"
    await reading.read()
    assert gone not in reading.dids
    assert fake.asked_for("describeRepo", gone) == 0


async def test_account_that_goes_while_it_is_listed_is_passed_over(fake: Pds, reading: Reading):
    gone, *rest = sorted(peopled(fake, holders=3))
    fake.misbehave(Fault.REFUSING, "describeRepo", gone)
    fake.refusal = (400, b'{"error":"RepoTakendown"}')
    await reading.read()
    assert sorted(reading.dids) == rest


async def test_so_many_repos_are_asked_at_once(fake: Pds, reading: Reading):
    holders = peopled(fake, holders=30)
    fake.misbehave(Fault.SLOW, "describeRepo")
    async with TaskGroup() as tasks:
        under_way = tasks.create_task(reading.read())
        await fake.until(lambda fake: fake.at_once["describeRepo"] == DESCRIBED_AT_ONCE)
        fake.release.set()
        await under_way
    assert fake.most_at_once["describeRepo"] == DESCRIBED_AT_ONCE
    assert set(reading.dids) == holders


@pytest.mark.parametrize("fault", [Fault.BROKEN, Fault.CUT, Fault.GIBBERISH, Fault.MOVED, Fault.FOREIGN, Fault.BOMB])
async def test_repo_that_cannot_be_described_is_found_as_uncertain(fake: Pds, reading: Reading, fault: Fault):
    holders = peopled(fake, holders=4)
    odd = sorted(holders)[1]
    fake.misbehave(fault, "describeRepo", odd)
    await reading.read()
    assert set(reading.dids) == holders
    assert reading.uncertain == {odd}


async def test_repo_that_is_refused_like_an_unknown_method_is_found_as_uncertain(fake: Pds, reading: Reading):
    """The reference answers InvalidRequest where it cannot resolve the DID."""
    holders = peopled(fake, holders=REFUSALS_TO_TELL + 5)
    odd = set(sorted(holders)[:REFUSALS_TO_TELL])
    for did in odd:
        fake.misbehave(Fault.REFUSING, "describeRepo", did)
    fake.refusal = (400, b'{"error":"InvalidRequest"}')
    await reading.read()
    assert set(reading.dids) == holders
    assert reading.uncertain == odd


async def test_small_host_that_refuses_to_describe_its_repos_has_them_fetched(fake: Pds, reading: Reading):
    fake.unknown_methods = {"describeRepo"}
    holders = peopled(fake, holders=REFUSALS_TO_TELL - 1)
    await reading.read()
    assert reading.uncertain == holders


async def test_broken_repos_in_a_row_pause_the_sweep_and_do_not_end_it(fake: Pds, reading: Reading, sleeps: Sleeps):
    holders = peopled(fake, holders=40)
    odd = set(sorted(holders)[10:20])
    for did in odd:
        fake.misbehave(Fault.BROKEN, "describeRepo", did)
    await reading.read()
    assert set(reading.dids) == holders
    assert reading.uncertain == odd
    assert sleeps.slept != []


async def test_busy_server_is_waited_for_and_asked_again(fake: Pds, reading: Reading, sleeps: Sleeps):
    holders = peopled(fake, holders=30)
    told = iter(range(10**6))

    async def ask_less(seconds: float) -> None:
        await sleeps.sleep(seconds)
        if next(told) == 1:
            fake.misbehave(None, "describeRepo", busy)

    busy = sorted(holders)[5]
    fake.misbehave(Fault.BUSY, "describeRepo", busy)
    reading.discovery._sleep = ask_less
    await reading.read()
    assert set(reading.dids) == holders
    assert reading.uncertain == set()
    assert len(sleeps.slept) == 2
    assert all(seconds >= 7.0 for seconds in sleeps.slept)


async def test_server_that_does_not_answer_any_more_ends_the_sweep_for_now(fake: Pds, reading: Reading):
    fake.lists.page_repos = 50
    peopled(fake, holders=100)
    await reading.read(pages=1)
    fake.misbehave(Fault.BROKEN, "describeRepo")
    found = len(reading.found)
    with pytest.raises(HostUnavailable):
        await reading.read(reading.pages[-1].position)
    assert len(reading.found) == found
    fake.misbehave(None, "describeRepo")


# Relays that list no collections


async def described_elsewhere(
    hosts: RepoHosts, sleeps: Sleeps, relay: Pds, host_of: Callable[[str], Awaitable[str | None]]
) -> Reading:
    relay.unknown_methods = {"describeRepo"}
    reading = Reading(hosts, relay, sleeps, host_of=host_of)
    await reading.read()
    return reading


async def test_repos_that_a_relay_lists_are_described_by_their_own_hosts(fake: Pds, hosts: RepoHosts, sleeps: Sleeps):
    fake.lists.page_repos = 15
    holders = peopled(fake, holders=20, others=20)
    async with pds() as home:
        home.repos = fake.repos

        async def host_of(did: str) -> str | None:
            return home.url

        reading = await described_elsewhere(hosts, sleeps, fake, host_of)
        assert set(reading.found) == {Found(did, home.url, fake.url) for did in holders}
        assert home.asked_for("describeRepo") == 40
    assert fake.asked_for("describeRepo") == 15


async def test_repo_whose_host_is_not_to_be_found_or_does_not_answer_is_uncertain(
    fake: Pds, hosts: RepoHosts, sleeps: Sleeps
):
    dids = sorted(peopled(fake, holders=4))
    async with pds() as home:
        home.repos = fake.repos
        home.misbehave(Fault.BROKEN, "describeRepo", dids[2])

        async def host_of(did: str) -> str | None:
            match dids.index(did):
                case 0:
                    raise Unavailable
                case 1:
                    raise Rejected
                case _:
                    return home.url

        reading = await described_elsewhere(hosts, sleeps, fake, host_of)
    assert set(reading.dids) == set(dids)
    assert reading.uncertain == set(dids[:3])


async def test_repo_without_a_host_is_passed_over(fake: Pds, hosts: RepoHosts, sleeps: Sleeps):
    peopled(fake, holders=3)

    async def host_of(did: str) -> str | None:
        return None

    assert (await described_elsewhere(hosts, sleeps, fake, host_of)).found == []


@pytest.mark.parametrize("missing", ["listRepos", "describeRepo"])
async def test_server_that_cannot_tell_who_has_memories_is_named(fake: Pds, reading: Reading, missing: str):
    fake.unknown_methods = {missing}
    peopled(fake, holders=REFUSALS_TO_TELL + 1)
    with pytest.raises(NotListing, match=f"{fake.url} has neither listReposByCollection nor {missing}"):
        await reading.read()
