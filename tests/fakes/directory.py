"""What identities are asked of, on one loopback port: a PLC directory, hosts of did:web, hosts of handles, and a PDS
that resolves handles. It tells them apart by the `Host` of a request, and can misbehave for each."""

from __future__ import annotations

import asyncio
import gzip
import json
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any
from urllib.parse import parse_qs, urlsplit


class Mood(Enum):
    """How a host answers."""

    HONEST = auto()
    OUTAGE = auto()  # 503
    BUSY = auto()  # 429, come back in 7 s
    HELD = auto()  # nothing, until `release` is set
    HUNG_UP = auto()  # nothing at all
    MUMBLING = auto()  # no HTTP
    STALLING = auto()  # the head and one byte of the body
    ENDLESS = auto()  # a body without an end
    BOASTING = auto()  # a Content-Length of a terabyte
    HUGE_HEADERS = auto()
    PATIENT = auto()  # `100 Continue` without an end
    BOMB = auto()  # gzip that nobody asked for
    MOVED = auto()  # to `location`
    REFUSING = auto()  # 400 with `error`


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as it came."""

    host: str
    path: str
    headers: dict[str, str]


@dataclass
class Directory:
    """What is known, what was asked, and how it is answered."""

    port: int = 0
    documents: dict[str, Any] = field(default_factory=dict)  # DID → document
    audit_logs: dict[str, Any] = field(default_factory=dict)  # DID → operations
    tombstoned: set[str] = field(default_factory=set)
    well_known: dict[str, str] = field(default_factory=dict)  # handle → what its host says of it
    handles: dict[str, str] = field(default_factory=dict)  # handle → DID, for resolveHandle
    files: dict[str, bytes] = field(default_factory=dict)  # path → body
    moods: dict[str, Mood] = field(default_factory=dict)  # Host → mood
    mood: Mood = Mood.HONEST  # of every other
    location: str = ""
    error: str = '{"error":"RepoNotFound","message":"Mandarin"}'
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    server_names: list[str | None] = field(default_factory=list)  # by TLS
    release: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def asked_for(self, path: str) -> int:
        """How often a path was asked for."""
        return sum(asked.path == path for asked in self.asked)

    async def until_asked(self, times: int) -> None:
        """Waits for that many requests in all."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.asked) >= times)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await self._answer(await _head(reader), writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: Asked, writer: asyncio.StreamWriter) -> bool:
        """Answers one request; whether the connection goes on."""
        async with self.arrived:
            self.asked.append(head)
            self.arrived.notify_all()
        match self.moods.get(head.host, self.mood):
            case Mood.HONEST:
                writer.write(_response(*self._find(head)))
                return True
            case Mood.HELD:
                await self.release.wait()
                writer.write(_response(*self._find(head)))
                return True
            case Mood.OUTAGE:
                writer.write(_response(503, b"Mandarin"))
            case Mood.BUSY:
                writer.write(_response(429, b"Mandarin", "Retry-After: 7"))
            case Mood.REFUSING:
                writer.write(_response(400, self.error.encode()))
            case Mood.MOVED:
                writer.write(_response(302, b"", f"Location: {self.location}"))
            case Mood.BOMB:
                writer.write(_response(200, gzip.compress(bytes(1_000_000)), "Content-Encoding: gzip"))
            case Mood.BOASTING:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n{")
            case Mood.MUMBLING:
                writer.write(b"220 mail.example ESMTP\r\n")
            case Mood.HUNG_UP:
                pass
            case Mood.STALLING:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{")
                await self.release.wait()
            case Mood.ENDLESS:
                writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
                await _without_end(writer, b"x" * 65_536)
            case Mood.HUGE_HEADERS:
                writer.write(b"HTTP/1.1 200 OK\r\n")
                await _without_end(writer, b"X-Mandarin: " + b"x" * 65_536 + b"\r\n")
            case Mood.PATIENT:
                await _without_end(writer, b"HTTP/1.1 100 Continue\r\n\r\n" * 100)
        return False

    def _find(self, head: Asked) -> tuple[int, bytes]:
        parts = urlsplit(head.path)
        if parts.path in self.files:
            return 200, self.files[parts.path]
        if parts.path == "/xrpc/com.atproto.identity.resolveHandle":
            did = self.handles.get(parse_qs(parts.query)["handle"][0])
            return (400, b'{"error":"HandleNotFound"}') if did is None else (200, json.dumps({"did": did}).encode())
        if parts.path == "/.well-known/atproto-did" and head.host in self.well_known:
            return 200, self.well_known[head.host].encode()
        if parts.path == "/.well-known/did.json":
            return self._document(f"did:web:{head.host.replace(':', '%3A')}")
        did, _, log = parts.path.removeprefix("/").partition("/")
        if log == "log/audit" and did in self.audit_logs:
            return 200, json.dumps(self.audit_logs[did]).encode()
        if did in self.tombstoned:
            return 410, json.dumps({"message": f"DID not available: {did}"}).encode()
        return self._document(did)

    def _document(self, did: str) -> tuple[int, bytes]:
        document = self.documents.get(did)
        if document is None:
            return 404, json.dumps({"message": f"DID not registered: {did}"}).encode()
        return 200, document if isinstance(document, bytes) else json.dumps(document).encode()


@asynccontextmanager
async def directory(tls: ssl.SSLContext | None = None) -> AsyncGenerator[Directory]:
    """A directory that listens until the end of the block."""
    fake = Directory()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        await fake._serve(reader, writer)

    if tls is not None:
        tls.set_servername_callback(lambda _connection, name, _context: fake.server_names.append(name))
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)
        await server.wait_closed()


def document(did: str, *, handle: str, pds: str, key: str) -> dict[str, Any]:
    """A DID document; `key` is a did:key."""
    return {
        "id": did,
        "alsoKnownAs": [f"at://{handle}"],
        "verificationMethod": [
            {"id": f"{did}#atproto", "type": "Multikey", "publicKeyMultibase": key.removeprefix("did:key:")}
        ],
        "service": [{"id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": pds}],
    }


async def _head(reader: asyncio.StreamReader) -> Asked:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:-2])}
    return Asked(headers["host"], lines[0].split(" ")[1], headers)


def _response(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} Said So", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _without_end(writer: asyncio.StreamWriter, part: bytes) -> None:
    while True:
        writer.write(part)
        await writer.drain()
