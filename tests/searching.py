"""The lexical arm alone."""

from __future__ import annotations

from typing import Any

import pytest

from appview.filters import Filters
from appview.search.candidates import Candidates
from appview.search.query import ParsedQuery
from appview.store.search import find_matches
from memory.queries import Connection


async def find_candidates(conn: Connection, query: ParsedQuery, filters: Filters, **more: Any) -> Candidates:
    """All that it finds."""
    return (await find_matches(conn, query, filters, **more)).all()


def sample_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over all authors, count what three memories have, and rank three, as if they were thousands."""
    monkeypatch.setattr("appview.store.search.MAX_CANDIDATES_OF_ALL", 3)
    for name, value in {
        "MAX_COUNTED": 3,
        "MAX_SAMPLED": 4,
        "FEW_SAMPLED": 2,
        "FEW_AUTHORS": 2,
        "MAX_COUNTED_RARE": 2,
        "TELLING_MATCHES": 3,
    }.items():
        monkeypatch.setattr(f"appview.store.search_all.{name}", value)
