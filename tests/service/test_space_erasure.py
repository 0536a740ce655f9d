"""Whoever is no more, or is taken down, leaves nothing in Spaces, however little of them was public or pulled."""

from __future__ import annotations

import pytest

from indexer.arrivals import OPERATOR, AccountChanged, DeletionConfirmed, IdentityResolved, Place, TakedownOrdered
from indexer.resync.drain import at_hosts
from indexer.spaces.apply import SpaceApplier
from memory.database import Database
from memory.errors import Unavailable
from memory.identity import Identity
from tests.builders import memory
from tests.feed import RELAY, rkey
from tests.spaces_world import setting, spaces_world


async def test_author_without_a_public_repo_who_is_no_more_leaves_nothing(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        world.clock.advance(seconds=1)
        gone = Identity(here.bob.did, None, None, None, tombstoned=True, resolved_at=world.clock())
        await world.write(IdentityResolved(Place(RELAY, 9, world.clock()), gone))
        assert await world.contents(here.space, here.bob, shown=False) == []
        assert await world.value("select count(*) from memory_versions") == 0


async def test_author_without_a_public_repo_whose_account_was_deleted_is_asked_after(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        world.clock.advance(seconds=1)
        await world.write(AccountChanged(Place(RELAY, 9, world.clock()), here.bob.did, active=False, status="deleted"))
        assert await world.value("select count(*) from requests where kind = 'confirm_deletion'") == 1
        host = await world.value("select host from identities where repo = $1", here.bob.did)
        await world.write(DeletionConfirmed(at_hosts(world.clock()), here.bob.did, host))
        assert await world.contents(here.space, here.bob, shown=False) == []


@pytest.mark.parametrize("how", ["tombstone", "takedown"])
async def test_first_pull_that_broke_off_is_erased_too(database: Database, monkeypatch: pytest.MonkeyPatch, how: str):
    async with spaces_world(database, slice_ops=2) as world:
        here = await setting(world)
        for number in range(7):
            here.bob.create(here.space, rkey(number), memory(f"{number}"))

        async def broken(self: SpaceApplier, change: object, pulled: object) -> None:
            raise Unavailable("broken off")

        monkeypatch.setattr(SpaceApplier, "finish", broken)
        await world.write_public(here.bob)
        await world.open(here.space, here.bob)
        world.start()
        await world.until(lambda: world.value("select failure from space_repos"), "unavailable")
        assert len(await world.contents(here.space, here.bob, shown=False)) > 1
        world.clock.advance(seconds=1)
        if how == "tombstone":
            gone = Identity(here.bob.did, None, None, None, tombstoned=True, resolved_at=world.clock())
            await world.write(IdentityResolved(Place(RELAY, 9, world.clock()), gone))
        else:
            await world.write(TakedownOrdered(Place(OPERATOR, 0, world.clock()), here.bob.did, None))
        assert await world.contents(here.space, here.bob, shown=False) == []
