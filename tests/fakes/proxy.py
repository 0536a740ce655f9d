"""Stands before a PDS: hands its answers and its stream on, or gets in their way.

What happens to a frame is up to `treat`, which sees every frame and says what is handed on in its place.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

LARGEST_FRAME = 5_000_000

Treat = Callable[[bytes], Awaitable[Sequence[bytes]]]


class Cut(Exception):
    """Raised by a `treat`: the connection is torn, and the frame with it."""


async def hand_on(frame: bytes) -> Sequence[bytes]:
    """Treats every frame well."""
    return [frame]


class Proxy:
    """One address through which a PDS is met."""

    def __init__(self, inside: str, treat: Treat) -> None:
        self.url = ""
        self.treat = treat
        self.closed = False  # to new connections: 503
        self._inside = inside
        self._streams: set[ServerConnection] = set()

    def cut(self) -> None:
        """Tears every stream, without a word."""
        for stream in self._streams:
            stream.transport.abort()

    async def answer(self, connection: ServerConnection, request: Request) -> Response | None:
        """Whatever is no stream is asked of the PDS."""
        if self.closed:
            return connection.respond(HTTPStatus.SERVICE_UNAVAILABLE, "Mandarin\n")
        if "Upgrade" in request.headers:
            return None
        async with httpx.AsyncClient(base_url=self._inside) as client:
            answer = await client.get(request.path)
        kind = answer.headers.get("Content-Type", "application/octet-stream")
        headers = Headers({"Content-Type": kind, "Content-Length": str(len(answer.content)), "Connection": "close"})
        return Response(answer.status_code, answer.reason_phrase, headers, answer.content)

    async def stream(self, outer: ServerConnection) -> None:
        """One stream, until either side ends it."""
        assert outer.request is not None
        address = self._inside.replace("http", "ws", 1) + outer.request.path
        self._streams.add(outer)
        try:
            async with connect(address, compression=None, proxy=None, max_size=LARGEST_FRAME) as inner:
                handing = asyncio.create_task(self._hand_frames_on(inner, outer))
                gone = asyncio.create_task(outer.wait_closed())
                await asyncio.wait([handing, gone], return_when=asyncio.FIRST_COMPLETED)
                handing.cancel()
                gone.cancel()
                await asyncio.gather(handing, gone, return_exceptions=True)
        finally:
            self._streams.discard(outer)

    async def _hand_frames_on(self, inner: ClientConnection, outer: ServerConnection) -> None:
        try:
            async for message in inner:
                assert isinstance(message, bytes)
                for frame in await self.treat(message):
                    await outer.send(frame)
            await outer.close(inner.close_code or 1000, inner.close_reason or "")
        except Cut:
            outer.transport.abort()
        except ConnectionClosed:
            pass


@asynccontextmanager
async def proxy(inside: str, *, door: socket.socket | None = None, treat: Treat = hand_on) -> AsyncGenerator[Proxy]:
    """A proxy before `inside`, at `door` (a listening socket, which stays open) or at a port of its own."""
    standing = Proxy(inside, treat)
    listening = door.dup() if door is not None else socket.create_server(("127.0.0.1", 0))
    async with serve(
        standing.stream,
        process_request=standing.answer,
        compression=None,
        max_size=LARGEST_FRAME,
        close_timeout=1,
        sock=listening,
    ):
        standing.url = f"http://localhost:{listening.getsockname()[1]}"
        yield standing
        standing.cut()
