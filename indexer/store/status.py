"""Counts for `status` and for the end of a replay."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from indexer.store.space_counts import NO_SPACES, SpaceCounts, count_spaces
from memory.queries import Connection, load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "status.sql")

ERASED_WITHIN: Final = timedelta(hours=24)
"""So soon is what was deleted gone from the files too, as docs/erasure.md promises."""


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
    oldest: datetime  # asked for
    due_since: datetime  # the first of them


@dataclass(frozen=True, slots=True)
class FailedFetches:
    """Fetches that failed for the same reason."""

    reason: str
    repos: int
    next_attempt: datetime  # the first of them


@dataclass(frozen=True, slots=True)
class FetchesStatus:
    """How far whole repos are fetched."""

    waiting: int  # for a first attempt
    under_way: int
    failed: list[FailedFetches]  # and tried again
    confirmed_at: datetime | None  # when a host last confirmed what is held of a repo


@dataclass(frozen=True, slots=True)
class GapStatus:
    """A source that lost frames: repos' hosts are asked where they stand."""

    source: str
    gap_at: datetime
    asked: int  # repos whose hosts were, or stand in `requests`
    repos: int


@dataclass(frozen=True, slots=True)
class SweepStatus:
    """A search for repos that has not come to its end."""

    origin: str
    repos_found: int
    started_at: datetime
    updated_at: datetime
    held_up_at: datetime | None = None  # since when it waits for more of what it found to be verified


@dataclass(frozen=True, slots=True)
class ErasureStatus:
    """When what was deleted was last taken out of the files, by the clock of the database."""

    last_at: datetime | None  # null: never
    server_started_at: datetime
    in_use: bool  # there may be something to take out
    now: datetime

    @property
    def is_overdue(self) -> bool:
        """Whether it was not done in time. A database that nothing was ever in has nothing to be done."""
        if self.last_at is None:
            # How old the index is, nobody knows; that it is older than this server's run, its content tells.
            return self.in_use and self.now - self.server_started_at > ERASED_WITHIN
        return self.now - self.last_at > ERASED_WITHIN


@dataclass(frozen=True, slots=True)
class EmbeddingStatus:
    """A model of search by meaning."""

    model: str
    state: str  # filling, serving, standby, leaving
    dimensions: int
    walks: int  # how often all memories were gone through for those without a vector; two until it can be complete
    waiting: int  # memories that wait for a vector
    failing: int  # of them, those that were refused, or taken again and again


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
    parked_for_fetch: int  # of the parked commits, those that wait for a fetch
    fetches: FetchesStatus
    gaps: list[GapStatus]
    sweeps: list[SweepStatus]
    erasure: ErasureStatus
    embeddings: list[EmbeddingStatus]  # the one that serves first; none: search is by words
    spaces: SpaceCounts = NO_SPACES


async def memory_counts(conn: Connection) -> MemoryCounts:
    """What the index holds of visible repos."""
    row = await _SQL.memory_counts.fetchrow(conn)
    return MemoryCounts(row["current"], row["masked"], row["invalid"]) if row else MemoryCounts(0, 0, 0)


async def index_status(conn: Connection) -> IndexStatus:
    """All of it; run it in one repeatable-read transaction."""
    backlog = await _SQL.backlog.fetchrow(conn)
    parked, parked_for_fetch, parked_bytes, quarantined = tuple(backlog) if backlog else (0, 0, 0, 0)
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
        parked_for_fetch=parked_for_fetch,
        fetches=await _fetches(conn),
        gaps=[GapStatus(*tuple(row)) for row in await _SQL.gaps.fetch(conn)],
        sweeps=[SweepStatus(*tuple(row)) for row in await _SQL.unfinished_sweeps.fetch(conn)],
        erasure=await erasure_status(conn),
        embeddings=[EmbeddingStatus(*tuple(row)) for row in await _SQL.embedding_status.fetch(conn)],
        spaces=await count_spaces(conn, None),
    )


async def erasure_status(conn: Connection) -> ErasureStatus:
    """Whether the files are rid of what was deleted."""
    row = await _SQL.erasure.fetchrow(conn)
    if row is None:
        raise AssertionError("it selects constants")
    return ErasureStatus(*tuple(row))


async def _fetches(conn: Connection) -> FetchesStatus:
    row = await _SQL.fetch_counts.fetchrow(conn)
    waiting, under_way, confirmed_at = tuple(row) if row else (0, 0, None)
    failed = [FailedFetches(*tuple(row)) for row in await _SQL.failed_fetches.fetch(conn)]
    return FetchesStatus(waiting, under_way, failed, confirmed_at)
