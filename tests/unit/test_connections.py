"""One connection to the API, whose client sends too much, or sends and reads too slowly."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from appview import connections
from appview.connections import (
    HEAD_TIMEOUT_S,
    MAX_HEAD_BYTES,
    MAX_HEADERS,
    MAX_PIPELINED,
    MAX_URL_KEPT_BYTES,
    MIN_READ_BYTES,
    READ_TIMEOUT_S,
    BoundedConnection,
)

REQUEST = b"GET /tea HTTP/1.1\r\nHost: x\r\n\r\n"


class Wire(asyncio.Transport):
    """What the client sees, and what it has not read."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.unread = 0
        self.state = "open"

    def get_write_buffer_size(self) -> int:
        return self.unread

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.state != "open"

    def close(self) -> None:
        self.state = "closed"

    def abort(self) -> None:
        self.state = "cut off"

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Client:
    """A connection with a clock that is set by hand; its requests are asked in `asked`, and answered by `answer`."""

    def __init__(self) -> None:
        self.asked: list[Scope] = []
        self.answered = asyncio.Event()
        self.wire = Wire()
        config = uvicorn.Config(
            self._answer, interface="asgi3", lifespan="off", ws="none", log_config=None, access_log=False
        )
        self.now = 0.0
        loop = asyncio.get_running_loop()
        self.connection = BoundedConnection(
            config, ServerState(), {}, cast("asyncio.AbstractEventLoop", Clock(self, loop))
        )
        self.connection.connection_made(self.wire)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.asked.append(scope)
        await self.answered.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async def send(self, *parts: bytes) -> None:
        """Send, and wait until what can be done of it is."""
        for part in parts:
            if self.wire.state == "open":
                self.connection.data_received(part)
        for _ in range(5):
            await asyncio.sleep(0)

    def wait(self, seconds: float, unread: int = 0) -> str:
        """Let time pass, at whose end the client has not read so much; what became of the connection."""
        self.now += seconds
        self.wire.unread = unread
        self.connection.look()
        return self.wire.state


class Clock:
    """An event loop's clock that stands, before the loop."""

    def __init__(self, client: Client, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop

    def __getattr__(self, name: str) -> object:
        return getattr(self._loop, name)

    def time(self) -> float:
        return self._client.now


async def test_requests_are_answered() -> None:
    client = Client()
    client.answered.set()
    await client.send(REQUEST[:10], REQUEST[10:], REQUEST)
    assert [scope["path"] for scope in client.asked] == ["/tea"] * 2
    assert client.wire.written.count(b"HTTP/1.1 200 OK") == 2
    assert client.wire.state == "open"


# Too much


@pytest.mark.parametrize(
    "parts",
    [
        [b"a:\r\n" * 100] * (MAX_HEADERS // 100 + 1),
        [b"a: " + b"x" * 30_000 + b"\r\n"] * 3,
        [b"a: "] + [b"x" * 10_000] * (MAX_HEAD_BYTES // 10_000 + 1),
        [b"a" * 10_000] * (MAX_HEAD_BYTES // 10_000 + 1),
        [(b"a: " + b"x" * 30_000 + b"\r\n") * 3 + b"\r\n"],
    ],
    ids=["headers", "large headers", "a value", "a name", "at once"],
)
async def test_head_that_is_too_large_is_refused(parts: list[bytes]) -> None:
    client = Client()
    await client.send(b"GET /tea HTTP/1.1\r\n", *parts)
    assert (client.wire.state, client.asked) == ("closed", [])
    assert client.wire.written.startswith(b"HTTP/1.1 400 Bad Request")


async def test_url_that_is_too_long_is_asked_for_no_longer_than_shows_it() -> None:
    client = Client()
    await client.send(b"GET /tea?q=", *[b"x" * 100_000] * 10, b" HTTP/1.1\r\nHost: x\r\n\r\n")
    [scope] = client.asked
    assert len(scope["raw_path"]) + len(scope["query_string"]) == MAX_URL_KEPT_BYTES - 1
    assert client.wire.state == "open"


async def test_body_is_no_head() -> None:
    client = Client()
    await client.send(b"POST /tea HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n", *[b"x" * 100_000] * 10)
    assert (client.wire.state, len(client.asked)) == ("open", 1)


async def test_requests_that_wait_are_few() -> None:
    client = Client()
    await client.send(REQUEST * (MAX_PIPELINED + 1))
    assert client.wire.state == "open"
    await client.send(REQUEST)
    assert client.wire.state == "cut off"


# Too slow


@pytest.mark.parametrize("sent", [b"", b"GET /tea HTTP/1.1\r\nHost: x\r\n", b"\r\n\r\n"])
async def test_request_that_does_not_come_is_not_waited_for(sent: bytes) -> None:
    client = Client()
    await client.send(sent)
    assert client.wait(HEAD_TIMEOUT_S - 1) == "open"
    await client.send(sent[:1])
    assert client.wait(1) == "cut off"


async def test_next_request_has_its_own_time() -> None:
    client = Client()
    await client.send(REQUEST)
    assert client.wait(HEAD_TIMEOUT_S * 2) == "open"
    client.answered.set()
    await client.send()
    assert client.wait(HEAD_TIMEOUT_S - 1) == "open"
    assert client.wait(1) == "cut off"


async def test_who_does_not_read_is_cut_off() -> None:
    client = Client()
    await client.send(REQUEST)
    assert client.wait(READ_TIMEOUT_S - 1, unread=4_000_000) == "open"
    assert client.wait(1, unread=4_000_001 - MIN_READ_BYTES) == "cut off"


async def test_who_reads_is_waited_for() -> None:
    client = Client()
    await client.send(REQUEST)
    left = [4_000_000 - MIN_READ_BYTES * number for number in range(100)]
    assert {client.wait(READ_TIMEOUT_S - 1, unread=unread) for unread in left} == {"open"}


async def test_who_reads_an_answer_that_goes_on_is_waited_for() -> None:
    client = Client()
    await client.send(REQUEST)
    for _ in range(9):
        client.connection.resume_writing()
        assert client.wait(READ_TIMEOUT_S - 1, unread=90_000) == "open"


async def test_connection_that_is_lost_is_not_looked_after(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[Callable[[], Awaitable[None]]] = []
    monkeypatch.setattr(connections, "_LOOK_EVERY_S", 0)
    monkeypatch.setattr(BoundedConnection, "look", looked.append)
    Client().connection.connection_lost(None)
    await asyncio.sleep(0)
    assert looked == []
