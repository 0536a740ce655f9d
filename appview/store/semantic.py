"""Fetches what the semantic arm ranks: the memories whose vectors are nearest to a query's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

import orjson

from appview.filters import Filters
from appview.keys import Key
from appview.search.candidates import Candidate
from appview.search.query import ParsedQuery
from appview.search.semantic import Near
from appview.store.lists import find_authors
from appview.store.matches import candidate_of
from memory.embedding import MAX_PASSAGES, vector_text
from memory.likeness import Aim, take_aim
from memory.queries import Connection, Row, Statement, load_queries
from memory.space import ReadableSpaces
from memory.terms import quote_lexeme

MAX_NEAR: Final = 300
"""Memories that the semantic arm brings, where all are compared."""

MAX_NEAR_OF_ALL: Final = 100
"""Memories that it brings of a search over all authors."""

OF_ONE_AUTHOR: Final = 20
"""Memories of one author that it brings of a search over all, and so many replaced ones: nobody silences the others."""

COPIES: Final = 5
"""Memories of one author with equal content that it brings of such a search: together they take one place."""

MAX_COMPARED: Final = 20_000
"""A search over all authors compares all that pass its filters, if they are no more; else it takes the index."""

MAX_COMPARED_ANYWAY: Final = 60_000
"""If the index brings less than is wanted, all that pass are compared after all, if they are no more than this."""

SAMPLE: Final = 200
"""Memories whose mean stands for that of a search."""

_EF_SEARCH: Final = 800
_MAX_SCANNED: Final = 20_000
_MORE_PASSAGES: Final = 5
_NO_LABEL: Final = "'-'"
_LABEL_LENGTH: Final = 100
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
    return StoredModel(row["model"], row["dimensions"], {} if calibration is None else orjson.loads(calibration))


@dataclass(frozen=True, slots=True, repr=False)
class Sought:
    """What the semantic arm looks for: a query's vector, of unit length; `blank`: that of a query that asks nothing."""

    model: StoredModel
    vector: Sequence[float]
    blank: Sequence[float] | None = None

    def aim_at(self, mean: Sequence[float] | None) -> Aim:
        """What memories of this mean are compared with."""
        return take_aim(self.vector, mean, self.blank)


async def load_mean(
    conn: Connection, model: StoredModel, filters: Filters, *, spaces: ReadableSpaces
) -> Sequence[float] | None:
    """The mean of what these authors have, of a sample of it; None: of nothing, or of all, which tells nothing.

    Within a transaction whose statements are planned anew.
    """
    reach = filters.reach(spaces)
    if filters.repos is None and reach.public:
        return None
    mean = await _QUERIES.mean_of.fetchval(
        conn,
        repos=await _authors(conn, filters, reach.spaces),
        public=reach.public,
        spaces=reach.spaces.as_list(),
        model=model.name,
        sample=SAMPLE,
    )
    return None if mean is None else orjson.loads(mean)


async def find_near(
    conn: Connection,
    sought: Sought,
    aim: Aim,
    query: ParsedQuery,
    filters: Filters,
    *,
    watermark: datetime | None,
    spaces: ReadableSpaces,
    kept: int | None = None,
) -> Near:
    """The nearest that pass the filters, `kept` at most (None: `MAX_NEAR`).

    Within a transaction whose statements are planned anew.
    """
    reach = filters.reach(spaces)
    search = _Search(conn, sought, aim, query, filters, watermark)
    authors = await _authors(conn, filters, reach.spaces)
    if filters.repos is None and reach.public:
        found = await search.compare(authors, MAX_NEAR_OF_ALL, public=False, spaces=reach.spaces)
        found += await search.compare_public()
        return _near(found, MAX_NEAR_OF_ALL, OF_ONE_AUTHOR)
    at_most = MAX_NEAR if kept is None else min(kept, MAX_NEAR)
    return _near(await search.compare(authors, at_most, public=reach.public, spaces=reach.spaces), at_most)


async def _authors(conn: Connection, filters: Filters, spaces: ReadableSpaces) -> list[str]:
    return await find_authors(conn, spaces=spaces) if filters.repos is None else list(filters.repos)


async def measure(
    conn: Connection, sought: Sought, aim: Aim, keys: Sequence[Key], *, spaces: ReadableSpaces
) -> dict[Key, float]:
    """How near the readable ones of some memories are, of those that have a vector."""
    rows = await _QUERIES.distances_by_key.fetch(
        conn,
        query=vector_text(aim.vector),
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
    aim: Aim
    query: ParsedQuery
    filters: Filters
    watermark: datetime | None

    async def compare(self, authors: Sequence[str], at_most: int, *, public: bool, spaces: ReadableSpaces) -> _Found:
        """Passages of the nearest memories of some authors, of one more than `at_most` if there are so many."""
        if not authors:
            return []
        wanted = at_most + 1
        while True:
            rows = await _QUERIES.nearest_of.fetch(
                self.conn,
                repos=authors,
                public=public,
                spaces=spaces.as_list(),
                max_candidates=wanted,
                **self._compared(),
                **self._filtered(),
            )
            found = [_found(row, self.aim) for row in rows]
            if len(rows) < wanted or len({candidate.key for _, candidate in found}) > at_most:
                return found
            wanted *= _MORE_PASSAGES  # the nearest are several passages of the same memories

    async def compare_public(self) -> _Found:
        """The nearest public memories of all authors."""
        await _QUERIES.read_scattered.fetchrow(self.conn)
        if self._is_filtered() or await self._count_public(MAX_COMPARED) <= MAX_COMPARED:
            found = await self._compare_few(MAX_COMPARED)
            if found is not None:
                return found
        found = await self._go_through_index()
        if not _near(found, MAX_NEAR_OF_ALL, OF_ONE_AUTHOR).capped:
            # What passes the filters is rare around here.
            return await self._compare_few(MAX_COMPARED_ANYWAY) or found
        return found

    async def _compare_few(self, at_most: int) -> _Found | None:
        """None: more pass the filters than are to be compared."""
        rows = await _QUERIES.nearest_among_few.fetch(
            self.conn,
            max_compared=at_most,
            labelled=_labelled(self.filters),
            max_candidates=(MAX_NEAR_OF_ALL + 1) * COPIES,
            of_one_author=OF_ONE_AUTHOR,
            copies=COPIES,
            **self._compared(),
            **self._filtered(),
        )
        if rows[0]["matches"] > at_most:
            return None
        return [_found(row, self.aim) for row in rows if row["repo"] is not None]

    async def _go_through_index(self) -> _Found:
        await _QUERIES.scan_far.fetchrow(self.conn, ef_search=str(_EF_SEARCH), max_scanned=str(_MAX_SCANNED))
        statement = _nearest_by_index(self.sought.model.dimensions)
        wanted = MAX_NEAR_OF_ALL + 1
        while True:
            rows = await statement.fetch(self.conn, max_candidates=wanted, **self._compared(), **self._filtered())
            found = [_found(row, self.aim) for row in rows]
            # The nearest passages may all be of a few memories, or of one author.
            enough = _near(found, MAX_NEAR_OF_ALL, OF_ONE_AUTHOR).capped
            if len(rows) < wanted or enough or wanted > MAX_NEAR_OF_ALL * MAX_PASSAGES:
                return found
            wanted *= _MORE_PASSAGES

    async def _count_public(self, at_most: int) -> int:
        """One more than `at_most` stands for all that are more."""
        count: int = await _QUERIES.count_public.fetchval(self.conn, max_counted=at_most + 1)
        return count

    def _is_filtered(self) -> bool:
        """Whether there are memories that the search leaves out whatever is near."""
        no_filters = {"include_superseded", "recheck"}
        return any(value is not None for name, value in self._filtered().items() if name not in no_filters)

    def _compared(self) -> dict[str, object]:
        return {"query": vector_text(self.aim.vector), "model": self.sought.model.name}

    def _filtered(self) -> dict[str, object]:
        return {
            "watermark": self.watermark,
            "required": self.query.tsquery_required or None,
            "excluded": self.query.tsquery_excluded or None,
            "recheck": self.query.tsquery_recheck or None,
            **self.filters.in_sql(),
        }


def _near(found: _Found, at_most: int, of_one_author: int | None = None) -> Near:
    """Of each memory the nearest passage, nearest first, up to so many.

    With `of_one_author`, no author has more than so many in effect, nor more replaced; copies share a place.
    """
    likeness: dict[Key, float] = {}
    memories: list[Candidate] = []
    of_author: Counter[tuple[str, str, bool]] = Counter()
    copies: Counter[tuple[str, str, bool, int]] = Counter()
    for like, candidate in sorted(found, key=lambda each: (-each[0], each[1].key)):
        author = (candidate.key.repo, candidate.key.space, candidate.masked)
        content = (*author, candidate.content_hash)
        if candidate.key in likeness:
            continue
        if of_one_author is not None and copies[content]:
            if copies[content] >= COPIES:
                continue
        elif of_author[author] == of_one_author:
            continue
        elif of_author.total() >= at_most:
            return Near(memories, likeness, capped=True)
        else:
            of_author[author] += 1
        copies[content] += 1
        likeness[candidate.key] = like
        memories.append(candidate)
    return Near(memories, likeness, capped=False)


def _found(row: Row, aim: Aim) -> tuple[float, Candidate]:
    return aim.likeness(row["distance"]), candidate_of(row, ())


def _labelled(filters: Filters) -> str | None:
    """Text for `::tsquery`: the wanted kinds, scopes, agents and clients as their index has them; None: any."""
    wanted = {"k": filters.kinds, "s": filters.scopes, "a": filters.agents, "c": filters.clients}
    parts = [
        " | ".join(quote_lexeme(sign + value[:_LABEL_LENGTH]) for value in values) or _NO_LABEL
        for sign, values in wanted.items()
        if values is not None
    ]
    return " & ".join(f"({part})" for part in parts) or None


@cache
def _nearest_by_index(dimensions: int) -> Statement:
    """The statement for vectors of that width, which must stand in it for Postgres to see that the index fits."""
    written = _QUERIES.nearest_by_index
    return replace(written, sql=written.sql.replace(_WRITTEN_WIDTH, f"halfvec({dimensions:d})"))
