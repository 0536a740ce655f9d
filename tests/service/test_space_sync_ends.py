"""What ends in Spaces: who is no longer listed or confirmed is hidden, accounts end, and a Space that is no more is
deleted to its last byte.
"""

from __future__ import annotations

import pytest

from indexer.arrivals import OPERATOR, AccountChanged, IdentityResolved, Place, RestoreOrdered, TakedownOrdered
from indexer.store.space_counts import count_spaces
from memory.database import Database
from memory.identifiers import COLLECTION
from memory.identity import Identity
from tests.builders import memory
from tests.fakes.space_host_faults import Fault
from tests.fakes.space_host_world import Account
from tests.feed import RELAY, rkey
from tests.spaces_world import SpacesWorld, setting, spaces_world

# Confirmed in time


async def test_space_whose_host_does_not_answer_is_served_no_longer_than_it_was_confirmed(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        here.home.misbehave(Fault.BROKEN, "listRepos")
        world.clock.advance(minutes=14)
        assert await world.is_served(here.space)
        world.clock.advance(minutes=2)
        assert not await world.is_served(here.space)
        await here.home.until_asked("listRepos", 2)
        await world.until_idle(here.space)
        assert not await world.is_served(here.space)
        assert await world.contents(here.space, here.bob, shown=False) == ["0"]
        here.home.misbehave(None, "listRepos")
        await world.pass_time_until(lambda: world.is_served(here.space), True, seconds=30)
        assert await world.contents(here.space, here.bob) == ["0"]


async def test_dead_worker_serves_nothing_stale(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        await world.stop()
        world.clock.advance(minutes=16)
        assert not await world.is_served(here.space)


async def test_repo_that_is_not_confirmed_in_time_is_hidden_and_the_others_are_served_on(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        other = await world.host()
        carol = other.add("carol")
        here.space.admit(carol)
        carol.create(here.space, rkey(1), memory("of carol"))
        await here.begin("of bob")
        await world.until_contents(here.space, carol, ["of carol"])
        here.bob.delete(here.space, rkey(0))
        here.away.misbehave(Fault.BROKEN)
        for _ in range(32):
            world.clock.advance(seconds=30)
            await world.until_idle(here.space)
            assert await world.is_served(here.space)
        assert await world.contents(here.space, here.bob) == []
        assert await world.contents(here.space, here.bob, shown=False) == ["of bob"]
        assert (await world.repo_row(here.space, here.bob))["hidden"] == "stale"
        assert await world.contents(here.space, carol) == ["of carol"]


async def test_repo_that_was_stale_is_shown_once_it_is_pulled(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        here.bob.create(here.space, rkey(1), memory("1"))
        here.away.misbehave(Fault.BROKEN)
        await world.pass_time_until(lambda: world.contents(here.space, here.bob), [], seconds=30)
        here.away.misbehave(None)
        await world.pass_time_until(lambda: world.contents(here.space, here.bob), ["0", "1"], minutes=5)


async def test_false_notification_hides_nobody(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        here.space.say(here.bob, "3zzzzzzzzzzzz", bytes(32))
        await world.note(here.space, "written", here.bob.did, "3zzzzzzzzzzzz", bytes(32))
        for _ in range(40):
            world.clock.advance(seconds=30)
            await world.until_idle(here.space)
        assert await world.contents(here.space, here.bob) == ["0"]
        assert await world.is_served(here.space)
        # about one pull for each sweep: the listing is never what the author's host has
        assert here.away.asked_for("listRepoOps") < 20


@pytest.mark.parametrize("rev", [None, "", "no tid", "3zzzzzzzzzzz"])
async def test_notification_that_is_none_is_passed_over(database: Database, rev: str | None):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        asked = here.home.asked_for("listRepos")
        await world.note(here.space, "written", here.bob.did, rev, b"short")
        await world.until_idle(here.space)
        assert here.home.asked_for("listRepos") == asked
        assert here.away.asked_for("listRepoOps") == 0


# Listed


async def test_author_who_is_not_listed_any_more_is_hidden_and_kept(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        listed = here.space.listing.pop(here.bob.did)
        world.clock.advance(minutes=5)
        await world.until_contents(here.space, here.bob, [])
        assert await world.contents(here.space, here.bob, shown=False) == ["0"]
        here.space.listing[here.bob.did] = listed
        world.clock.advance(minutes=5)
        await world.until_contents(here.space, here.bob, ["0"])
        assert here.away.asked_for("getRepo") == 1


async def test_author_who_wrote_while_not_listed_is_shown_only_as_they_are_now(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        here.space.listing.pop(here.bob.did)
        world.clock.advance(minutes=5)
        await world.until_contents(here.space, here.bob, [])
        here.bob.delete(here.space, rkey(0))
        here.away.misbehave(Fault.BROKEN)
        world.clock.advance(minutes=5)
        await world.until_idle(here.space)
        assert await world.contents(here.space, here.bob) == []
        here.away.misbehave(None)
        await world.pass_time_until(lambda: world.contents(here.space, here.bob, shown=False), [], seconds=20)


async def test_listing_without_an_end_hides_nobody(database: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("indexer.spaces.reads.PAGE_ITEMS_MAX", 1)
    async with spaces_world(database) as world:
        here = await setting(world)
        carol = here.away.add("carol")
        here.space.admit(carol)
        carol.create(here.space, rkey(3), memory("of carol"))
        await here.begin("0")
        here.home.misbehave(Fault.SAME_CURSOR, "listRepos")
        world.clock.advance(minutes=5)
        await world.until(lambda: world.value("select failure from spaces"), "listing_too_long")
        assert await world.contents(here.space, here.bob) == ["0"]
        assert await world.contents(here.space, carol) == ["of carol"]


async def test_removed_member_stays_as_they_were(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        here.space.remove(here.bob)
        here.bob.create(here.space, rkey(1), memory("after the removal"))
        for _ in range(4):
            world.clock.advance(minutes=5)
            await world.until_idle(here.space)
        assert await world.contents(here.space, here.bob) == ["0"]
        assert await world.is_served(here.space)
        assert here.away.asked_for("listRepoOps") == 0


# Accounts


def deactivated(world: SpacesWorld, author: Account, seq: int, *, active: bool) -> AccountChanged:
    place = Place(RELAY, seq, world.clock())
    return AccountChanged(place, author.did, active, None if active else "deactivated")


async def test_inactive_account_is_hidden_in_spaces_and_shown_when_it_comes_back(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        await world.write(deactivated(world, here.bob, 1, active=False))
        assert await world.contents(here.space, here.bob) == []
        world.clock.advance(minutes=5)
        await world.until_idle(here.space)
        assert await world.contents(here.space, here.bob) == []
        await world.write(deactivated(world, here.bob, 2, active=True))
        assert await world.contents(here.space, here.bob) == ["0"]


async def test_inactive_viewer_reads_no_space(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        await world.write(deactivated(world, here.bob, 1, active=False))
        left = await world.left_of(here.space)
        assert "grants" not in left
        assert "credentials" not in left


@pytest.mark.parametrize("status", ["deactivated", "takendown", "suspended"])
async def test_account_that_its_host_does_not_serve_is_hidden_until_it_does(database: Database, status: str):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        carol = here.away.add("carol")
        here.space.admit(carol)
        await world.open(here.space, carol)
        here.bob.create(here.space, rkey(1), memory("1"))
        here.bob.status = status  # type: ignore[assignment]
        await world.note_write(here.space, here.bob)
        await world.until_contents(here.space, here.bob, [])
        here.bob.status = None
        await world.pass_time_until(lambda: world.contents(here.space, here.bob), ["0", "1"], seconds=20)


async def test_account_that_is_no_more_leaves_nothing_in_spaces(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        carol = here.away.add("carol")
        await world.open(here.space, carol)
        await world.write_public(here.bob)
        world.clock.advance(seconds=1)
        gone = Identity(here.bob.did, None, None, None, tombstoned=True, resolved_at=world.clock())
        await world.write(IdentityResolved(Place(RELAY, 9, world.clock()), gone))
        assert await world.contents(here.space, here.bob, shown=False) == []
        left = await world.left_of(here.space)
        assert not {"memories", "memory_versions", "repos"} & set(left)


async def test_account_that_an_operator_took_down_is_not_held_until_it_is_restored(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        place = Place(OPERATOR, 0, world.clock())
        await world.write(TakedownOrdered(place, here.bob.did, None))
        assert await world.contents(here.space, here.bob, shown=False) == []
        world.clock.advance(minutes=5)
        await world.until(lambda: world.value("select failure from space_repos"), "denied")
        async with database.connection() as conn:
            assert (await count_spaces(conn, world.clock())).unpulled == {}  # nothing that anybody could mend
        assert await world.contents(here.space, here.bob, shown=False) == []
        await world.write(RestoreOrdered(place, here.bob.did, None))
        await world.pass_time_until(lambda: world.contents(here.space, here.bob), ["0"])


# Deleted


async def fill(world: SpacesWorld) -> None:
    """A model, so that memories wait for vectors and have some, and a walk that stands in the Space."""
    async with world.database.connection() as conn:
        await conn.execute(
            "insert into embedding_models (model, dimensions, state, added_at) values ('m', 2, 'serving', now())"
        )


async def fill_vectors(world: SpacesWorld, space: object) -> None:
    async with world.database.connection() as conn:
        await conn.execute(
            "insert into embeddings (repo, space, model, rkey, chunk, embedding)"
            " select repo, space, 'm', rkey, 0, '[1,0]' from memories where space = $1",
            str(space),
        )
        await conn.execute(
            "update embedding_models set walked_repo = m.repo, walked_space = m.space, walked_rkey = m.rkey"
            " from memories m where m.space = $1",
            str(space),
        )


async def every_byte(world: SpacesWorld) -> str:
    """All rows of all tables, as text."""
    tables = await world.rows(
        "select relname from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'"
    )
    rows: list[str] = []
    for table in tables:
        rows += [row[0] for row in await world.rows(f"select t::text from {table['relname']} t")]
    return "\n".join(rows)


@pytest.mark.parametrize("told", ["notified", "answered"])
async def test_deleted_space_leaves_no_byte(database: Database, told: str):
    async with spaces_world(database) as world:
        await fill(world)
        here = await setting(world)
        uri = f"{here.space}/{here.bob.did}/{COLLECTION}/{rkey(0)}"
        here.bob.create(here.space, rkey(20), {"$type": COLLECTION, "content": 7})
        here.bob.create(here.space, rkey(21), memory("Mandarin", supersedes=[uri]))
        await world.open(here.space, here.bob)
        await here.begin("tangerine", "orange", shown=["tangerine", "orange", "Mandarin"])
        here.bob.update(here.space, rkey(1), memory("lemon"))
        here.bob.delete(here.space, rkey(0))
        await world.note_write(here.space, here.bob)
        await world.until_contents(here.space, here.bob, ["lemon", "Mandarin"])
        await fill_vectors(world, here.space)
        elsewhere = await world.host()
        other = elsewhere.create_space(elsewhere.add("dora"), "other", here.bob)
        here.bob.create(other, rkey(1), memory("elsewhere"))
        await world.open(other, here.bob)
        await world.until_contents(other, here.bob, ["elsewhere"])
        kept = await world.left_of(other)
        assert {"memories", "memory_edges", "invalid_records", "embeddings"} <= set(await world.left_of(here.space))
        here.space.delete()
        if told == "notified":
            await world.note(here.space, "deleted")
        else:
            here.home.faults.refusal = (400, "SpaceDeleted")
            here.home.misbehave(Fault.REFUSING, "listRepos", times=1)
            world.clock.advance(minutes=5)
        await world.until(lambda: world.left_of(here.space), {})
        held = await every_byte(world)
        for word in (str(here.space), "tangerine", "orange", "lemon", "Mandarin"):
            assert word not in held
            assert word.encode().hex() not in held
        assert await world.left_of(other) == kept


async def test_space_of_the_same_name_is_another_one(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("old")
        here.space.delete()
        here.bob.repos.clear()
        await world.note(here.space, "deleted")
        world.clock.advance(seconds=1)
        again = here.home.create_space(here.alice, "main", here.bob)
        here.bob.create(again, rkey(5), memory("new"))
        await world.open(again, here.bob)
        await world.until_contents(again, here.bob, ["new"])
        assert await world.contents(again, here.bob, shown=False) == ["new"]
        assert await world.value("select count(*) from grants") == 1
        assert await world.value("select count(*) from memory_versions") == 1


async def test_only_the_authority_can_say_that_a_space_is_deleted(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        here.bob.create(here.space, rkey(1), memory("1"))
        here.away.faults.refusal = (400, "SpaceDeleted")
        here.away.misbehave(Fault.REFUSING)
        await world.note_write(here.space, here.bob)
        await here.away.until_asked("listRepoOps")
        await world.until_idle(here.space)
        assert await world.contents(here.space, here.bob) == ["0"]


async def test_space_that_its_host_does_not_find_is_kept_for_a_while(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        here.home.faults.refusal = (400, "SpaceNotFound")
        here.home.misbehave(Fault.REFUSING)
        world.clock.advance(minutes=20)
        await here.home.until_asked("listRepos", 2)
        await world.until_idle(here.space)
        assert not await world.is_served(here.space)
        assert await world.contents(here.space, here.bob, shown=False) == ["0"]
