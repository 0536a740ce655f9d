"""The ranking that serves, over memories that are held in memory: everything but the SQL is the code of the searches.

As there, each arm brings its best, and what one of them brought gets the other's mark beside.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

import numpy as np

from appview.answers.search import MIN_RANKED
from appview.search.fusion import Attendant, Calibration, fuse, gather_company
from appview.search.query import parse_query
from appview.search.ranking import Corpus, LexicalScorer, order_key, prepare_scorer
from appview.store.semantic import SAMPLE
from benchmarks.retrieval.sets import Group
from benchmarks.retrieval.vectors import Matrix
from memory.likeness import take_aim
from memory.terms import index_terms, words

OWNER = ("did:plc:benchmark", "")


class Arms(StrEnum):
    """What a ranking goes by."""

    HYBRID = "hybrid"
    ALONE = "hybrid_without_company"
    LEXICAL = "lexical"
    SEMANTIC = "semantic"


@dataclass(frozen=True, slots=True)
class Found:
    """A memory by its place in the group; `order` is what it was sorted by, `score` is of 0 to 1."""

    place: int
    order: float
    score: float


class Ranker:
    """Ranks the memories of one repo."""

    def __init__(self, group: Group, passages: Matrix, blank: Sequence[float]) -> None:
        self._times = group.times
        self._contents = [hash(text) for text in group.texts]
        self._passages = passages.astype(np.float64)
        self._mean: list[float] = self._passages[:SAMPLE].mean(axis=0).tolist()
        self._blank = blank
        self._lengths = [index_terms(text).count for text in group.texts]
        self._occurrences = [_occurrences(text) for text in group.texts]
        frequencies = Counter(lexeme for found in self._occurrences for lexeme in found)
        self._corpus = Corpus(len(group.texts), sum(self._lengths) / len(self._lengths), frequencies)
        self._postings: defaultdict[str, list[int]] = defaultdict(list)
        for place, found in enumerate(self._occurrences):
            for lexeme in found:
                self._postings[lexeme].append(place)

    def rank(self, text: str, vector: Sequence[float], arms: Arms) -> list[Found]:
        """All hits of a question, best first."""
        shares = {} if arms is Arms.SEMANTIC else self.shares(text)
        if arms is Arms.LEXICAL:
            return self._sorted({place: Found(place, share, min(1.0, share)) for place, share in shares.items()})
        aim = take_aim(vector, self._mean, self._blank)
        likeness = self._passages @ np.asarray(aim.vector) + aim.offset
        nearest: list[int] = np.argsort(-likeness, kind="stable")[:MIN_RANKED].tolist()
        by_words = sorted(shares, key=lambda place: -shares[place])[:MIN_RANKED]
        calibration = Calibration().at(aim.chance)
        hits: dict[int, Found] = {}
        for place in {*nearest, *by_words}:
            fused = fuse(shares.get(place), float(likeness[place]), calibration)
            if fused is not None:
                hits[place] = Found(place, fused.order, fused.score)
        return self._sorted(hits if arms is Arms.ALONE else self._in_company(hits))

    def shares(self, text: str) -> dict[int, float]:
        """Of each memory with a word of the question, the share of what it asks for."""
        query = parse_query(text)
        scorer: LexicalScorer = prepare_scorer(query.terms, self._corpus)
        wanted: defaultdict[int, dict[str, int]] = defaultdict(dict)
        for lexeme in self._lexemes_of(query.lexemes, query.prefixes):
            for place in self._postings[lexeme]:
                wanted[place][lexeme] = self._occurrences[place][lexeme]
        return {
            place: scorer.share(scorer.score(self._lengths[place], tuple(found.items())))
            for place, found in wanted.items()
        }

    def _lexemes_of(self, lexemes: Sequence[str], prefixes: Sequence[str]) -> list[str]:
        longer = [lexeme for lexeme in self._postings if lexeme.startswith(tuple(prefixes))] if prefixes else []
        return [lexeme for lexeme in dict.fromkeys((*lexemes, *longer)) if lexeme in self._postings]

    def _in_company(self, hits: Mapping[int, Found]) -> dict[int, Found]:
        attendants = {
            place: Attendant(OWNER, self._contents[place], self._times[place], hit.order) for place, hit in hits.items()
        }
        company = gather_company(attendants.values())
        return {place: Found(place, company.raise_order(attendants[place]), hit.score) for place, hit in hits.items()}

    def _sorted(self, hits: Mapping[int, Found]) -> list[Found]:
        return sorted(hits.values(), key=lambda hit: _key(hit, self._times[hit.place]))


def _key(hit: Found, at: datetime) -> tuple[float, int, str, str, str]:
    return order_key(hit.order, at, *OWNER, f"{hit.place:05}")


def _occurrences(text: str) -> Counter[str]:
    return Counter(lexeme for word in words(text) for lexeme in word.lexemes)
