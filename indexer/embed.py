"""The process that fills vectors, wired: database, models, worker. The model's memory is its own, not the daemon's."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from indexer.calibration import calibrate
from indexer.companion import stop_with_parent
from indexer.embedder import EmbeddingWorker, Pace
from indexer.patience import Connect, connected, patiently
from indexer.stopping import Stopped, stop_at_signal
from indexer.store import embedding_models
from indexer.store.embedding_models import StoredModel
from memory.database import Database
from memory.embedding import Absent, Embedder
from memory.errors import Misconfigured, Rejected, Unavailable
from memory.queries import Connection, StatementFailed
from memory.tasks import TaskGroup
from memory.telemetry import get_logger

OpenEmbedder = Callable[[str | None], Awaitable[Embedder | Absent]]
"""The embedder whose vectors go by that name; None: the one that the settings name."""

CARE_EVERY_S: Final = 5.0


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
            async with connected(connect) as database, opened_models(embed.open_embedder) as models:
                await patiently(lambda: add_first_model(database, models), "model", lambda: None)
                worker = EmbeddingWorker(database, models.find, allow_private=embed.allow_private, pace=embed.pace)
                tasks.create_task(ModelCare(database, models).run())
                await worker.run()
    except Stopped:
        get_logger().info("embedding_stopped")
    return 0 if worker is None else worker.embedded


async def add_first_model(database: Database, models: OpenedModels) -> None:
    """Has the settings' model serve, if there is none yet; a later change is `reembed`'s."""
    async with database.connection() as conn:
        if await embedding_models.load_models(conn):
            return
    embedder = await models.find(None)
    if embedder is None:
        return
    dimensions = await width(embedder)
    async with database.transaction() as conn:
        await embedding_models.add_model(conn, embedder.model, dimensions)
    get_logger().info("embedding_model_added", model=embedder.model, dimensions=dimensions)


async def width(embedder: Embedder) -> int:
    """How many dimensions its vectors have; a server tells by its first answer."""
    if embedder.dimensions is None:
        await embedder.embed_passages(["width"])
    if embedder.dimensions is None:
        raise Unavailable("The embedder does not tell how wide its vectors are.")
    return embedder.dimensions


class OpenedModels:
    """Embedders that were opened, by the name of their vectors."""

    def __init__(self, open_embedder: OpenEmbedder) -> None:
        self._open_embedder = open_embedder
        self._opened: dict[str | None, Embedder | Absent] = {}
        self._opening = asyncio.Lock()

    async def find(self, model: str | None) -> Embedder | None:
        """The embedder of a model, or of the settings; None: there is no way to it here, which is said once."""
        found = await self.look_up(model)
        return None if isinstance(found, Absent) else found

    async def look_up(self, model: str | None) -> Embedder | Absent:
        """The same, or why there is none."""
        async with self._opening:
            if model not in self._opened:
                opened = await self._open_embedder(model)
                self._opened[model] = opened
                if isinstance(opened, Absent):
                    get_logger().warning("embedder_absent", model=model, reason=opened.reason)
                else:
                    self._opened.setdefault(opened.model, opened)
            return self._opened[model]

    async def aclose(self) -> None:
        """Close them."""
        for embedder in {id(each): each for each in self._opened.values()}.values():
            if not isinstance(embedder, Absent):
                await embedder.aclose()


@asynccontextmanager
async def opened_models(open_embedder: OpenEmbedder) -> AsyncGenerator[OpenedModels]:
    """Models, each opened when it is first asked for."""
    async with AsyncExitStack() as stack:
        models = OpenedModels(open_embedder)
        stack.push_async_callback(models.aclose)
        yield models


class ModelCare:
    """Sees to it that each model that is kept has its index and its calibration, and none that is leaving an index.

    Beside the worker: an index over millions of vectors takes hours.
    """

    def __init__(self, database: Database, models: OpenedModels) -> None:
        self._database = database
        self._models = models

    async def run(self) -> None:
        """Works until cancelled; what fails is tried again."""
        while True:
            try:
                await self.look()
            except (Unavailable, StatementFailed, Misconfigured, Rejected) as failure:
                get_logger().warning("embedding_care_failed", message=failure.message)
            await asyncio.sleep(CARE_EVERY_S)

    async def look(self) -> None:
        """Does what is to be done."""
        async with self._database.connection() as conn:
            kept = await embedding_models.load_models(conn)
        await self.keep_indexes(kept)
        for model in kept:
            if model.state != "leaving" and model.calibrated_at is None:
                await self._calibrate(model)

    async def keep_indexes(self, kept: list[StoredModel]) -> None:
        """Builds the indexes that are missing or were broken off, and drops those of models that are leaving."""
        async with self._database.connection() as conn:
            if not [model for model in kept if await _is_amiss(conn, model)]:
                return
            async with _alone(conn) as alone:
                for model in kept if alone else ():
                    if not await _is_amiss(conn, model):  # what another has just seen to
                        continue
                    change = embedding_models.drop_index if model.state == "leaving" else embedding_models.build_index
                    await change(conn, model.model, model.dimensions)
                    get_logger().info("embedding_index_changed", model=model.model, state=model.state)

    async def _calibrate(self, model: StoredModel) -> None:
        embedder = await self._models.find(model.model)
        if embedder is None:
            return
        measured = await calibrate(embedder)
        async with self._database.connection() as conn:
            await embedding_models.store_calibration(conn, model.model, measured.stored())


async def _is_amiss(conn: Connection, model: StoredModel) -> bool:
    """Whether a model lacks its index, or has one that it should not have."""
    valid = await embedding_models.index_is_valid(conn, model.model, model.dimensions)
    return valid is not None if model.state == "leaving" else not valid


@asynccontextmanager
async def _alone(conn: Connection) -> AsyncGenerator[bool]:
    """Whether no other process builds indexes; for as long as this lasts, none will."""
    alone = await embedding_models.try_lock_indexes(conn)
    try:
        yield alone
    except BaseException:
        conn.terminate()  # the lock goes with the connection; a database that is away is not waited for
        raise
    if alone:
        await embedding_models.unlock_indexes(conn)
