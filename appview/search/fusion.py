"""One order out of two arms. Pure.

Both arms are put on scales that are the same for every search: words by the share of what the query asks for, meaning
by how far above chance it is. So nothing depends on what else was found, and one memory can be judged alone. Only then
comes the company: what was recorded in the same sitting as a good hit is a little better for it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from heapq import nlargest
from typing import Final

# Chosen on questions to conversations and to articles in eight languages: `docs/retrieval.md` has the figures.
CHANCE_MEANS_LESS_ABOVE: Final = 0.75
"""The likeness of chance pairs, of most languages and the embedded model; Chinese ones are at 0.81."""
SPAN: Final = 0.15
"""How far above chance is as good as all the words of a query."""
SITTING: Final = timedelta(hours=1)
"""Memories of one author that were recorded no further apart are of one sitting."""
COMPANY_SHARE: Final = 0.3
"""How much of its best companion's lead a memory gains."""
LENDERS: Final = 100
"""The best of a search, among which companions are; their lead is counted from the last of them."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Calibration:
    """Likenesses of one model: of chance pairs (`low`), and of what surely belongs together (`high`)."""

    low: float = CHANCE_MEANS_LESS_ABOVE
    high: float = CHANCE_MEANS_LESS_ABOVE + SPAN

    def at(self, chance: float | None) -> Calibration:
        """The same for a search whose query is this like the mean of the memories, as if they were chance pairs.

        A question in another language is less like everything. More than `low` is no chance: the memories are all about
        what is asked.
        """
        if chance is None or not chance < self.low:
            return self
        return Calibration(chance, chance + self.high - self.low)


@dataclass(frozen=True, slots=True)
class Fused:
    """`order`: what hits are sorted by, descending. `score`: 0 to 1, comparable between queries."""

    order: float
    score: float


def fuse(share: float | None, likeness: float | None, calibration: Calibration) -> Fused | None:
    """One memory's place: by the share that it has of the query's words, and by its likeness. None: it is no hit.

    `share`: None without a word of the query; may be over 1. `likeness`: None without a vector, which is as chance.
    """
    if share is None and (likeness is None or likeness <= calibration.low):
        return None
    words = share or 0.0
    meaning = 0.0 if likeness is None else (likeness - calibration.low) / (calibration.high - calibration.low)
    return Fused(words + meaning, (_bounded(words) + _bounded(meaning)) / 2)


@dataclass(frozen=True, slots=True, repr=False)
class Attendant:
    """A memory that was found: of which author and Space, what it says (equal for equal contents), when, its order."""

    owner: tuple[str, str]
    content: int
    at: datetime
    order: float


@dataclass(frozen=True, slots=True, repr=False)
class Company:
    """The best of a search, from whom others of the same sitting gain."""

    _lenders: dict[tuple[str, str], list[Attendant]] = field(default_factory=dict[tuple[str, str], list[Attendant]])
    """Of each owner, the earliest first."""
    _floor: float = 0.0

    def raise_order(self, memory: Attendant) -> float:
        """The order of a memory, and a share of how much better than the worst of the best its best companion is.

        A companion is another text of the same owner, recorded within an hour. Where all were recorded at once, all
        gain, and keep their order. What is not among the best keeps its place.
        """
        lenders = self._lenders.get(memory.owner)
        if memory.order < self._floor or lenders is None:
            return memory.order
        at = _since_epoch(memory)
        first = bisect_left(lenders, at - SITTING, key=_since_epoch)
        end = bisect_right(lenders, at + SITTING, first, key=_since_epoch)
        lent = max((each.order for each in lenders[first:end] if each.content != memory.content), default=self._floor)
        return memory.order + COMPANY_SHARE * (lent - self._floor)


def gather_company(memories: Iterable[Attendant]) -> Company:
    """Find the best of what a search found."""
    best: Sequence[Attendant] = nlargest(LENDERS, memories, key=lambda memory: memory.order)
    lenders: defaultdict[tuple[str, str], list[Attendant]] = defaultdict(list)
    for memory in sorted(best, key=_since_epoch):
        lenders[memory.owner].append(memory)
    return Company(dict(lenders), best[-1].order if best else 0.0)


def _since_epoch(memory: Attendant) -> timedelta:
    return memory.at - _EPOCH  # an hour before the first year is no time, but it is a span


def _bounded(value: float) -> float:
    return min(1.0, max(0.0, value))
