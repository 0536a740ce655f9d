"""Counts what the index holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from memory.database import Database
from memory.queries import Connection, Row, load_queries
from memory.space import ReadableSpaces

MAX_VALUES: Final = 50
"""Values that a tally names."""

MAX_VALUE_CHARACTERS: Final = 512
"""Values are cut to so many before they are told apart."""

MAX_AGE_S: Final = 5
"""So old may be what is told of all authors together: counting them takes a walk through all memories."""

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
    """How far the index follows one author's public repo."""

    repo: str
    handle: str | None
    state: str
    reason: str | None
    rev: str | None
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class Totals:
    """What all authors have together, and how many they are."""

    repos: int
    counts: Counts


class RecentTotals:
    """Totals, counted anew when they are `MAX_AGE_S` old, for each set of readable Spaces; one count at a time."""

    def __init__(self, database: Database, monotonic: Callable[[], float]) -> None:
        self._database = database
        self._monotonic = monotonic
        self._counting = asyncio.Lock()
        self._counted: dict[tuple[str, ...], tuple[float, Totals]] = {}

    async def load(self, *, spaces: ReadableSpaces) -> Totals:
        """What the readable memories of all authors came to a few seconds ago, or now."""
        viewer = tuple(spaces.as_list())
        async with self._counting:
            oldest = self._monotonic() - MAX_AGE_S
            self._counted = {key: counted for key, counted in self._counted.items() if counted[0] > oldest}
            if viewer not in self._counted:
                async with self._database.connection() as conn:
                    repos = await count_repos(conn, spaces=spaces)
                    totals = Totals(repos, await count_memories(conn, spaces=spaces))
                self._counted[viewer] = self._monotonic(), totals
            return self._counted[viewer][1]


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


async def load_repo_sync(conn: Connection, repo: str) -> RepoSync | None:
    """How far an author's public repo is followed; None if it is not served."""
    row = await _QUERIES.repo_sync.fetchrow(conn, repo=repo)
    if row is None:
        return None
    return RepoSync(
        repo=row["repo"],
        handle=row["handle"],
        state=row["state"],
        reason=row["reason"],
        rev=row["rev"],
        changed_at=row["changed_at"],
    )


async def load_indexed_through(conn: Connection, *, now: datetime) -> datetime | None:
    """The time up to which the index covers what it follows, as senders claim, `now` at most; None before the first."""
    time: datetime | None = await _QUERIES.indexed_through.fetchval(conn, now=now)
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
