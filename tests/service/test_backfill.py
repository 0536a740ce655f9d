"""Backfills: who is found, what is fetched, in which order, and when it ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest

from indexer.repair import open_worker
from indexer.resync.discovery import NotListing
from indexer.resync.named import NOT_ADMITTED
from indexer.resync.watch import HOST_AWAY
from memory.database import Database
from tests.backfilling import NOISE, World, backfilling
from tests.builders import memory
from tests.daemons import daemon, know
from tests.deadline import until
from tests.fakes.pds import Fault
from tests.fakes.relay import relay
from tests.feed import rkey

A_DAEMON = "insert into leases (source, holder, expires_at) values ('https://x', gen_random_uuid(), now() + '1 hour')"


@pytest.fixture
async def world(database: Database) -> AsyncGenerator[World]:
    async with backfilling(database) as opened:
        yield opened


def fetched(world: World) -> Counter[str | None]:
    """DID → how often its repo was asked for."""
    return Counter(asked.did for asked in world.pds.asked if asked.method == "getRepo")


# Who is found


async def test_everybody_whom_a_relay_lists_by_collection_is_fetched_whole(world: World):
    people = [world.account(f"person {number}", memories=2) for number in range(5)]
    world.account("stranger", memories=0)
    world.relay.lists.page_repos = 2
    report = await world.backfill(world.relay.url)
    assert (report.found, report.new, report.whole, report.fetched, report.records) == (5, 5, 0, 5, 10)
    assert (report.failed, report.waiting, report.succeeded) == ({}, 0, True)
    assert await world.states() == dict.fromkeys((builder.did for builder in people), "active")
    assert await world.contents() == [f"person {number} {each}" for number in range(5) for each in range(2)]


async def test_everybody_whom_a_pds_describes_with_memories_is_fetched(world: World):
    people = {world.account(f"person {number}").did for number in range(3)}
    world.account("stranger", memories=0)
    report = await world.backfill(world.pds.url)
    assert (report.found, report.fetched) == (3, 3)
    assert (await world.states()).keys() == people
    assert world.pds.asked_for("describeRepo") == 4


async def test_relay_that_describes_nobody_sends_to_the_repos_own_hosts(world: World):
    people = {world.account(f"person {number}").did for number in range(12)}
    world.account("stranger", memories=0)
    world.relay.unknown_methods |= {"listReposByCollection", "describeRepo"}
    report = await world.backfill(world.relay.url)
    assert (report.found, report.fetched) == (12, 12)
    assert (await world.states()).keys() == people


async def test_server_that_lists_nobody_ends_the_run(world: World):
    world.account("alice")
    world.relay.unknown_methods |= {"listReposByCollection", "listRepos"}
    with pytest.raises(NotListing):
        await world.backfill(world.relay.url)


async def test_who_is_not_admitted_is_not_tracked(world: World):
    alice, bob = world.account("alice"), world.account("bob")
    search = world.search(world.relay.url, admits={alice.did}.__contains__)
    report = await world.prepared(search).run([])
    assert report.found == 1
    assert (await world.states()).keys() == {alice.did}
    assert fetched(world)[bob.did] == 0


# In which order


async def test_repo_is_asked_for_in_a_later_transaction_than_it_is_tracked(world: World):
    world.account("alice")
    world.pds.misbehave(Fault.REFUSING, "getRepo")  # so that the request stays
    await world.backfill(world.relay.url)
    [row] = await world.rows(
        "select q.asked_at > r.tracked_at as later, r.xmin <> q.xmin as apart from repos r join requests q using (repo)"
    )
    assert row["later"]


async def test_fetch_waits_until_every_running_daemon_tracks_the_repo(world: World):
    alice = world.account("alice")
    await world.rows(A_DAEMON)
    running = asyncio.create_task(world.backfill(world.relay.url))
    await until(lambda: world.value("select count(*) from requests"), lambda waiting: waiting == 1)
    assert await world.states() == {alice.did: "pending"}
    await asyncio.gather(*(world.value("select 1") for _ in range(3)))
    assert fetched(world) == {}
    alice.create(rkey(7), memory("written inside the window"))
    await world.rows("update leases set tracks_as_of = clock_timestamp()")
    await running
    assert fetched(world) == {alice.did: 1}
    assert await world.contents() == ["alice 0", "written inside the window"]


async def test_what_is_written_before_a_daemon_tracks_the_repo_breaks_no_chain(database: Database, world: World):
    alice = world.account("alice")
    await know(database, alice)
    async with relay() as stream, daemon(database, stream.source, clock=world.clock) as running:
        await stream.until_connected()
        backfill = asyncio.create_task(world.backfill(world.relay.url))
        await running.until("select count(*) from repos", is_=1)
        # No daemon needs to look at that yet, for it touches no memory.
        await stream.send(alice.create("self", {"text": "none of ours"}, collection=NOISE))
        await backfill
        await stream.send(alice.create(rkey(8), memory("live")), alice.delete(rkey(0)))
        await running.until_memories(alice, "live")
        assert (await running.repo(alice))["state"] == "active"
        assert await running.value("select count(*) from rejections where effect = 'desynchronized'") == 0


# What is fetched again, and what not


async def test_finished_sweep_begins_anew_and_fetches_nothing_that_is_whole(world: World):
    people = [world.account(f"person {number}") for number in range(3)]
    await world.backfill(world.relay.url)
    world.account("newcomer")
    report = await world.backfill(world.relay.url)
    assert (report.found, report.new, report.whole, report.fetched) == (4, 1, 3, 1)
    assert report.continued_from is None
    assert all(fetched(world)[builder.did] == 1 for builder in people)


async def test_two_at_once_fetch_no_repo_twice(database: Database, world: World):
    people = {world.account(f"person {number}").did for number in range(20)}
    world.relay.lists.page_repos = 7
    async with open_worker(database, world.repair) as other:
        reports = await asyncio.gather(
            world.prepared(world.search(world.relay.url)).run([]),
            world.prepared(world.search(world.pds.url), opened=other).run([]),
        )
    assert sum(report.fetched for report in reports) == 20
    assert fetched(world) == dict.fromkeys(people, 1)
    assert set((await world.states()).values()) == {"active"}


async def test_what_waited_before_is_fetched_too(world: World):
    alice, bob = world.account("alice", listed=False), world.account("bob")
    await world.track(alice)
    report = await world.backfill(world.relay.url)
    assert (report.found, report.fetched) == (1, 2)
    assert await world.states() == {alice.did: "active", bob.did: "active"}


# When it ends


async def test_what_fails_is_left_for_its_next_attempt(world: World):
    alice, bob = world.account("alice"), world.account("bob")
    world.pds.misbehave(Fault.WRONG_CIDS, "getRepo", alice.did)
    report = await world.backfill(world.relay.url)
    assert (report.fetched, report.failed, report.succeeded) == (1, {"block_hash": 1}, True)
    assert await world.states() == {alice.did: "error", bob.did: "active"}
    [row] = await world.rows("select failure, attempts, not_before from requests")
    assert (row["failure"], row["attempts"]) == ("block_hash", 1)
    assert row["not_before"] > world.clock.now


async def test_account_that_its_host_does_not_serve_is_told_by_its_status(world: World):
    alice = world.account("alice")
    world.pds.statuses[alice.did] = "deactivated"
    report = await world.backfill(world.relay.url)
    assert (report.fetched, report.failed) == (0, {"account_deactivated": 1})


async def test_host_that_wants_to_be_left_alone_for_long_is_not_waited_for(world: World):
    people = [world.account(f"person {number}") for number in range(3)]
    world.pds.misbehave(Fault.BUSY, "getRepo")
    world.pds.retry_after_s = 3600
    report = await world.backfill(world.relay.url)
    assert (report.fetched, report.failed, report.waiting) == (0, {}, 3)
    assert sum(fetched(world).values()) < len(people)


async def test_what_failed_before_is_not_counted_again(world: World):
    alice = world.account("alice")
    world.pds.misbehave(Fault.WRONG_CIDS, "getRepo", alice.did)
    await world.backfill(world.relay.url)
    world.account("bob")
    report = await world.backfill(world.relay.url)
    assert (report.found, report.fetched, report.failed) == (2, 1, {})


# Who was named


async def test_named_repos_are_fetched_anew_although_they_are_whole(world: World):
    alice, bob = world.account("alice"), world.account("bob")
    await world.backfill(world.relay.url)
    report = await world.backfill(named=[alice.did, bob.handle])
    assert (report.found, report.new, report.succeeded) == (2, 0, True)
    assert fetched(world) == {alice.did: 2, bob.did: 2}
    assert {(outcome.subject, outcome.did, outcome.reason) for outcome in report.named} == {
        (alice.did, alice.did, None),
        (bob.handle, bob.did, None),
    }


async def test_named_repo_is_tracked_from_then_on(world: World):
    alice = world.account("alice")
    report = await world.backfill(named=[alice.handle])
    assert (report.new, report.fetched) == (1, 1)
    assert await world.states() == {alice.did: "active"}


async def test_repo_that_is_named_twice_is_fetched_once(world: World):
    alice = world.account("alice")
    report = await world.backfill(named=[alice.handle, alice.did])
    assert fetched(world) == {alice.did: 1}
    assert len(report.named) == 1


@pytest.mark.parametrize(
    ("subject", "reason"),
    [
        ("nobody.test", "unknown_handle"),
        ("did:plc:" + "a" * 24, "unknown_did"),
        ("did:plc:short", "bad_identity"),
        ("did:example:x", "bad_identity"),
    ],
)
async def test_name_that_is_nobodys_is_told_and_not_tracked(world: World, subject: str, reason: str):
    alice = world.account("alice")
    report = await world.backfill(named=[subject, alice.did])
    assert [(outcome.subject, outcome.reason) for outcome in world.told if outcome.reason] == [(subject, reason)]
    assert [outcome.subject for outcome in report.hopeless] == [subject]
    assert not report.succeeded
    assert (await world.states()).keys() == {alice.did}


async def test_named_repo_that_is_not_admitted_is_told(world: World):
    alice = world.account("alice")
    report = await world.backfill(named=[alice.did], admits=lambda _: False)
    assert [outcome.reason for outcome in report.named] == [NOT_ADMITTED]
    assert await world.states() == {}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [(Fault.WRONG_CIDS, "block_hash"), (Fault.FOREIGN, "did_mismatch"), (Fault.BROKEN, "host_unavailable")],
)
async def test_named_repo_that_fails_is_told_also_where_it_is_whole(world: World, fault: Fault, reason: str):
    alice = world.account("alice")
    world.account("bob")
    await world.backfill(world.relay.url)
    world.pds.misbehave(fault, "getRepo", alice.did)
    report = await world.backfill(named=[alice.did])
    [outcome] = report.named
    assert (outcome.reason, report.failed, report.succeeded) == (reason, {reason: 1}, False)
    assert outcome.next_attempt is not None
    assert outcome.next_attempt > world.clock.now


async def test_named_repo_whose_host_is_to_be_left_alone_is_told(world: World):
    alice = world.account("alice")
    world.pds.misbehave(Fault.BUSY, "getRepo")
    world.pds.retry_after_s = 3600
    report = await world.backfill(named=[alice.did])
    assert [outcome.reason for outcome in report.named] == [HOST_AWAY]


async def test_named_account_that_is_gone_is_told(world: World):
    alice = world.account("alice")
    await world.backfill(world.relay.url)
    world.directory.tombstoned.add(alice.did)
    del world.directory.documents[alice.did]
    world.clock.now += timedelta(days=2)  # what was known of her is out of date
    report = await world.backfill(named=[alice.did])
    assert [outcome.reason for outcome in report.named] == ["deleted"]


async def test_named_and_discovered_go_together(world: World):
    alice, bob = world.account("alice", listed=False), world.account("bob")
    report = await world.backfill(world.relay.url, named=[alice.handle])
    assert (report.found, report.new, report.fetched) == (2, 2, 2)
    assert (await world.states()).keys() == {alice.did, bob.did}
