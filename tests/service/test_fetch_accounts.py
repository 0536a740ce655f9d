"""Accounts that their hosts do not serve, that are deleted, moved or taken down, before their repos are fetched or
meanwhile."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from itertools import pairwise

import pytest

from indexer.arrivals import RestoreOrdered, TakedownOrdered
from indexer.books import RequestKind
from indexer.resync.apply import at_hosts
from memory.database import Database
from tests.builders import RepoBuilder, memory
from tests.fakes.directory import Mood
from tests.fakes.pds import Fault
from tests.feed import holdings, rkey
from tests.mending import Mending, mending


@pytest.fixture
async def world(database: Database) -> AsyncGenerator[Mending]:
    async with mending(database, slice_ops=2) as opened:
        yield opened


async def known(world: Mending) -> RepoBuilder:
    """A repo of which three memories are held, and the first of five more that only its host has."""
    alice = world.account("alice")
    await world.live(*alice.genesis(), *(alice.create(rkey(number), memory(f"{number}")) for number in range(3)))
    await world.value("delete from requests")
    for number in range(3, 8):
        alice.create(rkey(number), memory(f"{number}"))
    world.start()
    return alice


async def is_held(world: Mending, alice: RepoBuilder) -> bool:
    held = await holdings(world.database, alice.did)
    return any(held[table] for table in ("memories", "edges", "versions", "invalid", "parked"))


async def visibility(world: Mending, alice: RepoBuilder) -> tuple[bool, str | None]:
    row = await world.row(alice)
    return row["visible"], row["status"]


# What a host does not serve

UNSERVED = ["deactivated", "takendown", "suspended"]


@pytest.mark.parametrize("status", UNSERVED)
async def test_account_that_its_host_does_not_serve_is_hidden_and_kept(world: Mending, status: str):
    alice = await known(world)
    world.pds.statuses[alice.did] = status
    await world.ask(alice)
    assert await world.until_failed(alice) == f"account_{status}"
    assert await visibility(world, alice) == (False, status)
    assert await world.state(alice) == ("active", None)
    assert await world.contents(alice) == ["0", "1", "2"]
    assert 7.5 <= await world.wait_s(alice) <= 10


async def test_account_that_is_not_served_is_asked_for_ever_more_seldom_and_never_given_up(world: Mending):
    alice = await known(world)
    world.pds.statuses[alice.did] = "suspended"
    await world.ask(alice)
    waits: list[float] = []
    for attempt in range(1, 20):
        await world.until_failed(alice, attempt)
        waits.append(await world.wait_s(alice))
        world.clock.advance(seconds=waits[-1])
    assert all(later > 1.4 * earlier for earlier, later in pairwise(waits[:13]))
    assert all(18 * 3600 <= wait <= 24 * 3600 for wait in waits[-3:])


@pytest.mark.parametrize("status", UNSERVED)
async def test_account_that_a_relay_says_is_active_again_is_asked_about_and_fetched_at_once(
    world: Mending, status: str
):
    alice = await known(world)
    await world.live(alice.sync_frame())  # it has to be fetched
    world.pds.statuses[alice.did] = status
    for attempt in range(1, 5):
        await world.until_failed(alice, attempt)
        world.clock.advance(seconds=await world.wait_s(alice))
    await world.until_failed(alice, 5)
    del world.pds.statuses[alice.did]
    await world.live(alice.account_frame(active=True))
    await world.until_answered(alice)
    assert await visibility(world, alice) == (True, None)
    assert await world.contents(alice) == [f"{number}" for number in range(8)]


async def test_word_of_a_relay_alone_does_not_show_what_the_host_hides(world: Mending):
    alice = await known(world)
    world.pds.statuses[alice.did] = "deactivated"
    await world.ask(alice)
    await world.until_failed(alice)
    await world.live(alice.account_frame(active=True))
    await world.until_answered(alice, kind=RequestKind.REPO_STATUS)
    assert await visibility(world, alice) == (False, "deactivated")


async def test_account_that_its_host_serves_again_is_noticed_by_the_next_attempt(world: Mending):
    alice = await known(world)
    world.pds.statuses[alice.did] = "deactivated"
    await world.ask(alice)
    await world.until_failed(alice)
    del world.pds.statuses[alice.did]
    world.clock.advance(minutes=1)
    await world.until_answered(alice)
    assert await visibility(world, alice) == (True, None)


async def test_takedown_of_a_relay_stays_and_its_repo_is_fetched_all_the_same(world: Mending):
    alice = await known(world)
    await world.live(alice.account_frame(active=False, status="takendown"))
    await world.ask(alice)
    await world.until_answered(alice)
    assert await visibility(world, alice) == (False, "takendown")
    assert len(await world.contents(alice)) == 8


# Deletions


async def test_account_that_its_host_has_no_more_is_purged_and_its_gate_stays(world: Mending):
    alice = await known(world)
    rev = (await world.row(alice))["rev"]
    world.pds.statuses[alice.did] = "deleted"
    await world.ask(alice)
    await world.until_answered(alice)
    assert await visibility(world, alice) == (False, "deleted")
    assert not await is_held(world, alice)
    row = await world.row(alice)
    assert (row["rev"], row["data_cid"], row["memory_count"]) == (rev, None, 0)
    assert world.pds.asked_for("getRepoStatus", alice.did) == 1


async def test_late_replay_of_a_purged_account_resurrects_nothing(world: Mending):
    alice = world.account("alice")
    await world.live(*(frames := [*alice.genesis(), alice.create(rkey(1), memory("1"))]))
    world.pds.statuses[alice.did] = "deleted"
    await world.ask(alice)
    world.start()
    await world.until_answered(alice)
    await world.live(*frames)
    assert not await is_held(world, alice)


async def test_purged_account_that_comes_back_is_fetched_whole(world: Mending):
    alice = await known(world)
    world.pds.statuses[alice.did] = "deleted"
    await world.ask(alice)
    await world.until_answered(alice)
    del world.pds.statuses[alice.did]
    await world.live(alice.account_frame(active=True))
    await world.until_answered(alice)
    assert await visibility(world, alice) == (True, None)
    assert await world.contents(alice) == [f"{number}" for number in range(8)]
    assert await world.state(alice) == ("active", None)


async def test_deletion_that_its_host_does_not_confirm_purges_nothing(world: Mending):
    alice = await known(world)
    world.pds.misbehave(Fault.REFUSING, "getRepo")
    world.pds.refusal = (400, b'{"error":"RepoNotFound"}')
    await world.ask(alice)
    await world.until_failed(alice)
    await world.until_answered(alice, kind=RequestKind.CONFIRM_DELETION)
    assert await visibility(world, alice) == (True, None)
    assert await world.contents(alice) == ["0", "1", "2"]


async def test_deletion_is_not_confirmed_while_its_host_cannot_be_asked(world: Mending):
    alice = await known(world)
    world.pds.misbehave(Fault.BROKEN)
    await world.live(alice.account_frame(active=False, status="deleted"))
    assert await world.until_failed(alice, kind=RequestKind.CONFIRM_DELETION) == "host_unavailable"
    assert await visibility(world, alice) == (False, "deleted")
    assert await world.contents(alice) == ["0", "1", "2"]


async def test_tombstone_purges_without_asking_the_host(world: Mending):
    alice = await known(world)
    world.directory.tombstoned.add(alice.did)
    del world.directory.documents[alice.did]
    await world.ask(alice)
    await world.until_answered(alice)
    assert await visibility(world, alice) == (False, "deleted")
    assert not await is_held(world, alice)
    assert world.pds.asked == []


@pytest.mark.parametrize("kind", [RequestKind.LATEST_COMMIT, RequestKind.REPO_STATUS, RequestKind.CONFIRM_DELETION])
async def test_question_about_a_tombstoned_account_is_answered_also_after_its_purge(world: Mending, kind: RequestKind):
    alice = await known(world)
    world.directory.tombstoned.add(alice.did)
    del world.directory.documents[alice.did]
    for _ in range(2):
        await world.ask(alice, kind=kind)
        await world.until_answered(alice)
        assert not await is_held(world, alice)


# Identities


async def test_account_without_a_host_says_so_and_goes_on_live(world: Mending):
    alice = await known(world)
    world.directory.documents[alice.did]["service"] = []
    await world.ask(alice)
    assert await world.until_failed(alice) == "no_host"
    assert await world.state(alice) == ("active", None)


@pytest.mark.parametrize("reason", ["no_host", "unknown_did"])
async def test_account_that_was_never_seen_and_cannot_be_asked_for_says_why(world: Mending, reason: str):
    alice = world.account("alice")
    if reason == "no_host":
        world.directory.documents[alice.did]["service"] = []
    else:
        del world.directory.documents[alice.did]
    await world.ask(alice)
    world.start()
    assert await world.until_failed(alice) == reason
    assert await world.state(alice) == ("error", reason)
    assert 7.5 <= await world.wait_s(alice) <= 10


async def test_account_that_gets_a_host_is_fetched_then(world: Mending):
    alice = world.account("alice")
    world.directory.documents[alice.did]["service"] = []
    await world.ask(alice)
    world.start()
    await world.until_failed(alice)
    world.register(alice)
    world.clock.advance(minutes=11)  # an identity is looked up that often
    await world.until_state(alice, "active")


async def test_directory_that_is_down_leaves_the_repo_as_it_is(world: Mending):
    alice = world.account("alice")
    await world.ask(alice)
    world.directory.mood = Mood.OUTAGE
    world.start()
    assert await world.until_failed(alice) == "unavailable"
    assert await world.state(alice) == ("pending", "discovered")


async def test_account_that_moved_is_fetched_from_where_it_is_and_never_hidden(world: Mending):
    alice = await known(world)
    await world.ask(alice)
    await world.until_answered(alice)
    alice.create(rkey(8), memory("8"))
    world.pds.statuses[alice.did] = "deactivated"  # as hosts do once somebody has left
    world.other_pds.add(alice)
    world.register(alice)
    hidden = await watch_hidden(world)
    world.clock.advance(minutes=20)
    await world.ask(alice)
    await world.until_answered(alice, kind=RequestKind.FETCH)
    assert await world.contents(alice) == [f"{number}" for number in range(9)]
    assert (await world.row(alice))["host"] == world.other_pds.url
    assert await hidden() == 0


async def watch_hidden(world: Mending) -> Callable[[], Awaitable[int]]:
    """How often any repo was hidden since."""
    await world.value("create table hidden (repo text)")
    await world.value(
        "create function note() returns trigger language plpgsql as"
        " $$ begin insert into hidden values (new.repo); return null; end $$"
    )
    await world.value(
        "create trigger hides after update on repos for each row when (not new.visible) execute function note()"
    )
    return lambda: world.value("select count(*) from hidden")


# An operator's word meanwhile


async def stalled(world: Mending) -> RepoBuilder:
    """A repo of which half has been sent."""
    alice = await known(world)
    world.pds.misbehave(Fault.STALLED, "getRepo")
    await world.ask(alice)
    await world.pds.until_asked("getRepo")
    return alice


async def test_repo_that_is_taken_down_while_it_is_fetched_stays_away(world: Mending):
    alice = await stalled(world)
    await world.live(alice.create(rkey(9), memory("9")))
    await world.write(TakedownOrdered(at_hosts(world.clock()), alice.did, None))
    world.pds.release.set()
    await world.until(lambda: overtaken(world), 1)
    assert not await is_held(world, alice)
    assert (await world.state(alice), await world.requests(alice)) == (("pending", "denied"), {})


async def overtaken(world: Mending) -> int:
    """How many fetches were told that their repo is no more theirs."""
    return world.worker.failures.get("fetch_overtaken", 0)


async def test_repo_that_is_denied_is_not_fetched(world: Mending):
    alice = await known(world)
    await world.write(TakedownOrdered(at_hosts(world.clock()), alice.did, None))
    await world.ask(alice)
    await world.until_answered(alice)
    assert world.pds.asked == []
    assert not await is_held(world, alice)


async def test_repo_that_is_restored_is_fetched_whole(world: Mending):
    alice = await stalled(world)
    await world.write(TakedownOrdered(at_hosts(world.clock()), alice.did, None))
    await world.write(RestoreOrdered(at_hosts(world.clock()), alice.did, None))
    world.pds.misbehave(None, "getRepo")
    world.pds.release.set()
    await world.until_answered(alice)
    assert await world.contents(alice) == [f"{number}" for number in range(8)]


async def test_record_that_is_taken_down_while_its_repo_is_fetched_stays_away(world: Mending):
    alice = await stalled(world)
    for number in (1, 5):  # one that is held, and one that is on its way
        await world.write(TakedownOrdered(at_hosts(world.clock()), alice.did, rkey(number)))
    world.pds.release.set()
    await world.until_answered(alice)
    assert await world.contents(alice) == [f"{number}" for number in range(8) if number not in (1, 5)]
    versions = await world.rows("select rkey, record, cid from memory_versions where rkey = $1", rkey(1))
    assert all(version["record"] is version["cid"] is None for version in versions)
    assert await world.state(alice) == ("active", None)


async def test_record_that_is_restored_while_its_repo_is_fetched_is_fetched_again(world: Mending):
    alice = await stalled(world)
    place = at_hosts(world.clock())
    await world.write(TakedownOrdered(place, alice.did, rkey(1)))
    world.pds.release.set()
    await world.until_answered(alice)
    world.pds.release.clear()
    world.clock.advance(minutes=10)
    await world.ask(alice)
    await world.pds.until_asked("getRepo", 2)
    await world.write(RestoreOrdered(place, alice.did, rkey(1)))
    world.pds.release.set()
    world.pds.misbehave(None, "getRepo")
    await world.until_state(alice, "active")
    world.clock.advance(minutes=10)
    await world.until_answered(alice)
    assert "1" in await world.contents(alice)


async def test_account_that_is_purged_while_it_is_fetched_stays_empty(world: Mending):
    alice = await stalled(world)
    world.pds.statuses[alice.did] = "deleted"
    await world.live(alice.create(rkey(9), memory("9")), alice.account_frame(active=False, status="deleted"))
    await world.until_answered(alice)
    world.pds.release.set()
    await world.until(lambda: overtaken(world), 1)
    assert not await is_held(world, alice)
    assert await visibility(world, alice) == (False, "deleted")
    assert await world.state(alice) == ("pending", "emptied")
