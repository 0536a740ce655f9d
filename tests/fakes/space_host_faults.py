"""How a Space host misbehaves, and the plumbing of requests and answers that carries it out."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

JSON: Final = "application/json; charset=utf-8"
CAR: Final = "application/vnd.ipld.car"

# What the reference says to everybody it asked who they are.
PRIVATE: Final = ("cache-control: private",)

_CHUNK_BYTES: Final = 16 * 1024


class Fault(Enum):
    """How a request is answered that is not answered well."""

    # What is said
    TORN = auto()  # `getRepo` while a writer is at work: the commit is newer than the index
    WRONG_HASH = auto()  # of commits: not that of the repo, signed all the same
    WRONG_SIGNATURE = auto()  # of commits: by another key
    WRONG_MAC = auto()  # of commits
    WRONG_RECORDS = auto()  # one record is not what its CID says
    UNORDERED = auto()  # `getRepo`: the index is in no canonical order
    FOREIGN = auto()  # the answer about another author's repo
    MISSING_PAGE = auto()  # the second page of a list is left out
    SAME_CURSOR = auto()  # a list that never ends
    # How it is said
    SLOW = auto()  # well, once `release` is set
    HUNG = auto()  # never
    STALLED = auto()  # half of the answer, the rest once `release` is set
    CUT = auto()  # half of the answer, then the connection is torn
    TRUNCATED = auto()  # half of the answer, as if it were the whole: broken JSON, a CAR without its end
    ENDLESS = auto()  # a body without an end
    BOASTING = auto()  # a Content-Length of a terabyte
    BUSY = auto()  # 429, come back in `retry_after_s`
    BUSY_WITHOUT_A_WORD = auto()  # 429
    OVERLOADED = auto()  # 503, come back in `retry_after_s`
    BROKEN = auto()  # 500
    MOVED = auto()  # 302 to `location`
    REFUSING = auto()  # `refusal`: a status and the name of an error
    GIBBERISH = auto()  # 200, and a page for people
    BOMB = auto()  # 200, gzip that nobody asked for


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it came."""

    method: str  # the last part of the NSID
    verb: str
    nsid: str
    parameters: Mapping[str, str]
    headers: Mapping[str, str] = field(repr=False)  # names in lower case
    body: bytes = field(repr=False)
    fault: Fault | None = None

    @property
    def repo(self) -> str | None:
        return self.parameters.get("repo")


@dataclass(frozen=True, slots=True)
class Answer:
    """What is answered; no kind, no body."""

    status: int
    body: bytes = b""
    kind: str | None = None
    headers: tuple[str, ...] = ()


def in_json(said: Mapping[str, Any], status: int = 200, *headers: str) -> Answer:
    return Answer(status, json.dumps(said, ensure_ascii=False).encode(), JSON, headers)


async def read_call(reader: asyncio.StreamReader) -> Call:
    """The next request of a connection."""
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:-2])}
    verb, target = lines[0].split(" ")[:2]
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    parameters = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    nsid = parts.path.removeprefix("/xrpc/")
    return Call(nsid.rpartition(".")[2], verb, nsid, parameters, headers, body)


@dataclass
class Faults:
    """Which requests are answered badly, and how. The most particular word counts."""

    ordered: dict[tuple[str | None, str | None], tuple[Fault, int | None]] = field(
        default_factory=dict[tuple[str | None, str | None], tuple[Fault, int | None]]
    )
    retry_after_s: int | str = 7
    location: str = "http://10.0.0.1/"
    refusal: tuple[int, str] = (400, "InvalidRequest")
    release: asyncio.Event = field(default_factory=asyncio.Event)
    met: Counter[Fault] = field(default_factory=Counter[Fault])  # how often each was

    def order(self, fault: Fault | None, method: str | None, did: str | None, times: int | None) -> None:
        """From now on, or for that many requests; null: no longer."""
        if fault is None:
            self.ordered.pop((method, did), None)
        else:
            self.ordered[method, did] = fault, times

    def next(self, call: Call) -> Fault | None:
        """What is wrong with the answer to this request."""
        for key in ((call.method, call.repo), (None, call.repo), (call.method, None), (None, None)):
            if key in self.ordered:
                fault, times = self.ordered[key]
                if times is not None:
                    self.order(fault if times > 1 else None, *key, times - 1)
                self.met[fault] += 1
                return fault
        return None

    def instead(self, fault: Fault | None) -> Answer | None:
        """What is answered without a look at the request."""
        match fault:
            case Fault.BUSY:
                return Answer(429, b"Mandarin", None, (f"retry-after: {self.retry_after_s}",))
            case Fault.BUSY_WITHOUT_A_WORD:
                return in_json({"error": "RateLimitExceeded", "message": "Rate Limit Exceeded"}, 429)
            case Fault.OVERLOADED:
                return Answer(503, b"Mandarin", None, (f"retry-after: {self.retry_after_s}",))
            case Fault.BROKEN:
                return in_json({"error": "InternalServerError", "message": "Internal Server Error"}, 500)
            case Fault.MOVED:
                return Answer(302, b"", None, (f"location: {self.location}",))
            case Fault.REFUSING:
                return in_json({"error": self.refusal[1], "message": "Mandarin"}, self.refusal[0])
            case Fault.GIBBERISH:
                return Answer(200, b"<html>Mandarin</html>", "text/html")
            case Fault.BOMB:
                return Answer(200, gzip.compress(bytes(10_000_000)), JSON, ("content-encoding: gzip",))
            case _:
                return None

    async def wait(self, reader: asyncio.StreamReader) -> None:
        """For `release`, or for the client to hang up."""
        waits: list[asyncio.Task[Any]] = [
            asyncio.create_task(self.release.wait()),
            asyncio.create_task(reader.read(1)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def send(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer, fault: Fault | None
    ) -> bool:
        """An answer, for as long as the fault lets it; whether the connection goes on."""
        head = [f"HTTP/1.1 {answer.status} Said So", *answer.headers]
        if answer.kind is not None:
            head.append(f"content-type: {answer.kind}")
        if fault is Fault.BOASTING:
            writer.write("\r\n".join([*head, "content-length: 1000000000000", "", ""]).encode())
            return False
        body, half = answer.body, len(answer.body) // 2
        if fault is Fault.TRUNCATED:
            body = body[:half]
        chunked = answer.kind == CAR or fault is Fault.ENDLESS
        head.append("transfer-encoding: chunked" if chunked else f"content-length: {len(body)}")
        writer.write("\r\n".join([*head, "", ""]).encode())
        while fault is Fault.ENDLESS:
            await _send(writer, bytes(_CHUNK_BYTES), chunked=True)
        if fault in (Fault.STALLED, Fault.CUT):
            await _send(writer, body[:half], chunked=chunked)
            if fault is Fault.CUT:
                writer.transport.abort()
                return False
            await self.wait(reader)
            body = body[half:]
        await _send(writer, body, chunked=chunked)
        if chunked:
            writer.write(b"0\r\n\r\n")
        return True


async def _send(writer: asyncio.StreamWriter, body: bytes, *, chunked: bool) -> None:
    for start in range(0, len(body), _CHUNK_BYTES):
        chunk = body[start : start + _CHUNK_BYTES]
        writer.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n" if chunked else chunk)
        await writer.drain()
