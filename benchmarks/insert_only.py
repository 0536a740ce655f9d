"""`python -m benchmarks.insert_only FOLDER FIRST BEHIND STEP AT_ONCE`: stores repos that were verified beforehand.

The floor of `backfill`. The repos' fetches have begun, and everything about them is known but not written: on "go" each
is written as a fetch writes it, in one transaction, so many repos at a time. stdout says when it is ready, and then how
much of a core that took and that it is done. DATABASE_URL says where.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from time import process_time
from uuid import uuid4

from benchmarks.dense import LIMITS
from benchmarks.doubles import listen_to_stdin, tell
from benchmarks.repo_hosts import car_of, repo_name
from benchmarks.whole_repo import CHUNK_BYTES
from indexer.arrivals import Arrival, Batch, ContentsFetched, FetchApplied, FetchBegun, FetchedHead, RequestAnswered
from indexer.books import RequestKind
from indexer.interpret import MemoryOp, interpret_block
from indexer.pipeline import collect_garbage_seldom
from indexer.resync.apply import at_hosts
from indexer.resync.download import download
from indexer.writer import Writer
from memory.database import Database, open_database
from memory.space import PUBLIC
from memory.tasks import TaskGroup
from tests.builders import RepoBuilder


async def read(folder: Path, did: str) -> tuple[FetchedHead, tuple[MemoryOp, ...]]:
    """What there is to write of a repo."""
    car = car_of(folder, did).read_bytes()

    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(car), CHUNK_BYTES):
            yield car[start : start + CHUNK_BYTES]

    async with download(chunks(), did, None) as repo:
        commit = repo.commit
        ops = tuple(
            MemoryOp(found.rkey, interpret_block(did, PUBLIC, found.rkey, found.cid, found.block), created=True)
            for found in repo.memories()
        )
    return FetchedHead(commit.rev, commit.commit_cid, commit.data_cid), ops


async def insert(database: Database, folder: Path, dids: list[str], at_once: int) -> None:
    """Begins the fetches of these repos, waits for the word, and ends them."""
    now, writer = datetime.now(UTC), Writer(database, LIMITS)
    begun: list[Arrival] = []
    contents: list[list[Arrival]] = []
    for did in dids:
        token, (head, ops) = uuid4(), await read(folder, did)
        begun.append(FetchBegun(at_hosts(now), did, token))
        slice_ = ContentsFetched(at_hosts(now), did, token, head.rev, ops, first=True, fresh=True)
        answered = RequestAnswered(at_hosts(now), did, RequestKind.FETCH, now, now)
        contents.append([slice_, FetchApplied(at_hosts(now), did, token, head), answered])
    await writer.apply(Batch(begun), now)
    word = asyncio.Event()
    listening = asyncio.create_task(listen_to_stdin(word.set))
    tell({"ready": len(dids)})
    await word.wait()
    cpu_started = process_time()
    waiting = iter(contents)
    async with TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(_write(writer, waiting, now))
    tell({"cpu_s": process_time() - cpu_started})
    await listening


async def _write(writer: Writer, waiting: Iterator[list[Arrival]], now: datetime) -> None:
    for arrivals in waiting:
        await writer.apply(Batch(arrivals), now)


async def main(folder: Path, numbers: range, at_once: int) -> None:
    """Stores the repos of these numbers."""
    dids = [RepoBuilder(repo_name(number)).did for number in numbers]
    async with open_database(os.environ["DATABASE_URL"], application_name="bench", connections=at_once) as database:
        await insert(database, folder, dids, at_once)


if __name__ == "__main__":
    first, behind, step, repos_at_once = map(int, sys.argv[2:])
    collect_garbage_seldom()  # as what it is compared with
    asyncio.run(main(Path(sys.argv[1]), range(first, behind, step), repos_at_once))
