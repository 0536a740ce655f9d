"""What a search gives each candidate: how well each arm likes it, and what that makes together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from appview.keys import Key
from appview.search.candidates import Candidate
from appview.search.fusion import Calibration, fuse
from appview.search.ranking import TOP_SCORE, LexicalScorer


@dataclass(frozen=True, slots=True, repr=False)
class Marks:
    """`lexical`: BM25, None without a word of the query; `likeness`: centred cosine, None without a vector.

    Hits are sorted by `fused`, descending; `score` is of 0–1000, comparable between queries.
    """

    lexical: float | None
    likeness: float | None
    fused: float
    score: int


@dataclass(frozen=True, slots=True, repr=False)
class Judge:
    """Marks candidates of one search.

    `scorer`: None where words do not count; `likeness`: of what the semantic arm compared, None where meaning does not.
    """

    scorer: LexicalScorer | None
    likeness: Mapping[Key, float] | None = None
    calibration: Calibration | None = None

    def mark(self, candidate: Candidate) -> Marks | None:
        """What a candidate gets; None: it has none of the query's words, and is not like it either."""
        lexical = None
        if candidate.occurrences and self.scorer is not None:
            lexical = self.scorer.score(candidate.term_count, candidate.occurrences)
        return self._mark(lexical, None if self.likeness is None else self.likeness.get(candidate.key))

    def bound(self, lexical: float | None, likeness: float | None) -> int | None:
        """The score that none reaches beyond whose marks are no better than these; None: there are none to judge."""
        if lexical is None and likeness is None:
            return None
        marks = self._mark(lexical, likeness)
        return 0 if marks is None else marks.score

    def _mark(self, lexical: float | None, likeness: float | None) -> Marks | None:
        share = None if lexical is None or self.scorer is None else self.scorer.share(lexical)
        if self.likeness is None or self.calibration is None:
            if lexical is None or self.scorer is None or share is None:
                return None
            return Marks(lexical, None, share, self.scorer.calibrate(lexical))
        fused = fuse(share, likeness, self.calibration)
        return None if fused is None else Marks(lexical, likeness, fused.order, round(TOP_SCORE * fused.score))
