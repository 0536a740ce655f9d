"""The lexical arm: candidates in, ranked hits out."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from appview.keys import Key
from appview.search.candidates import Candidate, Candidates
from appview.search.query import ParsedQuery
from appview.search.ranking import LexicalScorer, order_key, prepare_scorer

OrderKey = tuple[float, int, str, str, str]


@dataclass(frozen=True, slots=True, repr=False)
class Hit:
    """A memory that a search recalls. `duplicates`: others of its author and Space with equal content, best first."""

    key: Key
    raw_score: float
    order: OrderKey
    duplicates: tuple[Key, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class Ranking:
    """All hits, best first, and where the replaced memories would have stood among them, in the same order."""

    hits: Sequence[Hit]
    suppressed: Sequence[OrderKey]
    scorer: LexicalScorer

    def rank_of(self, order: OrderKey) -> int:
        """The place, from 1, that belongs to an order key among the hits."""
        return bisect_left(self.hits, order, key=lambda hit: hit.order) + 1

    def count_suppressed_above(self, hit: Hit | None) -> int:
        """How many replaced memories would outrank a hit; without one, all that match."""
        return len(self.suppressed) if hit is None else bisect_left(self.suppressed, hit.order)


def rank_candidates(query: ParsedQuery, candidates: Candidates, *, min_score: int) -> Ranking:
    """Order what passes phrases, exclusions and `min_score` (0–1000); of equal contents keep the best."""
    scorer = prepare_scorer(query.terms, candidates.corpus)
    hits: list[Hit] = []
    suppressed: list[OrderKey] = []
    lead_of: dict[tuple[str, str, int], int] = {}
    for score, order, candidate in _scored(query, candidates, scorer, min_score):
        if candidate.masked:
            suppressed.append(order)
            continue
        content = (candidate.key.repo, candidate.key.space, candidate.content_hash)
        lead = lead_of.setdefault(content, len(hits))
        if lead == len(hits):
            hits.append(Hit(candidate.key, score, order))
        else:
            hits[lead] = replace(hits[lead], duplicates=(*hits[lead].duplicates, candidate.key))
    return Ranking(hits, suppressed, scorer)


def _scored(
    query: ParsedQuery, candidates: Candidates, scorer: LexicalScorer, min_score: int
) -> list[tuple[float, OrderKey, Candidate]]:
    """Candidates that pass, best first."""
    scored: list[tuple[float, OrderKey, Candidate]] = []
    for candidate in candidates.memories:
        if candidate.recheck_content is not None and not query.admits(candidate.recheck_content):
            continue
        score = scorer.score(candidate.term_count, candidate.occurrences)
        if scorer.calibrate(score) >= min_score:
            scored.append((score, order_of(candidate, score), candidate))
    scored.sort(key=lambda item: item[1])
    return scored


def order_of(candidate: Candidate, score: float) -> OrderKey:
    """What a candidate with this score is sorted by."""
    return order_key(score, candidate.effective_at, *candidate.key)
