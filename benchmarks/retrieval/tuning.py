"""`python -m benchmarks.retrieval.tuning`: are the constants those that one would choose without having looked?

For each of LoCoMo's conversations, the constants that do best on the other nine (observations and turns together) are
used for it. What that gives is what the choice of constants is worth where nobody could look.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from itertools import product
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from appview.search.fusion import COMPANY_SHARE, SPAN, Attendant, gather_company
from appview.store.semantic import SAMPLE
from benchmarks.retrieval import sets
from benchmarks.retrieval.measures import Worth, estimate, judge
from benchmarks.retrieval.ranker import OWNER, Ranker
from benchmarks.retrieval.sets import Group
from benchmarks.retrieval.vectors import Matrix, Vectors
from memory.likeness import BLANK, BLANK_SHARE, CENTRED_SHARE

KINDS = ("obs", "turns")
_DEPTH = 150  # more than gain from company


class Constants(NamedTuple):
    """What is chosen."""

    centred_share: float
    span: float
    company_share: float


CHOSEN = Constants(CENTRED_SHARE, SPAN, COMPANY_SHARE)
GRID = [Constants(*each) for each in product((0.3, 0.5, 0.7), (0.1, 0.125, 0.15, 0.2), (0.0, 0.2, 0.3, 0.4))]


@dataclass(frozen=True, slots=True)
class Measured:
    """One group: for each question and memory the share of words and the likeness, as far as no constant enters."""

    group: Group
    shares: NDArray[np.float64]
    asked: NDArray[np.float64]
    generic: NDArray[np.float64]

    def judge_all(self, centred_share: float, span: float) -> dict[float, list[Worth]]:
        """Judge all questions with each share of company."""
        orders = self.shares + (self.asked - centred_share * self.generic) / span
        worths: dict[float, list[Worth]] = {constants.company_share: [] for constants in GRID}
        for question, row in zip(self.group.questions, orders, strict=True):
            best: list[int] = np.argsort(-row, kind="stable")[:_DEPTH].tolist()
            memories = [
                Attendant(OWNER, hash(self.group.texts[place]), self.group.times[place], float(row[place]))
                for place in best
            ]
            company = gather_company(memories)
            lent = [(company.raise_order(memory) - memory.order) / COMPANY_SHARE for memory in memories]
            for share, found in worths.items():
                order = [memory.order + share * more for memory, more in zip(memories, lent, strict=True)]
                ranked = sorted(range(len(best)), key=lambda at, order=order: -order[at])
                found.append(judge([best[at] for at in ranked], question.relevant))
        return worths


async def main() -> None:
    """Print what is chosen for each conversation, and what it is worth there."""
    worths: dict[str, dict[Constants, dict[str, list[Worth]]]] = {}
    async for kind, measured in _measure():
        by_constants = worths.setdefault(kind, {constants: {} for constants in GRID})
        for centred_share, span in {(constants.centred_share, constants.span) for constants in GRID}:
            for company_share, found in measured.judge_all(centred_share, span).items():
                by_constants[Constants(centred_share, span, company_share)][measured.group.name] = found
    names = list(worths["obs"][CHOSEN])
    chosen = {name: max(GRID, key=lambda constants: _worth(worths, constants, but=name)) for name in names}
    for name, constants in chosen.items():
        print(f"{name}: {constants}")
    for kind in KINDS:
        apart = {name: worths[kind][chosen[name]][name] for name in names}
        for label, found in (("chosen apart", apart), ("as it serves", worths[kind][CHOSEN])):
            ndcg = estimate({name: [each.ndcg for each in of_group] for name, of_group in found.items()})
            recall = estimate({name: [each.recall for each in of_group] for name, of_group in found.items()})
            print(f"{kind}, {label}: nDCG {ndcg}, recall {recall}")
        lows = min(_mean(worths[kind][constants]) for constants in GRID if constants.company_share)
        highs = max(_mean(worths[kind][constants]) for constants in GRID)
        print(f"{kind}: all constants of the grid with company give {100 * lows:.1f} to {100 * highs:.1f}")


def _worth(
    worths: Mapping[str, Mapping[Constants, Mapping[str, list[Worth]]]], constants: Constants, *, but: str
) -> float:
    return sum(_mean({name: found for name, found in worths[kind][constants].items() if name != but}) for kind in KINDS)


def _mean(found: Mapping[str, list[Worth]]) -> float:
    return fmean(each.ndcg for of_group in found.values() for each in of_group)


async def _measure() -> AsyncIterator[tuple[str, Measured]]:
    vectors = Vectors()
    try:
        blank = (await vectors.queries([BLANK]))[0]
        asked: dict[str, NDArray[np.float32]] = {}
        for group in sets.locomo("turns", (*sets.ANSWERABLE, sets.ADVERSARIAL)):
            rows = await vectors.queries([question.text for question in group.questions])
            asked |= {question.name: row for question, row in zip(group.questions, rows, strict=True)}
        for kind in KINDS:
            for group in sets.locomo(kind):
                passages = await vectors.passages(group.texts)
                queries = np.stack([asked[question.name] for question in group.questions])
                yield kind, _take(group, passages, queries, blank)
    finally:
        await vectors.aclose()


def _take(group: Group, passages: Matrix, queries: Matrix, blank: NDArray[np.float32]) -> Measured:
    ranker = Ranker(group, passages, blank.tolist())
    shares = np.zeros((len(group.questions), len(group.texts)))
    for row, question in enumerate(group.questions):
        for place, share in ranker.shares(question.text).items():
            shares[row, place] = share
    asked = (queries - BLANK_SHARE * blank) @ passages.T
    return Measured(group, shares, asked.astype(float), (passages @ passages[:SAMPLE].mean(axis=0)).astype(float))


if __name__ == "__main__":
    asyncio.run(main())
