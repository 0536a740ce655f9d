"""`python -m benchmarks.source FILE`: serves a recording to every subscriber as fast as it is read; prints its port."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from websockets.asyncio.server import ServerConnection, serve

from indexer.recording import read_frames


async def main(path: Path) -> None:
    """Serves until killed."""
    frames = list(read_frames(path))

    async def send(connection: ServerConnection) -> None:
        for frame in frames:
            await connection.send(frame)
        await connection.wait_closed()

    async with serve(send, "127.0.0.1", 0, compression=None, ping_interval=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
