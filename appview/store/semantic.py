"""Fetches what the semantic arm ranks: the memories whose vectors are nearest to a query's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from appview.filters import Filters
from appview.keys import Key
from appview.search.candidates import Candidate
from appview.search.query import ParsedQuery
from appview.search.semantic import Aim, Near, take_aim
from appview.store.lists import find_authors
from memory.queries import Connection, Row, Statement, load_queries
from memory.space import ReadableSpaces

MAX_NEAR: Final = 1_000
"""Memories that the semantic arm brings, where all are compared."""

MAX_NEAR_OF_ALL: Final = 200
"""Memories that it brings of a search over all authors."""

MAX_COMPARED: Final = 20_000
"""A search over all authors compares all that pass its filters, if they are no more; else it takes the index."""

SAMPLE: Final = 200
"""Memories whose mean stands for that of a search."""

_EF_SEARCH: Final = 200
_MAX_SCANNED: Final = 40_000
_QUERIES: Final = load_queries(Path(__file__).parent / "sql" / "semantic.sql")
_WRITTEN_WIDTH: Final = "halfvec(384)"


@dataclass(frozen=True, slots=True, repr=False)
class StoredModel:
    """A model whose vectors are kept. `calibration`: what was measured of it; empty: nothing."""

    name: str
    dimensions: int
    calibration: Mapping[str, Any]


async def load_model(conn: Connection, name: str | None) -> StoredModel | None:
    """The model that searches go by, or the one that is named; None: there is none."""
    if name is None:
        row = await _QUERIES.serving_model.fetchrow(conn)
    else:
        row = await _QUERIES.named_model.fetchrow(conn, model=name)
    if row is None:
        return None
    calibration = row["calibration"]
    return StoredModel(row["model"], row["dimensions"], {} if calibration is None else json.loads(calibration))


@dataclass(frozen=True, slots=True, repr=False)
class Sought:
    """What the semantic arm looks for: a vector of unit length, of a model."""

    model: StoredModel
    vector: Sequence[float]


async def find_near(
    conn: Connection,
    sought: Sought,
    query: ParsedQuery,
    filters: Filters,
    *,
    watermark: datetime | None,
    spaces: ReadableSpaces,
) -> tuple[Near, Aim]:
    """The nearest memories that pass the filters, and what they were compared with.

    Within a transaction, for the rest of which statements are planned anew.
    """
    reach = filters.reach(spaces)
    repos = filters.repos
    search = _Search(conn, sought, query, filters, watermark)
    if repos is None and reach.public:
        return await _find_among_all(search, reach.spaces)
    authors = await find_authors(conn, spaces=reach.spaces) if repos is None else list(repos)
    aim = await search.aim_at(authors, public=reach.public, spaces=reach.spaces)
    found = await search.compare(aim, authors, public=reach.public, spaces=reach.spaces)
    return _near(found, MAX_NEAR), aim


async def measure(
    conn: Connection, sought: Sought, aim: Aim, keys: Sequence[Key], *, spaces: ReadableSpaces
) -> dict[Key, float]:
    """How near the readable ones of some memories are, of those that have a vector."""
    rows = await _QUERIES.distances_by_key.fetch(
        conn,
        query=_text(aim.vector),
        model=sought.model.name,
        repos=[key.repo for key in keys],
        spaces_of=[key.space for key in keys],
        rkeys=[key.rkey for key in keys],
        spaces=spaces.as_list(),
    )
    return {Key(row["repo"], row["space"], row["rkey"]): aim.likeness(row["distance"]) for row in rows}


_Found = list[tuple[float, Candidate]]


@dataclass(frozen=True, slots=True)
class _Search:
    """What all statements of one search have in common."""

    conn: Connection
    sought: Sought
    query: ParsedQuery
    filters: Filters
    watermark: datetime | None

    async def aim_at(self, authors: Sequence[str], *, public: bool, spaces: ReadableSpaces) -> Aim:
        mean = await _QUERIES.mean_of.fetchval(
            self.conn,
            repos=authors,
            public=public,
            spaces=spaces.as_list(),
            model=self.sought.model.name,
            sample=SAMPLE,
        )
        return take_aim(self.sought.vector, None if mean is None else json.loads(mean))

    async def compare(self, aim: Aim, authors: Sequence[str], *, public: bool, spaces: ReadableSpaces) -> _Found:
        if not authors:
            return []
        rows = await _QUERIES.nearest_of.fetch(
            self.conn,
            repos=authors,
            public=public,
            spaces=spaces.as_list(),
            max_candidates=MAX_NEAR + 1,
            **self._compared(aim),
            **self._filtered(),
        )
        return [_found(row, aim) for row in rows]

    async def count_public(self) -> int:
        matches: int = await _QUERIES.count_matches.fetchval(
            self.conn, max_counted=MAX_COMPARED + 1, **_without(self._filtered(), "include_superseded", "recheck")
        )
        return matches

    async def compare_public(self, aim: Aim, *, few: bool) -> _Found:
        statement = _QUERIES.nearest_among_few
        if not few:
            await _QUERIES.scan_far.fetchrow(self.conn, ef_search=str(_EF_SEARCH), max_scanned=str(_MAX_SCANNED))
            statement = _nearest_by_index(self.sought.model.dimensions)
        rows = await statement.fetch(
            self.conn, max_candidates=MAX_NEAR_OF_ALL + 1, **self._compared(aim), **self._filtered()
        )
        return [_found(row, aim) for row in rows]

    def _compared(self, aim: Aim) -> dict[str, object]:
        return {"query": _text(aim.vector), "model": self.sought.model.name}

    def _filtered(self) -> dict[str, object]:
        return {
            "watermark": self.watermark,
            "required": self.query.tsquery_required or None,
            "excluded": self.query.tsquery_excluded or None,
            "recheck": self.query.tsquery_recheck or None,
            **self.filters.in_sql(),
        }


async def _find_among_all(search: _Search, spaces: ReadableSpaces) -> tuple[Near, Aim]:
    # One aim for all: that of the model, for the mean of millions changes with none of them.
    aim = take_aim(search.sought.vector, search.sought.model.calibration.get("mean"))
    few = await search.count_public() <= MAX_COMPARED
    found = await search.compare_public(aim, few=few)
    authors = await find_authors(search.conn, spaces=spaces)
    found += await search.compare(aim, authors, public=False, spaces=spaces)
    return _near(found, MAX_NEAR_OF_ALL), aim


def _near(found: _Found, at_most: int) -> Near:
    """Of each memory the nearest passage, nearest first."""
    likeness: dict[Key, float] = {}
    memories: list[Candidate] = []
    for like, candidate in sorted(found, key=lambda each: (-each[0], each[1].key)):
        if candidate.key not in likeness:
            likeness[candidate.key] = like
            memories.append(candidate)
    for candidate in memories[at_most:]:
        del likeness[candidate.key]
    return Near(memories[:at_most], likeness, len(memories) > at_most)


def _found(row: Row, aim: Aim) -> tuple[float, Candidate]:
    candidate = Candidate(
        key=Key(row["repo"], row["space"], row["rkey"]),
        term_count=row["term_count"],
        occurrences={},
        effective_at=row["effective_at"],
        indexed_at=row["indexed_at"],
        masked=row["masked"],
        content_hash=row["content_hash"],
        content_bytes=row["content_bytes"],
        needs_recheck=row["needs_recheck"],
    )
    return aim.likeness(row["distance"]), candidate


def _text(vector: Sequence[float]) -> str:
    return "[" + ",".join([f"{number:.6g}" for number in vector]) + "]"


def _without(parameters: Mapping[str, object], *names: str) -> dict[str, object]:
    return {name: value for name, value in parameters.items() if name not in names}


@cache
def _nearest_by_index(dimensions: int) -> Statement:
    """The statement for vectors of that width, which must stand in it for Postgres to see that the index fits."""
    written = _QUERIES.nearest_by_index
    return replace(written, sql=written.sql.replace(_WRITTEN_WIDTH, f"halfvec({dimensions:d})"))
