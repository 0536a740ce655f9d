"""BM25 over the index's lexemes, and the one order of hits.

A word of the query counts once, by the best of its forms, each as rare as it is: the very word, or for less its root, a
longer word that begins so, or one character of a pair.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import fsum, log
from typing import TypeAlias

from memory.terms import Form, Match, QueryTerm

K1 = 0.9
B = 0.4
# Chosen on questions to conversations (English) and articles (eight languages); a tenth more or less changes little.
FORM_WEIGHTS = {Match.EXACT: 1.0, Match.ROOT: 0.9, Match.PREFIX: 0.8, Match.CHARACTER: 0.7}

TOP_SCORE = 1000
Occurrences: TypeAlias = tuple[tuple[str, int], ...]
"""How often a memory has each of some lexemes."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Corpus:
    """Statistics of the memories that a search runs over, and of no others: what a viewer cannot read is not counted.

    `frequencies`: for each lexeme that the query asks for (or that begins with one of its prefixes), how many have it.
    Over all authors of very many memories, those of common words are estimates.
    """

    documents: int
    mean_length: float
    frequencies: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LexicalScorer:
    """BM25 of one query over one corpus. `maximum` is what a memory of nothing but the query's words would score."""

    maximum: float
    _forms_with: Mapping[str, tuple[int, ...]]
    """For each lexeme: the forms (by number) that it is an occurrence of."""
    _forms_beginning: tuple[tuple[str, int], ...]
    _worths: tuple[float, ...]
    """Of each form: its weight, times the rarity of its lexemes."""
    _terms: tuple[int, ...]
    """Of each form: the term that it belongs to."""
    _mean_length: float

    _scores: dict[tuple[int, Occurrences], float] = field(default_factory=dict[tuple[int, "Occurrences"], float])
    """What was scored before: most memories have few of the words, once each, and so have many others."""

    def score(self, term_count: int, occurrences: Occurrences) -> float:
        """Score a memory by its length in words and how often it has each lexeme; only the query's lexemes matter."""
        known = self._scores.get((term_count, occurrences))
        if known is None:
            known = self._scores[term_count, occurrences] = self._score(term_count, occurrences)
        return known

    def _score(self, term_count: int, occurrences: Occurrences) -> float:
        found: dict[int, int] = {}
        for lexeme, times in occurrences:
            for form in self._forms_with.get(lexeme, ()):
                found[form] = found.get(form, 0) + times
            for beginning, form in self._forms_beginning:
                if lexeme.startswith(beginning):
                    found[form] = found.get(form, 0) + times
        best: dict[int, float] = {}
        dampening = _dampening(term_count, self._mean_length)
        for form, times in found.items():
            value = self._worths[form] * times / (times + dampening)
            best[self._terms[form]] = max(value, best.get(self._terms[form], 0.0))
        return fsum(best.values())

    def share(self, score: float) -> float:
        """Give a score as a share of the maximum, comparable between queries: how much of what was asked for is there.

        A memory that has a word more often than the query can be above 1.
        """
        return score / self.maximum if self.maximum else 0.0

    def calibrate(self, score: float) -> int:
        """Give a score as 0..`TOP_SCORE`: its share, of which no memory has more than all."""
        return round(TOP_SCORE * min(1.0, self.share(score)))


def prepare_scorer(terms: Sequence[QueryTerm], corpus: Corpus) -> LexicalScorer:
    """Weigh the terms of a query by how rare they are in a corpus."""
    forms_with: defaultdict[str, list[int]] = defaultdict(list)
    forms_beginning: list[tuple[str, int]] = []
    worths: list[float] = []
    term_of: list[int] = []
    attainable: list[float] = []
    for number, term in enumerate(terms):
        first = len(worths)
        for form in term.forms:
            if form.match is Match.PREFIX:
                forms_beginning += [(beginning, len(worths)) for beginning in form.lexemes]
            else:
                for lexeme in form.lexemes:
                    forms_with[lexeme].append(len(worths))
            worths.append(FORM_WEIGHTS[form.match] * _rarity(_frequency(form, corpus), corpus.documents))
            term_of.append(number)
        attainable.append(max(worths[first + index] for index in _usable_forms(term, corpus)))
    return LexicalScorer(
        maximum=fsum(attainable) / (1 + _dampening(len(terms), corpus.mean_length)),
        _forms_with={lexeme: tuple(forms) for lexeme, forms in forms_with.items()},
        _forms_beginning=tuple(forms_beginning),
        _worths=tuple(worths),
        _terms=tuple(term_of),
        _mean_length=corpus.mean_length,
    )


def order_key(
    score: float, effective_at: datetime, repo: str, space: str, rkey: str
) -> tuple[float, int, str, str, str]:
    """Give what hits are sorted by, ascending: best score, then newest, then the record's identity."""
    return (-score, -((effective_at - _EPOCH) // _MICROSECOND), repo, space, rkey)


def _dampening(term_count: int, mean_length: float) -> float:
    """Give how many occurrences are worth half of endlessly many: more in a long memory."""
    return K1 * (1 - B + B * term_count / mean_length) if mean_length else K1


def _rarity(frequency: int, documents: int) -> float:
    return log(1 + (documents - frequency + 0.5) / (frequency + 0.5))


def _frequency(form: Form, corpus: Corpus) -> int:
    """Estimate how many documents have a form: its lexemes seldom share one."""
    if form.match is Match.PREFIX:
        counts = (count for lexeme, count in corpus.frequencies.items() if lexeme.startswith(form.lexemes))
    else:
        counts = (corpus.frequencies.get(lexeme, 0) for lexeme in form.lexemes)
    return min(corpus.documents, sum(counts))


def _usable_forms(term: QueryTerm, corpus: Corpus) -> Iterator[int]:
    """Number the forms to hold a memory against: where the word is used in other forms only, those."""
    is_used = any(form.match in (Match.ROOT, Match.PREFIX) and _frequency(form, corpus) for form in term.forms)
    for number, form in enumerate(term.forms):
        if _frequency(form, corpus) or not is_used:
            yield number
