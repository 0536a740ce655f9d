"""Answers that the HTTP server gives by itself, before any face is asked: what a client gets, as the documents say."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import orjson
import pytest
import uvicorn

from appview.connections import BoundedConnection
from appview.openapi import openapi_document
from appview.service import _Server, bind, routes_of
from memory.database import Database
from tests.api_client import CATALOGUE, Api
from tests.deadline import DEADLINE_S

Exchange = Callable[[bytes], Awaitable[tuple[list[bytes], bytes]]]


@asynccontextmanager
async def served(database: Database, *, connections: int) -> AsyncGenerator[Exchange]:
    """The application behind a server that takes fewer than so many connections; yields what sends it bytes."""
    config = uvicorn.Config(
        Api(database).app,
        lifespan="off",
        http=BoundedConnection,
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        limit_concurrency=connections,
    )
    server = _Server(config)
    with bind("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]

        async def exchange(sent: bytes) -> tuple[list[bytes], bytes]:
            """The head's lines and the body of the one answer on a connection, which the server closes."""
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(sent)
            head, _, body = (await asyncio.wait_for(reader.read(), DEADLINE_S)).partition(b"\r\n\r\n")
            writer.close()
            return head.lower().split(b"\r\n"), body

        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            yield exchange
        finally:
            server.should_exit = True
            await asyncio.wait_for(serving, DEADLINE_S)


@pytest.mark.parametrize("path", [b"/xrpc/_health", b"/api/v1/cloud/memory_stores", b"/api/v1/llm/get-memory"])
async def test_too_many_connections_are_answered_in_plain_text(database: Database, path: bytes) -> None:
    async with served(database, connections=1) as exchange:
        head, body = await exchange(b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    assert head[0] == b"http/1.1 503 service unavailable"
    assert {b"content-type: text/plain; charset=utf-8", b"connection: close"} <= set(head)
    assert body == b"Service Unavailable"


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"POST /api/v1/llm/get-memory HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"GET /xrpc/_health HTTP/1.1\r\nHost: x\r\nBroken\r\n\r\n",
        b"GET /xrpc/_health HTTP/1.1\r\n" + b"a: b\r\n" * 300 + b"\r\n",
    ],
)
async def test_what_is_no_http_is_answered_in_plain_text(database: Database, sent: bytes) -> None:
    async with served(database, connections=9) as exchange:
        head, body = await exchange(sent)
    assert head[0] == b"http/1.1 400 bad request"
    assert {b"content-type: text/plain; charset=utf-8", b"connection: close"} <= set(head)
    assert body == b"Invalid HTTP request received."


async def test_url_without_end_is_refused_as_the_face_refuses(database: Database) -> None:
    async with served(database, connections=9) as exchange:
        url = b"/xrpc/dev.bastienrobert.memory.searchRecords?q=" + b"x" * 1_000_000
        head, body = await exchange(b"GET " + url + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert head[0] == b"http/1.1 414 request-uri too long"
    assert orjson.loads(body)["error"] == "InvalidRequest"


def test_the_document_tells_of_them() -> None:
    described = str(openapi_document(CATALOGUE, routes_of(CATALOGUE), version="0", url=None)["info"])
    for told in ("plain text", "`400`", "`503`"):
        assert told in described
