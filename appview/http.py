"""The XRPC edge: an ASGI application for every path under `/xrpc/`.

It turns a request into a `Call`, and whatever happens into one JSON answer. Neither queries nor texts of failures get
out of here: not into logs, not into error messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Final

import orjson
from starlette.types import Receive, Scope, Send

from appview.access import ANYBODY
from appview.call import Answer, Call, Resources, Stream
from appview.lexicon import Method
from appview.metrics import Metrics
from appview.parameters import Parameters, decode_body, decode_query
from appview.refusals import (
    InvalidRequest,
    MethodNotAllowed,
    MethodNotImplemented,
    Refusal,
    RequestTooLarge,
    RequestTooSlow,
    TooBusy,
    UrlTooLong,
)
from appview.representation import Headers, Reply, represent
from memory.errors import Unavailable
from memory.tasks import TaskGroup
from memory.telemetry import get_logger

PREFIX: Final = "/xrpc/"
HEALTH: Final = "_health"

MAX_URL_BYTES: Final = 32_768
MAX_BODY_BYTES: Final = 131_072
ANSWER_TIMEOUT_S: Final = 20
BODY_TIMEOUT_S: Final = 10
RETRY_AFTER_S: Final = 5

_UNKNOWN: Final = "unknown"  # one label for all methods that do not exist

_CORS: Final = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", b"ETag, Retry-After"),
)
_PREFLIGHT: Final = (
    (b"access-control-allow-methods", b"GET, HEAD, POST, OPTIONS"),
    (b"access-control-allow-headers", b"Authorization, Content-Type, Atproto-Proxy, Atproto-Accept-Labelers"),
    (b"access-control-max-age", b"86400"),
)
_RETRY_AFTER: Final = ((b"retry-after", str(RETRY_AFTER_S).encode()),)
_JSON: Final = (
    (b"content-type", b"application/json; charset=utf-8"),
    (b"x-content-type-options", b"nosniff"),
)
_LINES: Final = (
    (b"content-type", b"application/x-ndjson"),
    (b"x-content-type-options", b"nosniff"),
)


@dataclass(frozen=True, slots=True)
class Route:
    """A method of a lexicon and what answers it.

    `takes_post`: its parameters may also come as one JSON object in a body. `stream`: who accepts
    `application/x-ndjson` gets all records, one a line, instead of a page.
    """

    method: Method
    answer: Answer
    takes_post: bool = False
    stream: Stream | None = None

    @property
    def allowed(self) -> str:
        """The HTTP methods that it answers, as in an `Allow` header."""
        return "GET, HEAD, POST" if self.takes_post else "GET, HEAD"


@dataclass(frozen=True, slots=True)
class Xrpc:
    """The ASGI application; `routes` by NSID."""

    routes: Mapping[str, Route]
    resources: Resources
    metrics: Metrics
    version: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        if scope["method"] == "OPTIONS":
            await _send(send, Reply(204, b"", _PREFLIGHT))
            return
        started = perf_counter()
        name: str = scope["path"].removeprefix(PREFIX)
        label = name if name in self.routes or name == HEALTH else _UNKNOWN
        reply = await self._reply(name, label, scope, receive)
        self.metrics.answers.labels(label, reply.status).inc()
        self.metrics.seconds.labels(label).observe(perf_counter() - started)
        if reply.following is not None:
            await self._send_pieces(receive, send, reply, reply.following, label)
            return
        if scope["method"] != "POST":
            reply = await represent(reply, scope["headers"])
        await _send(send, reply)

    async def _reply(self, name: str, label: str, scope: Scope, receive: Receive) -> Reply:
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                return await self._answer(name, scope, receive)
        except MethodNotAllowed as refusal:
            return _refuse(refusal, ((b"allow", refusal.allowed.encode()),))
        except TooBusy as refusal:
            return _refuse(refusal, _RETRY_AFTER)
        except RequestTooSlow as refusal:
            return _refuse(refusal, ((b"connection", b"close"),))  # the rest of the body is still to come
        except Refusal as refusal:
            return _refuse(refusal)
        except (Unavailable, TimeoutError):
            get_logger().warning("answer_unavailable", path=label)
            sentence = "The index cannot answer at the moment; try again."
            return _error(503, "NotEnoughResources", sentence, _RETRY_AFTER)
        except Exception as failure:  # noqa: BLE001  the edge: one failed answer must not take others along
            self._count_failure(label, failure)
            return _error(500, "InternalServerError", "Something went wrong here.")

    async def _answer(self, name: str, scope: Scope, receive: Receive) -> Reply:
        if len(scope.get("raw_path") or b"") + len(scope["query_string"]) > MAX_URL_BYTES:
            raise UrlTooLong(f"A URL may have {MAX_URL_BYTES:,} bytes; searchRecords also takes POST.")
        if name == HEALTH:
            if scope["method"] not in ("GET", "HEAD"):
                raise MethodNotAllowed("GET, HEAD")
            return Reply(200, orjson.dumps({"version": self.version}), _JSON)
        route = self.routes.get(name)
        if route is None:
            raise MethodNotImplemented
        call = Call(name, ANYBODY, await _read_parameters(route, scope, receive), self.resources)
        if route.stream is not None and scope["method"] == "GET" and _wants_lines(scope):
            lines = route.stream(call)
            return Reply(200, await anext(lines, b""), _LINES, lines)
        return Reply(200, await route.answer(call), _JSON)

    async def _send_pieces(
        self, receive: Receive, send: Send, reply: Reply, following: AsyncIterator[bytes], label: str
    ) -> None:
        """Send an answer in pieces, until the client is gone."""
        await send({"type": "http.response.start", "status": reply.status, "headers": [*_CORS, *reply.headers]})
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


async def _read_parameters(route: Route, scope: Scope, receive: Receive) -> Parameters:
    match scope["method"]:
        case "GET" | "HEAD":
            return decode_query(route.method, scope["query_string"])
        case "POST" if route.takes_post:
            if scope["query_string"]:
                raise InvalidRequest("A POST takes its parameters in the body only.")
            if not _is_json(scope):
                raise InvalidRequest("The body's Content-Type must be application/json.")
            return decode_body(route.method, await _read_body_in_time(receive))
        case _:
            raise MethodNotAllowed(route.allowed)


def _is_json(scope: Scope) -> bool:
    return _header(scope, b"content-type").partition(b";")[0].strip().lower() == b"application/json"


def _wants_lines(scope: Scope) -> bool:
    accepted = _header(scope, b"accept").lower().split(b",")
    return any(media_range.partition(b";")[0].strip() == b"application/x-ndjson" for media_range in accepted)


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for header, value in scope["headers"] if header == name), b"")


async def _read_body_in_time(receive: Receive) -> bytes:
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await _read_body(receive)
    except TimeoutError:
        raise RequestTooSlow(f"A body must come within {BODY_TIMEOUT_S} seconds.") from None


async def _read_body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidRequest("The body ended early.")
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise RequestTooLarge(f"A body may have {MAX_BODY_BYTES:,} bytes.")
        if not message.get("more_body", False):
            return bytes(body)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _refuse(refusal: Refusal, headers: Headers = ()) -> Reply:
    return _error(refusal.status, refusal.error, refusal.message, headers)


def _error(status: int, error: str, message: str, headers: Headers = ()) -> Reply:
    return Reply(status, orjson.dumps({"error": error, "message": message}), _JSON + headers)


async def _send(send: Send, reply: Reply) -> None:
    headers = [*_CORS, *reply.headers]
    if reply.status not in (204, 304):  # which have no body to have a length
        headers.append((b"content-length", str(len(reply.body)).encode()))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    await send({"type": "http.response.body", "body": reply.body})
