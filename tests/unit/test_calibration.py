"""A model's calibration tells chance from right pairs, by the likeness that search goes by."""

from __future__ import annotations

import random
from collections import Counter

from appview.answers import arms
from appview.store import semantic
from indexer import calibration
from indexer.calibration import judge, load_pairs
from memory.embedding import unit_vector
from tests.embedding_double import Double


def test_likeness_is_the_one_of_search():
    assert calibration.take_aim is semantic.take_aim
    assert calibration.BLANK is arms.BLANK


def test_pairs_are_many_short_and_of_eight_languages_or_more():
    pairs = load_pairs()
    assert len(pairs) >= 60
    assert len({pair.question for pair in pairs} | {pair.statement for pair in pairs}) == 2 * len(pairs)
    assert len(Counter(pair.language for pair in pairs)) >= 8
    assert max(len(pair.statement) for pair in pairs) < 100


def test_right_pairs_are_above_chance_and_the_scale_is_twice_as_long(seed: int):
    draw = random.Random(seed)
    statements = [unit_vector([draw.gauss(0, 1) for _ in range(32)]) for _ in range(40)]
    questions = [unit_vector([number + draw.gauss(0, 0.1) for number in each]) for each in statements]
    judged = judge(statements, questions, unit_vector([1.0] * 32))
    assert abs(judged.chance) < 0.3
    assert judged.right > 0.5
    assert judged.low == round(judged.chance, 4)
    assert abs(judged.high - (judged.low + 2 * (judged.right - judged.low))) < 0.001


async def test_model_that_tells_nothing_apart_gets_a_scale_nevertheless():
    measured = await calibration.calibrate(Double())
    assert measured.high >= measured.low + 0.02
    assert len(measured.mean) == 8
