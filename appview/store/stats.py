"""Counts what the index holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from memory.queries import Connection, Row, load_queries
from memory.space import ReadableSpaces

MAX_VALUES: Final = 50
"""Values that a tally names."""

MAX_VALUE_CHARACTERS: Final = 512
"""Values are cut to so many before they are told apart."""

_QUERIES: Final = load_queries(Path(__file__).parent / "sql" / "stats.sql")


@dataclass(frozen=True, slots=True)
class Tally:
    """How memories in effect divide over the values of one property; `""` stands for none.

    `values`: the most frequent with their counts, in that order; `distinct`: how many values there are, named or not.
    """

    values: tuple[tuple[str, int], ...]
    distinct: int


@dataclass(frozen=True, slots=True)
class Counts:
    """How many memories there are: in effect, replaced, and by the properties of those in effect."""

    records: int
    superseded: int
    kinds: Tally
    scopes: Tally
    agents: Tally


@dataclass(frozen=True, slots=True)
class RepoSync:
    """How far the index follows one author's public repo; `memory_count` includes replaced ones."""

    repo: str
    handle: str | None
    state: str
    reason: str | None
    rev: str | None
    changed_at: datetime
    memory_count: int


async def count_memories(conn: Connection, *, spaces: ReadableSpaces) -> Counts:
    """Count the readable memories of all authors."""
    rows = await _QUERIES.tallies.fetch(
        conn, max_characters=MAX_VALUE_CHARACTERS, max_values=MAX_VALUES, spaces=spaces.as_list()
    )
    return _counts(rows)


async def count_memories_of(conn: Connection, repo: str, *, spaces: ReadableSpaces) -> Counts:
    """Count the readable memories of one author."""
    rows = await _QUERIES.tallies_of.fetch(
        conn, repo=repo, max_characters=MAX_VALUE_CHARACTERS, max_values=MAX_VALUES, spaces=spaces.as_list()
    )
    return _counts(rows)


async def count_repos(conn: Connection, *, spaces: ReadableSpaces) -> int:
    """Count the authors with readable memories."""
    count: int = await _QUERIES.count_repos.fetchval(conn, spaces=spaces.as_list())
    return count


async def load_repo_sync(conn: Connection, repo: str, *, spaces: ReadableSpaces) -> RepoSync | None:
    """How far an author's public repo is followed; None if it is not served."""
    row = await _QUERIES.repo_sync.fetchrow(conn, repo=repo, spaces=spaces.as_list())
    if row is None:
        return None
    return RepoSync(
        repo=row["repo"],
        handle=row["handle"],
        state=row["state"],
        reason=row["reason"],
        rev=row["rev"],
        changed_at=row["changed_at"],
        memory_count=row["memory_count"],
    )


async def load_indexed_through(conn: Connection) -> datetime | None:
    """The time of the newest event that the index covers, as its sender claims; None before the first."""
    time: datetime | None = await _QUERIES.indexed_through.fetchval(conn)
    return time


def _counts(rows: Sequence[Row]) -> Counts:
    everything = next((row for row in rows if row["property"] == "all"), None)
    return Counts(
        records=0 if everything is None else everything["records"],
        superseded=0 if everything is None else everything["superseded"],
        kinds=_tally(rows, "kinds"),
        scopes=_tally(rows, "scopes"),
        agents=_tally(rows, "agents"),
    )


def _tally(rows: Sequence[Row], name: str) -> Tally:
    own = [row for row in rows if row["property"] == name]
    return Tally(
        values=tuple((row["value"], row["records"]) for row in own),
        distinct=own[0]["distinct_values"] if own else 0,
    )
