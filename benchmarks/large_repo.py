"""`python -m benchmarks.large_repo FILE DID`: reads one CAR as a backfill does, and tells in JSON what that took.

A process of its own, because what is measured is its memory.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from time import perf_counter

from indexer.resync.download import download

CHUNK_BYTES = 64 * 1024


async def chunks(path: Path) -> AsyncGenerator[bytes]:
    """As a host sends them."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


async def main(path: Path, did: str) -> None:
    """Prints it."""
    started = perf_counter()
    async with download(chunks(path), did, path.parent) as repo:
        memories = sum(1 for _ in repo.memories())
    figures = {
        "car_bytes": repo.car_bytes,
        "blocks": repo.blocks,
        "records": repo.records,
        "memories": memories,
        "seconds": perf_counter() - started,
        "resident_bytes": most_resident_bytes(),
    }
    print(json.dumps(figures))


def most_resident_bytes() -> int:
    """Of this process; `getrusage` would count the one that started it too."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
