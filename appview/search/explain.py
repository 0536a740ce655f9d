"""Why one memory was recalled, or was not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from appview.keys import Key
from appview.search.candidates import Candidates, Explained
from appview.search.hits import Ranking
from appview.search.marks import Marks
from appview.search.query import ParsedQuery


@dataclass(frozen=True, slots=True, repr=False)
class Verdict:
    """What became of one memory in a search.

    `failed`: the first filter that left it out, None if it was recalled. `marks`: None if it has none of the query's
    words and is not like it either.
    """

    failed: str | None
    marks: Marks | None


def explain_memory(
    explained: Explained, query: ParsedQuery, candidates: Candidates, ranking: Ranking, *, min_score: int, window: int
) -> Verdict:
    """Judge one memory by what the search found; `window` is how many hits can be paged through."""
    candidate = explained.candidate
    marks = ranking.judge.mark(candidate)
    if marks is None:
        return Verdict(explained.failed[0] if explained.failed else "q", None)
    rank = ranking.rank_of(ranking.seating.order_of(candidate, marks))
    failed = (
        _first_failed_filter(explained, query, candidates, marks)
        or ("minScore" if marks.score < min_score else None)
        or _place_failed(candidate.key, ranking, rank, window)
    )
    return Verdict(failed, marks)


def _first_failed_filter(explained: Explained, query: ParsedQuery, candidates: Candidates, marks: Marks) -> str | None:
    candidate, content = explained.candidate, explained.content
    if explained.failed:
        return explained.failed[0]
    if not ParsedQuery((), query.phrases, ()).admits(content):
        return "phrase"
    if not ParsedQuery((), (), query.exclusions).admits(content):
        return "exclusion"
    if candidate.masked:
        return "superseded"
    if marks.likeness is None and not _has_some(
        (lexeme for lexeme, _ in candidate.occurrences), ParsedQuery(tuple(candidates.any_of), (), ())
    ):
        return "commonWords"
    return None


def _has_some(lexemes: Iterable[str], query: ParsedQuery) -> bool:
    return any(lexeme in query.lexemes or lexeme.startswith(query.prefixes) for lexeme in lexemes)


def _place_failed(key: Key, ranking: Ranking, rank: int, window: int) -> str | None:
    for hit in ranking.hits:
        if hit.key == key:
            return None if rank <= window else "window"
        if key in hit.duplicates:
            return "duplicate"
    return "window"  # more match than were ranked, or it came after the first page
