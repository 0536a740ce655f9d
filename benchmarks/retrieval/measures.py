"""What a ranking is worth, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2

import numpy as np

DEPTH = 10
_ROUNDS = 10_000


@dataclass(frozen=True, slots=True)
class Worth:
    """Of one question: nDCG and recall of the first ten, 0 to 1."""

    ndcg: float
    recall: float


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over all questions, times 100, and its 95% interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:.1f} [{self.low:.1f}, {self.high:.1f}]"


def judge(ranked: Sequence[int], relevant: frozenset[int]) -> Worth:
    """Judge the first ten of a ranking of places."""
    gains = [1 / log2(rank + 2) for rank, place in enumerate(ranked[:DEPTH]) if place in relevant]
    ideal = sum(1 / log2(rank + 2) for rank in range(min(DEPTH, len(relevant))))
    return Worth(sum(gains) / ideal, len(gains) / len(relevant))


def estimate(values: Mapping[str, Sequence[float]], *, seed: int = 1) -> Estimate:
    """Bootstrap the mean over all questions by drawing whole groups; of a single group, its questions."""
    clusters = [np.asarray(of_group, dtype=float) for of_group in values.values() if of_group]
    if len(clusters) == 1:
        clusters = [np.asarray([value]) for value in clusters[0]]
    sums = np.array([cluster.sum() for cluster in clusters])
    counts = np.array([cluster.size for cluster in clusters])
    drawn = np.random.default_rng(seed).integers(0, len(clusters), (_ROUNDS, len(clusters)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Estimate(100 * float(sums.sum() / counts.sum()), 100 * float(low), 100 * float(high))
