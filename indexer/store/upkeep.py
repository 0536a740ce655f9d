"""What runs beside the stream: expiry, slice by slice, and counts for metrics."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeAlias

from memory.queries import Connection, Statement, load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "upkeep.sql")

# A key at which a slice begins, and how many rows one takes.
_Mark: TypeAlias = tuple[object, ...]
_Slice: TypeAlias = Callable[[Connection, datetime, _Mark, int], Awaitable["_Taken"]]


@dataclass(frozen=True, slots=True)
class _Taken:
    """What a slice did, and where the next begins."""

    rows: int
    after: _Mark | None  # null: there is no next


@dataclass(slots=True)
class Expiry:
    """Rows of one table that have had their time, forgotten a slice at a time."""

    before: datetime
    _take: _Slice
    _after: _Mark
    ended: bool = False

    async def take_slice(self, conn: Connection, at_most: int) -> int:
        """Looks through so many rows at most; how many were deleted or erased."""
        taken = await self._take(conn, self.before, self._after, at_most)
        if taken.after is None:
            self.ended = True
        else:
            self._after = taken.after
        return taken.rows


def expiries(
    *, kept_since: datetime, content_since: datetime, deletions_since: datetime, resolved_since: datetime
) -> list[Expiry]:
    """All that has to be forgotten: what was put aside, or expired by itself, before `kept_since`, content that was
    overwritten before `content_since`, that something was deleted before `deletions_since`, and strangers who were last
    looked up before `resolved_since`.
    """
    return [
        Expiry(kept_since, _oldest_first(_SQL.expire_quarantine), ()),
        Expiry(kept_since, _oldest_first(_SQL.expire_parked_commits), ()),
        Expiry(content_since, _oldest_first(_SQL.erase_version_content), ()),
        Expiry(kept_since, _oldest_first(_SQL.erase_invalid_excerpts), ()),
        Expiry(kept_since, _page(_SQL.expire_account_statuses, "repo", "source"), ("", "")),
        Expiry(kept_since, _page(_SQL.expire_requests, "repo", "space", "kind"), ("", "", "")),
        Expiry(resolved_since, _page(_SQL.expire_identities, "repo"), ("",)),
        Expiry(kept_since, _oldest_first(_SQL.expire_access_tokens), ()),
        Expiry(kept_since, _oldest_first(_SQL.expire_seen_tokens), ()),
        Expiry(deletions_since, _oldest_first(_SQL.expire_deletions), ()),
    ]


def _oldest_first(statement: Statement) -> _Slice:
    """Takes the oldest that are left, until there are fewer than a slice."""

    async def take(conn: Connection, before: datetime, _: _Mark, at_most: int) -> _Taken:
        rows = await statement.execute(conn, before=before, at_most=at_most)
        return _Taken(rows, None if rows < at_most else ())

    return take


def _page(statement: Statement, *key: str) -> _Slice:
    """Goes through all rows once in order of `key`, also those that stay."""

    async def take(conn: Connection, before: datetime, after: _Mark, at_most: int) -> _Taken:
        marks = {f"after_{column}": value for column, value in zip(key, after, strict=True)}
        last = await statement.fetchrow(conn, before=before, at_most=at_most, **marks)
        return _Taken(0, None) if last is None else _Taken(last["rows"], tuple(last[column] for column in key))

    return take


async def repos_tracked_since(conn: Connection, since: datetime) -> list[tuple[str, datetime]]:
    """Repos that any process began to track after `since`, in that order."""
    return [(row["repo"], row["tracked_at"]) for row in await _SQL.repos_tracked_since.fetch(conn, since=since)]


async def unasked(conn: Connection, repos: Iterable[str]) -> set[str]:
    """Those of `repos` whose identity nobody has to ask for."""
    return {row["repo"] for row in await _SQL.unasked.fetch(conn, repos=list(repos))}


@dataclass(frozen=True, slots=True)
class Gauges:
    """Counts of tables."""

    parked_commits: int
    quarantined_frames: int
    requests: dict[str, int]  # kind → rows; a kind without any is not named
    unwhole_repos: dict[str, int]  # state → repos that are not known to be whole
    without_disk: int  # fetches whose last attempt found no room for its files
    embeddings: dict[str, int]  # model → memories that wait for a vector


async def gauges(conn: Connection) -> Gauges:
    """Counts for metrics; they go through whole tables."""
    row = await _SQL.count_backlog.fetchrow(conn)
    requests = {row["kind"]: row["requests"] for row in await _SQL.open_requests_by_kind.fetch(conn)}
    unwhole = {row["state"]: row["repos"] for row in await _SQL.unwhole_repos.fetch(conn)}
    waiting = {row["model"]: row["waiting"] for row in await _SQL.waiting_for_vectors.fetch(conn)}
    parked, quarantined, without_disk = tuple(row) if row else (0, 0, 0)
    return Gauges(parked, quarantined, requests, unwhole, without_disk, waiting)
