"""The process that fills vectors, wired: database, models, worker. The model's memory is its own, not the daemon's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass

from indexer.companion import stop_with_parent
from indexer.embedder import EmbeddingWorker, Pace
from indexer.patience import Connect, connected, patiently
from indexer.stopping import Stopped, stop_at_signal
from indexer.store import embedding_models
from memory.database import Database
from memory.embedding import Absent, Embedder
from memory.errors import Unavailable
from memory.tasks import TaskGroup
from memory.telemetry import get_logger

OpenEmbedder = Callable[[str | None], Awaitable[Embedder | Absent]]
"""The embedder whose vectors go by that name; None: the one that the settings name."""


@dataclass(frozen=True, slots=True)
class Embed:
    """What a worker is run with."""

    open_embedder: OpenEmbedder
    allow_private: bool
    pace: Pace | None = None


async def run(embed: Embed, connect: Connect, *, with_parent: bool) -> int:
    """Embeds until a signal, or until the parent ends; says how many contents got their vectors.

    What is under way then is begun anew by whoever comes next. Without a model it waits: search is by words then.
    """
    worker: EmbeddingWorker | None = None
    try:
        async with TaskGroup() as tasks:
            tasks.create_task(stop_at_signal())
            if with_parent:
                tasks.create_task(stop_with_parent())
            async with AsyncExitStack() as stack:
                database = await stack.enter_async_context(connected(connect))
                models = _Models(embed.open_embedder)
                stack.push_async_callback(models.aclose)
                await patiently(lambda: add_first_model(database, models), "model", lambda: None)
                worker = EmbeddingWorker(database, models.find, allow_private=embed.allow_private, pace=embed.pace)
                await worker.run()
    except Stopped:
        get_logger().info("embedding_stopped")
    return 0 if worker is None else worker.embedded


async def add_first_model(database: Database, models: _Models) -> None:
    """Has the settings' model serve, if none does yet; a later change is `reembed`'s."""
    async with database.connection() as conn:
        if await embedding_models.load_models(conn):
            return
    embedder = await models.find(None)
    if embedder is None:
        return
    async with database.transaction() as conn:
        await embedding_models.add_model(conn, embedder.model, await width(embedder))


async def width(embedder: Embedder) -> int:
    """How many dimensions its vectors have; a server tells by its first answer."""
    if embedder.dimensions is None:
        await embedder.embed_passages(["width"])
    if embedder.dimensions is None:
        raise Unavailable("The embedder does not tell how wide its vectors are.")
    return embedder.dimensions


class _Models:
    """Embedders that were opened, by the name of their vectors."""

    def __init__(self, open_embedder: OpenEmbedder) -> None:
        self._open_embedder = open_embedder
        self._opened: dict[str | None, Embedder | Absent] = {}

    async def find(self, model: str | None) -> Embedder | None:
        """The embedder of a model, or of the settings; None: there is no way to it here, which is said once."""
        if model not in self._opened:
            opened = await self._open_embedder(model)
            self._opened[model] = opened
            if isinstance(opened, Absent):
                get_logger().warning("embedder_absent", reason=opened.reason)
            else:
                self._opened.setdefault(opened.model, opened)
        found = self._opened[model]
        return None if isinstance(found, Absent) else found

    async def aclose(self) -> None:
        """Close them."""
        for embedder in {id(each): each for each in self._opened.values()}.values():
            if not isinstance(embedder, Absent):
                await embedder.aclose()
