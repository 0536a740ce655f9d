"""Servers on this machine that `doctor` is to judge, and names that it may look up."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Final

from indexer.doctor.network import Network
from indexer.doctor.report import Check, State

NAME: Final = "relay.test"
OK: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


async def look_up_test_names(host: str) -> Sequence[str]:
    """Knows one name, one that stands for nothing, and the address of this machine."""
    if host in {NAME, "127.0.0.1"}:
        return ["127.0.0.1"]
    if host == "nowhere.test":
        return []
    raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")


NETWORK: Final = Network(look_up=look_up_test_names)


@asynccontextmanager
async def answering(answer: bytes, tls: ssl.SSLContext | None = None) -> AsyncGenerator[int]:
    """The port of a server that gives everybody the same answer; no answer: it keeps silent until they leave."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read(65_536 if answer else -1)
            writer.write(answer)
        except OSError:
            pass  # they left
        finally:
            writer.close()

    async with await asyncio.start_server(converse, "127.0.0.1", 0, ssl=tls) as server:
        yield server.sockets[0].getsockname()[1]


def head(status: str, **headers: str) -> bytes:
    """An answer without a body."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode()


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def fix_of(check: Check) -> str:
    """What a check that did not pass tells to do."""
    assert check.state is not State.OK, check
    assert check.fix is not None
    return check.fix
