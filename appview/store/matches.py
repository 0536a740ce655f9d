"""What has a query's words, as the database tells it: rows, made to candidates only as far as they are ranked."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import nlargest
from typing import Final

from appview.keys import Key
from appview.search.candidates import Candidate, Candidates
from appview.search.query import ParsedQuery
from appview.search.ranking import Corpus, LexicalScorer, Occurrences
from memory.queries import Row
from memory.terms import QueryTerm

_LAST_CHARACTER: Final = "\U0010ffff"
_LIKE_SIGNS: Final = str.maketrans({"\\": "\\\\", "%": "\\%", "_": "\\_"})


@dataclass(frozen=True, slots=True, repr=False)
class Matches:
    """What has any of a query's words and passes the filters; `rows` are read only as far as they are ranked."""

    rows: Sequence[Row]
    corpus: Corpus
    capped: bool
    any_of: Sequence[QueryTerm]
    indexed_at: datetime | None

    def scores(self, scorer: LexicalScorer) -> list[float]:
        """What each row scores."""
        return [scorer.score(row["term_count"], occurrences_of(row)) for row in self.rows]

    def best(self, scores: Sequence[float], count: int, also: Container[Key] = ()) -> tuple[Candidates, float | None]:
        """The best by their scores, so many and all that score as the last of them; and of the others, those in `also`.

        Beside them what none of those scores more than that are left out; None if none is.
        """
        if len(scores) <= count:
            return self.all(), None
        least = nlargest(count, scores)[-1]
        kept = [row for score, row in zip(scores, self.rows, strict=True) if score >= least or _key(row) in also]
        return self._as_candidates(kept), least if len(kept) < len(scores) else None

    def all(self) -> Candidates:
        """All of them."""
        return self._as_candidates(self.rows)

    def _as_candidates(self, rows: Sequence[Row]) -> Candidates:
        memories = [candidate_of(row, occurrences_of(row)) for row in rows]
        return Candidates(memories, self.corpus, self.capped, self.any_of, self.indexed_at)


def longer_than(beginning: str) -> str:
    """What stands for all lexemes that begin so and are longer, in frequencies and in what is counted of a memory."""
    return beginning + _LAST_CHARACTER


def counted_in_each(query: ParsedQuery) -> dict[str, object]:
    """What is counted in each memory, as parameters of the statements."""
    patterns = [f"{prefix.translate(_LIKE_SIGNS)}%" for prefix in query.prefixes]
    return {"lexemes": query.lexemes, "prefixes": query.prefixes, "prefix_patterns": patterns}


def candidate_of(row: Row, occurrences: Occurrences) -> Candidate:
    """What is ranked; `occurrences`: of the query's words, where those were counted."""
    return Candidate(
        key=_key(row),
        term_count=row["term_count"],
        occurrences=occurrences,
        effective_at=row["effective_at"],
        indexed_at=row["indexed_at"],
        masked=row["masked"],
        content_hash=row["content_hash"],
        content_bytes=row["content_bytes"],
        needs_recheck=row["needs_recheck"],
    )


def occurrences_of(row: Row) -> Occurrences:
    """How often what was counted is in it."""
    return tuple(zip(row["lexemes"] or (), row["times"] or (), strict=True))


def _key(row: Row) -> Key:
    return Key(row["repo"], row["space"], row["rkey"])
