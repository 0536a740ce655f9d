"""Rows about streams: cursors, rejections, quarantine, parked commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from indexer.arrivals import CommitParked, CommitUnparked, FrameBroken, Position
from indexer.books import RESYNCING, Effect
from indexer.parking_lot import ParkedKey
from memory.queries import Connection, load_queries

QUARANTINED_BYTES: Final = 64 * 1024  # of each frame, from its beginning
QUARANTINED_MAX: Final = 1_000  # of each source, beside those that are met again
MET_AGAIN: Final = ("broken_frame", "too_large")  # reasons for which a source is left, and the frame read anew

_SQL = load_queries(Path(__file__).parent / "sql" / "streams.sql")


async def cursors(conn: Connection) -> dict[str, int]:
    """Source → the seq up to which nothing is unfinished."""
    return {row["source"]: row["seq"] for row in await _SQL.cursors.fetch(conn)}


async def positions(conn: Connection) -> list[tuple[str, int, datetime | None]]:
    """Every source with its cursor, and the time that the frame there claims."""
    return [(row["source"], row["seq"], row["frame_time"]) for row in await _SQL.cursors.fetch(conn)]


async def advance_cursors(conn: Connection, positions: Mapping[str, Position], now: datetime) -> None:
    """Moves cursors forward, never back."""
    await _SQL.advance_cursors.execute(
        conn,
        sources=list(positions),
        seqs=[position.seq for position in positions.values()],
        frame_times=[position.frame_time for position in positions.values()],
        now=now,
    )


async def count_rejections(conn: Connection, counts: Mapping[tuple[str, str, Effect], int], now: datetime) -> None:
    """Adds to the counters; keys are (source, reason, effect)."""
    await _SQL.count_rejections.execute(
        conn,
        sources=[source for source, _, _ in counts],
        reasons=[reason for _, reason, _ in counts],
        effects=[effect for _, _, effect in counts],
        times=list(counts.values()),
        now=now,
    )


async def quarantine_frames(conn: Connection, broken: Sequence[FrameBroken]) -> None:
    """Keeps bytes that are no frame; one that was met at the same place before is counted."""
    # One statement may touch a row once: the same bytes at the same place within a batch were met once.
    cut = [replace(item, frame=item.frame[:QUARANTINED_BYTES]) for item in broken]
    distinct = list({(item.place.source.url, item.place.seq, item.frame): item for item in cut}.values())
    await _SQL.quarantine_frames.execute(
        conn,
        sources=[item.place.source.url for item in distinct],
        previous_seqs=[item.place.seq for item in distinct],
        frames=[item.frame for item in distinct],
        reasons=[item.reason for item in distinct],
        times=[item.place.seen_at for item in distinct],
        met_again=list(MET_AGAIN),
        rows_max=QUARANTINED_MAX,
    )


async def parked_sizes(conn: Connection, repos: Iterable[str]) -> dict[ParkedKey, int]:
    """What is parked of these repos, in bytes."""
    waiting = await _SQL.parked_commits.fetch(conn, repos=list(repos))
    return {(row["repo"], row["rev"], row["source"]): row["bytes"] for row in waiting}


async def parked_totals(conn: Connection) -> tuple[int, int]:
    """How many bytes are parked in all, and of repos that are not tracked; it goes through all of it."""
    total = await _SQL.parked_bytes.fetchrow(conn)
    return (total["total"], total["strangers"]) if total else (0, 0)


async def parked_repos(conn: Connection, at_most: int) -> set[str]:
    """Who has commits that wait for a key."""
    return {row["repo"] for row in await _SQL.parked_repos.fetch(conn, resyncing=RESYNCING, at_most=at_most)}


async def parked_frames(
    conn: Connection, repo: str, bytes_max: int, *, for_fetch: bool
) -> list[tuple[str, str, int, bytes]]:
    """The commits of a repo that wait for a fetch, or for a key, in order, as (rev, source, seq, frame).

    Up to so many bytes, and at least one.
    """
    rows = await _SQL.parked_frames.fetch(
        conn, repo=repo, bytes_max=bytes_max, resyncing=RESYNCING, for_fetch=for_fetch
    )
    return [tuple(row) for row in rows]


@dataclass(frozen=True, slots=True)
class WaitingCommit:
    """A commit that waits for a fetch of its repo."""

    rev: str
    source: str  # URL
    seq: int


async def waiting_commits(conn: Connection, repo: str) -> list[WaitingCommit]:
    """What waits for a fetch of a repo, in order."""
    rows = await _SQL.waiting_commits.fetch(conn, repo=repo, resyncing=RESYNCING)
    return [WaitingCommit(*tuple(row)) for row in rows]


async def unpark_commits(conn: Connection, commits: Sequence[CommitUnparked]) -> None:
    """Forgets parked commits that are judged in the same transaction."""
    await _SQL.unpark_commits.execute(
        conn,
        repos=[commit.repo for commit in commits],
        revs=[commit.rev for commit in commits],
        sources=[commit.place.source.url for commit in commits],
    )


async def park_commits(conn: Connection, commits: Sequence[CommitParked]) -> None:
    """Keeps whole frames until they can be judged."""
    await _SQL.park_commits.execute(
        conn,
        repos=[commit.repo for commit in commits],
        revs=[commit.rev for commit in commits],
        sources=[commit.place.source.url for commit in commits],
        seqs=[commit.place.seq for commit in commits],
        frames=[commit.frame for commit in commits],
        reasons=[commit.reason for commit in commits],
        times=[commit.place.seen_at for commit in commits],
    )
