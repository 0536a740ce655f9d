"""What runs beside the stream: expiry, and counts for metrics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from memory.queries import Connection, load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "upkeep.sql")


@dataclass(frozen=True, slots=True)
class Expired:
    """How many rows were deleted or erased."""

    quarantined: int
    parked: int
    invalid: int
    statuses: int
    versions: int


async def expire(conn: Connection, *, kept_since: datetime, content_since: datetime) -> Expired:
    """Forgets what was put aside before `kept_since`, and content that was overwritten before `content_since`."""
    return Expired(
        quarantined=await _SQL.expire_quarantine.execute(conn, before=kept_since),
        parked=await _SQL.expire_parked_commits.execute(conn, before=kept_since),
        invalid=await _SQL.expire_invalid_records.execute(conn, before=kept_since),
        statuses=await _SQL.expire_account_statuses.execute(conn, before=kept_since),
        versions=await _SQL.erase_version_content.execute(conn, before=content_since),
    )


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
    requests: dict[str, int]  # kind → rows


async def gauges(conn: Connection) -> Gauges:
    """Counts for metrics."""
    row = await _SQL.gauges.fetchrow(conn)
    requests = {row["kind"]: row["requests"] for row in await _SQL.open_requests_by_kind.fetch(conn)}
    return Gauges(row["parked_commits"] if row else 0, row["quarantined_frames"] if row else 0, requests)
