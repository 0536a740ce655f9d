"""The lexical arm: candidates in, ranked hits out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from appview.keys import Key
from appview.search.candidates import Candidate, Candidates
from appview.search.query import ParsedQuery
from appview.search.ranking import LexicalScorer, order_key, prepare_scorer

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
    raw_score: float
    order: OrderKey
    duplicates: Sequence[Key] = ()


@dataclass(frozen=True, slots=True, repr=False)
class _Scored:
    order: OrderKey
    score: float
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
        scorer: LexicalScorer,
        scored: Sequence[_Scored],
        wanted: int,
        through: OrderKey | None,
    ) -> None:
        self.scorer = scorer
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
            self.hits.append(Hit(scored.candidate.key, scored.score, scored.order, others))


def rank_candidates(
    query: ParsedQuery, candidates: Candidates, *, min_score: int, wanted: int, through: Candidate | None = None
) -> Ranking:
    """Order what passes phrases, exclusions and `min_score` (0–1000); of equal contents keep the best.

    So many hits are `wanted`, and all `through` the place where that candidate stands or would stand.
    """
    scorer = prepare_scorer(query.terms, candidates.corpus)
    scored = [_score(candidate, scorer) for candidate in candidates.memories]
    passing = [each for each in scored if scorer.calibrate(each.score) >= min_score]
    passing.sort(key=attrgetter("order"))
    return Ranking(query, scorer, passing, wanted, None if through is None else _score(through, scorer).order)


def order_of(candidate: Candidate, score: float) -> OrderKey:
    """What a candidate with this score is sorted by."""
    return order_key(score, candidate.effective_at, *candidate.key)


def _score(candidate: Candidate, scorer: LexicalScorer) -> _Scored:
    score = scorer.score(candidate.term_count, candidate.occurrences)
    return _Scored(order_of(candidate, score), score, candidate)
