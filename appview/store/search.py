"""Fetches what search ranks: candidate memories with their counts, and statistics of the corpus that they stand in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

from appview.filters import Filters
from appview.keys import Key
from appview.search.candidates import Explained
from appview.search.query import ParsedQuery
from appview.search.ranking import Corpus
from appview.store.lists import find_authors
from appview.store.matches import Matches, candidate_of, counted_in_each, occurrences_of
from appview.store.search_all import find_among_all
from appview.store.service import plan_anew
from memory.queries import Connection, load_queries
from memory.space import ReadableSpaces

MAX_CANDIDATES: Final = 5_000
"""Memories that one search ranks; of more matches, these are the latest in effect."""

MAX_CANDIDATES_OF_ALL: Final = 3_000
"""The same over all authors."""

_QUERIES: Final = load_queries(Path(__file__).parent / "sql" / "search.sql")


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
        return await find_among_all(
            conn, query, filters, at_most=MAX_CANDIDATES_OF_ALL, watermark=watermark, spaces=reach.spaces
        )
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
        **counted_in_each(query),
        **filters.in_sql(),
    )
    [statistics] = (row for row in rows if row["repo"] is None)
    matches = [row for row in rows if row["repo"] is not None]
    corpus = Corpus(statistics["documents"], statistics["mean_length"], dict(occurrences_of(statistics)))
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
        **counted_in_each(query),
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
    return Explained(
        candidate_of(row, occurrences_of(row)),
        row["content"],
        [name for name, passes in verdicts.items() if not passes],
    )


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
