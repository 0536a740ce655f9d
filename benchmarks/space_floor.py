"""The floor of `space_sync`: repos of Spaces that are verified and interpreted beforehand, through the writer alone."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from time import perf_counter
from typing import Final

from benchmarks.dense import LIMITS
from benchmarks.processes import Workplace
from benchmarks.space_hosts import Repo, grown
from benchmarks.space_people import AUTHORS_EACH, MEMORIES_EACH, communities
from indexer.arrivals import SpaceChanged
from indexer.interpret import Interpreter, MemoryOp
from indexer.resync.drain import at_hosts
from indexer.store import repos
from indexer.writer import Writer
from memory.database import open_database

_NOWHERE: Final = "http://127.0.0.1:9"


async def stored_alone(place: Workplace, count: int) -> float:
    """Memories per second, one repo after another, a transaction each."""
    contents = list(_contents(count))
    url = place.database("floor")
    async with open_database(url, application_name="bench", connections=1) as database:
        writer, now = Writer(database, LIMITS), datetime.now(UTC)
        started = perf_counter()
        for change in contents:
            async with writer.transaction(now) as taking:
                await repos.insert_repos(taking.conn, [((change.repo, change.space), now)])
                await taking.take([change])
            await writer.keep_statistics(change.ops)
        seconds = perf_counter() - started
        async with database.connection() as conn:
            assert await conn.fetchval("select count(*) from memories") == count * MEMORIES_EACH
    return count * MEMORIES_EACH / seconds


def _contents(count: int) -> Iterator[SpaceChanged]:
    draw, now = random.Random(3), datetime.now(UTC)
    for community in communities(-(-count // AUTHORS_EACH), [_NOWHERE]):
        for author in community.authors:
            repo = grown(author, str(community.space), draw)
            yield _change(repo, now)


def _change(repo: Repo, now: datetime) -> SpaceChanged:
    interpreter = Interpreter(repo.author.did, repo.space)
    ops = tuple(
        MemoryOp(rkey, interpreter.interpret(rkey, cid, block), created=True) for rkey, cid, block in repo.records()
    )
    return SpaceChanged(
        at_hosts(now), repo.author.did, repo.space, repo.rev, ops, whole=True, first=True, last=True, fresh=True
    )
