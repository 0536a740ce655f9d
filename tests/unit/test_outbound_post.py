from __future__ import annotations

from collections.abc import AsyncGenerator

import pytest

from memory.outbound import Limits, StreamLimits
from memory.outbound_errors import AnswerTooLarge, ForbiddenAddress, HostRefused, HostUnavailable
from tests.fakes.answering_host import Answer, AnsweringHost, Asked, answering_host
from tests.fakes.internet import plain_outbound

SECRET = (("Authorization", "DPoP Mandarin.of.Mara"), ("DPoP", "a.proof.once"))


@pytest.fixture
async def host() -> AsyncGenerator[AnsweringHost]:
    """`/moved` leads to `/hello`, `/no` refuses, `/never` does not answer."""

    def answer(asked: Asked) -> Answer:
        match asked.path:
            case "/moved":
                return Answer(302, b"", ("Location: /hello",))
            case "/no":
                return Answer.of(401, {"error": "use_dpop_nonce", "message": asked.headers["authorization"]})
            case "/never":
                return Answer(body=None)
            case _:
                return Answer(200, b"hello")

    async with answering_host(answer) as listening:
        yield listening
        listening.release.set()


def url(host: AnsweringHost, path: str = "/hello") -> str:
    return f"http://127.0.0.1:{host.port}{path}"


async def test_body_and_headers_arrive_as_they_were_sent(host: AnsweringHost):
    async with plain_outbound() as outbound:
        assert await outbound.post(url(host), b'{"space":"x"}', headers=SECRET) == b"hello"
    (asked,) = host.asked
    assert (asked.method, asked.body) == ("POST", b'{"space":"x"}')
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["authorization"] == SECRET[0][1]
    assert asked.headers["dpop"] == SECRET[1][1]
    assert asked.headers["user-agent"] == "memory-appview"


async def test_headers_go_along_with_what_is_read(host: AnsweringHost):
    async with plain_outbound() as outbound:
        await outbound.get(url(host), headers=SECRET)
        async with outbound.stream(url(host), StreamLimits(max_bytes=100), headers=SECRET) as chunks:
            assert b"".join([chunk async for chunk in chunks]) == b"hello"
        await outbound.get(url(host))
    assert [asked.headers.get("authorization") for asked in host.asked] == [SECRET[0][1], SECRET[0][1], None]
    assert all("content-type" not in asked.headers for asked in host.asked)


async def test_request_with_headers_or_a_body_follows_no_redirect(host: AnsweringHost):
    async with plain_outbound() as outbound:
        with pytest.raises(HostRefused) as caught:
            await outbound.get(url(host, "/moved"), Limits(redirects=3), headers=SECRET)
        assert caught.value.status == 302
        with pytest.raises(HostRefused):
            await outbound.post(url(host, "/moved"), b"{}", Limits(redirects=3))
        assert await outbound.get(url(host, "/moved"), Limits(redirects=3)) == b"hello"
    assert [asked.path for asked in host.asked] == ["/moved", "/moved", "/moved", "/hello"]


async def test_refusal_is_told_by_its_name_and_shows_no_header(host: AnsweringHost):
    async with plain_outbound() as outbound:
        with pytest.raises(HostRefused) as caught:
            await outbound.post(url(host, "/no"), b"{}", headers=SECRET)
    assert (caught.value.status, caught.value.error) == (401, "use_dpop_nonce")
    assert "Mandarin" not in str(caught.value) + repr(caught.value) + repr(caught.value.context)


async def test_answer_to_a_post_is_bounded_in_size_and_time(host: AnsweringHost):
    async with plain_outbound() as outbound:
        with pytest.raises(AnswerTooLarge):
            await outbound.post(url(host), b"{}", Limits(max_bytes=4))
        with pytest.raises(HostUnavailable, match="in time"):
            await outbound.post(url(host, "/never"), b"{}", Limits(total_s=0.1))


async def test_nothing_is_posted_to_an_address_off_the_internet(host: AnsweringHost):
    async with plain_outbound(allowed=()) as outbound:
        with pytest.raises(ForbiddenAddress):
            await outbound.post(url(host), b"{}", headers=SECRET)
    assert host.asked == []
