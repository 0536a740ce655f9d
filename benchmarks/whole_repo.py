"""`whole_repo`: from the bytes of `getRepo` answers to verified memories, in one process, nothing stored.

Repos of 200 memories and 1,000 other records, their blocks in random order, in chunks of 64 kB. With
`WHOLE_REPO_BYTES=1000000000` it also says what memory a repo of that size takes, with 500 memories in it, in a process
of its own; making that one takes a minute or two, and some gigabytes.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import AsyncGenerator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks.result import Result
from indexer.resync.download import download
from indexer.verify.car import read_car
from tests.builders import RepoBuilder, Write, memory, tid

REPOS, MEMORIES, OTHERS, ROUNDS = 20, 200, 1000, 5
LARGE_MEMORIES = 500
TEXT_BYTES = 750  # in records of other collections, on average
LARGE_RECORD_BYTES = 1000  # what such a record comes to, with its CIDs and its share of the tree
CHUNK_BYTES = 64 * 1024
COLLECTIONS = ("app.bsky.feed.post", "app.bsky.feed.like", "app.bsky.graph.follow")


async def run() -> Result:
    """Records of all collections per second; `peer_value` is that of taking each block's and key's sha-256 alone."""
    draw = random.Random(5)
    repos = [grown(f"whole{number}", MEMORIES, OTHERS, draw) for number in range(REPOS)]
    cars = [repo.car(draw) for repo in repos]
    records = REPOS * (MEMORIES + OTHERS)
    whole = floor = 0.0
    for _ in range(ROUNDS):
        started = perf_counter()
        for repo, car in zip(repos, cars, strict=True):
            await fetch(repo.did, car)
        whole = max(whole, records / (perf_counter() - started))
        floor = max(floor, records / timed_hashes(repos, cars))
    notes = [f"{REPOS} repos of {MEMORIES} + {OTHERS} records, {len(cars[0]):,} bytes, best of {ROUNDS}"]
    if wanted := int(os.environ.get("WHOLE_REPO_BYTES", "0")):
        notes.append(measure_large(wanted, draw))
    return Result("whole_repo", round(whole), "records/s", round(floor), round(whole / floor, 3), tuple(notes))


def grown(name: str, memories: int, others: int, draw: random.Random) -> RepoBuilder:
    """A repo with so many records."""
    at = datetime(2024, 1, 1, tzinfo=UTC)
    writes: list[Write] = []
    for number in range(memories + others):
        at += timedelta(seconds=draw.randrange(1, 90))
        rkey = tid(at, draw.randrange(1024))
        if number < memories:
            writes.append(Write("create", rkey, memory(f"Remembered on {at:%d %B}, as number {number}.", kind="fact")))
        else:
            collection, text = draw.choice(COLLECTIONS), "x" * draw.randrange(2 * TEXT_BYTES)
            record = {"$type": collection, "text": text, "number": number, "createdAt": at.isoformat()}
            writes.append(Write("create", rkey, record, collection))
    repo = RepoBuilder(name)
    repo.apply(writes)
    return repo


async def fetch(did: str, car: bytes) -> None:
    """All that happens to a repo before it is compared with the table."""

    async def chunks() -> AsyncGenerator[bytes]:
        for start in range(0, len(car), CHUNK_BYTES):
            yield car[start : start + CHUNK_BYTES]

    async with download(chunks(), did, None) as repo:
        assert repo.records == MEMORIES + OTHERS
        assert sum(1 for _ in repo.memories()) == MEMORIES


def timed_hashes(repos: list[RepoBuilder], cars: list[bytes]) -> float:
    """Seconds that the sha-256 of every block and every key takes by itself."""
    hashed = [block for car in cars for block in read_car(car).blocks.values()]
    hashed += [path.encode() for repo in repos for path in repo.records]
    started = perf_counter()
    for data in hashed:
        sha256(data).digest()
    return perf_counter() - started


def measure_large(car_bytes: int, draw: random.Random) -> str:
    """What the reading of a large repo takes, as a note."""
    repo = grown("large", LARGE_MEMORIES, car_bytes // LARGE_RECORD_BYTES, draw)
    with TemporaryDirectory(prefix="memory-bench-") as folder:
        path = Path(folder) / "repo.car"
        path.write_bytes(repo.car(draw))
        command = [sys.executable, "-m", "benchmarks.large_repo", str(path), repo.did]
        told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert told["memories"] == LARGE_MEMORIES
    return (
        f"a repo of {told['car_bytes']:,} bytes, {told['blocks']:,} blocks:"
        f" {told['records'] / told['seconds']:.0f} records/s, {told['resident_bytes'] / 1e6:.0f} MB resident at most"
    )
