"""A small network in a process of its own: relays that send at an even pace, a PLC directory, hosts that never
answer.

A module that makes such a network ends with `asyncio.run(serve(…))` and is started by
`benchmarks.processes.network`. On stdout it says where everything listens; a line `go` on stdin starts the flows;
then it says of each frame of a told flow when it was handed to the socket, and at last what it was asked. It ends
with its stdin.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_websocket
from websockets.protocol import State

from benchmarks.source import message
from memory.tasks import TaskGroup
from tests.builders import RepoBuilder, Sequence
from tests.fakes.directory import document

# From here on a seq takes nine bytes in CBOR, so that every frame can be given its own when it is sent.
FIRST_SEQ: Final = 2**33
_SEQ_KEY: Final = b"cseq\x1b"
_SEQ_BYTES: Final = 8
_GRAIN_S: Final = 0.004  # what is due within it is sent at once, except for told flows
_BUFFERED_BYTES_MAX: Final = 8 * 1024 * 1024
_BURST_FRAMES: Final = 64
_KEPT_FRAMES: Final = 100_000  # for who comes again
_HTTPS_PORT: Final = 443


def stream_from(time: Any) -> Sequence:
    """The stream of builders whose frames are sent here; `time` is that of the first."""
    return Sequence(FIRST_SEQ, time)


def seq_place(frame: bytes) -> int:
    """Where the eight bytes of its seq begin."""
    return frame.index(_SEQ_KEY) + len(_SEQ_KEY)


def numbered(frame: bytes, seq: int) -> bytes:
    """The frame with another seq."""
    at = seq_place(frame)
    return frame[:at] + seq.to_bytes(_SEQ_BYTES, "big") + frame[at + _SEQ_BYTES :]


@dataclass(frozen=True, slots=True)
class Flow:
    """Frames at an even pace, from `start_s` after the word to go until they end, or `seconds` are over."""

    name: str
    frames: Iterable[tuple[bytes, str]]  # with a label each
    per_s: float
    start_s: float = 0.0
    seconds: float = float("inf")
    told: bool = False  # whether the other side is told of each


@dataclass
class Relay:
    """One stream, for one subscriber: `first` when it comes, the flows at the word to go."""

    first: list[bytes] = field(default_factory=list[bytes])
    flows: list[Flow] = field(default_factory=list[Flow])
    port: int = 0
    subscribers: int = 0
    _seq: int = FIRST_SEQ
    _connection: ServerConnection | None = None
    _sent: deque[tuple[int, bytes]] = field(default_factory=lambda: deque[tuple[int, bytes]](maxlen=_KEPT_FRAMES))

    async def follow(self, connection: ServerConnection) -> None:
        """Sends what comes first, or to who comes again what came after its cursor; what follows is sent by `run`."""
        self.subscribers += 1
        self._connection = connection
        if self.subscribers == 1:
            for count, frame in enumerate(self.first, start=1):
                self._send(frame)
                if count % _BURST_FRAMES == 0:
                    await self._drained(connection)
            tell({"first_sent": self._seq, "port": self.port})
        else:
            cursor = _cursor_of(connection)
            for seq, frame in self._sent:
                if seq > cursor:
                    connection.transport.write(message(numbered(frame, seq)))
        await connection.wait_closed()

    async def run(self) -> dict[str, int]:
        """Sends every flow to its end; name → frames."""
        async with TaskGroup() as tasks:
            started = perf_counter()
            running = {flow.name: tasks.create_task(self._run(flow, started + flow.start_s)) for flow in self.flows}
        return {name: task.result() for name, task in running.items()}

    async def _run(self, flow: Flow, started: float) -> int:
        grain_s = 0.0 if flow.told else _GRAIN_S
        sent = 0
        for frame, label in flow.frames:
            due_s = sent / flow.per_s
            if due_s >= flow.seconds:
                break
            wait_s = started + due_s - perf_counter()
            if wait_s > grain_s:
                await asyncio.sleep(wait_s)
            elif sent % _BURST_FRAMES == 0:
                await asyncio.sleep(0)
            at = perf_counter()
            seq = self._send(frame)
            if flow.told:
                tell({"flow": flow.name, "seq": seq, "at": at, "label": label})
            sent += 1
        return sent

    def _send(self, frame: bytes) -> int:
        self._seq += 1
        self._sent.append((self._seq, frame))
        if self._connection is not None and self._connection.state is State.OPEN:
            self._connection.transport.write(message(numbered(frame, self._seq)))
        return self._seq

    async def _drained(self, connection: ServerConnection) -> None:
        while connection.transport.get_write_buffer_size() > _BUFFERED_BYTES_MAX:
            await asyncio.sleep(0.001)


def _cursor_of(connection: ServerConnection) -> int:
    assert connection.request is not None
    given = parse_qs(urlsplit(connection.request.path).query).get("cursor")
    return int(given[0]) if given else FIRST_SEQ


@dataclass
class Directory:
    """A PLC directory, which also resolves handles; it takes `slow_s` for a DID that is not among the `quick`."""

    documents: Mapping[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    handles: Mapping[str, str] = field(default_factory=dict[str, str])  # handle → DID
    slow_s: float = 0.0
    quick: Collection[str] = ()
    port: int = 0
    asked: int = 0  # for documents

    async def follow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answers one connection's requests."""
        try:
            while True:
                line, _, _ = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
                status, body = await self._answer(line.split(b" ")[1].decode())
                head = f"HTTP/1.1 {status} Said So\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: str) -> tuple[int, bytes]:
        parts = urlsplit(path)
        if parts.path.startswith("/xrpc/"):
            did = self.handles.get(parse_qs(parts.query)["handle"][0])
            return (400, b'{"error":"HandleNotFound"}') if did is None else (200, json.dumps({"did": did}).encode())
        self.asked += 1
        did = parts.path.removeprefix("/")
        if did not in self.quick and self.slow_s:
            await asyncio.sleep(self.slow_s)
        found = self.documents.get(did)
        return (404, b'{"message":"DID not registered"}') if found is None else (200, json.dumps(found).encode())


def directory_of(builders: Iterable[RepoBuilder], *, slow_s: float = 0.0, quick: Collection[str] = ()) -> Directory:
    """A directory that knows these accounts, as they are now."""
    known = list(builders)
    documents = {each.did: document(each.did, handle=each.handle, pds=each.host, key=each.did_key) for each in known}
    return Directory(documents, {each.handle: each.did for each in known}, slow_s, quick)


@dataclass
class SilentHosts:
    """Hosts that accept connections and never say a word: one a port, and as many as there are names below `site`."""

    ports: list[int]
    has_site: bool  # whether HTTPS for every name below `.localhost` is theirs; that port needs privileges
    connections: int = 0

    async def follow(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Holds one connection until the other side gives up."""
        self.connections += 1
        try:
            while await reader.read(4096):
                pass
        except ConnectionError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def silent_hosts(count: int) -> AsyncGenerator[SilentHosts]:
    """So many ports of localhost, and its HTTPS port where that may be had."""
    hosts = SilentHosts([], has_site=False)
    async with AsyncExitStack() as stack:
        for _ in range(count):
            server = await stack.enter_async_context(await asyncio.start_server(hosts.follow, "127.0.0.1", 0))
            hosts.ports.append(server.sockets[0].getsockname()[1])
        try:
            await stack.enter_async_context(await asyncio.start_server(hosts.follow, "127.0.0.1", _HTTPS_PORT))
            hosts.has_site = True
        except OSError:
            pass
        yield hosts


async def serve(relays: list[Relay], directory: Directory, hosts: SilentHosts | None = None) -> None:
    """Serves until stdin ends; the flows run once it says `go`."""
    async with AsyncExitStack() as stack:
        for relay in relays:
            server = await stack.enter_async_context(
                serve_websocket(relay.follow, "127.0.0.1", 0, compression=None, ping_interval=None, close_timeout=1)
            )
            relay.port = next(iter(server.sockets)).getsockname()[1]
        listener = await stack.enter_async_context(await asyncio.start_server(directory.follow, "127.0.0.1", 0))
        directory.port = listener.sockets[0].getsockname()[1]
        tell({"relays": [relay.port for relay in relays], "directory": directory.port})
        async with TaskGroup() as tasks:
            flowing = tasks.create_task(_flow(relays, directory, hosts, go := asyncio.Event()))
            await listen_to_stdin(go.set)
            flowing.cancel()


async def _flow(relays: list[Relay], directory: Directory, hosts: SilentHosts | None, go: asyncio.Event) -> None:
    await go.wait()
    sent: dict[str, int] = {}
    for counts in await asyncio.gather(*(relay.run() for relay in relays)):
        sent |= counts
    tell(
        {
            "done": True,
            "sent": sent,
            "asked": directory.asked,
            "held": hosts.connections if hosts is not None else 0,
            "subscribers": [relay.subscribers for relay in relays],
        }
    )


async def listen_to_stdin(go: Callable[[], None]) -> None:
    """Returns when stdin ends; calls `go` for each line that says so."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        if line.strip() == b"go":
            go()


def tell(what: dict[str, Any]) -> None:
    """One line of JSON to the other side."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()
