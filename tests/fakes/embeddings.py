"""A server of embeddings that answers as it is told to: the next answers of a list, then honestly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

WITHOUT_END = b"HTTP/1.1 200 OK\r\n\r\n"
SILENCE = b""


@dataclass
class Embeddings:
    """What is asked, and how it is answered."""

    port: int = 0
    answers: list[bytes] = field(default_factory=list)  # whole responses, for the next requests in turn
    always: bytes | None = None  # the response to all others; None: vectors
    refuses: Callable[[Sequence[str]], bool] = lambda texts: False  # with 413, these texts
    questions: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1/embeddings"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._answer(reader, writer):
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:]) if name}
        question = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.paths.append(head[0])
        self.headers.append(headers)
        self.questions.append(question)
        self.arrived.set()
        answer = self.answers.pop(0) if self.answers else self.always
        if answer is None:
            refused = self.refuses(question["input"])
            writer.write(response(413, b"too long") if refused else vectors_of(question["input"]))
            return True
        if answer == SILENCE:
            await reader.read()
            return False
        writer.write(answer)
        while answer == WITHOUT_END:
            writer.write(b" " * 65_536)
            await writer.drain()
        return answer.startswith(b"HTTP/1.1 200") and b"Content-Length" in answer


def response(status: int, body: bytes, *headers: str) -> bytes:
    """A whole response."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers]
    if status != 200:
        lines.append("Connection: close")
    return "\r\n".join([*lines, "", ""]).encode() + body


def vectors_of(texts: Sequence[str]) -> bytes:
    """What an honest server answers; of each text, only its length shows."""
    return data(*([float(len(text)), 1.0, 2.0] for text in texts))


def data(*vectors: Any, order: Sequence[int] | None = None) -> bytes:
    """A response with these vectors, under these indexes."""
    indexes = range(len(vectors)) if order is None else order
    items = [{"object": "embedding", "index": i, "embedding": v} for i, v in zip(indexes, vectors, strict=True)]
    return response(200, json.dumps({"object": "list", "data": items}).encode())


@asynccontextmanager
async def embeddings() -> AsyncGenerator[Embeddings]:
    """One that listens on a loopback port of its own."""
    fake = Embeddings()
    server = await asyncio.start_server(fake._serve, "127.0.0.1", 0)
    fake.port = server.sockets[0].getsockname()[1]
    try:
        yield fake
    finally:
        server.close()
