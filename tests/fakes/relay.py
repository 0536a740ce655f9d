"""A relay on loopback: it sends what a test says on each connection, and misbehaves as told."""

from __future__ import annotations

import asyncio
import http
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from indexer.arrivals import Source, SourceKind
from tests.builders import decode_frame_parts, encode_frame
from tests.deadline import DEADLINE_S


@dataclass(frozen=True)
class Refusal:
    """An answer to the upgrade that is no upgrade."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """A message as it is: no frame with a seq, and part of no replay; several parts of one are sent as fragments."""

    message: bytes | str | list[bytes]


@dataclass(frozen=True)
class Bytes:
    """What goes into the connection past all rules."""

    data: bytes


@dataclass(frozen=True)
class Close:
    """Ends the connection."""

    code: int = 1000


class Cut:
    """Ends the connection without a word, in the middle of a message."""


@dataclass
class Relay:
    """What it keeps and does: every connection is sent what `frames` has after (or from) its cursor, and what comes."""

    port: int = 0
    frames: list[bytes] = field(default_factory=list)
    inclusive: bool = False  # a replay starts at the cursor, not one past it
    refusals: list[Refusal] = field(default_factory=list)  # of the next upgrades, in turn
    openings: list[list[Raw | Bytes | Close | Cut]] = field(
        default_factory=list
    )  # of the next connections, before any frame
    deaf: bool = False  # it answers no ping
    cursors: list[int | None] = field(default_factory=list)  # of the connections so far
    headers: list[Headers] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    open: set[ServerConnection] = field(default_factory=set)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def source(self) -> Source:
        return Source(f"http://127.0.0.1:{self.port}", SourceKind.RELAY)

    @property
    def pds(self) -> Source:
        return Source(self.source.url, SourceKind.PDS)

    async def send(self, *frames: bytes) -> None:
        """Adds frames to the stream."""
        self.frames += frames
        await self._tell()

    async def send_raw(self, *messages: bytes | str) -> None:
        """Sends to those who are connected now."""
        for connection in tuple(self.open):
            for message in messages:
                await connection.send(message)

    async def cut(self) -> None:
        """Ends every connection without a word."""
        for connection in tuple(self.open):
            connection.transport.abort()

    async def until(self, condition: Callable[[Relay], bool]) -> None:
        """Waits for something that shows here."""
        async with asyncio.timeout(DEADLINE_S), self.changed:
            await self.changed.wait_for(lambda: condition(self))

    async def until_connected(self, times: int = 1) -> None:
        """Waits for that many connections in all."""
        await self.until(lambda relay: len(relay.cursors) >= times)

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    async def _answer(self, connection: ServerConnection, request: Request) -> Response | None:
        self.headers.append(request.headers)
        self.paths.append(request.path)
        await self._tell()
        if not self.refusals:
            return None
        refusal = self.refusals.pop(0)
        return Response(refusal.status, http.HTTPStatus(refusal.status).phrase, Headers(refusal.headers), b"Mandarin")

    async def _serve(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        given = parse_qs(urlsplit(connection.request.path).query).get("cursor")
        cursor = int(given[0]) if given else None
        if self.deaf:
            connection.protocol.recv_frame = _no_pongs(connection)  # pyright: ignore[reportAttributeAccessIssue]
        at = self._after(cursor)
        opening = self.openings.pop(0) if self.openings else []
        self.cursors.append(cursor)
        self.open.add(connection)
        await self._tell()
        try:
            for step in opening:
                match step:
                    case Raw():
                        await connection.send(step.message)
                    case Bytes():
                        connection.transport.write(step.data)
                    case Close():
                        await connection.close(step.code)
                    case Cut():
                        connection.transport.write(b"\x82\x7e\x10\x00half")
                        connection.transport.abort()
            while True:
                while at < len(self.frames):
                    await connection.send(self.frames[at])
                    at += 1
                async with self.changed:
                    while at == len(self.frames) and connection in self.open:
                        await self.changed.wait()
                if connection not in self.open:
                    return
        except ConnectionClosed:
            pass
        finally:
            self.open.discard(connection)

    def _after(self, cursor: int | None) -> int:
        if cursor is None:
            return len(self.frames)
        first = cursor if self.inclusive else cursor + 1
        read = [n for n, frame in enumerate(self.frames) if 0 < seq_of(frame) < first]
        return read[-1] + 1 if read else 0  # what has no seq comes with the frame behind it


def seq_of(frame: bytes) -> int:
    """The seq of a frame; 0 of bytes that are none."""
    try:
        return decode_frame_parts(frame)[1].get("seq", 0)
    except ValueError:
        return 0


def error_frame(error: str) -> Raw:
    """The frame before a source closes the stream."""
    return Raw(encode_frame({"op": -1}, {"error": error, "message": "Mandarin"}))


def info_frame(name: str) -> Raw:
    """A word of the stream on itself."""
    return Raw(encode_frame({"op": 1, "t": "#info"}, {"name": name, "message": "Mandarin"}))


def _no_pongs(connection: ServerConnection) -> Callable[[Any], None]:
    receive = connection.protocol.recv_frame

    def skip_pings(frame: Any) -> None:
        if frame.opcode != 0x9:
            receive(frame)

    return skip_pings


@asynccontextmanager
async def relay(*frames: bytes) -> AsyncGenerator[Relay]:
    """A relay that listens until the end of the block."""
    fake = Relay(frames=list(frames))

    async def run(connection: ServerConnection) -> None:
        watcher = asyncio.ensure_future(_watch(fake, connection))
        try:
            await fake._serve(connection)
        finally:
            watcher.cancel()

    server: Server
    async with serve(
        run, "127.0.0.1", 0, process_request=fake._answer, compression=None, max_size=None, close_timeout=0.1
    ) as server:
        fake.port = next(iter(server.sockets)).getsockname()[1]
        yield fake
        await fake.cut()


async def _watch(fake: Relay, connection: ServerConnection) -> None:
    """Says so when a client leaves."""
    await connection.wait_closed()
    fake.open.discard(connection)
    await fake._tell()
