"""Candidates of both arms in, ranked hits out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Final

from appview.keys import Key
from appview.search.candidates import Candidate
from appview.search.fusion import Attendant, Company, gather_company
from appview.search.marks import Judge, Marks
from appview.search.query import ParsedQuery
from appview.search.ranking import order_key

OrderKey = tuple[float, int, str, str, str]

MAX_SUPPRESSED: Final = 100
"""Replaced memories that are counted; of more, there is one more."""

MAX_RECHECKS: Final = 2_000
MAX_RECHECKED_BYTES: Final = 4_000_000
"""Phrases and exclusions are looked for in so many contents of one search, of so many bytes in all (and one more).

They are looked at from the best score down, and only until the page is full. Where most have the words of a phrase, but
not the phrase, the bounds end the search early: what they leave out is as if it did not match.
"""

_BATCH: Final = 50
_BATCH_BYTES: Final = 500_000


@dataclass(frozen=True, slots=True, repr=False)
class Hit:
    """A memory that a search recalls. `duplicates`: others of its author and Space with equal content, best first."""

    key: Key
    marks: Marks
    order: OrderKey
    duplicates: Sequence[Key] = ()


@dataclass(frozen=True, slots=True, repr=False)
class _Scored:
    order: OrderKey
    marks: Marks
    candidate: Candidate

    @property
    def content(self) -> tuple[str, str, int]:
        """Equal for equal contents of one author in one Space."""
        return self.candidate.key.repo, self.candidate.key.space, self.candidate.content_hash


class Ranking:
    """The hits, best first, and where the replaced memories would have stood among them, in the same order.

    It goes down the candidates until it has the hits that are wanted, and stops where contents have to be looked at:
    while there are `undecided` memories, give it their contents by `decide`. `capped`: the bounds left some out.
    """

    def __init__(
        self,
        query: ParsedQuery,
        judge: Judge,
        seating: Seating,
        scored: Sequence[_Scored],
        wanted: int,
        through: OrderKey | None,
    ) -> None:
        self.judge = judge
        self.seating = seating
        self.hits: list[Hit] = []
        self.suppressed: list[OrderKey] = []
        self.capped = False
        self.rechecks = 0
        self._rechecked_bytes = 0
        self._query = query
        self._scored = scored
        self._wanted = wanted
        self._through = through
        self._reached = 0
        self._verdicts: dict[tuple[str, str, int], bool] = {}
        self._duplicates: dict[tuple[str, str, int], list[Key]] = {}
        self._undecided: list[_Scored] = []
        self._advance()

    @property
    def undecided(self) -> list[Key]:
        """The next memories whose contents decide; none when the hits are settled."""
        return [scored.candidate.key for scored in self._undecided]

    def decide(self, contents: Mapping[Key, str]) -> None:
        """Go on with the contents of all that were undecided; what has none by now is no hit."""
        for scored in self._undecided:
            content = contents.get(scored.candidate.key)
            self._verdicts[scored.content] = content is not None and self._query.admits(content)
            self.rechecks += 1
            self._rechecked_bytes += scored.candidate.content_bytes
        self._advance()

    def rank_of(self, order: OrderKey) -> int:
        """The place, from 1, that belongs to an order key among the hits."""
        return bisect_left(self.hits, order, key=lambda hit: hit.order) + 1

    def ranks_in_arms(self, marks: Marks, order: OrderKey) -> tuple[int | None, int | None]:
        """The places, from 1, among what each arm found that is in effect, equal contents once; None: not found."""
        found = [(each.marks, each.order) for each in self._distinct]
        return (
            _rank(marks.lexical, order, [(other.lexical, at) for other, at in found]),
            _rank(marks.likeness, order, [(other.likeness, at) for other, at in found]),
        )

    @cached_property
    def _distinct(self) -> list[_Scored]:
        first: dict[tuple[str, str, int], _Scored] = {}
        for scored in self._scored:
            if not scored.candidate.masked and self._verdict(scored) is not False:
                first.setdefault(scored.content, scored)
        return list(first.values())

    def count_suppressed_above(self, hit: Hit | None) -> int:
        """How many replaced memories would outrank a hit; without one, all that match."""
        return len(self.suppressed) if hit is None else bisect_left(self.suppressed, hit.order)

    def _advance(self) -> None:
        self._undecided = []
        while self._reached < len(self._scored) and not self._is_settled():
            scored = self._scored[self._reached]
            if not self._is_passed_over(scored):
                admitted = self._verdict(scored)
                if admitted is None and self._is_spent:
                    self.capped = True
                elif admitted is None:
                    self._undecided = list(self._next_batch())
                    return
                elif admitted:
                    self._take(scored)
            self._reached += 1
        for scored in self._scored[self._reached :]:  # of hits, also the worst duplicates are told
            if not scored.candidate.masked and scored.content in self._duplicates:
                self._take(scored)
        self._reached = len(self._scored)

    def _is_settled(self) -> bool:
        if len(self.hits) < self._wanted:
            return False
        return self._through is None or self._scored[self._reached].order > self._through

    def _is_passed_over(self, scored: _Scored) -> bool:
        return scored.candidate.masked and len(self.suppressed) > MAX_SUPPRESSED

    def _verdict(self, scored: _Scored) -> bool | None:
        return self._verdicts.get(scored.content) if scored.candidate.needs_recheck else True

    @property
    def _is_spent(self) -> bool:
        return self.rechecks >= MAX_RECHECKS or self._rechecked_bytes >= MAX_RECHECKED_BYTES

    def _next_batch(self) -> Iterator[_Scored]:
        """What comes next among the undecided, each content once: at least one, for the bounds were not reached."""
        contents: set[tuple[str, str, int]] = set()
        room = min(_BATCH, MAX_RECHECKS - self.rechecks)
        room_bytes = min(_BATCH_BYTES, MAX_RECHECKED_BYTES - self._rechecked_bytes)
        for scored in self._scored[self._reached :]:
            if self._is_passed_over(scored) or self._verdict(scored) is not None or scored.content in contents:
                continue
            room_bytes -= scored.candidate.content_bytes
            if contents and room_bytes < 0:
                return
            contents.add(scored.content)
            yield scored
            if len(contents) == room:
                return

    def _take(self, scored: _Scored) -> None:
        if scored.candidate.masked:
            self.suppressed.append(scored.order)
        elif (duplicates := self._duplicates.get(scored.content)) is not None:
            duplicates.append(scored.candidate.key)
        else:
            others = self._duplicates[scored.content] = []
            self.hits.append(Hit(scored.candidate.key, scored.marks, scored.order, others))


def _rank(mark: float | None, order: OrderKey, others: Iterable[tuple[float | None, OrderKey]]) -> int | None:
    if mark is None:
        return None
    return 1 + sum(1 for other, at in others if other is not None and (-other, at[1:]) < (-mark, order[1:]))


def rank_candidates(
    query: ParsedQuery,
    candidates: Sequence[Candidate],
    judge: Judge,
    *,
    min_score: int,
    wanted: int,
    through: Candidate | None = None,
) -> Ranking:
    """Order what passes phrases, exclusions and `min_score` (0–1000); of equal contents keep the best.

    So many hits are `wanted`, and all `through` the place where that candidate stands or would stand.
    """
    marked = [(candidate, marks) for candidate in candidates if (marks := judge.mark(candidate)) is not None]
    seating = seat(marked, judge)
    scored = [
        _Scored(seating.order_of(candidate, marks), marks, candidate)
        for candidate, marks in marked
        if marks.score >= min_score
    ]
    scored.sort(key=attrgetter("order"))
    last = None if through is None else judge.mark(through)
    return Ranking(
        query,
        judge,
        seating,
        scored,
        wanted,
        None if through is None or last is None else seating.order_of(through, last),
    )


@dataclass(frozen=True, slots=True, repr=False)
class Seating:
    """What candidates of one search are sorted by. `company`: None where words alone count."""

    company: Company | None

    def order_of(self, candidate: Candidate, marks: Marks) -> OrderKey:
        """What a candidate with these marks is sorted by."""
        order = marks.fused if self.company is None else self.company.raise_order(_attendant(candidate, marks))
        return order_key(order, candidate.effective_at, *candidate.key)


def seat(marked: Iterable[tuple[Candidate, Marks]], judge: Judge) -> Seating:
    """Find who gains from whose company; of what is surely a hit only, so that no filter leaks through."""
    if judge.likeness is None:
        return Seating(None)
    return Seating(
        gather_company(
            _attendant(candidate, marks)
            for candidate, marks in marked
            if not candidate.masked and not candidate.needs_recheck
        )
    )


def _attendant(candidate: Candidate, marks: Marks) -> Attendant:
    key = candidate.key
    return Attendant((key.repo, key.space), candidate.content_hash, candidate.effective_at, marks.fused)
