"""Hosts with a valid certificate that stop speaking TLS once their certificate was believed."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

import pytest

from memory.outbound import Outbound, StreamLimits
from memory.outbound_errors import HostUnavailable
from memory.outbound_hosts import Hosts
from tests.fakes.internet import PUBLIC, UNLIMITED, Authority, Names, Wire

HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{"
NO_RECORD: Final = b"220 mail.example ESMTP, and no TLS record\r\n" * 10
UNREADABLE_RECORD: Final = b"\x17\x03\x03\x00\x20" + b"x" * 32  # of the right form, encrypted with no key
ALERT: Final = b"\x15\x03\x03\x00\x02\x02\x28"

_Result = TypeVar("_Result")


class Connection:
    """A server's side of TLS, and the socket beneath it."""

    def __init__(self, context: ssl.SSLContext, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)

    async def until(self, action: Callable[[], _Result]) -> _Result:
        """What `action` gives once enough has come for it."""
        while True:
            try:
                return action()
            except ssl.SSLWantReadError:
                self.flush()
                self._incoming.write(await self._reader.read(65_536))
            finally:
                self.flush()

    def flush(self) -> None:
        self._writer.write(self._outgoing.read())


@asynccontextmanager
async def broken_host(folder: Path, said: bytes, raw: bytes) -> AsyncGenerator[Outbound]:
    """The way to a host that answers with `said` by TLS, and then with `raw` beneath it."""
    authority = Authority(datetime.now(UTC))
    context = authority.server(folder, "pds.example")

    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(context, reader, writer)
        await connection.until(connection.tls.do_handshake)
        await connection.until(lambda: connection.tls.read(65_536))
        if said:
            await connection.until(lambda: connection.tls.write(said))
        writer.write(raw)
        with suppress(ConnectionError):
            await reader.read()  # until the other side hangs up
        writer.close()
        ended.set()

    names = Names()
    names.add("pds.example", [PUBLIC])
    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        wire = Wire(server.sockets[0].getsockname()[1])
        clients = authority.clients()
        async with Outbound(names, Hosts(strangers=UNLIMITED), network=wire, ssl_context=clients) as outbound:
            yield outbound
        await ended.wait()


BREAKS = pytest.mark.parametrize(
    ("said", "raw"),
    [(b"", NO_RECORD), (b"", ALERT), (HEAD, NO_RECORD), (HEAD, UNREADABLE_RECORD), (HEAD, ALERT)],
    ids=["no answer", "alert for an answer", "no body", "unreadable body", "alert for a body"],
)


@BREAKS
async def test_answer_that_is_no_tls_record_makes_its_host_unavailable(tmp_path: Path, said: bytes, raw: bytes):
    async with broken_host(tmp_path, said, raw) as outbound:
        with pytest.raises(HostUnavailable, match=r"https://pds\.example cannot be reached \(SSLError\)"):
            await outbound.get("https://pds.example/x")
        assert all(pool.connections == [] for pool in outbound._pools.values())


@BREAKS
async def test_stream_that_is_no_tls_record_makes_its_host_unavailable(tmp_path: Path, said: bytes, raw: bytes):
    async with broken_host(tmp_path, said, raw) as outbound:
        with pytest.raises(HostUnavailable, match=r"https://pds\.example cannot be reached \(SSLError\)"):
            async with outbound.stream("https://pds.example/x", StreamLimits(max_bytes=1_000_000)) as stream:
                async for _ in stream:
                    pass
        assert all(pool.connections == [] for pool in outbound._pools.values())
