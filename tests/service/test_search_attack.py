"""Searches that end badly while their vector is made: nothing of them stays, and who asks hears what it was."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from appview.answers import arms, search
from appview.call import QueryModels, Turns
from appview.faces.xrpc import PREFIX
from appview.store.search import Matches, find_matches
from memory.database import Database
from memory.embedding import Embedder
from memory.errors import Unavailable
from memory.identifiers import NAMESPACE
from memory.query_embedding import NoVector
from memory.tasks import TaskGroup
from tests.api_client import Api, checked, refused
from tests.meaning import embed_all, embedded_model, query_models
from tests.memory_rows import ALICE, MemoryRows

TEA = "green tea"
PATH = PREFIX + NAMESPACE + "searchRecords"


@pytest.fixture
async def embedder() -> AsyncGenerator[Embedder]:
    async with embedded_model() as opened:
        yield opened


@pytest.fixture
async def served(database: Database, embedder: Embedder) -> Database:
    """One memory with its vector."""
    rows = MemoryRows()
    rows.put(ALICE, TEA)
    await rows.write(database)
    await embed_all(database, embedder)
    return database


class _Hanging:
    """Vectors that come when they are told to, or never."""

    def __init__(self, *, is_elsewhere: bool = False, failure: Exception | None = None) -> None:
        self.is_elsewhere = is_elsewhere
        self.failure = failure
        self.asked, self.answers = asyncio.Event(), asyncio.Event()
        self.under_way = 0

    async def embed(self, model: str, wording: str, *, private: bool) -> Sequence[float] | NoVector:
        self.under_way += 1
        self.asked.set()
        try:
            await self.answers.wait()
        finally:
            self.under_way -= 1
        if self.failure is not None:
            raise self.failure
        return NoVector.SLOW

    async def may_hang(self, model: str) -> bool:
        return self.is_elsewhere


async def is_at_rest(database: Database) -> bool:
    """Whether every connection is free, and outside a transaction."""
    async with database.connection() as conn:
        held: int = await conn.fetchval(
            "select count(*) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid() and state like 'idle in transaction%'"
        )
    pool: Any = database.pool
    return held == 0 and pool.get_idle_size() == pool.get_size()


def others() -> set[asyncio.Task[Any]]:
    return {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}


@pytest.mark.parametrize("is_elsewhere", [False, True])
async def test_of_a_client_that_goes_away_while_the_vector_is_made_nothing_stays(
    served: Database, *, is_elsewhere: bool
) -> None:
    models, before = _Hanging(is_elsewhere=is_elsewhere), others()
    turns = Turns(at_once=1, waiting=0)
    api = Api(served, query_models=models, searches=turns)
    asking = asyncio.create_task(api.send("GET", PATH, params={"q": "tea"}))
    await models.asked.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert (models.under_way, others() - before) == (0, set())
    assert await is_at_rest(served)
    async with turns.turn():  # it was given back
        pass


async def test_who_is_sent_away_leaves_no_vector_behind(served: Database) -> None:
    models = _Hanging()
    api = Api(served, query_models=models, searches=Turns(at_once=1, waiting=0))
    async with TaskGroup() as tasks:
        first = tasks.create_task(api.send("GET", PATH, params={"q": "tea"}))
        await models.asked.wait()
        refusal = refused(await api.send("GET", PATH, params={"q": "tea"}))
        assert (refusal.status, refusal.error) == (503, "NotEnoughResources")
        assert models.under_way == 1
        models.answers.set()
    assert checked("searchRecords", first.result())["mode"] == "lexical"
    assert await is_at_rest(served)


@pytest.mark.parametrize("is_elsewhere", [False, True])
@pytest.mark.parametrize(
    ("failure", "status", "error"),
    [
        (Unavailable("The model is away."), 503, "NotEnoughResources"),
        (ValueError("a bug"), 500, "InternalServerError"),
    ],
)
async def test_what_fails_while_the_vector_is_made_is_told_as_itself(
    served: Database, failure: Exception, status: int, error: str, *, is_elsewhere: bool
) -> None:
    models, before = _Hanging(is_elsewhere=is_elsewhere, failure=failure), others()
    models.answers.set()
    refusal = refused(await Api(served, query_models=models).send("GET", PATH, params={"q": "tea"}))
    assert (refusal.status, refusal.error) == (status, error)
    assert others() - before == set()
    assert await is_at_rest(served)


async def test_what_fails_while_words_are_looked_for_is_told_as_itself_and_ends_the_vector(
    served: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, before = _Hanging(), others()

    async def fail(*_: object, **__: object) -> Matches:
        await models.asked.wait()
        raise Unavailable("The database is away.")

    monkeypatch.setattr(arms, "find_matches", fail)
    refusal = refused(await Api(served, query_models=models).send("GET", PATH, params={"q": "tea"}))
    assert (refusal.status, refusal.error) == (503, "NotEnoughResources")
    assert (models.under_way, others() - before) == (0, set())
    assert await is_at_rest(served)


class _Counting:
    """The model's vectors, and how often each was asked for."""

    def __init__(self, models: QueryModels) -> None:
        self._models = models
        self.asked: list[str] = []

    async def embed(self, model: str, wording: str, *, private: bool) -> Sequence[float] | NoVector:
        self.asked.append(wording)
        return await self._models.embed(model, wording, private=private)

    async def may_hang(self, model: str) -> bool:
        return await self._models.may_hang(model)


async def test_a_search_that_is_done_again_takes_the_vector_that_it_has(
    served: Database, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[object] = []

    async def look(*arguments: Any, **named: Any) -> Matches:
        passes.append(arguments)
        return await find_matches(*arguments, **named)

    monkeypatch.setattr(arms, "find_matches", look)
    monkeypatch.setattr(search.Search, "lacks_some", property(lambda _: len(passes) == 1))
    models = _Counting(query_models(embedder))
    answer = await Api(served, query_models=models).get("searchRecords", q="tea")
    assert (len(passes), answer["mode"]) == (2, "hybrid")
    assert models.asked.count("tea") == 1
    assert [record["value"]["content"] for record in answer["records"]] == [TEA]
    assert await is_at_rest(served)
