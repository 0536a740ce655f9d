"""What metrics tell of Spaces: how they do, and what came of the work on them, in words of ours only."""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress

import pytest
from prometheus_client import generate_latest

from indexer.metrics import IndexerMetrics
from indexer.spaces.tally import SpaceTally
from indexer.spaces.watch import SpaceWatch
from indexer.store.space_counts import SpaceRepoState, SpaceState, Work
from memory.database import Database
from memory.errors import Unavailable
from tests.builders import memory
from tests.deadline import until
from tests.fakes.space_host_faults import Fault
from tests.fakes.space_subscriber import subscriber
from tests.feed import rkey
from tests.spaces_world import SpacesWorld, setting, spaces_world

SYNCER = "did:web:memory.example#atproto_space_syncer"


class Told:
    """The metrics of a daemon beside."""

    def __init__(self, world: SpacesWorld) -> None:
        self.metrics = IndexerMetrics()
        self.watch = SpaceWatch(world.database, self.metrics, shared_clock=world.clock)

    def value(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)

    def by(self, name: str, label: str) -> dict[str, float]:
        """Label → value, of those that are not zero."""
        return {
            sample.labels[label]: sample.value
            for family in self.metrics.registry.collect()
            for sample in family.samples
            if sample.name == name and sample.value
        }


async def look(world: SpacesWorld, told: Told) -> None:
    await world.worker.tally.store()
    await told.watch.look()


async def test_space_that_is_kept_in_step_is_told(database: Database):
    async with spaces_world(database, syncer=SYNCER) as world, subscriber() as syncer:
        world.hosts.services[SYNCER] = syncer.url
        here, told = await setting(world), Told(world)
        await here.begin("0")
        here.bob.create(here.space, rkey(1), memory("1"))
        await world.note_write(here.space, here.bob)
        await world.until_contents(here.space, here.bob, ["0", "1"])
        await world.until_idle(here.space)
        world.clock.advance(seconds=30)
        await look(world, told)
        assert told.by("indexer_spaces", "state") == {"ready": 1}
        assert told.by("indexer_space_repos", "state") == {"in_step": 1}
        assert told.value("indexer_spaces_told") == 1
        assert told.value("indexer_space_sweep_seconds") == 30
        assert told.by("indexer_space_listings_total", "outcome") == {"done": 1}
        assert told.by("indexer_space_pulls_total", "outcome") == {"whole": 1, "ops": 1}
        assert told.by("indexer_space_registrations_total", "outcome") == {"done": 1}
        assert told.by("indexer_space_purges_total", "reason") == {}


async def test_what_fails_is_told_by_its_reason(database: Database):
    async with spaces_world(database, syncer=SYNCER) as world:
        here, told = await setting(world), Told(world)
        await here.begin("0")
        here.bob.create(here.space, rkey(1), memory("1"))
        here.away.misbehave(Fault.WRONG_SIGNATURE)
        await world.note_write(here.space, here.bob)
        await world.until_idle(here.space)
        here.home.misbehave(Fault.REFUSING)
        world.clock.advance(minutes=5)
        await world.until_idle(here.space)
        await look(world, told)
        assert told.by("indexer_spaces", "state") == {"unreachable": 1}
        assert told.by("indexer_space_repos", "state") == {"behind": 1}
        assert told.value("indexer_space_pulls_waiting") == 1
        assert set(told.by("indexer_space_pulls_total", "outcome")) == {"whole", "bad_signature"}
        assert set(told.by("indexer_space_listings_total", "outcome")) == {"done", "host_refused"}
        assert "done" not in told.by("indexer_space_registrations_total", "outcome")


async def test_space_that_is_purged_is_told(database: Database):
    async with spaces_world(database) as world:
        here, told = await setting(world), Told(world)
        await here.begin("0")
        await world.note(here.space, "deleted")
        await world.until(lambda: world.left_of(here.space), {})
        await world.until_idle()
        await look(world, told)
        assert told.by("indexer_spaces", "state") == {}
        assert told.by("indexer_space_purges_total", "reason") == {"space_deleted": 1}


async def test_metrics_name_no_space_no_account_and_no_host(database: Database):
    async with spaces_world(database, syncer=SYNCER) as world:
        here, told = await setting(world), Told(world)
        await here.begin("0")
        here.home.misbehave(Fault.REFUSING)
        here.bob.create(here.space, rkey(1), memory("1"))
        here.away.misbehave(Fault.BROKEN)
        await world.note_write(here.space, here.bob)
        world.clock.advance(minutes=5)
        await world.until_idle(here.space)
        await look(world, told)
        scraped = generate_latest(told.metrics.registry).decode()
    labels = {text for line in scraped.splitlines() for text in re.findall(r'="([^"]*)"', line)}
    assert {"ready", "unreachable", "host_refused", "in_step"} <= labels
    assert [label for label in labels if not re.fullmatch(r"[a-z_]+|[0-9.+Inf]+", label)] == []


async def test_every_state_is_told_also_where_there_is_nothing(database: Database):
    metrics = IndexerMetrics()
    await SpaceWatch(database, metrics).look()
    for name, states in (("indexer_spaces", SpaceState), ("indexer_space_repos", SpaceRepoState)):
        assert {state: metrics.registry.get_sample_value(name, {"state": state}) for state in states} == dict.fromkeys(
            states, 0.0
        )


async def test_counters_follow_what_all_processes_counted(database: Database):
    one, two, metrics = SpaceTally(database), SpaceTally(database), IndexerMetrics()
    watch = SpaceWatch(database, metrics)

    def pulls() -> float | None:
        return metrics.registry.get_sample_value("indexer_space_pulls_total", {"outcome": "ops"})

    one.count(Work.PULL, "ops")
    two.count(Work.PULL, "ops")
    for tally in (one, two, one):  # who has nothing new adds nothing
        await tally.store()
    await watch.look()
    await watch.look()
    assert pulls() == 2
    two.count(Work.PULL, "ops")
    await two.store()
    await watch.look()
    assert pulls() == 3
    again = IndexerMetrics()  # of a daemon that was started anew
    await SpaceWatch(database, again).look()
    assert again.registry.get_sample_value("indexer_space_pulls_total", {"outcome": "ops"}) == 3


async def test_counters_never_fall(database: Database):
    tally, metrics = SpaceTally(database), IndexerMetrics()
    watch = SpaceWatch(database, metrics)
    for _ in range(5):
        tally.count(Work.PURGE, "space_deleted")
    await tally.store()
    await watch.look()
    async with database.connection() as conn:
        await conn.execute("update space_tallies set times = 2")
    await watch.look()
    assert metrics.registry.get_sample_value("indexer_space_purges_total", {"reason": "space_deleted"}) == 7


async def test_what_could_not_be_stored_is_stored_later(database: Database, monkeypatch: pytest.MonkeyPatch):
    tally = SpaceTally(database)
    tally.count(Work.LISTING, "done")

    async def fail(*_: object) -> None:
        tally.count(Work.LISTING, "done")  # meanwhile
        raise Unavailable

    with monkeypatch.context() as patched, pytest.raises(Unavailable):
        patched.setattr("indexer.store.space_counts.add_tallies", fail)
        await tally.store()
    await tally.store()
    async with database.connection() as conn:
        assert await conn.fetchval("select times from space_tallies") == 2


async def test_what_was_counted_is_stored_when_the_work_ends(database: Database):
    tally = SpaceTally(database)
    keeping = asyncio.create_task(tally.keep())
    await asyncio.sleep(0)
    tally.count(Work.PULL, "whole")
    keeping.cancel()
    with suppress(asyncio.CancelledError):
        await keeping
    async with database.connection() as conn:
        assert await conn.fetchval("select times from space_tallies") == 1


async def test_watch_goes_on_after_the_database_was_away(database: Database, monkeypatch: pytest.MonkeyPatch):
    looks = 0

    async def look() -> None:
        nonlocal looks
        looks += 1
        if looks == 1:
            raise Unavailable

    async def counted() -> int:
        return looks

    monkeypatch.setattr("indexer.spaces.watch.COUNT_EVERY_S", 0.0)
    watch = SpaceWatch(database, IndexerMetrics())
    monkeypatch.setattr(watch, "look", look)
    running = asyncio.create_task(watch.run())
    await until(counted, lambda count: count >= 2)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
