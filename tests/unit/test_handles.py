from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from memory.errors import Unavailable
from memory.handles import AskedHandles, NetworkHandles
from memory.outbound_errors import DnsUnavailable
from tests.fakes.directory import Directory, Mood, directory
from tests.fakes.internet import Internet, internet_at, plain_outbound

MARA = "did:plc:ragtjsm2j2vknwkz3zp4oxrd"
OTHER = "did:web:other.example"
HANDLE = "mara.example"
RECORD = f"_atproto.{HANDLE}"


@pytest.fixture
async def internet(tmp_path: Path) -> AsyncGenerator[Internet]:
    async with internet_at(tmp_path, HANDLE, "elsewhere.example") as started:
        yield started


async def owner(internet: Internet, handle: str = HANDLE) -> str | None:
    async with internet.outbound() as outbound:
        return await NetworkHandles(internet.names, outbound).owner(handle)


async def test_handle_is_whose_did_its_text_record_names(internet: Internet):
    internet.names.records[RECORD] = [f"did={MARA}"]
    assert await owner(internet) == MARA
    assert internet.fake.asked == []


async def test_other_text_records_are_passed_over(internet: Internet):
    internet.names.records[RECORD] = ["v=spf1 -all", f"did={MARA}", f"did={MARA}", ""]
    assert await owner(internet) == MARA


async def test_text_records_that_contradict_each_other_make_it_nobodys(internet: Internet):
    internet.names.records[RECORD] = [f"did={MARA}", f"did={OTHER}"]
    internet.fake.well_known[HANDLE] = MARA
    assert await owner(internet) is None


@pytest.mark.parametrize("text", ["did=", "did=mara", "did=did:plc:\ufffd"])
async def test_text_record_that_names_no_did_makes_it_nobodys(internet: Internet, text: str):
    internet.names.records[RECORD] = [text]
    internet.fake.well_known[HANDLE] = MARA
    assert await owner(internet) is None


@pytest.mark.parametrize("answer", [MARA, f"{MARA}\n", f"  {MARA}\r\n"])
async def test_handle_without_a_text_record_is_whose_did_its_host_names(internet: Internet, answer: str):
    internet.fake.well_known[HANDLE] = answer
    assert await owner(internet) == MARA


@pytest.mark.parametrize("answer", ["", "<html>", f"{MARA}\n{OTHER}", "did:plc:" + "a" * 9000])
async def test_host_that_names_no_did_makes_it_nobodys(internet: Internet, answer: str):
    internet.fake.well_known[HANDLE] = answer
    assert await owner(internet) is None


async def test_host_may_redirect(internet: Internet):
    internet.fake.moods[HANDLE] = Mood.MOVED
    internet.fake.location = "https://elsewhere.example/.well-known/atproto-did"
    internet.fake.well_known["elsewhere.example"] = MARA
    assert await owner(internet) == MARA


async def test_handle_that_nothing_says_anything_of_is_nobodys(internet: Internet):
    assert await owner(internet) is None


async def test_handle_whose_domain_does_not_exist_is_nobodys(internet: Internet):
    assert await owner(internet, "gone.example") is None


async def test_handle_whose_host_is_off_the_internet_is_nobodys(internet: Internet):
    internet.names.add(HANDLE, ["10.0.0.1"])
    assert await owner(internet) is None


@pytest.mark.parametrize("mood", [Mood.OUTAGE, Mood.BUSY, Mood.HUNG_UP])
async def test_host_that_is_down_leaves_it_open(internet: Internet, mood: Mood):
    internet.fake.mood = mood
    with pytest.raises(Unavailable):
        await owner(internet)


async def test_name_servers_that_are_down_leave_it_open_whatever_the_host_says(internet: Internet):
    internet.names.records[RECORD] = DnsUnavailable()
    internet.fake.well_known[HANDLE] = OTHER
    with pytest.raises(Unavailable):
        await owner(internet)


@pytest.fixture
async def pds() -> AsyncGenerator[Directory]:
    async with directory() as fake:
        yield fake


async def asked_owner(*servers: str, handle: str = "mara.test") -> str | None:
    async with plain_outbound() as outbound:
        return await AskedHandles(outbound, servers).owner(handle)


async def test_named_server_says_whose_a_handle_is(pds: Directory):
    pds.handles["mara.test"] = MARA
    assert await asked_owner(pds.url) == MARA
    assert await asked_owner(pds.url, handle="nobody.test") is None


async def test_servers_are_asked_until_one_knows_the_handle(pds: Directory):
    async with directory() as second:
        second.handles["mara.test"] = MARA
        assert await asked_owner(pds.url, second.url) == MARA
        assert await asked_owner(second.url, pds.url) == MARA
    assert len(pds.asked) == 1


async def test_server_that_is_down_leaves_it_open_unless_another_knows(pds: Directory):
    async with directory() as second:
        second.mood = Mood.OUTAGE
        with pytest.raises(Unavailable):
            await asked_owner(second.url, pds.url)
        pds.handles["mara.test"] = MARA
        assert await asked_owner(second.url, pds.url) == MARA


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b'{"did":1}', b'{"did":"mara"}'])
async def test_answer_of_a_server_that_is_none_names_nobody(pds: Directory, answer: bytes):
    pds.files["/xrpc/com.atproto.identity.resolveHandle"] = answer
    assert await asked_owner(pds.url) is None
