"""An embedder that costs nothing: of each text a vector by its hash. And what must hold once all is embedded.

double = Double("model-a")
worker = worker_of(database, double)
await work_off(database, worker)
await assert_embedded(database, double)
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from indexer.embed import OpenedModels
from indexer.embedder import EmbeddingWorker, Pace
from indexer.store import embedding_models
from memory.database import Database
from memory.embedding import Absent, EmbedderUnavailable, TextRefused, Vector, split_passages, unit_vector
from tests.builders import RepoBuilder, memory
from tests.feed import Feed, rkey

UNHURRIED = Pace(idle_s=0.0, models_s=0.0, walk_s=0.0, doubtful_s=0.0)


async def _at_once() -> None:
    await asyncio.sleep(0)


@dataclass
class Double:
    """An embedder as it is told to be."""

    model: str = "double"
    gives: int = 8  # dimensions
    leaves_machine: bool = False
    down: bool = False
    refuses: Callable[[str], bool] = lambda text: False
    fails: BaseException | None = None  # with this, once
    meanwhile: Callable[[], Awaitable[None]] = _at_once
    seen: list[str] = field(default_factory=list[str])

    @property
    def dimensions(self) -> int | None:
        return self.gives

    async def embed_query(self, text: str) -> Vector:
        return self.vector(text)

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        self.seen += texts
        await self.meanwhile()
        if self.fails is not None:
            failure, self.fails = self.fails, None
            raise failure
        if self.down:
            raise EmbedderUnavailable("It is down.")
        if any(map(self.refuses, texts)):
            raise TextRefused
        return [self.vector(text) for text in texts]

    async def aclose(self) -> None: ...

    def vector(self, text: str) -> Vector:
        draw = random.Random(f"{self.model} {text}")
        return unit_vector([draw.uniform(-1, 1) for _ in range(self.gives)])


def worker_of(
    database: Database, *doubles: Double, allow_private: bool = False, pace: Pace = UNHURRIED
) -> EmbeddingWorker:
    """A worker that has a way to these models."""
    there = {double.model: double for double in doubles}

    async def opened(model: str) -> Double | None:
        return there.get(model)

    return EmbeddingWorker(database, opened, allow_private=allow_private, pace=pace)


async def add(database: Database, double: Double, share: float = 1.0) -> None:
    """Has a model filled; the first one serves."""
    async with database.transaction() as conn:
        await embedding_models.add_model(conn, double.model, double.gives, share)


async def work_off(database: Database, worker: EmbeddingWorker, steps: int = 500) -> None:
    """Until nothing waits that is to be had."""
    for _ in range(steps):
        async with database.connection() as conn:
            coverage = await embedding_models.load_coverage(conn)
        if all(each.complete and each.state != "leaving" for each in coverage):
            return
        await worker.step()
    raise AssertionError("it does not come to an end")


async def lapse_leases(database: Database) -> None:
    """As if the time were over for which requests are held or left alone."""
    async with database.connection() as conn:
        await conn.execute("update embedding_requests set not_before = '-infinity'")


async def assert_embedded(database: Database, *doubles: Double) -> None:
    """Every memory has the vectors of its content, by every model; nothing else has any, and nothing waits."""
    async with database.connection() as conn:
        memories = await conn.fetch("select repo, space, rkey, content from memories")
        rows = await conn.fetch("select repo, space, rkey, model, chunk, embedding::text from embeddings")
        requests = await conn.fetch("select * from embedding_requests")
    expected: dict[tuple[Any, ...], Vector] = {
        (row["repo"], row["space"], row["rkey"], double.model, chunk): double.vector(passage)
        for double in doubles
        for row in memories
        for chunk, passage in enumerate(split_passages(row["content"]))
    }
    stored = {tuple(row)[:5]: [float(number) for number in row["embedding"][1:-1].split(",")] for row in rows}
    assert stored.keys() == expected.keys()
    for key, vector in stored.items():
        assert all(abs(a - b) < 0.01 for a, b in zip(vector, expected[key], strict=True)), key
    assert requests == []


async def written(feed: Feed, name: str, *contents: str) -> RepoBuilder:
    """Someone with a memory of each content, at 1, 2, …"""
    person = feed.account(name)
    frames = [person.create(rkey(number), memory(content)) for number, content in enumerate(contents, 1)]
    await feed.send(*frames)
    return person


async def value(database: Database, query: str, *arguments: object) -> object:
    """The first column of the only row."""
    async with database.connection() as conn:
        return await conn.fetchval(query, *arguments)


def models_of(*doubles: Double) -> OpenedModels:
    """A way to these models, as a process has one."""
    there = {double.model: double for double in doubles}

    async def opened(model: str | None) -> Double | Absent:
        return there.get(model or "") or Absent("it is another")

    return OpenedModels(opened)
