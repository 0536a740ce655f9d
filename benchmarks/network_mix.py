"""Frames as a relay sends them: mostly others' posts, few of repos that are tracked, fewer with a memory in them."""

from __future__ import annotations

import asyncio
import random
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from indexer.recording import RecordingWriter
from memory.identity import PlcExport
from tests.builders import RepoBuilder, memory, tid
from tests.builders import Sequence as Stream
from tests.recorded import directory

POST = "app.bsky.feed.post"
NOISE_AUTHORS, TRACKED_AUTHORS = 500, 100
TRACKED_SHARE, MEMORY_SHARE = 0.01, 0.001
MEAN_FRAME_BYTES = 5600


def network_mix(frames: int, seed: int = 11) -> tuple[list[bytes], list[bytes], PlcExport]:
    """First the frames by which the tracked repos become tracked, then `frames` of the mix, and the directory.

    The last one is a memory: what is durable of others' frames alone is told only every second.
    """
    draw, stream = random.Random(seed), Stream()
    noise = [RepoBuilder(f"noise{number}", stream=stream) for number in range(NOISE_AUTHORS)]
    tracked = [RepoBuilder(f"tracked{number}", stream=stream) for number in range(TRACKED_AUTHORS)]
    at = datetime(2026, 1, 1, tzinfo=UTC)
    first = [frame for author in tracked for frame in author.genesis()]
    first += [author.create(tid(at), memory("The first memory of this repo.")) for author in tracked]
    for author in noise:
        author.genesis()
    padding = "x" * 4500  # what embeds, facets and the covering nodes of a grown repo come to
    mix: list[bytes] = []
    for left in range(frames - 1, -1, -1):
        at += timedelta(milliseconds=1)
        chance = draw.random()
        key = tid(at, draw.randrange(1024))
        if chance < MEMORY_SHARE or not left:
            mix.append(draw.choice(tracked).create(key, memory(f"A memory of {at:%H:%M:%S.%f}.")))
        elif chance < TRACKED_SHARE:
            mix.append(draw.choice(tracked).create(key, {"$type": POST, "text": padding}, POST))
        else:
            mix.append(draw.choice(noise).create(key, {"$type": POST, "text": padding}, POST))
    return first, mix, directory(tracked)


@asynccontextmanager
async def served(frames: Sequence[bytes]) -> AsyncGenerator[str]:
    """A source in a process of its own that sends these frames to whoever subscribes; its URL."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "frames.bin"
        with RecordingWriter(path) as writer:
            for frame in frames:
                writer.write(frame)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "benchmarks.source", str(path), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()
            await process.wait()
