from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from memory.errors import Rejected
from memory.outbound import Limits
from memory.outbound_errors import ForbiddenAddress, ForbiddenUrl, HostRefused, HostUnknown
from tests.fakes.directory import Directory, Mood, directory
from tests.fakes.internet import LOOPBACK, PUBLIC, Internet, internet_at, plain_outbound

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


@pytest.mark.parametrize(
    "addresses",
    [
        ["127.0.0.1"],
        ["10.0.0.1"],
        ["169.254.169.254"],
        ["::1"],
        ["::ffff:10.0.0.1"],
        ["64:ff9b::10.0.0.1"],
        ["2002:7f00:1::"],
        ["fd00::1"],
        [PUBLIC, "127.0.0.1"],
        ["192.168.0.1", PUBLIC],
    ],
)
async def test_host_with_an_address_off_the_internet_is_not_connected_to(internet: Internet, addresses: list[str]):
    internet.names.add("pds.example", addresses)
    with pytest.raises(ForbiddenAddress, match=r"pds\.example"):
        await internet.get("https://pds.example/hello")
    assert internet.wire.connected == []


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "10.0.0.1", "[::1]", "[::ffff:10.0.0.1]", "[::ffff:a00:1]", "0.0.0.0", "[fd00::1]", "[::1%25eth0]"],
)
async def test_address_off_the_internet_is_not_connected_to(internet: Internet, host: str):
    with pytest.raises(ForbiddenAddress):
        await internet.get(f"https://{host}/hello")
    assert internet.wire.connected == []
    assert internet.names.asked == []


@pytest.mark.parametrize("host", ["127.1", "0x7f.0.0.1", "0x7f000001", "2130706433", "0177.0.0.1"])
async def test_address_spelled_as_only_a_browser_reads_it_is_a_name_that_nobody_has(internet: Internet, host: str):
    with pytest.raises(HostUnknown):
        await internet.get(f"https://{host}/hello")
    assert internet.wire.connected == []


async def test_name_is_looked_up_once_a_connection_so_that_it_cannot_change_in_between(internet: Internet):
    internet.names.add("pds.example", [PUBLIC], ["127.0.0.1"])
    async with internet.outbound() as outbound:
        await outbound.get("https://pds.example/hello")
    assert internet.names.asked == ["pds.example"]
    assert internet.wire.connected == [(PUBLIC, 443)]


async def test_name_that_changes_is_checked_again_at_the_next_connection(internet: Internet):
    internet.names.add("pds.example", [PUBLIC], ["127.0.0.1"])
    await internet.get("https://pds.example/hello")
    with pytest.raises(ForbiddenAddress):
        await internet.get("https://pds.example/hello")
    assert len(internet.wire.connected) == 1


async def test_public_host_is_asked_by_https_only(internet: Internet):
    with pytest.raises(ForbiddenAddress, match="HTTPS only"):
        await internet.get("http://pds.example/hello", allowed=LOOPBACK)
    assert internet.wire.connected == []


@pytest.mark.parametrize("port", [1, 22, 25, 80, 1023])
async def test_port_of_another_service_is_not_connected_to(internet: Internet, port: int):
    with pytest.raises(ForbiddenAddress, match=f"port {port}"):
        await internet.get(f"https://pds.example:{port}/hello")
    assert internet.wire.connected == []


@pytest.mark.parametrize(
    "url",
    [
        "",
        "pds.example",
        "//pds.example/",
        "ftp://pds.example/",
        "file:///etc/passwd",
        "wss://pds.example/",
        "https://",
        "https:///hello",
        "https://user:password@pds.example/",
        "https://@pds.example/",
        "https://pds.example:0/",
        "https://pds.example:65536/",
        "https://pds.example:http/",
        "https://pds example/",
        "https://pds.example/a b",
        "https://pds.example/\r\nX: y",
        "https://pds.example/\x00",
        "https://pds.ex\u00e4mple/",
        "https://[::1/",
        "https://pds.example/" + "a" * 5000,
    ],
)
async def test_url_that_is_no_plain_one_is_not_asked(internet: Internet, url: str):
    with pytest.raises(ForbiddenUrl):
        await internet.get(url)
    assert internet.names.asked == []


async def test_redirect_is_not_followed_unasked(internet: Internet):
    internet.fake.moods["pds.example"] = Mood.MOVED
    internet.fake.location = f"https://other.example/{SECRET}"
    with pytest.raises(HostRefused, match="answered 302") as refused:
        await internet.get("https://pds.example/hello")
    assert SECRET not in str(refused.value)
    assert len(internet.fake.asked) == 1


async def test_redirect_is_followed_when_asked_to(internet: Internet):
    internet.fake.moods["pds.example"] = Mood.MOVED
    internet.fake.location = "https://other.example/hello"
    assert await internet.get("https://pds.example/moved", Limits(redirects=1)) == b"hello"
    assert internet.fake.server_names == ["pds.example", "other.example"]


async def test_redirect_may_be_relative(fake: Directory):
    fake.mood, fake.location = Mood.MOVED, "hello"
    async with plain_outbound() as outbound:
        with pytest.raises(HostRefused, match="answered 302"):
            await outbound.get(f"{fake.url}/moved", Limits(redirects=1))
    assert [asked.path for asked in fake.asked] == ["/moved", "/hello"]


async def test_no_more_than_three_redirects_are_followed(internet: Internet):
    internet.fake.mood = Mood.MOVED
    internet.fake.location = "https://pds.example/again"
    with pytest.raises(HostRefused, match="answered 302"):
        await internet.get("https://pds.example/hello", Limits(redirects=100))
    assert len(internet.fake.asked) == 4


@pytest.mark.parametrize(
    ("location", "refusal"),
    [
        ("https://127.0.0.1/", ForbiddenAddress),
        ("https://inside.example/", ForbiddenAddress),
        ("http://other.example/hello", ForbiddenAddress),
        ("https://other.example:22/", ForbiddenAddress),
        ("ftp://other.example/", ForbiddenUrl),
        ("file:///etc/passwd", ForbiddenUrl),
        ("https://user@other.example/", ForbiddenUrl),
        ("https://[", ForbiddenUrl),
    ],
)
async def test_redirect_is_judged_like_any_url(internet: Internet, location: str, refusal: type[Rejected]):
    internet.names.add("inside.example", ["10.0.0.1"])
    internet.fake.moods["pds.example"] = Mood.MOVED
    internet.fake.location = location
    with pytest.raises(refusal):
        await internet.get("https://pds.example/hello", Limits(redirects=3))
    assert len(internet.wire.connected) == 1
