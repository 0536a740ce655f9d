"""Authorities looked up in a directory, or at their own host."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import timedelta

import pytest

from memory.did_documents import IdentityUnavailable
from memory.errors import Unavailable
from memory.identity import BadIdentity
from memory.outbound import Outbound
from memory.outbound_hosts import Hosts
from memory.space_authorities import SpaceAuthorities
from tests.fakes.directory import Directory, Mood, directory
from tests.fakes.identities import KEY, MARA, NOOR, PDS, Clock, mara_document
from tests.fakes.internet import LOOPBACK, UNLIMITED, Names


class Looking:
    """A directory that knows Mara, and who looks there."""

    def __init__(self, fake: Directory, outbound: Outbound) -> None:
        self.fake = fake
        self.clock = Clock()
        self.outbound = outbound
        fake.documents[MARA] = mara_document()

    def authorities(self, capacity: int = 10) -> SpaceAuthorities:
        return SpaceAuthorities(self.outbound, plc_url=self.fake.url, clock=self.clock, capacity=capacity)


@pytest.fixture
async def looking() -> AsyncGenerator[Looking]:
    names = Names()
    names.add("localhost", ["127.0.0.1"])
    async with directory() as fake, Outbound(names, Hosts(strangers=UNLIMITED), allowed=LOOPBACK) as outbound:
        yield Looking(fake, outbound)


async def test_authority_is_found_in_the_directory(looking: Looking):
    found = await looking.authorities().resolve(MARA)
    assert (found.did, found.host) == (MARA, PDS)
    assert [key.did_key for key in found.keys.values()] == [KEY]


async def test_authority_is_found_at_its_own_host(looking: Looking):
    did = f"did:web:localhost%3A{looking.fake.port}"
    looking.fake.documents[did] = mara_document() | {"id": did}
    assert (await looking.authorities().resolve(did)).did == did


async def test_authority_is_remembered_for_ten_minutes_and_renewed_after_one(looking: Looking):
    authorities = looking.authorities()
    for asked, (wait, look_up) in enumerate(
        [
            (timedelta(), authorities.resolve),
            (timedelta(minutes=1), authorities.refresh),
            (timedelta(minutes=10), authorities.resolve),
        ],
        start=1,
    ):
        looking.clock.now += wait
        await look_up(MARA)
        await look_up(MARA)
        assert looking.fake.asked_for(f"/{MARA}") == asked


async def test_authority_that_moved_is_followed_at_the_latest_after_ten_minutes(looking: Looking):
    authorities = looking.authorities()
    await authorities.resolve(MARA)
    looking.fake.documents[MARA] = mara_document(pds="https://other.example")
    looking.clock.now += timedelta(minutes=10)
    assert (await authorities.resolve(MARA)).host == "https://other.example"


async def test_no_more_authorities_are_remembered_than_there_is_room_for(looking: Looking):
    authorities = looking.authorities(capacity=1)
    looking.fake.documents[NOOR] = mara_document() | {"id": NOOR}
    for did in (MARA, NOOR, NOOR, MARA):
        await authorities.resolve(did)
    assert looking.fake.asked_for(f"/{MARA}") == 2
    assert looking.fake.asked_for(f"/{NOOR}") == 1


@pytest.mark.parametrize("did", [NOOR, "did:plc:short", "did:key:zQ3sh", "did:web:localhost%3Ax", "did:web:10.0.0.1"])
async def test_did_without_a_document_is_no_authority(looking: Looking, did: str):
    with pytest.raises(BadIdentity):
        await looking.authorities().resolve(did)


async def test_did_that_was_given_up_is_no_authority(looking: Looking):
    del looking.fake.documents[MARA]
    looking.fake.tombstoned.add(MARA)
    with pytest.raises(BadIdentity) as caught:
        await looking.authorities().resolve(MARA)
    assert caught.value.reason == "tombstoned"


@pytest.mark.parametrize("answer", [b"{}", b"no document", b'{"id":"did:plc:other"}', b"[]"])
async def test_answer_that_is_no_document_of_it_is_refused(looking: Looking, answer: bytes):
    looking.fake.documents[MARA] = answer
    with pytest.raises(BadIdentity):
        await looking.authorities().resolve(MARA)


@pytest.mark.parametrize("mood", [Mood.OUTAGE, Mood.BUSY, Mood.HUNG_UP])
async def test_directory_that_is_away_tells_nothing(looking: Looking, mood: Mood):
    looking.fake.mood = mood
    with pytest.raises(Unavailable):
        await looking.authorities().resolve(MARA)


async def test_directory_that_refuses_us_tells_nothing(looking: Looking):
    looking.fake.mood = Mood.REFUSING
    with pytest.raises(IdentityUnavailable):
        await looking.authorities().resolve(MARA)


async def test_failure_is_not_remembered(looking: Looking):
    authorities = looking.authorities()
    looking.fake.mood = Mood.OUTAGE
    with pytest.raises(Unavailable):
        await authorities.resolve(MARA)
    looking.fake.mood = Mood.HONEST
    assert (await authorities.resolve(MARA)).host == PDS
