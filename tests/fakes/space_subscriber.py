"""A service that subscribed to the writes of Spaces, and hears of them: well, slowly, or not at all.

async with subscriber() as syncer:
    world.services["did:web:syncer.example#atproto_space_syncer"] = syncer.url
    syncer.status = 500                 # null: it never answers
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from tests.fakes.space_host_faults import Call, read_call
from tests.fakes.space_host_tokens import Token, read_token


@dataclass
class Subscriber:
    """What it heard, in order."""

    port: int = 0
    status: int | None = 200
    body: bytes = b"{}"
    heard: list[Call] = field(default_factory=list[Call])
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def until_heard(self, times: int) -> None:
        """Waits for that many calls in all."""
        async with asyncio.timeout(60), self.changed:
            await self.changed.wait_for(lambda: len(self.heard) >= times)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            call = await read_call(reader)
            async with self.changed:
                self.heard.append(call)
                self.changed.notify_all()
            if self.status is None:
                await reader.read(1)  # until the host gives up
            else:
                head = f"HTTP/1.1 {self.status} Said So\r\ncontent-length: {len(self.body)}\r\n\r\n"
                writer.write(head.encode() + self.body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def token_of(headers: Mapping[str, str]) -> Token:
    """The service auth of a call."""
    return read_token(headers["authorization"].partition(" ")[2])


@asynccontextmanager
async def subscriber() -> AsyncGenerator[Subscriber]:
    """Listens until the end of the block."""
    fake = Subscriber()
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        await fake.serve(reader, writer)

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
