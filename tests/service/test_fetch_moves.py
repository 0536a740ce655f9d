"""An old host's word counts for nothing once an account has moved, whatever it still signs or says."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from memory.database import Database
from tests.builders import RepoBuilder, memory
from tests.feed import rkey
from tests.mending import Mending, mending


@pytest.fixture
async def world(database: Database) -> AsyncGenerator[Mending]:
    async with mending(database) as opened:
        opened.start()
        yield opened


async def settled(world: Mending) -> RepoBuilder:
    """Someone whose memory is held, and whose worker has asked their first host."""
    victim = world.account("victim")
    world.tracked.add(victim.did)
    await world.live(victim.create(rkey(1), memory("mine")))
    await world.ask(victim)
    await world.until_answered(victim)
    return victim


def keep_key_and_commit(world: Mending, victim: RepoBuilder) -> RepoBuilder:
    """The old host's copy of the repo, with the key that was valid there."""
    copy = RepoBuilder("victim", stream=victim.stream)
    copy.handle = victim.handle
    copy.create(rkey(1), memory("mine"))
    return copy


async def test_commit_that_the_old_host_signs_after_a_move_is_never_applied(world: Mending):
    victim = await settled(world)
    forged = keep_key_and_commit(world, victim)
    old, new = world.pds, world.other_pds
    del old.repos[victim.did]
    new.add(victim)
    victim.rotate_key("new")
    world.clock.advance(hours=1)
    world.register(victim)
    forged.update(rkey(1), memory("forged by the old host"), time=world.clock())
    forged.host = old.url
    old.repos[forged.did] = forged
    victim.create(rkey(2), memory("written abroad"), time=world.clock())
    await world.live(victim.identity_frame())  # the daemon learns of the move before the worker does
    await world.ask(victim)
    await world.pass_time_until_answered(victim)
    assert await world.contents(victim) == ["mine", "written abroad"]
    assert new.asked_for("getRepo", victim.did) > 0


async def test_old_host_that_says_that_an_account_is_gone_purges_nothing(world: Mending):
    victim = await settled(world)
    old, new = world.pds, world.other_pds
    await world.live(victim.account_frame(False, "deleted"))  # asked then, the host still says that it serves it
    await world.until_answered(victim)
    await world.live(victim.account_frame(True))
    new.add(victim)
    world.clock.advance(minutes=1)
    world.register(victim)
    old.statuses[victim.did] = "deleted"
    await world.live(victim.identity_frame(), victim.account_frame(False, "deleted"))
    await world.pass_time_until_answered(victim)
    assert await world.contents(victim) == ["mine"]
    assert (await world.row(victim))["visible"]
