"""A large difference is applied in slices: killed between any two of them, it ends as if it had been one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from indexer.quota import QuotaLimits
from indexer.resync.apply import SLICE_OPS, Applier
from memory.database import Database
from memory.errors import Unavailable
from memory.identifiers import COLLECTION
from tests.builders import RepoBuilder
from tests.builders import memory as memory_at
from tests.feed import forget, rkey
from tests.mending import Mending, mending, tables

SLICES = 5
LONG_SINCE = "2026-09-01T00:00:00.000Z"  # so that masks do not tell when it was indexed
PER_SLICE = 4
BEFORE = range(10)


class Halt:
    """Stops whatever applies slices behind the nth of them, until it is cancelled."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 0
        self.slices = 0
        self.reached = asyncio.Event()
        take_slice = Applier._take_slice

        async def halting(applier: Applier, *arguments: Any, **options: Any) -> None:
            await take_slice(applier, *arguments, **options)
            self.slices += 1
            if self.slices == self.at:
                self.reached.set()
                await asyncio.Event().wait()

        monkeypatch.setattr(Applier, "_take_slice", halting)

    def set(self, at: int) -> None:
        """From now on, behind so many more."""
        self.at = self.slices + at
        self.reached.clear()


@pytest.fixture
def halt(monkeypatch: pytest.MonkeyPatch) -> Halt:
    return Halt(monkeypatch)


def memory(content: str, **fields: Any) -> dict[str, Any]:
    return memory_at(content, LONG_SINCE, **fields)


def uri(person: RepoBuilder, number: int) -> str:
    return f"at://{person.did}/{COLLECTION}/{rkey(number)}"


def written(person: RepoBuilder) -> list[bytes]:
    """The frames of a repo of which the index learns."""
    return [*person.genesis(), *(person.create(rkey(number), memory(f"{number}")) for number in BEFORE)]


def changed(person: RepoBuilder) -> None:
    """What it does not learn: every third is deleted, every second other updated, and more are written."""
    for number in BEFORE:
        if number % 3 == 0:
            person.delete(rkey(number))
        elif number % 2 == 0:
            person.update(rkey(number), memory(f"now {number}", supersedes=[uri(person, number - 1)]))
    for number in range(10, 24):
        person.create(rkey(number), memory(f"{number}", supersedes=[uri(person, number - 1)]))
    person.create(rkey(30), {"$type": COLLECTION})


async def fetched(world: Mending, person: RepoBuilder) -> dict[str, list[tuple[Any, ...]]]:
    """What is held after a fetch."""
    await world.ask(person)
    await world.until_answered(person)
    return await tables(world.database, person.did)


async def in_one_go(database: Database, limits: QuotaLimits) -> dict[str, list[tuple[Any, ...]]]:
    """What is held after a fetch whose difference is one slice."""
    async with mending(database, limits=limits) as world:
        world.start()
        await world.live(*written(alice := world.account("alice")))
        changed(alice)
        whole = await fetched(world, alice)
        await forget(database, alice.did)
        return whole


ENOUGH = QuotaLimits(max_memories=10_000, max_bytes=10**9, max_edges=10**6)
LITTLE = QuotaLimits(max_memories=12, max_bytes=10**9, max_edges=10**6)


@pytest.mark.parametrize("limits", [ENOUGH, LITTLE], ids=["enough", "little"])
async def test_difference_in_slices_is_the_difference_in_one(database: Database, limits: QuotaLimits):
    whole = await in_one_go(database, limits)
    for slice_ops in (1, 2, 7):
        async with mending(database, limits=limits, slice_ops=slice_ops) as world:
            world.start()
            await world.live(*written(alice := world.account("alice")))
            changed(alice)
            assert await fetched(world, alice) == whole
            await forget(database, alice.did)


@pytest.mark.parametrize(
    ("limits", "killed_behind"),
    [
        *(pytest.param(ENOUGH, number, id=f"enough-{number}") for number in range(1, SLICES + 1)),
        # What is behind the quota edge is counted, and makes no slices.
        *(pytest.param(LITTLE, number, id=f"little-{number}") for number in range(1, SLICES)),
    ],
)
async def test_fetch_that_was_killed_between_slices_ends_as_if_it_had_not(
    database: Database, halt: Halt, limits: QuotaLimits, killed_behind: int
):
    whole = await in_one_go(database, limits)
    async with mending(database, limits=limits, slice_ops=PER_SLICE) as world:
        world.start()
        await world.live(*written(alice := world.account("alice")))
        changed(alice)
        halt.set(killed_behind)
        await world.ask(alice)
        await halt.reached.wait()
        await world.stop()
        assert (await world.state(alice))[0] == "resyncing"
        world.start(world.new_worker())
        world.clock.advance(minutes=3)
        await world.until_answered(alice)
        assert await tables(database, alice.did) == whole


async def test_fetch_that_is_killed_behind_every_slice_ends_as_if_it_had_not(database: Database, halt: Halt):
    whole = await in_one_go(database, ENOUGH)
    async with mending(database, slice_ops=PER_SLICE) as world:
        await world.live(*written(alice := world.account("alice")))
        changed(alice)
        await world.ask(alice)
        kills = 0
        while await world.requests(alice):
            halt.set(1)
            world.start(world.new_worker())
            ended = asyncio.create_task(world.until_answered(alice))
            reached = asyncio.create_task(halt.reached.wait())
            await asyncio.wait([ended, reached], return_when=asyncio.FIRST_COMPLETED)
            kills += halt.reached.is_set()
            for task in (ended, reached):
                task.cancel()
            await world.stop()
            world.clock.advance(minutes=3)
        assert kills == SLICES
        assert await tables(database, alice.did) == whole


async def test_repo_that_changed_since_the_kill_is_what_it_is_at_last(database: Database, halt: Halt):
    async with mending(database, slice_ops=PER_SLICE) as world:
        world.start()
        await world.live(*written(alice := world.account("alice")))
        changed(alice)
        halt.set(3)
        await world.ask(alice)
        await halt.reached.wait()
        await world.stop()
        for number in range(1, 30):
            if f"{COLLECTION}/{rkey(number)}" in alice.records:
                alice.delete(rkey(number))
        alice.update(rkey(30), memory("the last"))
        world.start()
        world.clock.advance(minutes=3)
        await world.until_answered(alice)
        assert await world.contents(alice) == ["the last"]
        row = await world.row(alice)
        assert (row["state"], row["memory_count"], row["edge_count"]) == ("active", 1, 0)


async def test_fetch_that_fails_between_slices_leaves_no_repo_that_says_it_is_whole(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    """What is held is neither what it was nor what the host has."""
    take_slice = Applier._take_slice
    slices = 0

    async def failing(applier: Applier, *arguments: Any, **options: Any) -> None:
        nonlocal slices
        slices += 1
        if slices == 3:
            raise Unavailable("the database is gone")
        await take_slice(applier, *arguments, **options)

    monkeypatch.setattr(Applier, "_take_slice", failing)
    async with mending(database, slice_ops=PER_SLICE) as world:
        world.start()
        await world.live(*written(alice := world.account("alice")))
        assert await world.state(alice) == ("active", None)
        changed(alice)
        await world.ask(alice)
        assert await world.until_failed(alice) == "unavailable"
        assert await world.state(alice) == ("desynchronized", "fetch_interrupted")
        world.clock.advance(minutes=1)
        await world.until_answered(alice)
        assert await world.state(alice) == ("active", None)


async def test_difference_larger_than_a_slice_is_applied_as_it_is_by_default(database: Database):
    async with mending(database, limits=ENOUGH) as world:
        world.start()
        alice = world.account("alice")
        total = 2 * SLICE_OPS + 1
        for number in range(total):
            alice.create(rkey(number), memory(f"{number}"))
        await world.ask(alice)
        await world.until_answered(alice)
        assert (await world.row(alice))["memory_count"] == total
        assert len(await world.contents(alice)) == total
