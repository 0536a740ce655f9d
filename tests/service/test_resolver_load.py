from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory.database import Database
from memory.errors import Rejected, Unavailable
from memory.identity import BadIdentity
from memory.outbound import Limits, Outbound
from memory.outbound_hosts import Hosts
from memory.resolver import (
    LOOK_UP_INTERVAL,
    PLC_LIMITS,
    IdentityResolver,
    IdentityUnavailable,
    Resolved,
)
from memory.tasks import TaskGroup
from tests.deadline import DEADLINE_S
from tests.fakes.directory import Mood, directory, document
from tests.fakes.identities import (
    INSTANT,
    KEY,
    MARA,
    NEW_KEY,
    NOOR,
    PDS,
    START,
    Clock,
    Owners,
    World,
    did_of,
    failing,
    mara,
    mara_document,
    world_at,
)
from tests.fakes.internet import LOOPBACK, Names

pytestmark = pytest.mark.usefixtures("patient_look_ups")


@pytest.fixture
async def world(database: Database) -> AsyncGenerator[World]:
    async with world_at(database) as started:
        yield started


async def test_all_who_wait_for_a_did_share_one_look_up(world: World):
    world.fake.mood = Mood.HELD
    waiting = [asyncio.create_task(world.resolver.resolve(MARA)) for _ in range(50)]
    await world.fake.until_asked(1)
    waiting += [asyncio.create_task(world.resolver.refresh(MARA)) for _ in range(50)]
    assert world.resolver.look_ups == 1
    world.fake.release.set()
    assert {resolved.identity for resolved in await asyncio.gather(*waiting)} == {mara()}
    assert len(world.fake.asked) == 1
    assert world.resolver.look_ups == 0


async def test_all_who_ask_at_once_for_an_unknown_did_share_its_refusal(world: World):
    """Also those who have to wait for the database until the look-up is over."""
    outcomes = await asyncio.gather(*(world.resolver.resolve(NOOR) for _ in range(100)), return_exceptions=True)
    assert all(isinstance(outcome, BadIdentity) for outcome in outcomes)
    assert len(world.fake.asked) == 1


async def test_look_up_goes_on_when_who_waited_first_is_cancelled(world: World):
    world.fake.mood = Mood.HELD
    first, second = (asyncio.create_task(world.resolver.resolve(MARA)) for _ in range(2))
    await world.fake.until_asked(1)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    assert first.cancelled()
    world.fake.release.set()
    assert (await second).identity == mara()
    assert len(world.fake.asked) == 1


async def test_look_up_ends_though_all_who_waited_are_cancelled(world: World):
    world.fake.mood = Mood.HELD
    only = asyncio.create_task(world.resolver.resolve(MARA))
    await world.fake.until_asked(1)
    only.cancel()
    await asyncio.gather(only, return_exceptions=True)
    world.fake.release.set()
    assert (await world.resolver.resolve(MARA)).identity == mara()
    assert len(world.fake.asked) == 1


async def test_look_up_that_began_before_the_question_is_no_answer_as_young_as_that(world: World):
    world.fake.mood = Mood.HELD
    first = asyncio.create_task(world.resolver.resolve(MARA))
    await world.fake.until_asked(1)
    world.wait(INSTANT)
    second = asyncio.create_task(world.resolver.resolve(MARA, max_age=timedelta(0)))
    await asyncio.sleep(0)
    world.fake.release.set()
    assert await first == Resolved(mara(), stale=False)
    assert await second == Resolved(mara(), stale=True)


async def test_look_ups_at_a_time_are_bounded_and_one_more_is_not_remembered(world: World):
    resolver = world.restarted(max_look_ups=2)
    await world.store(mara(START - timedelta(days=2)))
    world.fake.mood = Mood.HELD
    waiting = [asyncio.create_task(resolver.resolve(did_of(str(n)))) for n in range(2)]
    await world.fake.until_asked(2)
    assert isinstance(await failing(resolver.resolve(NOOR)), IdentityUnavailable)
    assert await resolver.resolve(MARA) == Resolved(mara(START - timedelta(days=2)), stale=True)
    world.fake.release.set()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert (await failing(resolver.resolve(NOOR))).message != "too many identities are being looked up"
    assert not (await resolver.resolve(MARA)).stale


async def test_flood_of_forged_dids_drives_no_known_one_out_of_memory(world: World):
    resolver = world.restarted(capacity=10)
    await resolver.resolve(MARA)
    for n in range(30):
        await failing(resolver.resolve(did_of(str(n))))
    assert resolver.cached(MARA) == mara()
    assert len(resolver._unknown._entries) == 10


async def test_memory_holds_those_that_were_used_last(world: World):
    resolver = world.restarted(capacity=2)
    others = [replace(mara(), did=did_of(str(n))) for n in range(2)]
    for each in (mara(), *others):
        await world.store(each)
    await resolver.load([MARA, others[0].did])
    assert resolver.cached(MARA) == mara()
    await resolver.load([others[1].did])
    assert [resolver.cached(each.did) for each in (mara(), *others)] == [mara(), None, others[1]]


async def test_did_that_comes_to_be_is_forgotten_as_unknown(world: World):
    await failing(world.resolver.resolve(NOOR))
    world.fake.documents[NOOR] = document(NOOR, handle="noor.example", pds=PDS, key=KEY)
    world.wait(LOOK_UP_INTERVAL)
    await world.resolver.resolve(NOOR)
    assert NOOR not in world.resolver._unknown


async def test_slow_hosts_of_forged_dids_hold_up_no_look_up_at_others(database: Database):
    """Any number of names under one domain, all of them silent."""
    names = Names()
    async with directory() as slow, directory() as fast, TaskGroup() as tasks:
        for n in range(300):
            names.add(f"h{n}.evil.example", ["127.0.0.1"])
        names.add("honest.test", ["127.0.0.1"])
        hosts = Hosts(named={fast.url: PLC_LIMITS})
        async with Outbound(names, hosts, allowed=LOOPBACK) as outbound:
            evil = [f"http://h{n}.evil.example:{slow.port}/" for n in range(300)]
            slow.mood = Mood.HELD
            flood = [asyncio.create_task(outbound.get(url, Limits(total_s=DEADLINE_S))) for url in evil]
            await slow.until_asked(16)
            fast.documents[MARA] = mara_document()
            resolver = IdentityResolver(outbound, Owners(), database, tasks, plc_url=fast.url, clock=Clock())
            assert (await resolver.resolve(MARA)).identity == mara()
            with pytest.raises(Rejected):
                await outbound.get(f"http://honest.test:{fast.port}/")
            assert len(slow.asked) == 16
            for task in flood:
                task.cancel()
            outcomes = await asyncio.gather(*flood, return_exceptions=True)
    assert sum(isinstance(outcome, Unavailable) for outcome in outcomes) == 300 - 16 - 64


async def test_keys_are_those_of_the_time(world: World):
    def operation(key: str, day: int) -> dict[str, Any]:
        return {
            "did": MARA,
            "operation": {
                "type": "plc_operation",
                "verificationMethods": {"atproto": key},
                "alsoKnownAs": [],
                "services": {},
            },
            "createdAt": f"2026-01-{day:02}T00:00:00.000Z",
        }

    world.fake.audit_logs[MARA] = [operation(KEY, 2), operation(NEW_KEY, 4)]
    keys = [await world.resolver.keys_valid_at(MARA, datetime(2026, 1, day, tzinfo=UTC)) for day in (1, 3, 5)]
    assert keys == [frozenset(), {KEY}, {NEW_KEY}]


async def test_keys_of_a_did_that_is_unknown_or_whose_log_is_none_are_refused(world: World):
    with pytest.raises(BadIdentity):
        await world.resolver.keys_valid_at(NOOR, START)
    with pytest.raises(BadIdentity):
        await world.resolver.keys_valid_at("did:plc:short", START)
    world.fake.audit_logs[MARA] = {}
    with pytest.raises(BadIdentity):
        await world.resolver.keys_valid_at(MARA, START)
