"""Stands before a Postgres on loopback: open, shut as if nothing were there, or held, so that nobody is answered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from urllib.parse import parse_qs, urlsplit

from memory.tasks import TaskGroup
from tests.doctor_servers import free_port

CHUNK_BYTES = 65_536


class Gate:
    """The way to one database; shut at first."""

    def __init__(self, inside: str) -> None:
        """`inside` is the URL of the database, at a Unix socket."""
        parts = urlsplit(inside)
        given = parse_qs(parts.query)
        self._socket = f"{given['host'][0]}/.s.PGSQL.{given['port'][0]}"
        self._port = free_port()
        self.url = f"postgresql://{parts.username}@127.0.0.1:{self._port}{parts.path}?sslmode=disable"
        self._flowing = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._passing: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Lets everybody through, also who was held."""
        self._flowing.set()
        if self._server is None:
            self._server = await asyncio.start_server(self._pass, "127.0.0.1", self._port)

    def hold(self) -> None:
        """Lets nothing through any more, in either direction; who comes is neither refused nor answered."""
        self._flowing.clear()

    async def shut(self) -> None:
        """Ends every connection, and refuses new ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        passing = tuple(self._passing)
        for task in passing:
            task.cancel()
        await asyncio.gather(*passing, return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._passing.add(task)
        inner: asyncio.StreamWriter | None = None
        try:
            await self._flowing.wait()
            inner_reader, inner = await asyncio.open_unix_connection(self._socket)
            async with TaskGroup() as tasks:
                tasks.create_task(self._hand_on(reader, inner))
                tasks.create_task(self._hand_on(inner_reader, writer))
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._passing.discard(task)
            for each in (inner, writer):
                if each is not None:
                    each.transport.abort()

    async def _hand_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(CHUNK_BYTES):
            await self._flowing.wait()
            writer.write(chunk)
            await writer.drain()
        raise ConnectionResetError  # one side has left: so does the other


@asynccontextmanager
async def gate(inside: str) -> AsyncGenerator[Gate]:
    """A gate until the end of the block."""
    standing = Gate(inside)
    try:
        yield standing
    finally:
        with suppress(ConnectionError):
            await standing.shut()
