"""`python -m benchmarks.repo_hosts FOLDER FIRST BEHIND STEP HOSTS`: hosts on loopback ports, with repos that are made
beforehand: the first, and every so many after it.

Each answer to `getRepo` lies in the folder as it goes over the wire, chunked as the reference PDS does for who names an
`Accept-Encoding`, and is handed to the socket by the kernel: serving costs next to nothing. The bare CARs lie beside
it. Once all are made, stdout says on which ports the hosts listen. It ends with its stdin.
"""

from __future__ import annotations

import asyncio
import random
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from benchmarks.doubles import listen_to_stdin, tell
from benchmarks.whole_repo import MEMORIES, OTHERS, grown

CHUNK_BYTES: Final = 64 * 1024
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/vnd.ipld.car\r\nTransfer-Encoding: chunked\r\n\r\n"


def repo_name(number: int) -> str:
    """The seed of the repo of that number."""
    return f"backfill{number}"


def car_of(folder: Path, did: str) -> Path:
    """Where a repo's CAR lies."""
    return folder / f"{did}.car"


def make_repos(folder: Path, numbers: range) -> None:
    """Writes the repos of these numbers."""
    for number in numbers:
        draw = random.Random(number)
        repo = grown(repo_name(number), MEMORIES, OTHERS, draw)
        car = repo.car(draw)
        car_of(folder, repo.did).write_bytes(car)
        _answer_of(folder, repo.did).write_bytes(_HEAD + _chunked(car))


def _answer_of(folder: Path, did: str) -> Path:
    return folder / f"{did}.http"


def _chunked(body: bytes) -> bytes:
    pieces = [body[start : start + CHUNK_BYTES] for start in range(0, len(body), CHUNK_BYTES)]
    return b"".join([f"{len(piece):x}\r\n".encode() + piece + b"\r\n" for piece in pieces]) + b"0\r\n\r\n"


async def serve(folder: Path, hosts: int) -> None:
    """Serves until stdin ends."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                target = (await reader.readuntil(b"\r\n\r\n")).split(b" ", 2)[1].decode()
                did = parse_qs(urlsplit(target).query)["did"][0]
                with _answer_of(folder, did).open("rb") as file:
                    await loop.sendfile(writer.transport, file)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(await asyncio.start_server(answer, "127.0.0.1", 0)) for _ in range(hosts)
        ]
        tell({"ports": [server.sockets[0].getsockname()[1] for server in servers]})
        await listen_to_stdin(lambda: None)


async def main(folder: Path, numbers: range, hosts: int) -> None:
    """Makes the repos, then serves."""
    make_repos(folder, numbers)
    await serve(folder, hosts)


if __name__ == "__main__":
    first, behind, step, count = map(int, sys.argv[2:])
    asyncio.run(main(Path(sys.argv[1]), range(first, behind, step), count))
