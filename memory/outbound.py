"""The only way out: requests to hosts that strangers named, without harm to us or to what is near us.

A name is looked up once a connection, every address that it has must be on the public internet, and the connection goes
to an address that was checked, with the name for TLS: a second look-up, which could answer otherwise, does not happen.
No cookies, no proxies, no compression, no credentials but those that the asker sends along, and no redirects unless
asked for, each judged like a first URL, and none of a request that has headers or a body of its own.

Development is the exception: networks that the operator allows (`INDEXER_ALLOW_PRIVATE_ADDRESSES`) may be asked too,
on any port and by plain HTTP. Elsewhere a port is 443 or from 1024 on: PDSes run on odd ones, but below 1024 nothing
serves HTTPS that is meant for us, and much could be annoyed by it.
"""

from __future__ import annotations

import asyncio
import math
import re
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from types import TracebackType
from typing import Annotated, Final, Literal, Self
from urllib.parse import urljoin, urlsplit

from httpcore2 import (
    SOCKET_OPTION,
    URL,
    AnyIOBackend,
    AsyncConnectionPool,
    AsyncNetworkBackend,
    AsyncNetworkStream,
    ConnectError,
    ConnectTimeout,
    NetworkError,
    ProtocolError,
    Request,
    Response,
    TimeoutException,
    default_ssl_context,
)
from pydantic import BaseModel, StringConstraints, ValidationError

from memory.identifiers import normalise_source
from memory.outbound_addresses import Address, Network, is_public, is_within
from memory.outbound_dns import Names
from memory.outbound_errors import (
    AnswerTooLarge,
    DnsUnavailable,
    ForbiddenAddress,
    ForbiddenUrl,
    HostRefused,
    HostUnavailable,
    HostUnknown,
    NameUnknown,
    UnreadableAnswer,
)
from memory.outbound_hosts import Hosts

USER_AGENT: Final = "memory-appview"
MAX_REDIRECTS: Final = 3

Headers = Sequence[tuple[str, str]]
"""Of one request, beside those that every request has; a value may be secret."""

_MAX_ADDRESSES_TRIED: Final = 4
_MAX_ERROR_BYTES: Final = 8 * 1024
_KEEP_ALIVE_S: Final = 4.0  # many servers hang up after five
MAX_KEPT_ALIVE: Final = 64
_RETRY_AFTER_S: Final = 30.0  # of a 429 that does not say
_HTTPS: Final = 443
_FIRST_UNPRIVILEGED_PORT: Final = 1024
_URL: Final = re.compile(r"[!-~]{1,4096}")
_BUSY: Final = (408, 425, 429)
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_NOT_IMPLEMENTED: Final = 501  # the one server error that does not pass


@dataclass(frozen=True, slots=True)
class Limits:
    """Of a small answer. Time spent waiting for one's turn does not count."""

    max_bytes: int = 256 * 1024
    connect_s: float = 5.0  # for each address of the host
    total_s: float = 10.0  # from look-up of the name to the last byte; a redirect starts anew
    redirects: int = 0


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Of a large answer: `grace_s` in all, and beyond it the time that its bytes take at `min_bytes_per_s`.

    Whoever trickles just fast enough for that holds a slot for `total_s` at most.
    """

    max_bytes: int
    min_bytes_per_s: int = 16 * 1024
    grace_s: float = 30.0  # the first byte must come within it
    total_s: float = math.inf
    connect_s: float = 5.0


class Outbound:
    """Asks hosts. One for each kind of work: those that share one share its hosts' turns and slots.

    `allowed`: networks beside the public internet. `network` opens the sockets, to addresses that were checked.
    `kept_alive`: connections that stay open for the next request, each looked at whenever one begins or ends.
    """

    def __init__(
        self,
        names: Names,
        hosts: Hosts,
        *,
        allowed: Sequence[Network] = (),
        network: AsyncNetworkBackend | None = None,
        ssl_context: ssl.SSLContext | None = None,
        kept_alive: int = MAX_KEPT_ALIVE,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        network = network or AnyIOBackend()
        context = ssl_context or default_ssl_context()
        networks = tuple(allowed)
        self._hosts = hosts
        self._monotonic = monotonic
        self._pools = {
            "https": _pool(_CheckedNetwork(names, network, networks, tls=True), context, kept_alive),
            "http": _pool(_CheckedNetwork(names, network, networks, tls=False), context, kept_alive),
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for pool in self._pools.values():
            await pool.aclose()

    async def get(self, url: str, limits: Limits | None = None, *, headers: Headers = ()) -> bytes:
        """The body of a 200.

        Raises HostUnavailable for what may pass; HostRefused (any other status), AnswerTooLarge, UnreadableAnswer,
        ForbiddenUrl and ForbiddenAddress for what will not. With `headers`, no redirect is followed.
        """
        limits = limits or Limits()
        redirects_left = 0 if headers else min(limits.redirects, MAX_REDIRECTS)
        while True:
            target = _Target.of(url)
            try:
                return await self._ask(_Call("GET", target, headers), limits)
            except HostRefused as refused:
                if refused.location is None or redirects_left == 0:
                    raise
                redirects_left -= 1
                url = _joined(url, refused.location)

    async def post(self, url: str, json: bytes, limits: Limits | None = None, *, headers: Headers = ()) -> bytes:
        """The body of a 200 after these bytes of JSON were sent; raises what `get` raises. Follows no redirect."""
        call = _Call("POST", _Target.of(url), headers, json)
        return await self._ask(call, limits or Limits())

    @asynccontextmanager
    async def stream(
        self, url: str, limits: StreamLimits, *, headers: Headers = ()
    ) -> AsyncGenerator[AsyncIterator[bytes]]:
        """The body of a 200, in chunks as they come; raises what `get` raises, here and while it is read.

        Only waiting for the host counts against its time: the reader may take its own.
        """
        target = _Target.of(url)
        async with self._hosts.turn(target.host):
            with _failures_of(target.host):
                async with asyncio.timeout(limits.grace_s):
                    call = _Call("GET", target, headers)
                    response = await self._open(call, limits.connect_s, limits.max_bytes)
            async with aclosing(response), aclosing(self._chunks(response, target.host, limits)) as chunks:
                yield chunks

    async def _ask(self, call: _Call, limits: Limits) -> bytes:
        host = call.target.host
        async with self._hosts.turn(host):
            with _failures_of(host):
                async with asyncio.timeout(limits.total_s):
                    async with aclosing(await self._open(call, limits.connect_s, limits.max_bytes)) as response:
                        return await _read(response, host, limits.max_bytes)

    async def _open(self, call: _Call, connect_s: float, max_bytes: int) -> Response:
        """The response of a 200, its body not read yet; any other is raised."""
        target = call.target
        request = Request(
            call.method,
            target.url,
            headers=[
                ("Host", target.authority),
                ("User-Agent", USER_AGENT),
                ("Accept", "*/*"),
                ("Accept-Encoding", "identity"),
                *call.headers,
                *call.body_headers(),
            ],
            content=call.json,
            extensions={"timeout": {"connect": connect_s}},
        )
        response = await self._pools[target.scheme].handle_async_request(request)
        try:
            await _judge(response, target.host, max_bytes)
        except BaseException:
            await response.aclose()
            raise
        return response

    async def _chunks(self, response: Response, host: str, limits: StreamLimits) -> AsyncGenerator[bytes]:
        received, waited_s = 0, 0.0
        async with aclosing(response.aiter_stream()) as chunks:
            while True:
                left_s = min(limits.grace_s + received / limits.min_bytes_per_s, limits.total_s) - waited_s
                began = self._monotonic()
                with _failures_of(host):
                    async with asyncio.timeout(max(left_s, 0.0)):
                        chunk = await anext(chunks, None)
                waited_s += self._monotonic() - began
                if chunk is None:
                    return
                received += len(chunk)
                if received > limits.max_bytes:
                    raise AnswerTooLarge(host=host)
                yield chunk


class _CheckedNetwork(AsyncNetworkBackend):
    """Opens connections to hosts whose addresses are all permitted."""

    def __init__(self, names: Names, network: AsyncNetworkBackend, allowed: tuple[Network, ...], *, tls: bool) -> None:
        self._names = names
        self._network = network
        self._allowed = allowed
        self._tls = tls

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  the library's signature
        local_address: str | None = None,
        socket_options: Iterable[SOCKET_OPTION] | None = None,
    ) -> AsyncNetworkStream:
        addresses = await self._addresses(host)
        for address in addresses:
            self._judge(host, address, port)
        failure: Exception = NameUnknown()
        for address in addresses[:_MAX_ADDRESSES_TRIED]:
            try:
                return await self._network.connect_tcp(str(address), port, timeout, local_address, socket_options)
            except (ConnectError, ConnectTimeout) as error:
                failure = error
        raise failure

    async def _addresses(self, host: str) -> Sequence[Address]:
        try:
            return (ip_address(host),)
        except ValueError:
            return await self._names.addresses(host)

    def _judge(self, host: str, address: Address, port: int) -> None:
        if is_within(address, self._allowed):
            return
        if not is_public(address):
            raise ForbiddenAddress(f"{host} is at an address that is not public", host=host)
        if not self._tls:
            raise ForbiddenAddress(f"{host} may be asked by HTTPS only", host=host)
        if port != _HTTPS and port < _FIRST_UNPRIVILEGED_PORT:
            raise ForbiddenAddress(f"{host} is on port {port}, where no HTTPS is", host=host)


@dataclass(frozen=True, slots=True)
class _Target:
    """A URL that may be asked, as far as one can see before the name is looked up."""

    host: str  # as `normalise_source` spells it
    scheme: str
    authority: str  # of `host`
    url: URL

    @classmethod
    def of(cls, url: str) -> _Target:
        """Raises ForbiddenUrl for what is no plain URL of HTTP or HTTPS, or names a user."""
        try:
            parts = urlsplit(url) if _URL.fullmatch(url) else None
            if parts is None or parts.scheme not in ("https", "http"):
                raise ForbiddenUrl
            host = normalise_source(f"{parts.scheme}://{parts.netloc}")
        except ValueError as error:
            raise ForbiddenUrl from error
        place = urlsplit(host)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return cls(
            host,
            parts.scheme,
            place.netloc,
            URL(scheme=parts.scheme, host=place.hostname or "", port=place.port, target=target),
        )


@dataclass(frozen=True, slots=True, repr=False)
class _Call:
    """One request; `headers` may be secret."""

    method: Literal["GET", "POST"]
    target: _Target
    headers: Headers
    json: bytes | None = None

    def body_headers(self) -> Headers:
        """What says what the body is, if there is one."""
        if self.json is None:
            return ()
        return ("Content-Type", "application/json"), ("Content-Length", str(len(self.json)))


class _XrpcError(BaseModel):
    error: Annotated[str, StringConstraints(pattern="^[A-Za-z][A-Za-z0-9_]{0,63}$")]


def _pool(network: AsyncNetworkBackend, ssl_context: ssl.SSLContext, kept_alive: int) -> AsyncConnectionPool:
    return AsyncConnectionPool(
        ssl_context=ssl_context,
        max_connections=None,  # the hosts' slots bound them
        max_keepalive_connections=kept_alive,
        keepalive_expiry=_KEEP_ALIVE_S,
        network_backend=network,
    )


def _joined(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError as error:
        raise ForbiddenUrl from error


@contextmanager
def _failures_of(host: str) -> Generator[None]:
    try:
        yield
    except (TimeoutError, TimeoutException) as error:
        raise HostUnavailable(f"{host} did not answer in time", host=host) from error
    except NameUnknown as error:
        raise HostUnknown(f"{host} has no address", host=host) from error
    except (DnsUnavailable, NetworkError, ProtocolError, OSError) as error:  # what is no TLS record is an ssl.SSLError
        raise HostUnavailable(f"{host} cannot be reached ({type(error).__name__})", host=host) from error


async def _judge(response: Response, host: str, max_bytes: int) -> None:
    """Raise unless the body is there for us to read, and no larger than that if it tells its length."""
    headers = {name.lower(): value.decode("latin-1") for name, value in response.headers}
    status = response.status
    if (status >= 500 and status != _NOT_IMPLEMENTED) or status in _BUSY:
        retry_after_s = _seconds(headers.get(b"retry-after")) or (_RETRY_AFTER_S if status == 429 else None)
        raise HostUnavailable(f"{host} answered {status}", host=host, retry_after_s=retry_after_s)
    if status in _REDIRECTS:
        raise HostRefused(host, status, location=headers.get(b"location"))
    if status != 200:
        raise HostRefused(host, status, error=await _error_name(response, host))
    if headers.get(b"content-encoding", "identity").lower() != "identity":
        raise UnreadableAnswer(host=host)
    if int(headers.get(b"content-length", "0")) > max_bytes:
        raise AnswerTooLarge(host=host)


async def _error_name(response: Response, host: str) -> str | None:
    try:
        return _XrpcError.model_validate_json(await _read(response, host, _MAX_ERROR_BYTES)).error
    except (AnswerTooLarge, ValidationError):
        return None


async def _read(response: Response, host: str, max_bytes: int) -> bytes:
    body = bytearray()
    async with aclosing(response.aiter_stream()) as chunks:
        async for chunk in chunks:
            body += chunk
            if len(body) > max_bytes:
                raise AnswerTooLarge(host=host)
    return bytes(body)


def _seconds(retry_after: str | None) -> float | None:
    return float(retry_after) if retry_after is not None and re.fullmatch("[0-9]{1,9}", retry_after) else None
