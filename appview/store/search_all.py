"""Searches among the memories of all authors: what is too many to be looked at is counted and found by samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate
from pathlib import Path
from typing import Final

from appview.filters import Filters
from appview.search.query import ParsedQuery
from appview.search.ranking import Corpus
from appview.store.matches import Matches, counted_in_each, longer_than
from memory.queries import Connection, load_queries
from memory.space import ReadableSpaces
from memory.terms import QueryTerm, quote_lexeme

MAX_COUNTED: Final = 20_000
"""Among no more memories than these, it is counted how many have a word."""

MAX_COUNTED_IN_ALL: Final = 200_000
"""Of all words of one query together, so many are counted: in a long query, the common words decide nothing."""

MAX_COUNTED_RARE: Final = 2_000
"""Among more memories, a rare word is counted up to this; of the others, a sample tells."""

MAX_COUNTED_RARE_IN_ALL: Final = 10_000
"""Of all rare words of one query together, so many."""

MAX_SAMPLED: Final = 1_000
"""The latest public memories, which tell how common a word is where counting would take too long."""

FEW_SAMPLED: Final = 10
"""A word is rare if fewer of the sample have it; of as many, the estimate is right to a third."""

FEW_AUTHORS: Final = 5
"""Or if fewer authors of the sample have it: of what one of them is at just now, the latest tell too much."""

TELLING_MATCHES: Final = 4_000
"""What has one of the rarest words is ranked, of as many words as so many memories have."""

SPARE_LATEST: Final = 1.5
"""Of a word that more memories have than are ranked, so many times as many are looked for, as far back as it takes."""

_QUERIES: Final = load_queries(Path(__file__).parent / "sql" / "search.sql")


@dataclass(frozen=True, slots=True)
class _Sample:
    """How many of the latest memories have each alternative, and from when to when those are."""

    having: Mapping[str, int]
    oldest: datetime | None
    newest: datetime | None

    def since(self, term: QueryTerm, wanted: int) -> datetime | None:
        """From when on about so many memories have a word, if it always was as common; None if nobody knows."""
        found = max((self.having.get(lexeme, 0) for lexeme in _lexemes_of(term)), default=0)
        if not found or self.oldest is None or self.newest is None:
            return None
        # In seconds: so many years have no timedelta.
        span_s = (self.newest - self.oldest).total_seconds() * wanted / found
        earliest = datetime.min.replace(tzinfo=self.newest.tzinfo)
        return self.newest - timedelta(seconds=span_s) if span_s < (self.newest - earliest).total_seconds() else None


async def find_among_all(
    conn: Connection,
    query: ParsedQuery,
    filters: Filters,
    *,
    at_most: int,
    watermark: datetime | None,
    spaces: ReadableSpaces,
) -> Matches:
    """Find what a query with words in it asks for, so many; see `find_matches`."""
    corpus, sample, counted_at = await _count_among_all(conn, query, filters, watermark=watermark, spaces=spaces)
    any_of = rarest_terms(query.terms, corpus)
    if not any_of:
        return Matches((), corpus, capped=False, any_of=(), indexed_at=None)
    # More than can be ranked there are only of a word that stands alone.
    since = sample.since(any_of[0], round(SPARE_LATEST * at_most)) if _matches(any_of[0], corpus) > at_most else None
    asked = {
        **counted_in_each(query),
        **filters.in_sql(),
        "watermark": watermark,
        "any": ParsedQuery(any_of, (), ()).tsquery_any,
        "required": query.tsquery_required or None,
        "excluded": query.tsquery_excluded or None,
        "recheck": query.tsquery_recheck or None,
        "max_candidates": at_most + 1,
        "spaces": spaces.as_list(),
    }
    rows = await _QUERIES.search_all.fetch(conn, since=since, **asked)
    if since is not None and len(rows) <= at_most:  # it was more common lately than before
        rows = await _QUERIES.search_all.fetch(conn, since=None, **asked)
    # Counting stops at a number: what is found may be later than all that was counted.
    times = [row["indexed_at"] for row in rows] + ([] if counted_at is None else [counted_at])
    return Matches(rows[:at_most], corpus, len(rows) > at_most, any_of, max(times, default=None))


def rarest_terms(terms: Sequence[QueryTerm], corpus: Corpus) -> tuple[QueryTerm, ...]:
    """The query's most telling words: the rarest that occurs at all, and more while few memories have them."""
    counts = [(_matches(term, corpus), term) for term in terms]
    found = sorted(((count, term) for count, term in counts if count), key=lambda counted: counted[0])
    totals = accumulate(count for count, _ in found)
    affordable = sum(1 for total in totals if total <= TELLING_MATCHES)
    return tuple(term for _, term in found[: max(1, affordable)])


def _matches(term: QueryTerm, corpus: Corpus) -> int:
    return sum(corpus.frequencies.get(lexeme, 0) for lexeme in _lexemes_of(term))


def _lexemes_of(term: QueryTerm) -> set[str]:
    lexemes = {lexeme for form in term.forms for lexeme in form.lexemes}
    return lexemes | {longer_than(lexeme) for lexeme in lexemes}


async def _count_among_all(
    conn: Connection, query: ParsedQuery, filters: Filters, *, watermark: datetime | None, spaces: ReadableSpaces
) -> tuple[Corpus, _Sample, datetime | None]:
    wanted = {lexeme: quote_lexeme(lexeme) for lexeme in query.lexemes}
    # All lexemes with one beginning count as one that begins so.
    wanted |= {longer_than(prefix): f"{quote_lexeme(prefix)}:*" for prefix in query.prefixes}
    reads = {"as_of": filters.as_of, "spaces": spaces.as_list()}
    sampled = await _QUERIES.search_all_sample.fetch(
        conn, alternatives=list(wanted), queries=list(wanted.values()), max_sampled=MAX_SAMPLED, **reads
    )
    first = sampled[0]
    documents, size = first["documents"], first["sample_size"]
    having: dict[str, int] = {row["alternative"]: row["sampled"] for row in sampled}
    estimates = {alternative: round(documents * found / size) if size else 0 for alternative, found in having.items()}
    authors: dict[str, int] = {row["alternative"]: row["authors"] for row in sampled}
    frequencies, counted_at = dict(estimates), list[datetime]()
    to_count, up_to = _countable(having, authors, documents)
    while to_count:
        counted = await _QUERIES.search_all_counts.fetch(
            conn,
            alternatives=to_count,
            queries=[wanted[each] for each in to_count],
            max_counted=up_to,
            watermark=watermark,
            **reads,
        )
        frequencies |= {
            row["alternative"]: row["matches"] if row["matches"] < up_to else max(up_to, estimates[row["alternative"]])
            for row in counted
        }
        counted_at += [row["indexed_at"] for row in counted if row["indexed_at"] is not None]
        # Of what is more common than the sample says, the sample says nothing: the latest are about something else.
        misjudged = [each for each in to_count if frequencies[each] == up_to]
        more = min(MAX_COUNTED, MAX_COUNTED_IN_ALL // max(1, len(misjudged)))
        to_count, up_to = (misjudged, more) if more > up_to else ([], up_to)
    for prefix in query.prefixes:
        for counts in (frequencies, having):
            counts[longer_than(prefix)] = max(0, counts[longer_than(prefix)] - counts.get(prefix, 0))
    corpus = Corpus(max(documents, *frequencies.values()), first["mean_length"], frequencies)
    return corpus, _Sample(having, first["oldest"], first["newest"]), max(counted_at, default=None)


def _countable(having: Mapping[str, int], authors: Mapping[str, int], documents: int) -> tuple[list[str], int]:
    """Which alternatives are counted, and up to how many."""
    up_to = min(MAX_COUNTED, MAX_COUNTED_IN_ALL // len(having))
    if documents <= up_to:
        return list(having), up_to
    rare = [each for each, found in having.items() if found < FEW_SAMPLED or authors[each] < FEW_AUTHORS]
    return rare, min(MAX_COUNTED_RARE, MAX_COUNTED_RARE_IN_ALL // max(1, len(rare)))
