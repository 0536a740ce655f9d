"""The lexical arm alone."""

from __future__ import annotations

from typing import Any

from appview.filters import Filters
from appview.search.candidates import Candidates
from appview.search.query import ParsedQuery
from appview.store.search import find_matches
from memory.queries import Connection


async def find_candidates(conn: Connection, query: ParsedQuery, filters: Filters, **more: Any) -> Candidates:
    """All that it finds."""
    return (await find_matches(conn, query, filters, **more)).all()
