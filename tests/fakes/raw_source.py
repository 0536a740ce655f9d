"""A source on loopback that says exactly the bytes that a test gives it, in TCP, and hears what comes back."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from email.parser import BytesParser
from typing import cast

import pytest
from websockets.frames import Opcode
from websockets.utils import accept_key

from indexer.messages import Message
from indexer.socket import SourceUnavailable, Stream
from tests.deadline import DEADLINE_S

UPGRADED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "


@dataclass
class Visit:
    """One client."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    consent: bytes  # that its request asks for

    def listen_no_more(self) -> None:
        """What the client says stays in the network."""
        cast(asyncio.Transport, self.writer.transport).pause_reading()

    async def send(self, *data: bytes) -> None:
        self.writer.write(b"".join(data))
        await self.writer.drain()

    async def hear(self) -> tuple[Opcode, bytes]:
        """The next frame of the client's: its kind, and what it holds."""
        first, length = await self.reader.readexactly(2)
        mask = await self.reader.readexactly(4)
        masked = await self.reader.readexactly(length & 0x7F)
        payload = bytes(byte ^ mask[n % 4] for n, byte in enumerate(masked))
        return Opcode(first & 0xF), payload

    async def hear_until(self, opcode: Opcode) -> bytes:
        """What the first frame of that kind holds."""
        while True:
            kind, payload = await self.hear()
            if kind is opcode:
                return payload


@dataclass
class RawSource:
    """Where it listens, and whether its client has gone."""

    url: str = ""
    gone: asyncio.Event = field(default_factory=asyncio.Event)


Behave = Callable[[Visit], Awaitable[None]]


def says(*data: bytes) -> Behave:
    """A source that consents, says that at once, and then nothing."""

    async def behave(visit: Visit) -> None:
        await visit.send(visit.consent, *data)

    return behave


@asynccontextmanager
async def raw_source(behave: Behave, tls: ssl.SSLContext | None = None) -> AsyncGenerator[RawSource]:
    """`behave` has a client whose request was read; when it returns, the client's farewell or end is waited for."""
    source = RawSource()
    visits: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            headers = BytesParser().parsebytes(head.partition(b"\r\n")[2])
            consent = UPGRADED + accept_key(headers["Sec-WebSocket-Key"]).encode() + b"\r\n\r\n"
            visit = Visit(reader, writer, consent)
            await behave(visit)
            await visit.hear_until(Opcode.CLOSE)
        source.gone.set()
        writer.close()

    def visited(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visits[asyncio.create_task(serve(reader, writer))] = writer

    async with await asyncio.start_server(visited, "127.0.0.1", 0, ssl=tls) as server:
        source.url = f"{'https' if tls else 'http'}://localhost:{server.sockets[0].getsockname()[1]}"
        try:
            yield source
        finally:
            for writer in visits.values():
                writer.transport.abort()
            await asyncio.gather(*visits)


async def receive_all(connection: Stream) -> tuple[list[Message], str]:
    """Until the end, and why it was."""
    received: list[Message] = []
    with pytest.raises(SourceUnavailable) as ended:
        while True:
            received.append(await connection.receive())
    return received, ended.value.reason


async def until(condition: Callable[[], bool]) -> None:
    """Lets everybody else go on until it holds."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  nothing tells of it
            await asyncio.sleep(0)
