"""The rulers of `benchmarks/retrieval`: what they say of rankings whose worth is known."""

from __future__ import annotations

from datetime import UTC, datetime
from math import log2

import pytest

from benchmarks.retrieval.measures import estimate, judge
from benchmarks.retrieval.sets import Group, Question, parts, pooled

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def test_what_is_first_alone_is_worth_all() -> None:
    worth = judge([7, 1, 2], frozenset({7}))
    assert (worth.ndcg, worth.recall) == (1.0, 1.0)


def test_what_comes_third_is_worth_half() -> None:
    assert judge([1, 2, 7], frozenset({7})).ndcg == pytest.approx(1 / log2(4))


def test_what_comes_eleventh_is_worth_nothing() -> None:
    worth = judge([*range(10), 77], frozenset({77}))
    assert (worth.ndcg, worth.recall) == (0.0, 0.0)


def test_one_of_two_is_half_the_recall() -> None:
    worth = judge([7], frozenset({7, 8}))
    assert worth.recall == 0.5
    assert worth.ndcg == pytest.approx(1 / (1 + 1 / log2(3)))


def test_the_mean_is_over_questions_and_its_interval_over_groups() -> None:
    same = estimate({"a": [0.5, 0.5], "b": [0.5]})
    assert (same.mean, same.low, same.high) == (50.0, 50.0, 50.0)
    apart = estimate({"a": [1.0, 1.0, 1.0], "b": [0.0]})
    assert apart.mean == 75.0
    assert (apart.low, apart.high) == (0.0, 100.0)


def group(name: str, size: int, *relevant: frozenset[int]) -> Group:
    questions = [Question(f"{name}-{at}", "?", places, 0) for at, places in enumerate(relevant)]
    return Group(name, [f"m{at}" for at in range(size)], [f"text {at}" for at in range(size)], [NOON] * size, questions)


def test_a_part_has_the_questions_that_are_answered_in_it_alone() -> None:
    cut = list(parts(group("a", 5, frozenset({0}), frozenset({1, 2}), frozenset({4})), 2))
    assert [[question.name for question in part.questions] for part, _ in cut] == [["a-0"], [], ["a-2"]]
    assert [part.texts[place] for part, _ in cut for each in part.questions for place in each.relevant] == [
        "text 0",
        "text 4",
    ]


def test_a_pool_has_the_questions_whose_answers_are_in_it() -> None:
    pool = pooled([group("a", 3, frozenset({2})), group("b", 3, frozenset({0}), frozenset({2}))], 5)
    assert pool.ids == ["a/m0", "a/m1", "a/m2", "b/m0", "b/m1"]
    assert [(question.name, set(question.relevant)) for question in pool.questions] == [("a-0", {2}), ("b-0", {3})]
