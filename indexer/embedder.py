"""Fills vectors behind the writer: takes what waits, embeds it, stores what still holds. Any number may work at once.

What came live goes first, then what was there before, of the serving model before others; of each repo in turn the
newest, so that nobody's thousands keep others waiting. Every few steps the turn is another lane's, so that what never
ends starves none. When nothing waits, memories are gone through for those that lack a vector though nobody asked:
whatever was killed in the middle of anything, in the end each has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Final

from indexer.back_off import back_off_s
from indexer.store import embedding_models as models
from indexer.store import embeddings
from indexer.store.embedding_models import FIRST_WALKS, StoredModel
from indexer.store.embeddings import Embedded, Lane, Request, Turn
from memory.database import Database
from memory.embedding import Embedder, EmbedderUnavailable, Vector, may_embed, split_passages
from memory.errors import MemoryAppviewError, Misconfigured, Rejected, Unavailable
from memory.tasks import TaskGroup
from memory.telemetry import get_logger

OpenModel = Callable[[str], Awaitable[Embedder | None]]
"""The embedder that makes a model's vectors; None where this process has no way to it."""

Work = Callable[[], Awaitable[bool]]
"""A piece of work, and whether there was any."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How much is taken at once, and how often is looked."""

    each_share: int = 4  # of what is taken at once, one repo has this part
    lease_s: float = 60.0  # renewed while it is embedded
    idle_s: float = 0.1
    models_s: float = 5.0  # until models are looked at anew
    walk_count: int = 5_000
    walk_s: float = 60.0  # between two steps of a walk that only makes sure
    doubtful_s: float = 5.0
    refused_first_s: float = 60.0
    refused_max_s: float = 24 * 3600.0
    away_first_s: float = 0.5
    away_max_s: float = 30.0


ANOTHERS_TURN: Final = 4  # every so many steps
DROPPED_AT_ONCE: Final = 5_000
# Portions are as large as is done in a moment: what comes live waits for no longer.
PASSAGES_FIRST: Final = 8
LONG_PASSAGES: Final = 3  # what has more takes seconds: it lets live ones that are short go first
PASSAGES_MIN: Final = 4
PASSAGES_MAX: Final = 64
_QUICK_S: Final = 0.1
_SLOW_S: Final = 0.4
_LOOKING_SHARE: Final = 10  # looking for work takes at most this part of the time
_NOWHERE: Final = ("", "")


@dataclass(slots=True)
class _Model:
    """A model with its embedder, and how far this worker is with it."""

    stored: StoredModel
    embedder: Embedder
    with_spaces: bool
    reached: dict[Lane, tuple[str, str]] = field(default_factory=dict[Lane, tuple[str, str]])  # each round's last repo
    passages: int = PASSAGES_FIRST  # in a portion
    backlog_is_empty: bool = False  # as far as was seen
    walk_at: float = float("-inf")
    ready_at: float = float("-inf")  # when it was last looked whether it may serve
    doubtful_at: float = float("-inf")
    failures: int = 0  # of its embedder, on end
    away_until: float = float("-inf")

    @property
    def name(self) -> str:
        return self.stored.model


class EmbeddingWorker:
    """One worker.

    `allow_private`: also texts of Spaces go to a model on another machine. `needed`: ends if not to be had.
    """

    def __init__(
        self,
        database: Database,
        open_model: OpenModel,
        *,
        allow_private: bool,
        pace: Pace | None = None,
        needed: str | None = None,
    ) -> None:
        self.embedded = 0  # contents whose vectors were stored
        self._database = database
        self._open_model = open_model
        self._allow_private = allow_private
        self._pace = pace or Pace()
        self._needed = needed
        self._models: dict[str, _Model] = {}
        self._leaving: list[StoredModel] = []
        self._models_at = float("-inf")
        self._steps = 0

    async def run(self) -> None:
        """Works until cancelled; what cannot be had at the moment is waited for."""
        failures = 0
        while True:
            began = monotonic()
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
                await asyncio.sleep(max(self._pace.idle_s, _LOOKING_SHARE * (monotonic() - began)))

    async def step(self) -> bool:
        """The most urgent piece of work, or the one whose turn it is; False: there was none."""
        await self._look_at_models()
        works = self._works()
        self._steps += 1
        if works and self._steps % ANOTHERS_TURN == 0:
            another = self._steps // ANOTHERS_TURN % len(works)
            works = [works[another], *works[:another], *works[another + 1 :]]
        for work in works:
            if await work():
                return True
        return False

    def _works(self) -> list[Work]:
        """All that there may be to do, the most urgent first."""
        now, works = monotonic(), list[Work]()
        there = [model for model in self._models.values() if now >= model.away_until]
        for lane in (Lane.LIVE, Lane.BACKLOG):
            works += [partial(self._embed_some, model, lane) for model in there]
        works += [partial(self._try_doubtful, model) for model in there]
        works += [partial(self._look_for_more, model) for model in self._models.values()]
        works += [partial(self._drop_some, stored) for stored in self._leaving]
        return works

    async def _look_at_models(self) -> None:
        now = monotonic()
        if now < self._models_at + self._pace.models_s:
            return
        async with self._database.connection() as conn:
            kept = await models.load_models(conn)
        known, self._models = self._models, {}
        for stored in kept:
            embedder = None if stored.state == "leaving" else await self._open_model(stored.model)
            if embedder is None:
                continue
            before = known.get(stored.model)
            with_spaces = may_embed("any Space", embedder, allow_private=self._allow_private)
            model = before or _Model(stored, embedder, with_spaces)
            model.stored, model.embedder = stored, embedder
            self._models[stored.model] = model
        self._leaving = [stored for stored in kept if stored.state == "leaving"]
        self._models_at = now

    # Embedding

    async def _try_doubtful(self, model: _Model) -> bool:
        """What others failed with, one at a time and not too often."""
        if monotonic() < model.doubtful_at + self._pace.doubtful_s:
            return False
        worked = await self._embed_some(model, Lane.DOUBTFUL)
        if not worked:
            model.doubtful_at = monotonic()
        return worked

    async def _embed_some(self, model: _Model, lane: Lane) -> bool:
        requests = await self._claim(model, lane)
        if lane is Lane.BACKLOG:
            model.backlog_is_empty = not requests
        if not requests:
            return False
        async with self._database.connection() as conn:
            contents = await embeddings.load_contents(conn, requests)
            stale = [request for request in requests if request.key not in contents]
            if stale:
                await embeddings.drop_stale(conn, model.name, stale)
            there = [(each, split_passages(contents[each.key])) for each in requests if each.key in contents]
            short = [each for each in there if lane is not Lane.LIVE or len(each[1]) <= LONG_PASSAGES]
            if len(short) < len(there):
                long = [request for request, passages in there if len(passages) > LONG_PASSAGES]
                await embeddings.give_back(conn, model.name, long, Lane.BACKLOG)
            portion = self._portion(model, short)
            if rest := [request for request, _ in short[len(portion) :]]:
                await embeddings.give_back(conn, model.name, rest)
        if portion:
            model.reached[lane] = portion[-1][0].key[:2]
            began = monotonic()
            await self._embed(model, portion)
            _keep_portions_short(model, portion, monotonic() - began)
        return True

    async def _claim(self, model: _Model, lane: Lane) -> list[Request]:
        count = 1 if lane is Lane.DOUBTFUL else model.passages
        each = max(1, count // self._pace.each_share)
        after = model.reached.get(lane, _NOWHERE)
        for start in (after, _NOWHERE) if after != _NOWHERE else (_NOWHERE,):
            turn = Turn(count, each, start, model.with_spaces, self._pace.lease_s)
            async with self._database.transaction() as conn:
                requests = await embeddings.claim(conn, model.name, lane, turn)
            if requests:
                return requests
        return []

    def _portion(self, model: _Model, requests: Sequence[tuple[Request, list[str]]]) -> list[tuple[Request, list[str]]]:
        """The first of these requests, each with its passages, as many as are embedded at once."""
        portion: list[tuple[Request, list[str]]] = []
        passages = 0
        for request, split in requests:
            if not may_embed(request.key[1], model.embedder, allow_private=self._allow_private):
                raise AssertionError("a text of a Space was taken that may not leave")
            if portion and passages + len(split) > model.passages:
                break
            portion.append((request, split))
            passages += len(split)
        return portion

    async def _embed(self, model: _Model, portion: Sequence[tuple[Request, list[str]]]) -> None:
        requests = [request for request, _ in portion]
        try:
            vectors = await self._vectors(model, requests, [passage for _, passages in portion for passage in passages])
        except (Unavailable, Misconfigured) as failure:
            async with self._database.connection() as conn:  # let others have them, who may reach it
                await embeddings.give_back(conn, model.name, requests)
            self._note_failure(model, failure)
            return
        except Rejected:
            if len(portion) == 1:
                await self._refuse(model, requests[0])
                return
            middle = len(portion) // 2
            await self._embed(model, portion[:middle])
            await self._embed(model, portion[middle:])
            return
        model.failures = 0
        await self._store(model, _assign(portion, vectors))

    async def _vectors(self, model: _Model, requests: Sequence[Request], passages: Sequence[str]) -> list[Vector]:
        """Their vectors, however long that takes: the requests stay taken meanwhile."""
        async with TaskGroup() as tasks:
            holding = tasks.create_task(self._hold(model, requests))
            vectors = await model.embedder.embed_passages(passages)
            holding.cancel()
        if len(vectors) != len(passages):
            raise EmbedderUnavailable("The embedder gives another number of vectors than of texts.")
        if any(len(vector) != model.stored.dimensions for vector in vectors):
            raise models.other_dimensions(model.name, len(vectors[0]))
        return vectors

    async def _hold(self, model: _Model, requests: Sequence[Request]) -> None:
        while True:
            await asyncio.sleep(self._pace.lease_s / 3)
            try:
                async with self._database.connection() as conn:
                    await embeddings.postpone(conn, model.name, requests, self._pace.lease_s)
            except Unavailable as outage:  # at worst another embeds the same
                get_logger().warning("embedding_not_held", message=outage.message)

    async def _store(self, model: _Model, embedded: Sequence[Embedded]) -> None:
        async with self._database.transaction() as conn:
            stored = await embeddings.store(conn, model.name, embedded)
        self.embedded += len(stored)
        # Somebody was changing these; if their content stays what it is, they are next.
        passed_over = [each.request for each in embedded if each.request.key not in stored]
        if passed_over:
            async with self._database.connection() as conn:
                await embeddings.give_back(conn, model.name, passed_over)

    async def _refuse(self, model: _Model, request: Request) -> None:
        wait_s = back_off_s(request.attempts, self._pace.refused_first_s, self._pace.refused_max_s)
        get_logger().warning("embedding_refused", model=model.name, did=request.key[0], attempts=request.attempts)
        async with self._database.connection() as conn:
            await embeddings.postpone(conn, model.name, [request], wait_s, doubtful=True)

    def _note_failure(self, model: _Model, failure: MemoryAppviewError) -> None:
        """Leaves a model alone for a while; the others go on. What is to be mended ends us if there is no other."""
        if isinstance(failure, Misconfigured) and (len(self._models) == 1 or model.name == self._needed):
            raise failure
        model.failures += 1
        wait_s = self._pace.away_max_s
        if not isinstance(failure, Misconfigured):
            wait_s = back_off_s(model.failures, self._pace.away_first_s, self._pace.away_max_s)
        model.away_until = monotonic() + wait_s
        get_logger().warning("embedder_away", model=model.name, seconds=wait_s, message=failure.message)

    # What nobody asked for

    async def _look_for_more(self, model: _Model) -> bool:
        """Goes on looking for memories without a vector, and has a model serve that is ready to."""
        if not model.backlog_is_empty:
            return False
        now, worked = monotonic(), False
        if model.stored.walks < FIRST_WALKS or now >= model.walk_at + self._pace.walk_s:
            model.walk_at = now
            worked = await self._walk(model)
        elif now < model.ready_at + self._pace.models_s:
            return False
        if model.stored.state == "filling":
            model.ready_at = now
            await self._serve_if_ready(model)
        return worked

    async def _walk(self, model: _Model) -> bool:
        async with self._database.transaction() as conn:
            step = await models.walk(conn, model.name, self._pace.walk_count)
        if step is not None and step.ended:
            self._models_at = float("-inf")
            async with self._database.connection() as conn:
                await models.drop_stray_requests(conn)
        return step is not None and step.walked > 0

    async def _serve_if_ready(self, model: _Model) -> None:
        stored = model.stored
        async with self._database.transaction() as conn:
            coverage = {each.model: each for each in await models.load_coverage(conn)}.get(stored.model)
            if coverage is None or coverage.state != "filling":
                return
            ready = coverage.ready(with_spaces=model.with_spaces)
            if not ready and stored.serve_at_share < 1 and coverage.walks >= 1:
                memories, embedded = await models.count_embedded(conn, stored.model)
                ready = embedded >= stored.serve_at_share * memories
            if ready and await models.index_is_valid(conn, stored.model, stored.dimensions):
                await models.serve_model(conn, stored.model)
                self._models_at = float("-inf")
                get_logger().info("embedding_model_serves", model=stored.model)

    async def _drop_some(self, stored: StoredModel) -> bool:
        """Deletes what there is of a model that is leaving."""
        async with self._database.transaction() as conn:
            step = await models.drop_some(conn, stored.model, DROPPED_AT_ONCE)
        if step is not None and step.ended:
            self._models_at = float("-inf")
            get_logger().info("embedding_model_gone", model=stored.model)
        return step is not None


def _keep_portions_short(model: _Model, portion: Sequence[tuple[Request, list[str]]], seconds: float) -> None:
    """Makes the next portion larger if a full one was done at once, and smaller if it took long."""
    if seconds > _SLOW_S:
        model.passages = max(PASSAGES_MIN, model.passages // 2)
    elif seconds < _QUICK_S and sum(len(passages) for _, passages in portion) > model.passages // 2:
        model.passages = min(PASSAGES_MAX, model.passages * 2)


def _assign(portion: Sequence[tuple[Request, list[str]]], vectors: Sequence[Vector]) -> list[Embedded]:
    """To each request the vectors of its passages."""
    assigned: list[Embedded] = []
    start = 0
    for request, passages in portion:
        assigned.append(Embedded(request, vectors[start : start + len(passages)]))
        start += len(passages)
    return assigned
