"""How like a text is to a question, by their vectors: what search ranks by, and what a model is calibrated by.

The vectors of one model all point to much the same side, those of texts that say little above all. What the memories
of a search have in common tells none of them from the others, so part of it is taken off the query: that ranks as if it
were taken off the memories, whose vectors stay as they are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from operator import mul
from typing import Final

from memory.embedding import Vector

CENTRED_SHARE: Final = 0.5
"""How much of the mean is taken off: chosen on questions to conversations, a fifth more or less changes little."""

BLANK: Final = "?"
"""A question that asks nothing: what its vector has in common with a query's is the manner of questions."""

BLANK_SHARE: Final = 0.3
"""How much of that is taken off: it lets questions find what is written in other languages."""

_TYPICAL_OF_BLANK: Final = 0.78  # its cosine with texts, in the mean: between 0.77 and 0.81 of all that was measured


@dataclass(frozen=True, slots=True, repr=False)
class Aim:
    """What memories' vectors are compared with, by their cosine."""

    vector: Sequence[float]  # of any length
    length: float
    offset: float
    chance: float | None = None
    """How like the query the memories are in the mean; None: nothing is known of them."""

    def likeness(self, distance: float) -> float:
        """How near a memory is, by its cosine distance to `vector`: as a cosine is, with what all share taken off."""
        return (1.0 - distance) * self.length + self.offset

    def likeness_to(self, vector: Vector) -> float:
        """The same, by a memory's vector of unit length."""
        return _dot(self.vector, vector) + self.offset


def take_aim(query: Sequence[float], mean: Sequence[float] | None, blank: Sequence[float] | None = None) -> Aim:
    """Aim a query's vector at memories with this mean (None: nothing is known of them).

    `blank` is the vector of `BLANK` as a query, if it is at hand. Those of the query and of `blank` have unit length.
    """
    vector, offset = list(query), 0.0
    if mean is not None:
        vector = [mine - CENTRED_SHARE * common for mine, common in zip(vector, mean, strict=True)]
        offset = CENTRED_SHARE * _dot(mean, mean)
    if blank is not None:
        vector = [mine - BLANK_SHARE * common for mine, common in zip(vector, blank, strict=True)]
        offset += BLANK_SHARE * (_TYPICAL_OF_BLANK if mean is None else _dot(blank, mean))
    chance = None if mean is None else _dot(query, mean)
    return Aim(vector, sqrt(_dot(vector, vector)), offset, chance)


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(map(mul, one, other))
