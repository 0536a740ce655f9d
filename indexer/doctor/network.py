"""One request to a host, step by step, so that it is known which step fails."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum, auto
from http import HTTPStatus
from time import perf_counter
from typing import Final, TypeVar
from urllib.parse import urlsplit

from memory.errors import Unavailable

_MAX_ADDRESSES_TRIED: Final = 4
_FAREWELL_S: Final = 1.0
_MAX_BODY_BYTES: Final = 65_536
_STATUS_LINE: Final = re.compile(r"HTTP/1\.[01] (\d{3})\b")
_DEFAULT_PORTS: Final = {"https": 443, "http": 80}
_CLOSE_FRAME: Final = b"\x88\x80\0\0\0\0"  # masked by zeros, without a reason: polite to a firehose, harmless to others

_T = TypeVar("_T")


class Step(Enum):
    """How far a request came."""

    NAME = auto()
    CONNECTION = auto()
    TLS = auto()
    CERTIFICATE = auto()
    HTTP = auto()


class NoAnswer(Unavailable):
    """A host does not answer."""

    def __init__(self, step: Step, reason: str) -> None:
        self.step = step
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a URL leads."""

    host: str
    port: int
    tls: bool

    @classmethod
    def of(cls, url: str) -> Endpoint:
        """Of an `http:` or `https:` URL as `normalise_source` spells it."""
        parts = urlsplit(url)
        assert parts.hostname is not None
        return cls(parts.hostname, parts.port or _DEFAULT_PORTS[parts.scheme], parts.scheme == "https")

    @property
    def authority(self) -> str:
        """For the `Host` header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS["https" if self.tls else "http"] else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Answer:
    """The head of an HTTP answer."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    seconds: float  # from the first look-up to the last byte of the head


@dataclass(frozen=True, slots=True)
class Limits:
    """How long each step may take."""

    name_s: float = 6.0
    connection_s: float = 5.0  # for each address
    tls_s: float = 5.0
    http_s: float = 10.0


async def look_up(host: str) -> Sequence[str]:
    """The addresses of a host, as this system knows them; OSError: none."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


@dataclass(frozen=True, slots=True)
class Network:
    """The way out. Tests have a look-up and trusted certificates of their own."""

    look_up: Callable[[str], Awaitable[Sequence[str]]] = look_up
    trust: ssl.SSLContext = field(default_factory=ssl.create_default_context)
    limits: Limits = field(default_factory=Limits)

    async def addresses(self, host: str) -> Sequence[str]:
        """Looks a name up. NoAnswer: it stands for nothing, or nobody can say so."""
        try:
            found = await _within(self.limits.name_s, Step.NAME, self.look_up(host))
        except OSError as failure:
            raise NoAnswer(Step.NAME, f"its name is not found ({failure.strerror})") from None
        except UnicodeError:
            raise NoAnswer(Step.NAME, "its name cannot be one") from None
        if not found:
            raise NoAnswer(Step.NAME, "its name stands for no address")
        return found

    async def get(self, endpoint: Endpoint, path: str, headers: Mapping[str, str] | None = None) -> Answer:
        """Asks, follows no redirect, and hangs up after the head of the answer."""
        async with self._ask(endpoint, path, headers or {}, version="1.1") as (answer, _):
            return answer

    async def read(
        self, endpoint: Endpoint, path: str, headers: Mapping[str, str] | None = None
    ) -> tuple[Answer, bytes]:
        """Asks, follows no redirect, and reads the answer's body, of 64 KiB at most."""
        # By HTTP/1.0, in which a body comes in one piece and ends with the connection.
        async with self._ask(endpoint, path, headers or {}, version="1.0") as (answer, reader):
            return answer, await _within(self.limits.http_s, Step.HTTP, _read_body(reader))

    @asynccontextmanager
    async def _ask(
        self, endpoint: Endpoint, path: str, headers: Mapping[str, str], *, version: str
    ) -> AsyncGenerator[tuple[Answer, asyncio.StreamReader]]:
        started = perf_counter()
        lines = {"Host": endpoint.authority, "User-Agent": "memory-appview", "Connection": "close", **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        async with self._open(endpoint) as (reader, writer):
            try:
                writer.write(f"GET {path} HTTP/{version}\r\n{head}\r\n".encode("ascii"))
                received = await _within(self.limits.http_s, Step.HTTP, reader.readuntil(b"\r\n\r\n"))
            except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                raise NoAnswer(Step.HTTP, "it hangs up instead of answering") from None
            answer = _parse(received, perf_counter() - started)
            if answer.status == HTTPStatus.SWITCHING_PROTOCOLS:
                writer.write(_CLOSE_FRAME)
            yield answer, reader

    @asynccontextmanager
    async def _open(self, endpoint: Endpoint) -> AsyncGenerator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await self._connect(endpoint)
        try:
            if endpoint.tls:
                await self._start_tls(writer, endpoint.host)
            yield reader, writer
            writer.close()
            with suppress(OSError):  # among them that it takes too long
                async with asyncio.timeout(_FAREWELL_S):
                    await writer.wait_closed()
        finally:
            writer.transport.abort()

    async def _connect(self, endpoint: Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        failure = NoAnswer(Step.CONNECTION, "no connection")
        for address in (await self.addresses(endpoint.host))[:_MAX_ADDRESSES_TRIED]:
            try:
                connecting = asyncio.open_connection(address, endpoint.port)
                return await _within(self.limits.connection_s, Step.CONNECTION, connecting)
            except NoAnswer as silence:
                failure = silence
            except OSError:
                failure = NoAnswer(Step.CONNECTION, f"no connection to port {endpoint.port}")
        raise failure

    async def _start_tls(self, writer: asyncio.StreamWriter, host: str) -> None:
        try:
            await _within(self.limits.tls_s, Step.TLS, writer.start_tls(self.trust, server_hostname=host))
        except ssl.SSLCertVerificationError as failure:
            raise NoAnswer(Step.CERTIFICATE, f"its certificate is refused ({failure.verify_message})") from None
        except OSError:
            raise NoAnswer(Step.TLS, "it does not speak TLS as we do") from None


async def _within(seconds: float, step: Step, result: Awaitable[_T]) -> _T:
    try:
        async with asyncio.timeout(seconds):
            return await result
    except TimeoutError:
        raise NoAnswer(step, f"silence for {seconds:g} s") from None


async def _read_body(reader: asyncio.StreamReader) -> bytes:
    try:
        await reader.readexactly(_MAX_BODY_BYTES + 1)
    except asyncio.IncompleteReadError as ended:
        return ended.partial
    except OSError:
        raise NoAnswer(Step.HTTP, "it hangs up instead of answering") from None
    raise NoAnswer(Step.HTTP, f"its answer is longer than {_MAX_BODY_BYTES:,} bytes")


def _parse(head: bytes, seconds: float) -> Answer:
    first, *lines = head.decode("latin-1").split("\r\n")
    status = _STATUS_LINE.match(first)
    if status is None:
        raise NoAnswer(Step.HTTP, "its answer is no HTTP")
    fields = (line.partition(":") for line in lines if line)
    return Answer(int(status[1]), {name.strip().lower(): value.strip() for name, _, value in fields}, seconds)
