"""Fills vectors behind the writer: takes what waits, embeds it, stores what still holds. Any number may work at once.

What came live goes first, then what was there before, of the serving model before others; of each repo in turn the
newest, so that nobody's thousands keep others waiting. When nothing waits, memories are gone through for those that
lack a vector though nobody asked: whatever was killed in the middle of anything, in the end each has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from indexer.back_off import back_off_s
from indexer.store import embedding_models as models
from indexer.store import embeddings
from indexer.store.embedding_models import FIRST_WALKS, StoredModel
from indexer.store.embeddings import Embedded, Request, Turn
from memory.database import Database
from memory.embedding import Embedder, Vector, may_embed, split_passages
from memory.errors import Rejected, Unavailable
from memory.telemetry import get_logger

OpenModel = Callable[[str], Awaitable[Embedder | None]]
"""The embedder that makes a model's vectors; None where this process has no way to it."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is taken at once, and how often is looked."""

    count: int = 16
    each: int = 4  # of one repo
    lease_s: float = 120.0
    idle_s: float = 0.2
    models_s: float = 5.0  # until models are looked at anew
    walk_count: int = 5_000
    walk_s: float = 60.0  # between two steps of a walk that only makes sure
    refused_first_s: float = 60.0
    refused_max_s: float = 24 * 3600.0


PASSAGES_AT_ONCE: Final = 16
DROPPED_AT_ONCE: Final = 5_000
_NOWHERE: Final = ("", "")


class EmbeddingWorker:
    """One worker; `allow_private`: also texts of Spaces go to a model on another machine."""

    def __init__(
        self, database: Database, open_model: OpenModel, *, allow_private: bool, pace: Pace | None = None
    ) -> None:
        self.embedded = 0  # contents whose vectors were stored
        self._database = database
        self._open_model = open_model
        self._allow_private = allow_private
        self._pace = pace or Pace()
        self._reached: dict[tuple[str, bool], tuple[str, str]] = {}  # the last repo of each round
        self._models: list[tuple[StoredModel, Embedder]] = []
        self._models_at = float("-inf")
        self._walk_at = float("-inf")

    async def run(self) -> None:
        """Works until cancelled; what cannot be had at the moment is waited for."""
        failures = 0
        while True:
            try:
                worked = await self.step()
                failures = 0
            except Unavailable as outage:
                failures += 1
                wait_s = back_off_s(failures, 0.2, 30.0)
                get_logger().warning("embedding_retried", seconds=wait_s, message=outage.message)
                await asyncio.sleep(wait_s)
                continue
            if not worked:
                await asyncio.sleep(self._pace.idle_s)

    async def step(self) -> bool:
        """The most urgent piece of work; False: there was none."""
        await self._look_at_models()
        for urgent in (True, False):
            for stored, embedder in self._models:
                if await self._embed_some(stored.model, embedder, urgent=urgent):
                    return True
        return await self._look_for_more()

    async def _look_at_models(self) -> None:
        now = monotonic()
        if now < self._models_at + self._pace.models_s:
            return
        async with self._database.connection() as conn:
            stored = await models.load_models(conn)
        opened: list[tuple[StoredModel, Embedder]] = []
        for model in stored:
            embedder = await self._open_model(model.model)
            if embedder is not None:
                opened.append((model, embedder))
        self._models, self._models_at = opened, now

    async def _embed_some(self, model: str, embedder: Embedder, *, urgent: bool) -> bool:
        after = self._reached.get((model, urgent), _NOWHERE)
        requests = await self._claim(model, embedder, after, urgent=urgent)
        if not requests and after != _NOWHERE:
            requests = await self._claim(model, embedder, _NOWHERE, urgent=urgent)
        self._reached[model, urgent] = max((request.key[:2] for request in requests), default=_NOWHERE)
        if not requests:
            return False
        async with self._database.connection() as conn:
            contents = await embeddings.load_contents(conn, requests)
            stale = [request for request in requests if request.key not in contents]
            if stale:
                await embeddings.drop_stale(conn, model, stale)
        await self._embed(model, embedder, [(each, contents[each.key]) for each in requests if each.key in contents])
        return True

    async def _claim(self, model: str, embedder: Embedder, after: tuple[str, str], *, urgent: bool) -> list[Request]:
        pace = self._pace
        with_spaces = may_embed("any Space", embedder, allow_private=self._allow_private)
        turn = Turn(pace.count, pace.each, after, with_spaces, pace.lease_s)
        async with self._database.transaction() as conn:
            return await embeddings.claim(conn, model, turn, urgent=urgent)

    async def _embed(self, model: str, embedder: Embedder, contents: Sequence[tuple[Request, str]]) -> None:
        """Embeds and stores in small portions, so that the first need not wait for the last."""
        portion: list[tuple[Request, list[str]]] = []
        passages = 0
        for number, (request, content) in enumerate(contents):
            if not may_embed(request.key[1], embedder, allow_private=self._allow_private):
                continue
            split = split_passages(content)
            portion.append((request, split))
            passages += len(split)
            if passages >= PASSAGES_AT_ONCE:
                await self._embed_portion(model, embedder, portion, [each for each, _ in contents[number + 1 :]])
                portion, passages = [], 0
        if portion:
            await self._embed_portion(model, embedder, portion, [])

    async def _embed_portion(
        self, model: str, embedder: Embedder, portion: Sequence[tuple[Request, list[str]]], rest: Sequence[Request]
    ) -> None:
        try:
            vectors = await embedder.embed_passages([passage for _, passages in portion for passage in passages])
        except Unavailable:
            async with self._database.connection() as conn:  # let others have them, who may reach it
                await embeddings.postpone(conn, model, [(each, 0.0) for each in (*(r for r, _ in portion), *rest)])
            raise
        except Rejected:
            if len(portion) == 1:
                await self._refuse(model, portion[0][0])
                return
            middle = len(portion) // 2
            await self._embed_portion(model, embedder, portion[:middle], [])
            await self._embed_portion(model, embedder, portion[middle:], [])
            return
        await self._store(model, _assign(portion, vectors))

    async def _store(self, model: str, embedded: Sequence[Embedded]) -> None:
        async with self._database.transaction() as conn:
            stored = await embeddings.store(conn, model, embedded)
        self.embedded += len(stored)
        # Somebody was changing these; if their content stays what it is, they are next.
        passed_over = [(each.request, 0.0) for each in embedded if each.request.key not in stored]
        if passed_over:
            async with self._database.connection() as conn:
                await embeddings.postpone(conn, model, passed_over)

    async def _refuse(self, model: str, request: Request) -> None:
        wait_s = back_off_s(request.attempts, self._pace.refused_first_s, self._pace.refused_max_s)
        get_logger().warning("embedding_refused", model=model, did=request.key[0], attempts=request.attempts)
        async with self._database.connection() as conn:
            await embeddings.postpone(conn, model, [(request, wait_s)])

    async def _look_for_more(self) -> bool:
        """What nobody asked for: memories without a vector, models ready to serve, vectors that nobody keeps."""
        now = monotonic()
        only_sure = all(stored.walks >= FIRST_WALKS for stored, _ in self._models)
        if only_sure and now < self._walk_at + self._pace.walk_s:
            return False
        self._walk_at = now
        worked = False
        for stored, _ in self._models:
            if only_sure or stored.walks < FIRST_WALKS:
                async with self._database.transaction() as conn:
                    step = await models.walk(conn, stored.model, self._pace.walk_count)
                worked |= step is not None and step.walked > 0
            if stored.state == "filling":
                await self._serve_if_ready(stored)
        self._models_at = float("-inf")
        async with self._database.transaction() as conn:
            return await models.drop_some(conn, DROPPED_AT_ONCE) > 0 or worked

    async def _serve_if_ready(self, stored: StoredModel) -> None:
        async with self._database.transaction() as conn:
            coverage = {each.model: each for each in await models.load_coverage(conn)}.get(stored.model)
            if coverage is None or coverage.state != "filling":
                return
            ready = coverage.complete
            if not ready and stored.serve_at_share < 1 and coverage.walks >= 1:
                memories, embedded = await models.count_embedded(conn, stored.model)
                ready = embedded >= stored.serve_at_share * memories
            if ready:
                await models.serve_model(conn, stored.model)
                get_logger().info("embedding_model_serves", model=stored.model)


def _assign(portion: Sequence[tuple[Request, list[str]]], vectors: Sequence[Vector]) -> list[Embedded]:
    """To each request the vectors of its passages."""
    assigned: list[Embedded] = []
    start = 0
    for request, passages in portion:
        assigned.append(Embedded(request, vectors[start : start + len(passages)]))
        start += len(passages)
    return assigned
