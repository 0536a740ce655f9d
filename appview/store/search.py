"""Fetches what search ranks: candidate memories with their counts, and statistics of the corpus that they stand in."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import nlargest
from itertools import accumulate
from pathlib import Path
from typing import Final

from appview.filters import Filters
from appview.keys import Key
from appview.search.candidates import Candidate, Candidates, Explained
from appview.search.query import ParsedQuery
from appview.search.ranking import Corpus, LexicalScorer, Occurrences
from appview.store.lists import find_authors
from appview.store.service import plan_anew
from memory.queries import Connection, Row, load_queries
from memory.space import ReadableSpaces
from memory.terms import QueryTerm, quote_lexeme

MAX_CANDIDATES: Final = 5_000
"""Memories that one search ranks; of more matches, these are the latest in effect."""

MAX_COUNTED: Final = 20_000
"""In a search over all authors, a word that more memories have is as common as one that so many have."""

MAX_COUNTED_IN_ALL: Final = 200_000
"""Of all words of one query together, so many are counted: in a long query, the common words decide nothing."""

TELLING_MATCHES: Final = 4_000
"""A search over all authors ranks what has one of the rarest words, of as many words as so many memories have."""

_QUERIES: Final = load_queries(Path(__file__).parent / "sql" / "search.sql")
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

    def best(self, scorer: LexicalScorer, count: int, also: Container[Key] = ()) -> tuple[Candidates, float | None]:
        """The best by words, so many and all that score as the last of them; and of the others, those in `also`.

        Beside them what none of those scores more than that are left out; None if none is.
        """
        scored = [(scorer.score(row["term_count"], _pairs(row)), row) for row in self.rows]
        if len(scored) <= count:
            return self.all(), None
        least = nlargest(count, [score for score, _ in scored])[-1]
        kept = [row for score, row in scored if score >= least or _key(row) in also]
        return self._as_candidates(kept), least if len(kept) < len(scored) else None

    def all(self) -> Candidates:
        """All of them."""
        return self._as_candidates(self.rows)

    def _as_candidates(self, rows: Sequence[Row]) -> Candidates:
        memories = [_candidate(row) for row in rows]
        return Candidates(memories, self.corpus, self.capped, self.any_of, self.indexed_at)


async def find_matches(
    conn: Connection, query: ParsedQuery, filters: Filters, *, watermark: datetime | None, spaces: ReadableSpaces
) -> Matches:
    """Find what a query with words in it asks for; with a watermark, only among what was indexed by then.

    Within a transaction, for the rest of which statements are planned anew.
    """
    await plan_anew(conn)
    reach = filters.reach(spaces)
    repos = filters.repos
    if repos is None and reach.public:
        return await _find_among_all(conn, query, filters, watermark=watermark, spaces=reach.spaces)
    rows = await _QUERIES.search_of.fetch(
        conn,
        repos=await find_authors(conn, spaces=reach.spaces) if repos is None else repos,
        public=reach.public,
        watermark=watermark,
        any=query.tsquery_any,
        required=query.tsquery_required or None,
        excluded=query.tsquery_excluded or None,
        recheck=query.tsquery_recheck or None,
        max_candidates=MAX_CANDIDATES + 1,
        spaces=reach.spaces.as_list(),
        **_counted(query),
        **filters.in_sql(),
    )
    [statistics] = (row for row in rows if row["repo"] is None)
    matches = [row for row in rows if row["repo"] is not None]
    corpus = Corpus(statistics["documents"], statistics["mean_length"], dict(_pairs(statistics)))
    capped = len(matches) > MAX_CANDIDATES
    return Matches(matches[:MAX_CANDIDATES], corpus, capped, query.terms, statistics["indexed_at"])


async def explain_candidate(
    conn: Connection, query: ParsedQuery, filters: Filters, key: Key, *, spaces: ReadableSpaces
) -> Explained | None:
    """Look at one memory whatever the filters say of it; None if it is not there or not readable."""
    row = await _QUERIES.explain_memory.fetchrow(
        conn,
        **key._asdict(),
        repos=filters.repos,
        spaces=spaces.as_list(),
        **_counted(query),
        **filters.in_sql(),
    )
    if row is None:
        return None
    verdicts = {
        "repo": row["passes_repo"],
        "space": filters.passes_spaces(key.space),
        "publicOnly": filters.passes_public_only(key.space),
        **{name: row[column] for name, column in _FILTER_COLUMNS},
    }
    return Explained(_candidate(row), row["content"], [name for name, passes in verdicts.items() if not passes])


async def load_contents(conn: Connection, keys: Sequence[Key], *, spaces: ReadableSpaces) -> dict[Key, str]:
    """Load the contents of the readable memories among `keys`."""
    rows = await _QUERIES.contents_by_key.fetch(
        conn,
        repos=[key.repo for key in keys],
        spaces_of=[key.space for key in keys],
        rkeys=[key.rkey for key in keys],
        spaces=spaces.as_list(),
    )
    return {Key(row["repo"], row["space"], row["rkey"]): row["content"] for row in rows}


_FILTER_COLUMNS: Final = (
    ("scope", "passes_scope"),
    ("kind", "passes_kind"),
    ("agent", "passes_agent"),
    ("client", "passes_client"),
    ("createdAfter", "passes_created_after"),
    ("createdBefore", "passes_created_before"),
    ("occurredAfter", "passes_occurred_after"),
    ("occurredBefore", "passes_occurred_before"),
    ("asOf", "passes_as_of"),
)


async def _find_among_all(
    conn: Connection, query: ParsedQuery, filters: Filters, *, watermark: datetime | None, spaces: ReadableSpaces
) -> Matches:
    corpus, counted_at = await _count_among_all(conn, query, filters, watermark=watermark, spaces=spaces)
    any_of = rarest_terms(query.terms, corpus)
    if not any_of:
        return Matches((), corpus, capped=False, any_of=(), indexed_at=None)
    narrowed = ParsedQuery(any_of, (), ())
    rows = await _QUERIES.search_all.fetch(
        conn,
        watermark=watermark,
        any=narrowed.tsquery_any,
        required=query.tsquery_required or None,
        excluded=query.tsquery_excluded or None,
        recheck=query.tsquery_recheck or None,
        max_candidates=MAX_CANDIDATES + 1,
        spaces=spaces.as_list(),
        **_counted(query),
        **filters.in_sql(),
    )
    # Counting stops at a number: what is found may be later than all that was counted.
    times = [row["indexed_at"] for row in rows] + ([] if counted_at is None else [counted_at])
    indexed_at = max(times, default=None)
    return Matches(rows[:MAX_CANDIDATES], corpus, len(rows) > MAX_CANDIDATES, any_of, indexed_at)


def rarest_terms(terms: Sequence[QueryTerm], corpus: Corpus) -> tuple[QueryTerm, ...]:
    """The query's most telling words: the rarest that occurs at all, and more while few memories have them."""
    counts = [(_matches(term, corpus), term) for term in terms]
    found = sorted(((count, term) for count, term in counts if count), key=lambda counted: counted[0])
    totals = accumulate(count for count, _ in found)
    affordable = sum(1 for total in totals if total <= TELLING_MATCHES)
    return tuple(term for _, term in found[: max(1, affordable)])


def _matches(term: QueryTerm, corpus: Corpus) -> int:
    lexemes = {lexeme for form in term.forms for lexeme in form.lexemes}
    return sum(corpus.frequencies.get(lexeme, 0) + corpus.frequencies.get(_longer(lexeme), 0) for lexeme in lexemes)


async def _count_among_all(
    conn: Connection, query: ParsedQuery, filters: Filters, *, watermark: datetime | None, spaces: ReadableSpaces
) -> tuple[Corpus, datetime | None]:
    wanted = {lexeme: quote_lexeme(lexeme) for lexeme in query.lexemes}
    # All lexemes with one beginning count as one that begins so.
    wanted |= {_longer(prefix): f"{quote_lexeme(prefix)}:*" for prefix in query.prefixes}
    rows = await _QUERIES.search_all_statistics.fetch(
        conn,
        alternatives=list(wanted),
        queries=list(wanted.values()),
        max_counted=min(MAX_COUNTED, MAX_COUNTED_IN_ALL // len(wanted)),
        watermark=watermark,
        as_of=filters.as_of,
        spaces=spaces.as_list(),
    )
    frequencies: dict[str, int] = {row["alternative"]: row["matches"] for row in rows}
    for prefix in query.prefixes:
        frequencies[_longer(prefix)] = max(0, frequencies[_longer(prefix)] - frequencies.get(prefix, 0))
    documents = max((row["documents"] for row in rows), default=0)
    mean_length = rows[0]["mean_length"] if rows else 0.0
    counted_at = max((row["indexed_at"] for row in rows if row["indexed_at"] is not None), default=None)
    return Corpus(max(documents, *frequencies.values(), 0), mean_length, frequencies), counted_at


def _longer(prefix: str) -> str:
    return prefix + _LAST_CHARACTER


def _counted(query: ParsedQuery) -> dict[str, object]:
    patterns = [f"{prefix.translate(_LIKE_SIGNS)}%" for prefix in query.prefixes]
    return {"lexemes": query.lexemes, "prefixes": query.prefixes, "prefix_patterns": patterns}


def _candidate(row: Row) -> Candidate:
    return Candidate(
        key=_key(row),
        term_count=row["term_count"],
        occurrences=_pairs(row),
        effective_at=row["effective_at"],
        indexed_at=row["indexed_at"],
        masked=row["masked"],
        content_hash=row["content_hash"],
        content_bytes=row["content_bytes"],
        needs_recheck=row["needs_recheck"],
    )


def _key(row: Row) -> Key:
    return Key(row["repo"], row["space"], row["rkey"])


def _pairs(row: Row) -> Occurrences:
    return tuple(zip(row["lexemes"] or (), row["times"] or (), strict=True))
