"""A host on loopback that answers every request as a test says, and keeps what it was asked, bodies included."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """An answer; its connection ends with it. `body` None: nothing, until `release` is set."""

    status: int = 200
    body: bytes | None = b"{}"
    headers: tuple[str, ...] = ()

    @classmethod
    def of(cls, status: int, value: object, *headers: str) -> Answer:
        return cls(status, json.dumps(value).encode(), headers)


@dataclass
class AnsweringHost:
    """What it is asked, and how it answers."""

    answer: Callable[[Asked], Answer]
    port: int = 0
    asked: list[Asked] = field(default_factory=list)
    release: asyncio.Event = field(default_factory=asyncio.Event)

    def asked_by(self, method: str) -> list[Asked]:
        return [asked for asked in self.asked if asked.method == method]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip().split("\r\n")
            method, path, _ = line.split(" ")
            headers = {name.lower(): value.strip() for name, _, value in (each.partition(":") for each in lines)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            asked = Asked(method, path, headers, body)
            self.asked.append(asked)
            answer = self.answer(asked)
            if answer.body is None:
                await self.release.wait()
                return
            head = [f"HTTP/1.1 {answer.status} Mandarin", "Connection: close", f"Content-Length: {len(answer.body)}"]
            writer.write("\r\n".join([*head, *answer.headers, "", ""]).encode() + answer.body)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def answering_host(answer: Callable[[Asked], Answer]) -> AsyncGenerator[AnsweringHost]:
    """A host that listens until the end of the block."""
    host = AnsweringHost(answer)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        await host._serve(reader, writer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host.port = server.sockets[0].getsockname()[1]
    try:
        yield host
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks)
        await server.wait_closed()
