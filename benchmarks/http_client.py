"""A client that costs little: requests that are bytes already, over connections that stay open."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from time import perf_counter
from typing import Final
from urllib.parse import urlsplit

_LENGTH: Final = b"content-length:"
_LIMIT_BYTES: Final = 8 * 1024 * 1024


class BadAnswer(Exception):
    """Another status than 200."""


class Connection:
    """One connection; one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str) -> None:
        self._reader = reader
        self._writer = writer
        self._host = host

    async def get(self, target: str) -> bytes:
        """The body behind a path and query. Raises BadAnswer."""
        self._writer.write(f"GET {target} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(_LENGTH)[2].partition(b"\r\n")[0])
        body = await self._reader.readexactly(length)
        if not head.startswith(b"http/1.1 200"):
            raise BadAnswer(f"{target}: {head.partition(b' ')[2][:40]!r} {body[:200]!r}")
        return body


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[Connection]:
    """A connection to the host of a URL."""
    host = urlsplit(url)
    reader, writer = await asyncio.open_connection(host.hostname, host.port, limit=_LIMIT_BYTES)
    try:
        yield Connection(reader, writer, host.netloc)
    finally:
        writer.close()


async def seconds_each(url: str, targets: Iterator[str], connections: int) -> tuple[list[float], float]:
    """How long each answer took, sorted, and all together, with so many asked at a time."""
    took: list[float] = []

    async def ask(connection: Connection) -> None:
        for target in targets:
            began = perf_counter()
            await connection.get(target)
            took.append(perf_counter() - began)

    async with AsyncExitStack() as stack:
        open_ones = [await stack.enter_async_context(connected(url)) for _ in range(connections)]
        began = perf_counter()
        await asyncio.gather(*map(ask, open_ones))
        seconds = perf_counter() - began
    return sorted(took), seconds
