"""Rows about what is asked of hosts: claims, what is held of a repo, gaps, audits, and what was found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from indexer.books import RequestKind
from indexer.repo_state import RepoState
from memory.queries import Connection, load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "fetches.sql")


@dataclass(frozen=True, slots=True)
class HostClaim:
    """Something to ask a repo's host, which nobody else does for a while."""

    repo: str
    kind: RequestKind
    reason: str
    attempts: int  # this one included
    requested_at: datetime
    host: str | None  # that was last acted upon; null: none yet


async def claim(
    conn: Connection,
    kind: RequestKind,
    now: datetime,
    for_: timedelta,
    *,
    at_most: int,
    busy_hosts: Iterable[str] = (),
) -> list[HostClaim]:
    """Takes up to so many due requests of `kind`, those of busy hosts excepted; due again after `for_`."""
    rows = await _SQL.claim_of_hosts.fetch(
        conn, kind=kind, now=now, claimed_until=now + for_, at_most=at_most, busy_hosts=list(busy_hosts)
    )
    return [HostClaim(row[0], RequestKind(row[1]), *row[2:]) for row in map(tuple, rows)]


async def keep_claim(conn: Connection, claim: HostClaim, until: datetime) -> None:
    """Keeps others off for longer, if none has taken over."""
    await _SQL.keep_claim.execute(conn, repo=claim.repo, kind=claim.kind, attempts=claim.attempts, claimed_until=until)


async def put_back(
    conn: Connection, claim: HostClaim, not_before: datetime, *, attempted: bool, failure: str | None = None
) -> None:
    """Leaves a request for later; `attempted`: whether this was one of its attempts, `failure`: why it failed.

    One that somebody else has taken over is theirs.
    """
    await _SQL.put_back.execute(
        conn,
        repo=claim.repo,
        kind=claim.kind,
        attempts=claim.attempts,
        not_before=not_before,
        uncounted=0 if attempted else 1,
        failure=failure,
    )


@dataclass(frozen=True, slots=True)
class Standing:
    """Where what is held of a repo stands."""

    rev: str | None  # of the last commit that was applied
    state: RepoState


async def standing(conn: Connection, repo: str) -> Standing | None:
    """Where a tracked repo stands."""
    row = await _SQL.standing.fetchrow(conn, repo=repo)
    return Standing(row["rev"], RepoState(row["state"])) if row else None


async def held_cids(conn: Connection, repo: str) -> dict[str, str] | None:
    """Rkey → CID of every public record that is held, valid or not; null: none is, and none ever was."""
    rows = await _SQL.held_cids.fetch(conn, repo=repo)
    return {row["rkey"]: row["cid"] for row in rows if row["cid"] is not None} if rows else None


async def order_fetches(
    conn: Connection, repos: Sequence[str], reason: str, now: datetime, claim: timedelta
) -> set[str]:
    """Has tracked repos fetched without further wait; returns those of `repos` that are tracked."""
    await _SQL.let_fetches_begin.execute(conn, repos=list(repos))
    rows = await _SQL.order_fetches.fetch(conn, repos=list(repos), reason=reason, now=now, claim=claim)
    return {row["repo"] for row in rows}


async def repos_after(conn: Connection, after: str, state: RepoState | None, at_most: int) -> list[str]:
    """The next tracked repos in order."""
    return [row["repo"] for row in await _SQL.repos_after.fetch(conn, after=after, state=state, at_most=at_most)]


async def take_back_forsaken(conn: Connection, now: datetime) -> int:
    """Marks repos whose fetch was killed as desynchronized; says how many."""
    return len(await _SQL.forsaken_fetches.fetch(conn, now=now))


async def ask_unasked(conn: Connection, now: datetime, at_most: int) -> int:
    """Asks for repos that are not whole and that nothing asks for; says how many."""
    return len(await _SQL.unasked_fetches.fetch(conn, now=now, at_most=at_most))


async def compare_next(conn: Connection, now: datetime, at_most: int) -> str | None:
    """Works off a piece of one source's gap, in a transaction; the source, or null where no gap is left."""
    gap = await _SQL.next_gap.fetchrow(conn)
    if gap is None:
        return None
    source: str = gap["source"]
    compared_from: str | None = gap["gap_compared_to"]
    compared_to = await _SQL.compare_repos_after.fetchval(conn, after=compared_from or "", now=now, at_most=at_most)
    # Last, for this row is every writer's.
    await _SQL.gap_compared.execute(conn, source=source, compared_from=compared_from, compared_to=compared_to)
    return source


async def audit(conn: Connection, now: datetime, audited_before: datetime, at_most: int) -> int:
    """Asks where repos stand that were not compared since then; says how many."""
    return len(await _SQL.audit_repos.fetch(conn, now=now, audited_before=audited_before, at_most=at_most))


async def track(conn: Connection, repos: Sequence[tuple[str, str | None]], now: datetime) -> int:
    """Tracks repos, given with their hosts where known; says how many are new."""
    ordered = dict(repos)
    rows = await _SQL.track_repos.fetch(conn, repos=list(ordered), hosts=list(ordered.values()), now=now)
    return len(rows)


async def fetch_unfetched(conn: Connection, repos: Sequence[str], now: datetime) -> int:
    """Asks for those that are not whole; says how many were not asked for already."""
    return len(await _SQL.fetch_unfetched.fetch(conn, repos=list(repos), now=now))


@dataclass(frozen=True, slots=True)
class Sweep:
    """How far the search through one server's list is."""

    page_cursor: str | None
    repos_found: int
    started_at: datetime
    finished_at: datetime | None = None


async def sweep(conn: Connection, origin: str) -> Sweep | None:
    """The last one of this server."""
    row = await _SQL.discovery.fetchrow(conn, origin=origin)
    return Sweep(*tuple(row)) if row else None


async def store_sweep(conn: Connection, origin: str, sweep: Sweep, now: datetime) -> None:
    """Stores how far it is."""
    await _SQL.store_discovery.execute(
        conn,
        origin=origin,
        page_cursor=sweep.page_cursor,
        repos_found=sweep.repos_found,
        started_at=sweep.started_at,
        finished_at=sweep.finished_at,
        now=now,
    )


async def database_time(conn: Connection) -> datetime:
    """Now, by the clock that all who share the database have in common."""
    now: datetime = await _SQL.database_time.fetchval(conn)
    return now


async def acknowledge_tracking(conn: Connection, holder: UUID, as_of: datetime) -> None:
    """Says that a daemon tracks every repo that was tracked at `as_of`, by the database's clock."""
    await _SQL.acknowledge_tracking.execute(conn, holder=holder, as_of=as_of)


async def count_whole(conn: Connection, repos: Sequence[str]) -> int:
    """How many of these repos are whole."""
    whole: int = await _SQL.count_whole.fetchval(conn, repos=list(repos))
    return whole


async def count_fetches(conn: Connection) -> dict[str | None, int]:
    """Why the last attempt failed → fetches that wait; null: no attempt has ended. Goes through all that there are."""
    return {row["failure"]: row["repos"] for row in await _SQL.count_fetches.fetch(conn)}


async def fetch_is_due(conn: Connection, asked_until: datetime, before: datetime, hosts_away: Iterable[str]) -> bool:
    """Whether a fetch asked for until then (by the database's clock) is untried, and can be tried before `before`."""
    due: bool = await _SQL.fetch_is_due.fetchval(
        conn, asked_until=asked_until, before=before, hosts_away=list(hosts_away)
    )
    return due


async def waiting_fetches(conn: Connection, asked_from: datetime, asked_until: datetime) -> dict[str | None, int]:
    """Why the last attempt failed → fetches asked for between these times that still wait; null: none has ended."""
    rows = await _SQL.waiting_fetches.fetch(conn, asked_from=asked_from, asked_until=asked_until)
    return {row["failure"]: row["repos"] for row in rows}


@dataclass(frozen=True, slots=True)
class FetchOutcome:
    """What became of one repo's fetch."""

    repo: str
    waits: bool  # for an attempt, or for the end of one
    failure: str | None  # of the last attempt; null: none has ended
    not_before: datetime | None
    host: str | None
    state: str
    reason: str | None
    visible: bool
    status: str | None


async def outcomes_of_fetches(conn: Connection, repos: Sequence[str]) -> list[FetchOutcome]:
    """What became of the fetches of tracked repos."""
    return [FetchOutcome(*tuple(row)) for row in await _SQL.outcomes_of_fetches.fetch(conn, repos=list(repos))]
