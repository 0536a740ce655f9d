from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from structlog.testing import capture_logs

from memory.embedding import Absent, EmbedderUnavailable, TextRefused, Vector
from memory.errors import Misconfigured
from memory.query_embedding import NoVector, QueryVectors

VECTOR = [0.6, 0.8]


class _Model:
    """Answers at once, or when it is let; or fails."""

    model = "some-model"
    dimensions = 2

    def __init__(self, *, leaves_machine: bool = False) -> None:
        self.leaves_machine = leaves_machine
        self.asked: list[str] = []
        self.arrived = asyncio.Semaphore(0)  # once for each question
        self.open = asyncio.Event()
        self.open.set()
        self.failure: Exception | None = None
        self.closed = False

    async def until_asked(self, times: int) -> None:
        for _ in range(times):
            await self.arrived.acquire()

    async def embed_query(self, text: str) -> Vector:
        self.asked.append(text)
        self.arrived.release()
        await self.open.wait()
        if self.failure is not None:
            raise self.failure
        return VECTOR

    async def embed_passages(self, texts: Sequence[str]) -> list[Vector]:
        raise NotImplementedError

    async def aclose(self) -> None:
        self.closed = True


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def model() -> _Model:
    return _Model()


async def test_query_that_was_asked_before_is_not_asked_again(model: _Model):
    vectors = QueryVectors(model)
    assert await vectors.find("tea", private=False) == VECTOR
    assert await vectors.find(" tea ", private=False) == VECTOR
    assert model.asked == ["tea"]
    assert vectors.model == "some-model"


async def test_query_over_a_space_is_not_remembered(model: _Model):
    vectors = QueryVectors(model)
    for _ in range(2):
        assert await vectors.find("tea", private=True) == VECTOR
    assert await vectors.find("tea", private=False) == VECTOR
    assert model.asked == ["tea"] * 3


async def test_query_over_a_space_takes_no_shorter_way_than_its_own(model: _Model):
    vectors = QueryVectors(model)
    await vectors.find("tea", private=False)
    await vectors.find("tea", private=True)
    assert model.asked == ["tea"] * 2


async def test_oldest_queries_are_forgotten_first(model: _Model):
    vectors = QueryVectors(model, cached_at_most=2)
    for query in ("a", "b", "a", "c", "a", "b"):
        await vectors.find(query, private=False)
    assert model.asked == ["a", "b", "c", "b"]


async def test_what_is_remembered_is_bounded_in_bytes(model: _Model):
    vectors = QueryVectors(model, cached_bytes=200)
    for query in ("a" * 100, "b" * 100, "a" * 100):
        await vectors.find(query, private=False)
    assert len(model.asked) == 3


async def test_without_an_embedder_there_is_no_vector():
    vectors = QueryVectors(Absent("it is absent"))
    assert await vectors.find("tea", private=False) is NoVector.ABSENT
    assert vectors.model is None
    await vectors.aclose()


@pytest.mark.parametrize(("leaves", "allowed", "asked"), [(True, False, 0), (True, True, 1), (False, False, 1)])
async def test_query_over_a_space_leaves_the_machine_only_if_allowed(leaves: bool, allowed: bool, asked: int):
    model = _Model(leaves_machine=leaves)
    found = await QueryVectors(model, allow_private=allowed).find("tea", private=True)
    assert (found is NoVector.PRIVATE, len(model.asked)) == (asked == 0, asked)


async def test_full_queue_is_told_at_once(model: _Model):
    vectors = QueryVectors(model, waiting_at_most=2)
    model.open.clear()
    waiting = [asyncio.create_task(vectors.find(query, private=False)) for query in ("a", "b")]
    await model.until_asked(2)
    assert await vectors.find("c", private=False) is NoVector.BUSY
    model.open.set()
    assert await asyncio.gather(*waiting) == [VECTOR, VECTOR]
    assert await vectors.find("c", private=False) == VECTOR


async def test_known_query_is_answered_while_the_queue_is_full(model: _Model):
    vectors = QueryVectors(model, waiting_at_most=0)
    assert await vectors.find("tea", private=False) is NoVector.BUSY
    open_vectors = QueryVectors(model, waiting_at_most=1)
    await open_vectors.find("tea", private=False)
    model.open.clear()
    waiting = asyncio.create_task(open_vectors.find("a", private=False))
    await model.until_asked(2)
    assert await open_vectors.find("tea", private=False) == VECTOR
    waiting.cancel()


async def test_slow_embedder_is_not_waited_for(model: _Model):
    vectors = QueryVectors(model, deadline_s=0, waiting_at_most=1)
    model.open.clear()
    for _ in range(5):
        assert await vectors.find("tea", private=False) is NoVector.SLOW
    assert len(model.asked) == 5


async def test_cancelled_search_leaves_its_place(model: _Model):
    vectors = QueryVectors(model, waiting_at_most=1)
    model.open.clear()
    task = asyncio.create_task(vectors.find("a", private=False))
    await model.until_asked(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    model.open.set()
    assert await vectors.find("b", private=False) == VECTOR


@pytest.mark.parametrize(
    "failure", [EmbedderUnavailable("no"), TextRefused(), Misconfigured("no", setting="EMBEDDING_API_KEY")]
)
async def test_failure_of_the_embedder_is_no_failure_of_the_search(model: _Model, failure: Exception):
    model.failure = failure
    assert await QueryVectors(model).find("tea", private=False) is NoVector.FAILED


async def test_failing_embedder_is_left_alone_for_a_while_and_said_once(model: _Model):
    clock = _Clock()
    vectors = QueryVectors(model, monotonic=clock)
    model.failure = Misconfigured("It does not take the key.", setting="EMBEDDING_API_KEY")
    with capture_logs() as logs:
        for _ in range(10):
            assert await vectors.find("tea", private=False) is NoVector.FAILED
        assert len(model.asked) == 3
        clock.now = 6.0
        await vectors.find("tea", private=False)
        assert len(model.asked) == 4
        clock.now = 12.0
        model.failure = None
        assert await vectors.find("tea", private=False) == VECTOR
    assert [(log["event"], log.get("setting")) for log in logs] == [
        ("query_embedder_failing", "EMBEDDING_API_KEY"),
        ("query_embedder_back", None),
    ]
    assert "tea" not in str(logs)


async def test_text_that_is_refused_does_not_stop_others(model: _Model):
    vectors = QueryVectors(model)
    model.failure = TextRefused()
    for query in "abcdef":
        assert await vectors.find(query, private=False) is NoVector.FAILED
    model.failure = None
    assert await vectors.find("tea", private=False) == VECTOR


async def test_server_elsewhere_that_is_slow_is_left_alone_for_a_while():
    model = _Model(leaves_machine=True)
    model.open.clear()
    vectors = QueryVectors(model, deadline_s=0, monotonic=_Clock())
    found = [await vectors.find("tea", private=False) for _ in range(5)]
    assert found == [NoVector.SLOW] * 3 + [NoVector.FAILED] * 2


async def test_closing_closes_the_embedder(model: _Model):
    await QueryVectors(model).aclose()
    assert model.closed
