"""A host on loopback: it serves builders' repos as the reference PDS 0.5.35 does, and misbehaves as told.

    async with pds() as fake:
        alice = fake.add(RepoBuilder("alice"))           # its `host` is now `fake.url`
        fake.misbehave(Fault.CUT, "getRepo", alice.did)  # or without a DID: for everybody
        fake.statuses[alice.did] = "takendown"           # `deleted`: gone without a trace
        fake.freeze(alice.did)                           # from now on an old export is all that is served of it
        fake.lists.fault = ListFault.SAME_CURSOR         # `tests/fakes/repo_lists.py`

A relay or collection directory is the same with `lists_collections`. What is slow waits for `release`.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import random
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from indexer.verify.car import read_car
from memory.identifiers import cid_text
from tests.builders import RepoBuilder, write_car
from tests.deadline import DEADLINE_S
from tests.fakes.repo_lists import RepoLists

CAR: Final = "application/vnd.ipld.car"
JSON: Final = "application/json; charset=utf-8"

_CHUNK_BYTES: Final = 16 * 1024


class Fault(Enum):
    """How a request is answered that is not answered well."""

    SLOW = auto()  # well, once `release` is set
    DEAD = auto()  # never
    STALLED = auto()  # half of the answer, the rest once `release` is set
    CUT = auto()  # half of the answer, then the connection is torn
    TRUNCATED = auto()  # half of the answer, as if it were the whole
    WRONG_CIDS = auto()  # one block of the CAR is not what its CID says
    FOREIGN = auto()  # the answer about another repo
    ENDLESS = auto()  # a body without an end
    BOASTING = auto()  # a Content-Length of a terabyte
    BUSY = auto()  # 429, come back in `retry_after_s`
    BUSY_WITHOUT_A_WORD = auto()  # 429
    OVERLOADED = auto()  # 503, come back in `retry_after_s`
    BROKEN = auto()  # 500
    MOVED = auto()  # 302 to `location`
    REFUSING = auto()  # `refusal`: a status and a body
    GIBBERISH = auto()  # 200, and a page for people
    BOMB = auto()  # 200, gzip that nobody asked for


@dataclass(frozen=True, slots=True)
class Asked:
    """One request, and when it came."""

    method: str  # the last part of the NSID
    did: str | None
    parameters: dict[str, str]
    at: float


@dataclass
class Pds:
    """What it holds, what it was asked, and how it answers."""

    clock: Callable[[], float]
    port: int = 0
    repos: dict[str, RepoBuilder] = field(default_factory=dict)
    statuses: dict[str, str | None] = field(default_factory=dict)  # of inactive accounts; null: it does not say why
    frozen: dict[str, tuple[bytes, str, str]] = field(default_factory=dict)  # CAR, CID of its commit, rev
    faults: dict[tuple[str | None, str | None], Fault] = field(default_factory=dict)  # (method, DID); null: any
    lists: RepoLists = field(default_factory=RepoLists)
    lists_collections: bool = False
    unknown_methods: set[str] = field(default_factory=set)
    retry_after_s: int | str = 7
    location: str = "http://10.0.0.1/"
    refusal: tuple[int, bytes] = (400, b"Mandarin")
    car_order: random.Random | None = None  # null: commit, tree, records
    chunk_bytes: int = _CHUNK_BYTES
    asked: list[Asked] = field(default_factory=list)
    at_once: Counter[str] = field(default_factory=Counter[str])  # by method; of all: ""
    most_at_once: Counter[str] = field(default_factory=Counter[str])
    sent_bytes: int = 0  # of bodies
    release: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    # What a test says

    def add(self, builder: RepoBuilder) -> RepoBuilder:
        """Hosts a repo, as it stands whenever it is asked for."""
        builder.host = self.url
        self.repos[builder.did] = builder
        return builder

    def freeze(self, did: str) -> None:
        """Serves a repo as it is now, whatever becomes of it."""
        builder = self.repos[did]
        assert builder.commit is not None
        self.frozen[did] = (builder.car(self.car_order), cid_text(builder.commit[0]), builder.rev or "")

    def misbehave(self, fault: Fault | None, method: str | None = None, did: str | None = None) -> None:
        """From now on; null: it behaves again. The most particular word counts."""
        if fault is None:
            self.faults.pop((method, did), None)
        else:
            self.faults[method, did] = fault

    def asked_for(self, method: str, did: str | None = None) -> int:
        """How often a method was asked for, of one repo or in all."""
        return sum(asked.method == method and did in (None, asked.did) for asked in self.asked)

    async def until(self, condition: Callable[[Pds], bool]) -> None:
        """Waits for something that shows here."""
        async with asyncio.timeout(DEADLINE_S), self.changed:
            await self.changed.wait_for(lambda: condition(self))

    async def until_asked(self, method: str, times: int = 1) -> None:
        """Waits for that many requests of a method in all."""
        await self.until(lambda fake: fake.asked_for(method) >= times)

    # How it answers

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer_next(reader, writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer_next(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        target = (await reader.readuntil(b"\r\n\r\n")).decode().split(" ", 2)[1]
        parts = urlsplit(target)
        parameters = {name: values[0] for name, values in parse_qs(parts.query).items()}
        did = parameters.get("did", parameters.get("repo"))
        asked = Asked(parts.path.rpartition(".")[2], did, parameters, self.clock())
        self.asked.append(asked)
        for name in (asked.method, ""):
            self.at_once[name] += 1
            self.most_at_once[name] = max(self.most_at_once[name], self.at_once[name])
        try:
            await self._tell()
            return await self._answer(asked, reader, writer)
        finally:
            for name in (asked.method, ""):
                self.at_once[name] -= 1
            await self._tell()

    async def _tell(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    def _fault(self, asked: Asked) -> Fault | None:
        for key in ((asked.method, asked.did), (None, asked.did), (asked.method, None), (None, None)):
            if key in self.faults:
                return self.faults[key]
        return None

    async def _answer(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answers one request; whether the connection goes on."""
        fault = self._fault(asked)
        match fault:
            case Fault.DEAD:
                await reader.read(1)  # until the client hangs up
                return False
            case Fault.SLOW:
                await self._released(reader)
            case Fault.BUSY:
                return self._say(writer, 429, b"Mandarin", f"Retry-After: {self.retry_after_s}")
            case Fault.BUSY_WITHOUT_A_WORD:
                return self._say(writer, 429, b'{"error":"RateLimitExceeded","message":"Mandarin"}')
            case Fault.OVERLOADED:
                return self._say(writer, 503, b"Mandarin", f"Retry-After: {self.retry_after_s}")
            case Fault.BROKEN:
                return self._say(writer, 500, b'{"error":"InternalServerError","message":"Mandarin"}')
            case Fault.MOVED:
                return self._say(writer, 302, b"", f"Location: {self.location}")
            case Fault.REFUSING:
                return self._say(writer, *self.refusal)
            case Fault.GIBBERISH:
                return self._say(writer, 200, b"<html>Mandarin</html>", "Content-Type: text/html")
            case Fault.BOMB:
                return self._say(writer, 200, gzip.compress(bytes(10_000_000)), "Content-Encoding: gzip")
            case _:
                pass
        status, body = self._find(asked, fault)
        if status != 200:
            return self._say(writer, status, body)
        kind = CAR if asked.method == "getRepo" else JSON
        return await self._send(reader, writer, body, kind, fault)

    async def _released(self, reader: asyncio.StreamReader) -> None:
        """Waits for `release`, or for the client to hang up."""
        waits: list[asyncio.Task[Any]] = [
            asyncio.create_task(self.release.wait()),
            asyncio.create_task(reader.read(1)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def _send(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, body: bytes, kind: str, fault: Fault | None
    ) -> bool:
        """A body in chunks, as the reference does it, for as long as the fault lets it."""
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n".encode())
        if fault is Fault.BOASTING:
            writer.write(b"Content-Length: 1000000000000\r\n\r\n")
            return False
        writer.write(b"Transfer-Encoding: chunked\r\n\r\n")
        half = len(body) // 2
        await self._send_chunks(writer, body[:half])
        if fault is Fault.STALLED:
            await self._released(reader)
        if fault is Fault.CUT:
            writer.transport.abort()
            return False
        while fault is Fault.ENDLESS:
            await self._send_chunks(writer, bytes(_CHUNK_BYTES))
        if fault is not Fault.TRUNCATED:
            await self._send_chunks(writer, body[half:])
        writer.write(b"0\r\n\r\n")
        return True

    async def _send_chunks(self, writer: asyncio.StreamWriter, body: bytes) -> None:
        for start in range(0, len(body), self.chunk_bytes):
            chunk = body[start : start + self.chunk_bytes]
            writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            await writer.drain()
            self.sent_bytes += len(chunk)

    def _say(self, writer: asyncio.StreamWriter, status: int, body: bytes, *headers: str) -> bool:
        lines = [f"HTTP/1.1 {status} Said So", f"Content-Length: {len(body)}", *headers]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        return True

    def _find(self, asked: Asked, fault: Fault | None) -> tuple[int, bytes]:
        unlisted = asked.method == "listReposByCollection" and not self.lists_collections
        if unlisted or asked.method in self.unknown_methods:
            return _error("InvalidRequest")  # the reference says that no service is configured for it
        match asked.method:
            case "listRepos":
                return self._list(asked.parameters, self.repos)
            case "listReposByCollection":
                wanted = asked.parameters["collection"]
                holders = [did for did, repo in self.repos.items() if wanted in _collections(repo)]
                return self._list(asked.parameters, holders)
            case "getRepoStatus":
                return self._status(asked.did or "", fault)
            case "getRepo" | "getLatestCommit" | "describeRepo":
                return self._repo(asked, fault)
            case _:
                return _error("InvalidRequest")

    def _status(self, did: str, fault: Fault | None) -> tuple[int, bytes]:
        if did not in self.repos or self.statuses.get(did) == "deleted":
            return _error("RepoNotFound")
        named = self._other_than(did) if fault is Fault.FOREIGN else did
        if did in self.statuses:
            status = self.statuses[did]
            return _json({"did": named, "active": False} | ({} if status is None else {"status": status}))
        return _json({"did": named, "active": True, "rev": self._standing(did)[2]})

    def _repo(self, asked: Asked, fault: Fault | None) -> tuple[int, bytes]:
        did = asked.did or ""
        if did not in self.repos or self.statuses.get(did) == "deleted":
            return _error("RepoNotFound")
        if did in self.statuses:
            return _error(f"Repo{(self.statuses[did] or 'deactivated').capitalize()}")
        if fault is Fault.FOREIGN:
            did = self._other_than(did)
        car, commit, rev = self._standing(did)
        match asked.method:
            case "getLatestCommit":
                return _json({"cid": commit, "rev": rev})
            case "describeRepo":
                builder = self.repos[did]
                said: dict[str, Any] = {"handle": builder.handle, "did": did, "didDoc": {"id": did}}
                return _json({**said, "collections": _collections(builder), "handleIsCorrect": True})
            case _:
                return 200, _with_a_wrong_cid(car) if fault is Fault.WRONG_CIDS else car

    def _standing(self, did: str) -> tuple[bytes, str, str]:
        if did in self.frozen:
            return self.frozen[did]
        builder = self.repos[did]
        assert builder.commit is not None, "a repo begins with a commit"
        return builder.car(self.car_order), cid_text(builder.commit[0]), builder.rev or ""

    def _other_than(self, did: str) -> str:
        return next(other for other in self.repos if other != did)

    def _list(self, parameters: dict[str, str], dids: Iterable[str]) -> tuple[int, bytes]:
        there = sorted(did for did in dids if self.statuses.get(did) != "deleted")
        page = self.lists.page(parameters, [self._entry(did) for did in there])
        return _error("InvalidRequest") if page is None else _json(page)

    def _entry(self, did: str) -> dict[str, Any]:
        _, head, rev = self._standing(did)
        entry = {"did": did, "head": head, "rev": rev, "active": did not in self.statuses}
        status = self.statuses.get(did)
        return entry if status is None else {**entry, "status": status}


@asynccontextmanager
async def pds(clock: Callable[[], float] = time.monotonic) -> AsyncGenerator[Pds]:
    """A host that listens until the end of the block."""
    fake = Pds(clock)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        await fake._serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        server.close()
        under_way = list(tasks)
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        await server.wait_closed()


def _collections(builder: RepoBuilder) -> list[str]:
    return sorted({path.partition("/")[0] for path in builder.records})


def _with_a_wrong_cid(car: bytes) -> bytes:
    read = read_car(car)
    *others, (cid, block) = read.blocks.items()
    return write_car(read.root, [*others, (cid, block[:-1] + bytes([block[-1] ^ 1]))])


def _error(name: str) -> tuple[int, bytes]:
    return 400, json.dumps({"error": name, "message": "Mandarin"}).encode()


def _json(said: dict[str, Any]) -> tuple[int, bytes]:
    return 200, json.dumps(said).encode()
