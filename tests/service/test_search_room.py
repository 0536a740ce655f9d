"""Lists that name more repos than can be verified: so many are taken in, and the rest when some of them were."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from indexer.resync.discovery import OPERATOR
from indexer.resync.search import LOOKS_FOR_ROOM, Room, Search, TooManyUnverified, pages_of
from indexer.store.status import index_status
from memory.database import Database
from tests.backfilling import LOOK_S, World, backfilling
from tests.builders import RepoBuilder

PAGE = 2
PEOPLE = 9
ROOM = Room(of_one=4, of_all=6)
OTHER = "https://other.test"


@pytest.fixture
async def world(database: Database) -> AsyncGenerator[World]:
    async with backfilling(database) as opened:
        opened.relay.lists.page_repos = PAGE
        for number in range(PEOPLE):
            opened.account(f"person {number}")
        yield opened


def search(world: World, room: Room = ROOM) -> Search:
    return world.search(world.relay.url, room=room)


async def tracked(world: World) -> int:
    return await world.value("select count(*) from repos")


async def held_up(world: World) -> bool:
    async with world.database.connection() as conn:
        status = await index_status(conn)
    return any(sweep.held_up_at is not None for sweep in status.sweeps)


async def named_elsewhere(world: World, number: int, listed_by: str = OTHER) -> None:
    """Repos of which nothing is verified, by another list."""
    await world.rows(
        "insert into repos (repo, state, tracked_at, changed_at, listed_by)"
        " select 'did:web:no' || n || '.test', 'error', now(), now(), $2 from generate_series(1, $1::integer) n",
        number,
        listed_by,
    )


async def test_list_of_repos_that_nobody_can_verify_is_read_so_far_and_no_further(world: World):
    with pytest.raises(TooManyUnverified, match=r"of 4 repos that http://127.0.0.1:\d+ lists, and of 4 of all lists"):
        await search(world).run()
    assert await tracked(world) == ROOM.of_one
    assert len(world.slept) == LOOKS_FOR_ROOM
    assert await held_up(world)


async def test_whole_list_is_read_while_fetches_verify_what_it_names(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("indexer.resync.search.LOOKS_FOR_ROOM", 10**6)  # which are short here, and fetches may be slow
    patient = search(world)
    patient._sleep = lambda _: asyncio.sleep(LOOK_S)
    report = await world.prepared(patient).run([])
    assert (report.found, report.fetched, report.broken_off) == (PEOPLE, PEOPLE, None)
    assert not await held_up(world)
    assert await world.value("select count(*) from repos where listed_by is not null") == 0


async def test_next_search_goes_on_where_this_one_had_no_room(world: World):
    with pytest.raises(TooManyUnverified):
        await search(world).run()
    await world.rows("update repos set listed_by = null")
    with pytest.raises(TooManyUnverified):
        await search(world).run()
    assert await tracked(world) == 2 * ROOM.of_one
    await world.rows("update repos set listed_by = null")
    last = search(world)
    await last.run()
    assert (await tracked(world), last.progress.finished, await held_up(world)) == (PEOPLE, True, False)


async def test_what_is_verified_meanwhile_makes_room_at_once(world: World):
    """Slowly, but it does: as long as some are, the list is waited for."""
    slow = search(world, Room(of_one=4, of_all=100))
    looks = 0

    async def sleep(seconds: float) -> None:
        nonlocal looks
        looks += 1
        assert slow.progress.is_held_up
        if looks % (LOOKS_FOR_ROOM - 1) == 0:
            await world.rows(
                "update repos set listed_by = null where repo ="
                " (select repo from repos where listed_by is not null limit 1)"
            )

    slow._sleep = sleep
    await slow.run()
    assert (await tracked(world), slow.progress.finished, slow.progress.is_held_up) == (PEOPLE, True, False)


async def test_all_lists_together_have_a_bound_too(world: World):
    await named_elsewhere(world, 5)
    with pytest.raises(TooManyUnverified):
        await search(world).run()
    assert await tracked(world) == 5 + PAGE


async def test_one_list_takes_no_room_of_another(world: World):
    await named_elsewhere(world, ROOM.of_one)
    with pytest.raises(TooManyUnverified):
        await search(world, Room(ROOM.of_one, 100)).run()
    assert await tracked(world) == 2 * ROOM.of_one


async def test_operators_own_list_is_taken_at_its_word(world: World):
    dids = [RepoBuilder(f"{number}").did for number in range(10)]
    await world.search(OPERATOR, pages=pages_of(dids, PAGE), room=ROOM).run()
    assert await world.value("select count(*) from repos where listed_by is null") == 10


async def test_repo_that_is_tracked_already_is_nobodys_invention(world: World):
    await world.track(*world.relay.repos.values(), asked=False)
    await search(world).run()
    assert await world.value("select count(*) from repos where listed_by is not null") == 0


@pytest.mark.parametrize("kind", ["fetched", "hidden", "unknown"])
async def test_account_that_its_host_or_its_key_vouches_for_makes_room(world: World, kind: str):
    person = next(iter(world.relay.repos.values()))
    match kind:
        case "hidden":
            world.pds.statuses[person.did] = "deactivated"
        case "unknown":
            del world.directory.documents[person.did]
        case _:
            pass
    world.relay.repos.clear()
    world.relay.repos[person.did] = person
    await world.prepared(search(world)).run([])
    listed_by: Any = await world.value("select listed_by from repos")
    assert listed_by == (world.relay.url if kind == "unknown" else None)


async def test_run_that_had_no_room_says_so_and_that_the_next_goes_on(world: World):
    for did in world.relay.repos:
        del world.directory.documents[did]
    report = await world.prepared(search(world)).run([])
    assert (report.found, report.failed) == (ROOM.of_one, {"unknown_did": ROOM.of_one})
    assert report.broken_off is not None
    assert "Nothing could be verified yet" in report.broken_off
