"""Spaces that nothing here can read: without a credential that holds, or with none that the file of keys opens."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from memory.database import Database
from memory.sealed import NotSealedHere, SealingKeys
from tests.builders import memory
from tests.fakes.space_host_faults import Fault
from tests.feed import rkey
from tests.spaces_world import KEY, setting, spaces_world


class KeyFile(SealingKeys):
    """Keys that a test takes out of the file, and puts back; who opened something before keeps it."""

    def __init__(self) -> None:
        super().__init__({"first": KEY}, random_bytes=random.Random(7).randbytes)
        self.is_another = False

    def open(self, sealed: bytes, *belongs_to: str) -> bytes:
        if self.is_another:
            raise NotSealedHere
        return super().open(sealed, *belongs_to)


@pytest.fixture
def key_file(monkeypatch: pytest.MonkeyPatch) -> KeyFile:
    """What a world that is made in this test opens credentials with."""
    keys = KeyFile()
    monkeypatch.setattr("tests.spaces_world.sealing_keys", lambda: keys)
    return keys


# No credential


async def test_copies_that_nobody_can_read_go_after_a_while(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        world.clock.advance(days=29)
        await world.until_idle(here.space)
        await world.worker.expire()
        assert await world.value("select count(*) from credentials") == 0
        assert await world.contents(here.space, here.bob, shown=False) == ["0"]
        assert not await world.is_served(here.space)
        world.clock.advance(days=2)
        await world.until(lambda: world.left_of(here.space), {})


async def test_space_that_is_opened_again_is_read_on(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        world.clock.advance(hours=5)
        await world.until_idle(here.space)
        here.bob.create(here.space, rkey(1), memory("1"))
        await world.open(here.space, here.bob)
        await world.until_contents(here.space, here.bob, ["0", "1"])
        await world.until(lambda: world.is_served(here.space), True)
        assert here.away.asked_for("getRepo") == 1


async def test_what_was_granted_ends(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        world.clock.advance(hours=2, minutes=1)
        await world.until_idle(here.space)
        await world.worker.expire()
        assert await world.value("select count(*) from grants") == 0
        assert await world.value("select count(*) from credentials") == 0
        assert (await world.space_row(here.space))["credentialed_until"] < world.clock()


async def test_space_without_a_credential_and_with_a_repo_behind_is_not_claimed_again_and_again(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        here.bob.create(here.space, rkey(1), memory("1"))
        here.away.misbehave(Fault.BROKEN)
        await world.note_write(here.space, here.bob)
        await here.away.until_asked("listRepoOps")
        await world.until_idle(here.space)
        row = await world.repo_row(here.space, here.bob)
        assert (row["in_step"], row["hidden"]) == (False, None)
        with capture_logs() as logs:
            world.clock.advance(hours=2, minutes=1)
            await world.until_idle(here.space)  # never, while it is due for what has lapsed
        assert [log for log in logs if log["event"] == "space_credentials_shut"] == []
        row = await world.space_row(here.space)
        assert row["due_at"] > world.clock() + timedelta(days=29)
        assert (await world.repo_row(here.space, here.bob))["hidden"] == "stale"
        assert await world.contents(here.space, here.bob) == []
        here.away.misbehave(None)
        await world.open(here.space, here.bob)
        await world.pass_time_until(lambda: world.contents(here.space, here.bob), ["0", "1"])


# Sealed by another key


async def test_what_another_key_sealed_is_read_on_once_the_file_has_it_again(database: Database, key_file: KeyFile):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        await world.stop()
        key_file.is_another = True
        world.worker = world.new_worker()
        world.start()
        here.bob.create(here.space, rkey(1), memory("1"))
        await world.open(here.space, here.bob)
        for _ in range(4):
            world.clock.advance(minutes=5)
            await world.until_idle(here.space)
        assert not await world.is_served(here.space)
        assert await world.contents(here.space, here.bob, shown=False) == ["0"]
        key_file.is_another = False
        world.clock.advance(minutes=5)
        await world.until_contents(here.space, here.bob, ["0", "1"])
        await world.until(lambda: world.is_served(here.space), True)


async def test_space_that_was_opened_while_the_file_was_wrong_is_read_once_it_is_right(
    database: Database, key_file: KeyFile
):
    async with spaces_world(database) as world:
        here = await setting(world)
        here.bob.create(here.space, rkey(0), memory("0"))
        await world.open(here.space, here.bob)
        key_file.is_another = True
        world.start()
        await world.until_idle(here.space)
        assert here.home.asked == []
        key_file.is_another = False
        world.clock.advance(minutes=5)
        await world.until_contents(here.space, here.bob, ["0"])


async def test_what_no_key_opens_is_deleted_once_it_has_had_its_time(database: Database, key_file: KeyFile):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        await world.stop()
        key_file.is_another = True
        world.worker = world.new_worker()
        world.start()
        world.clock.advance(minutes=5)
        await world.until_idle(here.space)
        world.clock.advance(hours=2)
        await world.until_idle(here.space)
        await world.worker.expire()
        assert await world.contents(here.space, here.bob, shown=False) == ["0"]
        world.clock.advance(days=31)
        await world.until(lambda: world.left_of(here.space), {})


async def test_wrong_key_file_is_warned_of_now_and_then_and_not_for_each_space(database: Database, key_file: KeyFile):
    async with spaces_world(database) as world:
        here = await setting(world)
        opened = [here.space, *(here.home.create_space(here.alice, name, here.bob) for name in ("b", "c"))]
        for space in opened:
            await world.open(space, here.bob)
        key_file.is_another = True
        with capture_logs() as logs:
            world.start()
            await world.until_idle()
            world.clock.advance(minutes=15)
            await world.until_idle()
        warned = [log for log in logs if log["event"] == "space_credentials_shut"]
        # of the first, and then of the others and of the next one
        assert warned == [
            {"event": "space_credentials_shut", "log_level": "warning", "count": count} for count in (1, len(opened))
        ]
