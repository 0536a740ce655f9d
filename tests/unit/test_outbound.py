from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from memory.errors import Rejected, Unavailable
from memory.outbound import Limits
from memory.outbound_errors import (
    AnswerTooLarge,
    DnsUnavailable,
    ForbiddenAddress,
    ForbiddenUrl,
    HostRefused,
    HostUnavailable,
    HostUnknown,
    UnreadableAnswer,
)
from tests.fakes.directory import Directory, Mood, directory
from tests.fakes.internet import DEAD, PUBLIC, Internet, Wire, internet_at, plain_outbound

SECRET = "Mandarin"


@pytest.fixture
async def fake() -> AsyncGenerator[Directory]:
    async with directory() as listening:
        listening.files["/hello"] = b"hello"
        yield listening


@pytest.fixture
async def internet(tmp_path: Path) -> AsyncGenerator[Internet]:
    async with internet_at(tmp_path, "pds.example", "other.example") as started:
        started.fake.files["/hello"] = b"hello"
        yield started


async def test_body_of_an_answer_is_given(internet: Internet):
    assert await internet.get("https://pds.example/hello") == b"hello"


async def test_connection_goes_to_the_checked_address_and_in_the_name_of_the_host(internet: Internet):
    await internet.get("https://pds.example:8443/hello")
    assert internet.wire.connected == [(PUBLIC, 8443)]
    assert internet.fake.server_names == ["pds.example"]
    assert [asked.host for asked in internet.fake.asked] == ["pds.example:8443"]


async def test_host_without_a_certificate_for_its_name_is_not_asked(internet: Internet):
    with pytest.raises(HostUnavailable):
        await internet.get("https://stranger.example/hello")
    assert internet.fake.asked == []


async def test_request_carries_nothing_but_the_question(fake: Directory, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    async with plain_outbound() as outbound:
        await outbound.get(f"{fake.url}/hello?a=b")
    assert fake.asked[0].path == "/hello?a=b"
    assert fake.asked[0].headers == {
        "host": f"127.0.0.1:{fake.port}",
        "user-agent": "memory-appview",
        "accept": "*/*",
        "accept-encoding": "identity",
    }


async def test_connection_is_kept_for_the_next_request(fake: Directory):
    async with plain_outbound() as outbound:
        for _ in range(3):
            await outbound.get(f"{fake.url}/hello")
    assert fake.connections == 1


async def test_second_address_is_tried_when_the_first_is_dead(internet: Internet):
    internet.names.add("pds.example", [DEAD, PUBLIC])
    assert await internet.get("https://pds.example/hello") == b"hello"
    assert internet.wire.connected == [(DEAD, 443), (PUBLIC, 443)]


async def test_host_with_a_multitude_of_dead_addresses_is_given_up(internet: Internet):
    internet.names.add("pds.example", [DEAD] * 1000)
    with pytest.raises(HostUnavailable):
        await internet.get("https://pds.example/hello")
    assert len(internet.wire.connected) == 4


async def test_name_without_an_address_is_unknown_and_may_come_to_be(internet: Internet):
    with pytest.raises(HostUnknown, match=r"nobody\.example has no address"):
        await internet.get("https://nobody.example/")


async def test_name_that_cannot_be_looked_up_is_unavailable(internet: Internet):
    internet.names.hosts["pds.example"] = DnsUnavailable()
    with pytest.raises(HostUnavailable, match=r"https://pds\.example cannot be reached"):
        await internet.get("https://pds.example/")


async def test_host_that_does_not_listen_is_unavailable():
    async with directory() as fake:
        url = fake.url
    async with plain_outbound() as outbound:
        with pytest.raises(HostUnavailable, match="cannot be reached") as failed:
            await outbound.get(url)
    assert failed.value.host == url


@pytest.mark.parametrize("mood", [Mood.HUNG_UP, Mood.MUMBLING, Mood.HUGE_HEADERS])
async def test_host_that_does_not_speak_http_is_unavailable(fake: Directory, mood: Mood):
    fake.mood = mood
    async with plain_outbound() as outbound:
        with pytest.raises(HostUnavailable, match="ProtocolError"):
            await outbound.get(f"{fake.url}/hello")


@pytest.mark.parametrize("mood", [Mood.HELD, Mood.STALLING, Mood.PATIENT])
async def test_host_that_does_not_come_to_an_end_is_given_up(fake: Directory, mood: Mood):
    fake.mood = mood
    async with plain_outbound() as outbound:
        with pytest.raises(HostUnavailable, match="in time"):
            await outbound.get(f"{fake.url}/hello", Limits(total_s=0.1))


@pytest.mark.parametrize("mood", [Mood.ENDLESS, Mood.BOASTING])
async def test_answer_that_is_too_large_is_cut_off(fake: Directory, mood: Mood):
    fake.mood = mood
    async with plain_outbound() as outbound:
        with pytest.raises(AnswerTooLarge):
            await outbound.get(f"{fake.url}/hello")


async def test_answer_may_be_as_large_as_the_limit(fake: Directory):
    async with plain_outbound() as outbound:
        assert await outbound.get(f"{fake.url}/hello", Limits(max_bytes=5)) == b"hello"
        with pytest.raises(AnswerTooLarge):
            await outbound.get(f"{fake.url}/hello", Limits(max_bytes=4))


async def test_compressed_answer_is_refused_unread(fake: Directory):
    fake.mood = Mood.BOMB
    async with plain_outbound() as outbound:
        with pytest.raises(UnreadableAnswer):
            await outbound.get(f"{fake.url}/hello")


async def test_server_error_may_pass(fake: Directory):
    fake.mood = Mood.OUTAGE
    async with plain_outbound() as outbound:
        with pytest.raises(HostUnavailable, match="answered 503") as failed:
            await outbound.get(f"{fake.url}/hello")
    assert failed.value.retry_after_s is None


async def test_busy_host_says_when_to_come_back_and_is_left_alone_until_then(fake: Directory):
    fake.mood = Mood.BUSY
    async with plain_outbound() as outbound:
        with pytest.raises(HostUnavailable, match="answered 429") as failed:
            await outbound.get(f"{fake.url}/hello")
        assert failed.value.retry_after_s == 7.0
        with pytest.raises(HostUnavailable, match="left alone"):
            await outbound.get(f"{fake.url}/hello")
    assert len(fake.asked) == 1


async def test_refusal_names_the_error_of_xrpc_and_nothing_else_of_the_answer(fake: Directory):
    fake.mood = Mood.REFUSING
    async with plain_outbound() as outbound:
        with pytest.raises(HostRefused, match="answered 400: RepoNotFound") as refused:
            await outbound.get(f"{fake.url}/hello?{SECRET}")
    assert (refused.value.status, refused.value.error) == (400, "RepoNotFound")
    assert SECRET not in str(refused.value)
    assert SECRET not in str(refused.value.context)


@pytest.mark.parametrize(
    "error",
    ["", "Mandarin", "{", '{"error":1}', '{"error":"a b"}', '{"error":""}', '["error"]', '{"error":"' + "a" * 9999],
)
async def test_refusal_without_the_name_of_an_error_has_none(fake: Directory, error: str):
    fake.mood, fake.error = Mood.REFUSING, error
    async with plain_outbound() as outbound:
        with pytest.raises(HostRefused) as refused:
            await outbound.get(f"{fake.url}/hello")
    assert refused.value.error is None
    assert str(refused.value).endswith("answered 400")


async def test_allowed_networks_are_reached_by_plain_http_on_any_port(fake: Directory):
    async with plain_outbound() as outbound:
        assert await outbound.get(f"{fake.url}/hello") == b"hello"
    async with plain_outbound(allowed=()) as outbound:
        with pytest.raises(ForbiddenAddress):
            await outbound.get(f"{fake.url}/hello")


async def test_ipv6_host_is_named_in_brackets(fake: Directory):
    wire = Wire(fake.port)
    async with plain_outbound(network=wire) as outbound:
        assert await outbound.get("http://[::1]:2583/hello") == b"hello"
    assert wire.connected == [("::1", 2583)]
    assert fake.asked[0].host == "[::1]:2583"


@pytest.mark.parametrize("steps", range(0, 40, 3))
async def test_requests_that_are_cancelled_at_any_point_leave_nothing_behind(fake: Directory, steps: int):
    fake.mood = Mood.HELD
    async with plain_outbound() as outbound:
        tasks = [asyncio.create_task(outbound.get(f"{fake.url}/hello")) for _ in range(10)]
        for _ in range(steps):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert [pool.connections for pool in outbound._pools.values()] == [[], []]
        fake.mood = Mood.HONEST
        assert await outbound.get(f"{fake.url}/hello") == b"hello"


async def test_nothing_of_a_question_is_logged(fake: Directory, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    async with plain_outbound() as outbound:
        await outbound.get(f"{fake.url}/hello?{SECRET}")
        with pytest.raises(HostRefused):
            await outbound.get(f"{fake.url}/{SECRET}")
    assert SECRET not in caplog.text
    assert all(record.levelno == logging.DEBUG for record in caplog.records)


def test_every_failure_has_one_of_the_three_fates():
    for failure in (HostUnavailable, HostUnknown, DnsUnavailable):
        assert issubclass(failure, Unavailable)
    for refusal in (HostRefused, ForbiddenUrl, ForbiddenAddress, AnswerTooLarge, UnreadableAnswer):
        assert issubclass(refusal, Rejected)
        assert refusal.reason != Rejected.reason
