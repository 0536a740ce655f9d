"""The HTTP edge, one for all faces: an ASGI application that turns a request into an answer, whatever happens.

It bounds sizes and times, finds out who asks, counts, and lets answers travel. A face says what is answered and how its
errors look. Neither queries nor texts of failures get out of here: not into logs, not into error messages.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Final, Protocol

from starlette.types import Receive, Scope, Send

from appview.access import ANYBODY, Credential, Viewer, read_credential
from appview.metrics import Metrics
from appview.rates import Allowance, Limits, address_of, tightest
from appview.refusals import (
    InternalError,
    InvalidRequest,
    MethodNotAllowed,
    NotEnoughResources,
    RateLimited,
    Refusal,
    RequestTooLarge,
    RequestTooSlow,
    UrlTooLong,
)
from appview.representation import VARY, Headers, Reply, represent
from memory.errors import Unavailable
from memory.tasks import TaskGroup
from memory.telemetry import get_logger

MAX_URL_BYTES: Final = 32_768
MAX_BODY_BYTES: Final = 131_072
ANSWER_TIMEOUT_S: Final = 20
BODY_TIMEOUT_S: Final = 10

_PIECE_BYTES: Final = 131_072

JSON: Final[Headers] = (
    (b"content-type", b"application/json; charset=utf-8"),
    (b"x-content-type-options", b"nosniff"),
)

_EXPOSED: Final = (
    b"Atproto-Repo-Rev, ETag, RateLimit-Limit, RateLimit-Policy, RateLimit-Remaining, RateLimit-Reset,"
    b" Request-Id, Retry-After, WWW-Authenticate"
)
_CORS: Final = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", _EXPOSED),
)
_PREFLIGHT: Final = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, OPTIONS"),
    (b"access-control-allow-headers", b"Authorization, Content-Type, Atproto-Proxy, Atproto-Accept-Labelers"),
    (b"access-control-max-age", b"86400"),
)
_CHALLENGE: Final = (b"www-authenticate", b"Bearer")

_REFUSAL_WEIGHT: Final = 10
"""A tenth of what one network may have refused may be of one account: many ask from the network of their PDS."""


@dataclass(frozen=True, slots=True, repr=False)
class Request:
    """One request, its body still to be read. `id` is random, and told to the client."""

    id: str
    method: str
    path: str
    query: bytes
    headers: Headers
    receive: Receive
    address: str | None  # the network that it comes from; null: this very machine

    def header(self, name: bytes) -> bytes:
        """The first header of that name, which is in lower case; empty if there is none."""
        return next((value for header, value in self.headers if header == name), b"")

    def is_json(self) -> bool:
        """Whether the body is said to be JSON."""
        return self.header(b"content-type").partition(b";")[0].strip().lower() == b"application/json"

    async def read_body(self) -> bytes:
        """The whole body. Raise RequestTooLarge, RequestTooSlow, or InvalidRequest for one that ends early."""
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                return await self._read_body()
        except TimeoutError:
            raise RequestTooSlow(f"A body must come within {BODY_TIMEOUT_S} seconds.") from None

    async def _read_body(self) -> bytes:
        body = bytearray()
        while True:
            message = await self.receive()
            if message["type"] == "http.disconnect":
                raise InvalidRequest("The body ended early.")
            body += message.get("body", b"")
            if len(body) > MAX_BODY_BYTES:
                raise RequestTooLarge(f"A body may have {MAX_BODY_BYTES:,} bytes.")
            if not message.get("more_body", False):
                return bytes(body)


@dataclass(frozen=True, slots=True)
class Action:
    """What a request wants to do, as whoever signs a service-auth token for it has to name it.

    `lxm`: the method. `acts`: it changes something, so that a token is good for it once. `sealed`: its answer is for
    nobody else, whatever it draws on. `of_authority`: it is for authorities of Spaces, to tell what happens there.
    """

    lxm: str
    acts: bool = False
    sealed: bool = False
    of_authority: bool = False


class Face(Protocol):
    """What is served below one path."""

    @property
    def prefix(self) -> str:
        """The path, with a slash at its end."""
        ...

    def label(self, path: str) -> str:
        """One of a few names for what is asked there, for metrics and logs."""
        ...

    def action_of(self, request: Request) -> Action | None:
        """What the request wants to do; None: nothing for which it matters who asks."""
        ...

    async def answer(self, request: Request, viewer: Viewer) -> Reply:
        """The answer. Raises Refusal, and Unavailable when the database is away."""
        ...

    def refuse(self, refusal: Refusal, request: Request) -> Reply:
        """An error in the face's own shape."""
        ...


FindViewer = Callable[[Credential, str, Action], Awaitable[Viewer]]
"""Who asks, by a request's credential and its client's address. Raises Refusal for one that does not hold."""


@dataclass(slots=True)
class _Told:
    """What an answer's headers say beside the answer."""

    allowance: Allowance | None = None  # of whoever asks; None: it is not counted
    signed_in: bool = False
    sealed: bool = False  # it may hold what is not for everybody
    begun: str | None = None  # for whom a request is under way until the answer is sent
    begun_from: str | None = None  # of the signed-in, from where


@dataclass(frozen=True, slots=True)
class Edge:
    """The ASGI application of one face."""

    face: Face
    find_viewer: FindViewer
    limits: Limits
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["method"] == "OPTIONS":
            await _send(send, Reply(204, b"", _CORS + _PREFLIGHT))
            return
        started = perf_counter()
        request = _request(scope, receive)
        label = self.face.label(request.path)
        told = _Told()
        try:
            await self._serve(request, scope, send, told, label, started)
        finally:
            self.limits.clients.end(told.begun)
            self.limits.networks.end(told.begun_from)

    async def _serve(self, request: Request, scope: Scope, send: Send, told: _Told, label: str, started: float) -> None:
        reply = await self._reply(request, label, scope, told)
        reply = replace(reply, headers=(*_CORS, *reply.headers, *_told_headers(request, told)))
        self.metrics.answers.labels(label, reply.status).inc()
        self.metrics.seconds.labels(label).observe(perf_counter() - started)
        if reply.following is not None:
            await self._send_pieces(request.receive, send, reply, reply.following, label)
            return
        if request.method != "POST":
            reply = await represent(reply, request.headers, compressible=not told.sealed)
        await _send(send, reply)

    async def _reply(self, request: Request, label: str, scope: Scope, told: _Told) -> Reply:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await self._answer(request, scope, told)
        except Refusal as refusal:
            return self._refuse(refusal, request, label)
        except (Unavailable, TimeoutError):
            get_logger().warning("answer_unavailable", path=label)
            return self._refuse(NotEnoughResources(), request, label)
        except Exception as failure:  # noqa: BLE001  the edge: one failed answer must not take others along
            self._count_failure(label, failure)
            return self._refuse(InternalError(), request, label)

    async def _answer(self, request: Request, scope: Scope, told: _Told) -> Reply:
        if len(scope.get("raw_path") or b"") + len(request.query) > MAX_URL_BYTES:
            raise UrlTooLong(f"A URL may have {MAX_URL_BYTES:,} bytes; searches also take POST.")
        viewer = await self._viewer(request, request.address, told)
        return await self.face.answer(request, viewer)

    async def _viewer(self, request: Request, address: str | None, told: _Told) -> Viewer:
        """Who asks, counted: the signed-in by themselves and with their neighbours, others by where they ask from."""
        limits = self.limits
        action = self.face.action_of(request)
        credential = None if action is None else read_credential(request.headers)
        if action is None or credential is None:
            told.allowance = limits.clients.take(address)
            told.begun = limits.clients.begin(address)
            return ANYBODY
        told.signed_in = True
        viewer = await self._find_viewer(credential, address, action, told)
        told.sealed = bool(viewer.spaces.spaces) or action.acts or action.sealed
        client = None if address is None else viewer.did
        limits.networks.require(address)  # who is refused for the sake of all is not counted for it
        told.allowance = tightest(limits.clients.take(client), limits.networks.take(address))
        told.begun = limits.clients.begin(client)
        told.begun_from = limits.networks.begin(address)
        return viewer

    async def _find_viewer(self, credential: Credential, address: str | None, action: Action, told: _Told) -> Viewer:
        """Who asks. Refusals are counted apart: who guesses takes nothing from those who ask from the same network."""
        if address is None:
            return await self.find_viewer(credential, "", action)
        refusals, claimed = self.limits.refusals, credential.claimed_did
        own = None if claimed is None else f"{address} {claimed}"
        self.limits.clients.require(claimed)
        self.limits.networks.require(address)
        refusals.require(own)
        refusals.require(address)
        try:
            return await self.find_viewer(credential, address, action)
        except Refusal:
            refusals.take(own, weight=_REFUSAL_WEIGHT)
            told.allowance = refusals.take(address)
            raise

    def _refuse(self, refusal: Refusal, request: Request, label: str) -> Reply:
        self.metrics.refusals.labels(label, refusal.error).inc()
        reply = self.face.refuse(refusal, request)
        headers = reply.headers
        if refusal.retry_after_s is not None:
            headers += ((b"retry-after", str(refusal.retry_after_s).encode()),)
        match refusal:
            case MethodNotAllowed():
                headers += ((b"allow", refusal.allowed.encode()),)
            case RateLimited():
                headers += refusal.told
            case RequestTooSlow():
                headers += ((b"connection", b"close"),)  # the rest of the body is still to come
            case Refusal(status=401):
                headers += (_CHALLENGE,)
            case _:
                pass
        return replace(reply, headers=headers)

    async def _send_pieces(
        self, receive: Receive, send: Send, reply: Reply, following: AsyncIterator[bytes], label: str
    ) -> None:
        """Send an answer in pieces, until the client is gone."""
        await send({"type": "http.response.start", "status": reply.status, "headers": [*reply.headers, VARY]})
        await send({"type": "http.response.body", "body": reply.body, "more_body": True})
        async with TaskGroup() as group:
            gone = group.create_task(_wait_for_disconnect(receive))
            while not gone.done():
                piece = await self._next_piece(following, label)
                if piece is None:
                    break  # unfinished: the server closes the connection, by which the client notices
                await send({"type": "http.response.body", "body": piece, "more_body": bool(piece)})
                if not piece:
                    break
            gone.cancel()

    async def _next_piece(self, following: AsyncIterator[bytes], label: str) -> bytes | None:
        """The next piece, empty at the end; None if it cannot be made."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await anext(following, b"")
        except Exception as failure:  # noqa: BLE001  the edge, as above
            self._count_failure(label, failure)
            return None

    def _count_failure(self, label: str, failure: Exception) -> None:
        self.metrics.failures.labels(label).inc()
        get_logger().error("answer_failed", path=label, exc_info=failure)


def _request(scope: Scope, receive: Receive) -> Request:
    return Request(
        secrets.token_hex(12),
        scope["method"],
        scope["path"],
        scope["query_string"],
        tuple(scope["headers"]),
        receive,
        address_of(scope),
    )


def _told_headers(request: Request, told: _Told) -> Headers:
    headers: Headers = ((b"request-id", request.id.encode()),)
    if told.allowance is not None:
        headers += told.allowance.headers()
    if told.sealed:
        headers += ((b"cache-control", b"private, no-store"),)
        if request.method == "POST":  # others are told with the answer
            headers += (VARY,)
    elif told.signed_in:
        headers += ((b"cache-control", b"private"),)
    return headers


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(send: Send, reply: Reply) -> None:
    headers = [*reply.headers]
    if reply.status not in (204, 304):  # which have no body to have a length
        headers.append((b"content-length", str(len(reply.body)).encode()))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    # A piece waits until the client has read most of the one before: what is not read yet is under way.
    last = max(0, len(reply.body) - 1) // _PIECE_BYTES * _PIECE_BYTES
    for start in range(0, last, _PIECE_BYTES):
        piece = reply.body[start : start + _PIECE_BYTES]
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": reply.body[last:]})
