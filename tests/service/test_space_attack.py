"""What two processes, hosts of others and operators can do to Spaces between two statements."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from indexer.arrivals import OPERATOR, Place, TakedownOrdered
from indexer.spaces import sync
from indexer.spaces.lanes import QUICK_S, HostTooSlow, Lanes
from indexer.spaces.listing import changed_by_listing
from indexer.spaces.sync import SpacePolicy
from indexer.store import denials, space_purge, spaces
from indexer.store.spaces import Listed, SpaceClaim
from memory.database import Database
from memory.outbound import StreamLimits
from memory.queries import Connection
from memory.tasks import TaskGroup
from tests.builders import memory
from tests.fakes.space_host_faults import Fault
from tests.feed import rkey
from tests.spaces_world import BUDGET, SpacesWorld, setting, spaces_world

FRESHNESS = SpacePolicy().freshness
SHORT = replace(BUDGET, page_s=0.5, repo=StreamLimits(max_bytes=1024 * 1024, grace_s=0.5, total_s=0.5))
LISTINGS = 1_500
WAITING = """
select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock')
"""


# Who lost a Space


async def taken(world: SpacesWorld) -> SpaceClaim:
    """The one Space, claimed by another process."""
    async with world.database.connection() as conn:
        [claim] = await spaces.claim(conn, uuid4(), sync.CLAIM, at_most=1, now=world.clock())
    return claim


async def test_who_lost_a_space_crosses_out_nothing_that_was_said_of_it(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        await world.stop()
        await world.note_write(here.space, here.bob)
        before = await taken(world)
        world.clock.advance(minutes=2)
        now = await taken(world)
        async with database.connection() as conn:
            notes = await spaces.load_notes(conn, before)
            await spaces.drop_notes(conn, before, notes)
            assert await spaces.load_notes(conn, now) == notes
            await spaces.drop_notes(conn, now, notes)
            assert await spaces.load_notes(conn, now) == []


async def test_claim_that_was_ended_is_kept_up_no_more(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        await world.stop()
        world.clock.advance(minutes=6)
        claim = await taken(world)
        async with database.transaction() as conn:
            await spaces.settle(conn, claim.authority, claim.space, claim.token, FRESHNESS, release=True)
        before = await world.space_row(here.space)
        async with database.connection() as conn:
            await spaces.keep(conn, claim, sync.CLAIM, world.clock())
        assert await world.space_row(here.space) == before


async def test_who_lost_a_space_deletes_nothing_of_another_one_of_the_same_name(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        await world.stop()
        await world.note(here.space, "deleted")
        before = await taken(world)
        async with database.connection() as conn:
            assert await space_purge.mark(conn, before, world.clock()) is not None
            assert await space_purge.next_author(conn, before) == here.bob.did
        world.clock.advance(minutes=2)
        world.start()
        await world.until(lambda: world.value("select count(*) from spaces"), 0)
        await world.open(here.space, here.bob)
        await world.until_contents(here.space, here.bob, ["0"])
        async with database.connection() as conn:
            assert await space_purge.next_author(conn, before) is None


async def test_who_lost_a_space_that_is_being_deleted_leaves_its_row_to_whoever_has_it(database: Database):
    """Without it nobody would go on with what is left."""
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        await world.stop()
        await world.note(here.space, "deleted")
        before = await taken(world)
        async with database.connection() as conn:
            deleted_at = await space_purge.mark(conn, before, world.clock())
            assert deleted_at is not None
            assert not await space_purge.delete_space(conn, before, deleted_at)  # its author is there still
            world.clock.advance(minutes=2)
            assert (await taken(world)).token != before.token
            await space_purge.delete_author(conn, here.bob.did, here.space.uri)
            assert not await space_purge.delete_space(conn, before, deleted_at)  # and now it is another's
        assert await world.value("select count(*) from spaces") == 1
        world.clock.advance(minutes=2)
        world.start()
        await world.until(lambda: world.value("select count(*) from spaces"), 0)


async def test_ever_so_many_names_in_a_space_that_is_deleted_go_in_a_few_statements(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        await world.stop()
        async with database.connection() as conn:
            await conn.execute(
                "insert into space_repos (repo, space, listed_rev, listed_hash)"
                " select 'did:plc:' || lpad(n::text, 24, 'a'), $1, '3kaaaaaaaaa2a', '' from generate_series(1, 2500) n",
                str(here.space),
            )
        gone: list[str] = []
        delete = space_purge.delete_author

        async def delete_author(conn: Connection, author: str, space: str) -> None:
            gone.append(author)
            await delete(conn, author, space)

        monkeypatch.setattr(space_purge, "delete_author", delete_author)
        await world.note(here.space, "deleted")
        world.start()
        await world.until(lambda: world.left_of(here.space), {})
        assert gone == [here.bob.did]


async def test_sweep_waits_for_no_author_while_it_keeps_others_from_the_space(database: Database):
    """A pull has its author's row, and waits for the Space's at its end."""
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        await world.stop()
        world.clock.advance(minutes=20)
        async with database.connection() as conn:
            await conn.execute("update space_repos set in_step = false, pull_after = 'infinity'")
        async with database.connection() as pull, pull.transaction():
            await pull.execute("select from space_repos for update")
            world.start()
            await world.until(lambda: world.value(WAITING), True)
            assert await world.value("select count(*) from (select from spaces for update skip locked) s") == 1


# Authors' hosts


@pytest.mark.parametrize("fault", [Fault.HUNG, Fault.BUSY])
async def test_space_is_ready_without_the_author_whose_host_is_dead_or_wants_to_be_left_alone(
    database: Database, fault: Fault
):
    async with spaces_world(database, budget=SHORT) as world:
        here = await setting(world)
        other = await world.host()
        carol = other.add("carol")
        space = here.home.create_space(here.alice, "both", here.bob, carol)
        for author in (here.bob, carol):
            author.create(space, rkey(0), memory("0"))
        other.misbehave(fault)
        await world.open(space, here.bob)
        world.start()
        await world.until_contents(space, here.bob, ["0"])

        async def state() -> str:
            return (await world.space_row(space))["state"]

        await world.until(state, "ready")  # before any sweep: no time goes by
        assert await world.contents(space, carol) == []


class Time:
    """A monotonic clock."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def test_hosts_that_were_slow_often_leave_places_to_who_was_never_asked():
    time = Time()
    lanes = Lanes(16, monotonic=time)
    ended: list[str] = []

    async def wait(host: str, attempts: int) -> None:
        try:
            with lanes.turn(attempts) as turn:
                async with turn.waiting():
                    with turn.asking(host):
                        await asyncio.Event().wait()
        except HostTooSlow:
            ended.append(host)

    async with TaskGroup() as tasks:
        waits = [tasks.create_task(wait(f"https://{n}.test", n)) for n in range(5, 13)]
        await asyncio.sleep(0)
        assert lanes.room == 0
        time.now += QUICK_S + 1
        assert lanes.room == 4
        lanes.make_room(2)
        await asyncio.gather(*waits[-2:])
        assert sorted(ended) == ["https://11.test", "https://12.test"], "those that may wait longest"
        lanes.make_room(1)
        await asyncio.sleep(0)
        assert len(ended) == 2, "there is place"
        for each in waits:
            each.cancel()


# Operators


async def test_takedown_that_is_not_committed_yet_has_nothing_pulled_that_it_does_not_see(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    async with spaces_world(database) as world:
        here = await setting(world)
        await world.write_public(here.bob)
        await world.open(here.space, here.bob)
        here.bob.create(here.space, rkey(0), memory("0"))
        here.away.misbehave(Fault.BROKEN)
        world.start()
        await world.until(lambda: world.value("select count(*) from space_repos where failure is not null"), 1)
        await world.stop()
        here.away.misbehave(None)
        stored, ended, store = asyncio.Event(), asyncio.Event(), denials.store_denials

        async def store_slowly(*arguments: Any, **named: Any) -> None:
            await store(*arguments, **named)
            stored.set()
            await ended.wait()

        monkeypatch.setattr(denials, "store_denials", store_slowly)
        async with TaskGroup() as tasks:
            place = Place(OPERATOR, 0, world.clock())
            taking_down = tasks.create_task(world.write(TakedownOrdered(place, here.bob.did, None)))
            await stored.wait()
            world.clock.advance(minutes=1)
            claimed = await world.worker._claim_pulls(16)
            ended.set()
            await taking_down
        assert claimed == []
        world.start()
        await world.pass_time_until(lambda: world.value("select failure from space_repos"), "denied", seconds=20)
        assert await world.contents(here.space, here.bob, shown=False) == []


# Sweeps


@dataclass
class Drawn:
    """A Space in any state that one may be in, and what its host lists."""

    conn: Connection
    draw: random.Random
    now: datetime
    authority: str
    space: str
    authors: Sequence[str]

    async def make(self) -> tuple[SpaceClaim, dict[str, Listed]]:
        token, listed_at = uuid4(), self.draw.choice([None, self.now - timedelta(minutes=5)])
        await self.conn.execute(
            "insert into spaces (repo, space, state, opened_at, credentialed_until, listed_at, fresh_until,"
            " claim_token, claimed_until, due_at) values ($1, $2, $3, $4, $4, $5, $4, $6, 'infinity', 'infinity')",
            *(self.authority, self.space, self.draw.choice(["ready", "syncing"]), self.now, listed_at, token),
        )
        found = [await self._author(author) for author in self.authors]
        claim = SpaceClaim(
            self.authority, self.space, token, self.now, listed_at, self.now, 0, None, self.now, self.now, None, False
        )
        return claim, {each.author: each for each in found if each is not None}

    async def _author(self, author: str) -> Listed | None:
        draw, rev = self.draw, "3kaaaaaaaaa2a"
        if draw.random() < 0.2:
            return Listed(author, rev, bytes(32)) if draw.random() < 0.3 else None
        is_listed, is_held = draw.random() < 0.85, draw.random() < 0.85
        listed_hash = (b"\1" * 32 if draw.random() < 0.15 else bytes(32)) if is_listed else None
        in_step = is_held and listed_hash == bytes(32)
        hidden = None if is_listed else "unlisted"
        if is_listed and is_held and not in_step and draw.random() < 0.4:
            hidden = "stale"
        pull_after = self.now if draw.random() < 0.15 else None
        is_pulled = pull_after is not None and draw.random() < 0.3
        is_active = draw.random() < 0.8
        await self.conn.execute(
            "insert into space_repos (repo, space, listed_rev, listed_hash, in_step, rev, hash, set_state,"
            " confirmed_at, hidden, account_active, pull_after, pull_token, failure)"
            " values ($1, $2, $3, $4, $5, $6, $7, '', $8, $9, $10, $11, $12, $13)",
            *(author, self.space, rev if is_listed else None, listed_hash, in_step, rev if is_held else None),
            *(bytes(32) if is_held else None, self.now - timedelta(minutes=draw.choice([1, 4, 14, 20]))),
            *(hidden, is_active, pull_after, uuid4() if is_pulled else None, draw.choice([None, "x"])),
        )
        if is_held or is_pulled:
            await self.conn.execute(
                "insert into repos (repo, space, state, visible, tracked_at, changed_at)"
                " values ($1, $2, 'active', $3, $4, $4)",
                *(author, self.space, is_held and is_active and hidden is None, self.now),
            )
        if draw.random() < (0.9 if is_listed else 0.1):
            return Listed(author, rev, listed_hash if listed_hash and draw.random() < 0.95 else b"\1" * 32)
        return None

    async def rows(self) -> list[tuple[Any, ...]]:
        tables = ("spaces", "space_repos", "repos")
        found = [await self.conn.fetch(f"select * from {table} order by repo, space") for table in tables]
        return [tuple(row) for rows in found for row in rows]


async def sweep(conn: Connection, claim: SpaceClaim, listed: Mapping[str, Listed], sweep_after: datetime) -> None:
    """What is done with a listing of which something may be new."""
    known = await spaces.load_listed(conn, claim.space)
    await spaces.store_listed(conn, claim, list(changed_by_listing(listed, known)), claim.now)
    await spaces.hide_stale(conn, claim.space, claim.now - FRESHNESS.staleness + FRESHNESS.margin, claim.now)
    assert await spaces.note_listing(conn, claim, sweep_after)
    await spaces.settle(conn, claim.authority, claim.space, claim.token, FRESHNESS, release=True)


async def test_listing_that_brings_nothing_new_comes_to_the_same_by_one_statement_as_by_all(
    database: Database, seed: int
):
    async with spaces_world(database) as world, database.connection() as conn:
        home = await world.host()
        alice, *others = [home.add(name) for name in ("alice", "bob", "carol", "dan")]
        space = str(home.create_space(alice, "main", *others))
        now, confirmed = world.clock(), 0
        drawn = Drawn(conn, random.Random(seed), now, alice.did, space, [each.did for each in others])
        for _ in range(LISTINGS):
            whole = conn.transaction()
            await whole.start()
            claim, listed = await drawn.make()
            once = conn.transaction()
            await once.start()
            is_confirmed = await spaces.confirm_listing(conn, claim, listed, now + timedelta(minutes=5), FRESHNESS)
            after = await drawn.rows()
            await once.rollback()
            if is_confirmed:
                confirmed += 1
                await sweep(conn, claim, listed, now + timedelta(minutes=5))
                assert await drawn.rows() == after
            await whole.rollback()
        assert LISTINGS / 20 < confirmed < LISTINGS / 2
