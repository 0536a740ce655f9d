"""`python -m benchmarks.source FILE`: serves a recording to every subscriber as fast as it is read; prints its port.

The messages are framed beforehand and written past the library's `send`, so that the sender is not what is measured.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from pathlib import Path

from websockets.asyncio.server import ServerConnection, serve

from indexer.recording import read_frames

CHUNK_FRAMES = 64
BUFFERED_BYTES_MAX = 8 * 1024 * 1024


def message(frame: bytes) -> bytes:
    """One unfragmented binary message, unmasked as a server's are (RFC 6455 §5.2)."""
    if len(frame) < 126:
        return struct.pack("!BB", 0x82, len(frame)) + frame
    if len(frame) < 1 << 16:
        return struct.pack("!BBH", 0x82, 126, len(frame)) + frame
    return struct.pack("!BBQ", 0x82, 127, len(frame)) + frame


async def main(path: Path) -> None:
    """Serves until killed."""
    messages = [message(frame) for frame in read_frames(path)]
    chunks = [b"".join(messages[start : start + CHUNK_FRAMES]) for start in range(0, len(messages), CHUNK_FRAMES)]

    async def send(connection: ServerConnection) -> None:
        for chunk in chunks:
            while connection.transport.get_write_buffer_size() > BUFFERED_BYTES_MAX:
                await asyncio.sleep(0.0005)
            connection.transport.write(chunk)
        await connection.wait_closed()

    async with serve(send, "127.0.0.1", 0, compression=None, ping_interval=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
