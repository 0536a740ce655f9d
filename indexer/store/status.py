"""Counts for `status` and for the end of a replay."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from memory.queries import Connection, load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "status.sql")


@dataclass(frozen=True, slots=True)
class MemoryCounts:
    """Records of repos that are visible."""

    current: int  # valid, not masked
    masked: int
    invalid: int


@dataclass(frozen=True, slots=True)
class CursorStatus:
    """How far one source is covered."""

    source: str
    seq: int
    frame_time: datetime | None  # as the source claims
    updated_at: datetime
    stopped_reason: str | None  # it waits for an operator
    gap_at: datetime | None  # frames were lost
    followed: bool  # by a running daemon


@dataclass(frozen=True, slots=True)
class ReposStatus:
    """Repos that are in the same state for the same reason."""

    state: str
    reason: str | None
    visible: bool
    status: str | None
    repos: int
    memories: int
    over_quota: int


@dataclass(frozen=True, slots=True)
class RejectionStatus:
    """What was not applied."""

    source: str
    reason: str
    effect: str
    times: int
    last_at: datetime


@dataclass(frozen=True, slots=True)
class RequestStatus:
    """What waits to be asked."""

    kind: str
    reason: str
    requests: int
    oldest: datetime


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """The index at one moment."""

    cursors: list[CursorStatus]
    repos: list[ReposStatus]
    memories: MemoryCounts
    invalid: dict[str, int]  # reason → records
    rejections: list[RejectionStatus]
    requests: list[RequestStatus]
    parked_commits: int
    parked_bytes: int
    quarantined_frames: int


async def memory_counts(conn: Connection) -> MemoryCounts:
    """What the index holds of visible repos."""
    row = await _SQL.memory_counts.fetchrow(conn)
    return MemoryCounts(row["current"], row["masked"], row["invalid"]) if row else MemoryCounts(0, 0, 0)


async def index_status(conn: Connection) -> IndexStatus:
    """All of it; run it in one repeatable-read transaction."""
    backlog = await _SQL.backlog.fetchrow(conn)
    parked, parked_bytes, quarantined = tuple(backlog) if backlog else (0, 0, 0)
    return IndexStatus(
        cursors=[CursorStatus(*tuple(row)) for row in await _SQL.followed_sources.fetch(conn)],
        repos=[ReposStatus(*tuple(row)) for row in await _SQL.repos_by_state.fetch(conn)],
        memories=await memory_counts(conn),
        invalid={row["reason"]: row["records"] for row in await _SQL.invalid_by_reason.fetch(conn)},
        rejections=[RejectionStatus(*tuple(row)) for row in await _SQL.rejections.fetch(conn)],
        requests=[RequestStatus(*tuple(row)) for row in await _SQL.open_request_counts.fetch(conn)],
        parked_commits=parked,
        parked_bytes=parked_bytes,
        quarantined_frames=quarantined,
    )
