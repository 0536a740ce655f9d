from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from structlog.testing import capture_logs

from memory.database import Database
from memory.identity import BadIdentity, Identity
from memory.outbound import Outbound
from memory.outbound_hosts import Hosts
from memory.resolver import (
    HANDLE_RETRY_FIRST,
    HANDLE_RETRY_JITTER,
    HANDLE_RETRY_MAX,
    LOOK_UP_INTERVAL,
    MAX_AGE,
    RETRY_INTERVAL,
    IdentityUnavailable,
    Resolved,
)
from tests.fakes.directory import Mood, document
from tests.fakes.identities import (
    INSTANT,
    KEY,
    MARA,
    NEW_KEY,
    NOOR,
    PDS,
    START,
    World,
    did_of,
    failing,
    mara,
    mara_document,
    world_at,
)
from tests.fakes.internet import LOOPBACK, Names


@pytest.fixture
async def world(database: Database) -> AsyncGenerator[World]:
    async with world_at(database) as started:
        yield started


async def test_did_plc_is_what_the_directory_says(world: World):
    assert await world.resolver.resolve(MARA) == Resolved(mara(), stale=False)
    assert world.resolver.cached(MARA) == mara()
    assert await world.stored() == [mara()]


async def test_did_web_is_what_its_host_says(world: World):
    did = f"did:web:localhost%3A{world.fake.port}"
    names = Names()
    names.add("localhost", ["127.0.0.1"])
    world.outbound = Outbound(names, Hosts(), allowed=LOOPBACK)
    world.fake.documents[did] = document(did, handle="noor.example", pds=PDS, key=KEY)
    world.owners.dids["noor.example"] = did
    async with world.outbound:
        resolved = await world.restarted().resolve(did)
    assert resolved.identity == Identity(did, "noor.example", PDS, KEY, tombstoned=False, resolved_at=START)


@pytest.mark.parametrize(
    "did", ["did:plc:short", f"{MARA}a", "did:plc:../../etc", "did:key:zQ3sh", "did:web:a.b%3A1", "mara", ""]
)
async def test_did_that_cannot_be_asked_for_is_refused_without_a_look_up(world: World, did: str):
    assert isinstance(await failing(world.resolver.resolve(did)), BadIdentity)
    assert isinstance(await failing(world.resolver.refresh(did)), BadIdentity)
    assert world.fake.asked == []


async def test_tombstone_is_an_identity_without_anything(world: World):
    world.fake.tombstoned.add(MARA)
    gone = Identity(MARA, None, None, None, tombstoned=True, resolved_at=START)
    assert await world.resolver.resolve(MARA) == Resolved(gone, stale=False)
    assert await world.stored() == [gone]


async def test_did_that_the_directory_does_not_know_is_refused_and_not_asked_for_again(world: World):
    for _ in range(5):
        refused = await failing(world.resolver.resolve(NOOR))
        assert isinstance(refused, BadIdentity)
        assert refused.reason == "unknown_did"
        world.wait(LOOK_UP_INTERVAL / 5 - INSTANT)
    assert world.fake.asked_for(f"/{NOOR}") == 1
    world.wait(5 * INSTANT)
    world.fake.documents[NOOR] = document(NOOR, handle="noor.example", pds=PDS, key=KEY)
    assert (await world.resolver.resolve(NOOR)).identity.signing_key == KEY


@pytest.mark.parametrize("answer", [b"", b"<html>", b"{}", b"[]", mara_document() | {"id": NOOR}])
async def test_document_that_is_none_is_refused(world: World, answer: Any):
    world.fake.documents[MARA] = answer
    assert isinstance(await failing(world.resolver.resolve(MARA)), BadIdentity)
    assert await world.stored() == []


@pytest.mark.parametrize("mood", [Mood.ENDLESS, Mood.BOMB])
async def test_document_that_is_no_answer_at_all_is_refused(world: World, mood: Mood):
    world.fake.mood = mood
    assert isinstance(await failing(world.resolver.resolve(MARA)), BadIdentity)


async def test_handle_that_does_not_point_back_is_left_out(world: World):
    world.owners.dids["mara.example"] = NOOR
    assert (await world.resolver.resolve(MARA)).identity == mara(handle=None)
    assert await world.stored() == [mara(handle=None)]


async def retry_after(world: World) -> timedelta | None:
    """How long until Mara's handle is to be asked for again; null: it is settled."""
    async with world.database.connection() as conn:
        retry_at = await conn.fetchval("select handle_retry_at from identities where repo = $1", MARA)
    return None if retry_at is None else retry_at - world.clock.now


async def test_handle_that_cannot_be_asked_for_is_left_out_and_to_be_asked_for_in_ten_minutes(world: World):
    world.owners.down = True
    assert (await world.resolver.resolve(MARA)).identity == mara(handle=None)
    wait = await retry_after(world)
    assert wait is not None
    assert timedelta(minutes=10) <= wait <= timedelta(minutes=12.5)


async def test_handle_that_is_missed_again_and_again_waits_twice_as_long_each_time_up_to_a_day(world: World):
    world.owners.down = True
    for misses in range(30):
        world.wait(LOOK_UP_INTERVAL)
        await world.restarted().refresh(MARA)  # how often was not this process' to know
        wait, shortest = await retry_after(world), min(HANDLE_RETRY_FIRST * 2**misses, HANDLE_RETRY_MAX)
        assert wait is not None
        assert shortest <= wait <= shortest * HANDLE_RETRY_JITTER


@pytest.mark.parametrize("owner", [MARA, NOOR])
async def test_handle_that_can_be_asked_for_is_settled_and_the_next_miss_is_the_first(world: World, owner: str):
    world.owners.dids["mara.example"] = owner
    for _ in range(3):
        world.owners.down = True
        await world.restarted().refresh(MARA)
        wait = await retry_after(world)
        assert wait is not None
        assert wait <= HANDLE_RETRY_FIRST * HANDLE_RETRY_JITTER
        world.wait(LOOK_UP_INTERVAL)
        world.owners.down = False
        await world.restarted().refresh(MARA)
        assert await retry_after(world) is None
        world.wait(LOOK_UP_INTERVAL)


async def test_document_without_a_handle_leaves_nothing_to_be_asked_for(world: World):
    world.owners.down = True
    world.fake.documents[MARA] = mara_document() | {"alsoKnownAs": []}
    await world.resolver.resolve(MARA)
    assert await retry_after(world) is None


async def test_handle_that_cannot_be_asked_for_makes_no_key_be_looked_up_sooner(world: World):
    world.owners.down = True
    await world.resolver.resolve(MARA)
    world.wait(MAX_AGE)
    assert world.resolver.cached(MARA) == mara(handle=None)
    await world.resolver.resolve(MARA)
    assert len(world.fake.asked) == 1


async def test_handle_that_another_process_verified_stays_while_it_cannot_be_asked_for(world: World):
    world.owners.down = True
    ours = world.restarted()
    await ours.resolve(MARA)
    world.owners.down = False
    world.wait(LOOK_UP_INTERVAL)
    await world.restarted().refresh(MARA)
    world.owners.down = True
    world.wait(LOOK_UP_INTERVAL)
    assert (await ours.refresh(MARA)).identity == mara(world.clock.now)
    assert await world.stored() == [mara(world.clock.now)]
    assert await retry_after(world) is not None


async def test_handle_that_was_verified_stays_while_it_cannot_be_told(world: World):
    await world.resolver.resolve(MARA)
    world.owners.down = True
    world.wait(MAX_AGE + INSTANT)
    assert (await world.resolver.resolve(MARA)).identity == mara(world.clock.now)
    world.fake.documents[MARA] = mara_document(handle="new.example")
    world.wait(MAX_AGE + INSTANT)
    assert (await world.resolver.resolve(MARA)).identity == mara(world.clock.now, handle=None)


async def test_identity_is_good_for_a_day(world: World):
    await world.resolver.resolve(MARA)
    world.fake.documents[MARA] = mara_document(key=NEW_KEY)
    world.wait(MAX_AGE)
    assert await world.resolver.resolve(MARA) == Resolved(mara(), stale=False)
    world.wait(INSTANT)
    assert world.resolver.cached(MARA) is None
    assert (await world.resolver.resolve(MARA)).identity == mara(world.clock.now, signing_key=NEW_KEY)


async def test_younger_one_may_be_asked_for_but_one_look_up_in_ten_minutes_is_all(world: World):
    await world.resolver.resolve(MARA)
    world.fake.documents[MARA] = mara_document(key=NEW_KEY)
    world.wait(LOOK_UP_INTERVAL - INSTANT)
    assert await world.resolver.resolve(MARA, max_age=timedelta(0)) == Resolved(mara(), stale=True)
    assert await world.resolver.resolve(MARA) == Resolved(mara(), stale=False)
    world.wait(INSTANT)
    renewed = await world.resolver.resolve(MARA, max_age=timedelta(0))
    assert renewed == Resolved(mara(world.clock.now, signing_key=NEW_KEY), stale=False)
    assert len(world.fake.asked) == 2


async def test_bad_signature_forces_one_look_up_in_ten_minutes(world: World):
    await world.resolver.resolve(MARA)
    world.fake.documents[MARA] = mara_document(key=NEW_KEY)
    world.wait(INSTANT)
    forced_at = world.clock.now
    renewed = mara(forced_at, signing_key=NEW_KEY)
    assert await world.resolver.refresh(MARA) == Resolved(renewed, stale=False)
    for _ in range(9):
        world.wait(LOOK_UP_INTERVAL / 10)
        assert await world.resolver.refresh(MARA) == Resolved(renewed, stale=True)
    assert len(world.fake.asked) == 2
    world.clock.now = forced_at + LOOK_UP_INTERVAL
    assert not (await world.resolver.refresh(MARA)).stale
    assert len(world.fake.asked) == 3


async def test_bad_signature_forces_no_second_look_up_of_a_did_that_is_unknown(world: World):
    for _ in range(5):
        await failing(world.resolver.refresh(NOOR))
    assert world.fake.asked_for(f"/{NOOR}") == 1


async def test_identity_of_the_database_serves_after_a_restart_without_a_look_up(world: World):
    await world.resolver.resolve(MARA)
    resolver = world.restarted()
    assert resolver.cached(MARA) is None
    assert await resolver.resolve(MARA) == Resolved(mara(), stale=False)
    assert resolver.cached(MARA) == mara()
    assert await resolver.resolve(MARA, max_age=timedelta(0)) == Resolved(mara(), stale=False)
    world.wait(INSTANT)
    assert await resolver.resolve(MARA, max_age=timedelta(0)) == Resolved(mara(), stale=True)
    assert len(world.fake.asked) == 1


async def test_many_identities_are_loaded_at_once(world: World):
    others = [replace(mara(), did=did_of(str(n))) for n in range(100)]
    for each in others:
        await world.store(each)
    await world.resolver.load([each.did for each in others] + [NOOR])
    assert [world.resolver.cached(each.did) for each in others] == others
    assert world.resolver.cached(NOOR) is None
    assert world.fake.asked == []


async def test_loading_does_not_undo_a_look_up(world: World):
    await world.store(mara(START - MAX_AGE, signing_key=NEW_KEY))
    await asyncio.gather(world.resolver.resolve(MARA, max_age=timedelta(0)), world.resolver.load([MARA]))
    await world.resolver.load([MARA])
    assert world.resolver.cached(MARA) == mara()


async def test_older_document_never_replaces_a_newer_one(world: World):
    newer = mara(START + timedelta(hours=1), signing_key=NEW_KEY)
    await world.store(newer)
    await world.store(mara())
    assert await world.stored() == [newer]


@pytest.mark.parametrize("mood", [Mood.OUTAGE, Mood.BUSY, Mood.HUNG_UP, Mood.MUMBLING])
async def test_directory_that_is_down_leaves_what_was_known_and_says_that_it_is_old(world: World, mood: Mood):
    await world.store(mara(START - timedelta(days=400)))
    world.fake.mood = mood
    assert await world.resolver.resolve(MARA) == Resolved(mara(START - timedelta(days=400)), stale=True)
    assert world.resolver.cached(MARA) == mara(START - timedelta(days=400))
    assert (await world.resolver.refresh(MARA)).stale


async def test_directory_that_is_down_is_asked_again_soon(world: World):
    world.fake.mood = Mood.OUTAGE
    for _ in range(3):
        assert isinstance(await failing(world.resolver.resolve(MARA)), IdentityUnavailable)
    assert len(world.fake.asked) == 1
    world.fake.mood = Mood.HONEST
    world.wait(RETRY_INTERVAL)
    assert await world.resolver.resolve(MARA) == Resolved(mara(world.clock.now), stale=False)


async def test_directory_that_refuses_us_says_nothing_of_the_did(world: World):
    world.fake.mood = Mood.REFUSING
    assert isinstance(await failing(world.resolver.resolve(MARA)), IdentityUnavailable)


async def test_directory_at_a_forbidden_address_is_told_by_its_setting(world: World):
    resolver = world.restarted(plc_url="http://10.0.0.1:2582")
    failure = await failing(resolver.resolve(MARA))
    assert isinstance(failure, IdentityUnavailable)
    assert "INDEXER_PLC_URL" in failure.message


async def test_document_that_went_bad_leaves_what_was_known(world: World):
    await world.resolver.resolve(MARA)
    del world.fake.documents[MARA]
    world.wait(MAX_AGE + INSTANT)
    assert await world.resolver.resolve(MARA) == Resolved(mara(), stale=True)


async def test_look_up_that_goes_wrong_ends_neither_the_others_nor_what_is_known(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    await world.resolver.resolve(MARA)
    world.fake.documents[NOOR] = document(NOOR, handle="noor.example", pds=PDS, key=KEY)
    world.wait(MAX_AGE + INSTANT)

    async def go_wrong(*_: object) -> bytes:
        raise RuntimeError("Mandarin")

    with monkeypatch.context() as broken, capture_logs() as logs:
        broken.setattr(world.outbound, "get", go_wrong)
        assert await world.resolver.resolve(MARA) == Resolved(mara(), stale=True)
        assert isinstance(await failing(world.resolver.resolve(NOOR)), IdentityUnavailable)
    assert [(told["event"], told["did"]) for told in logs] == [("look_up_failed", MARA), ("look_up_failed", NOOR)]
    world.wait(RETRY_INTERVAL)
    assert (await world.resolver.resolve(NOOR)).identity.signing_key == KEY
