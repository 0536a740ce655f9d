"""Rows about what is asked of hosts: claims, what is held of a repo, gaps, audits, and what was found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final
from uuid import UUID

from indexer.books import RequestKind
from indexer.repo_state import RepoState
from memory.queries import Connection, load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "fetches.sql")


FIRST_LOOKED_AT: Final = 16  # due requests, for one claim, beside as many as are wanted
LOOKED_AT: Final = 200  # where those do not do
HOSTS_LOOKED_AT: Final = 100  # where those do not do, and there are more
LOOKED_AT_EACH: Final = 4  # requests of these

SharedClock = Callable[[], datetime | None]
"""The time by which all processes claim and wait; null: the database's own."""


def database_clock() -> None:
    """The database's own time: those of machines may lie apart, and then two would work on one repo, or none."""


@dataclass(frozen=True, slots=True)
class HostClaim:
    """Something to ask a repo's host, which nobody else does for a while."""

    repo: str
    kind: RequestKind
    reason: str
    attempts: int  # this one included
    requested_at: datetime
    host: str | None  # that was last acted upon; null: none yet
    claimed_at: datetime  # by the clock that all share

    @property
    def told(self) -> dict[str, object]:
        """What a log may say of it."""
        return {"did": self.repo, "kind": self.kind, "attempts": self.attempts}


@dataclass(frozen=True, slots=True)
class Claims:
    """What was claimed at one time, the longest due first."""

    claims: list[HostClaim]
    looked_up_to: str  # the host with which to go on the next time; empty: with the first


async def claim(
    conn: Connection,
    kind: RequestKind,
    for_: timedelta,
    *,
    at_most: int,
    busy_hosts: Iterable[str] = (),
    after_host: str = "",
    now: datetime | None = None,
) -> Claims:
    """Takes up to so many due requests of `kind`, those of busy hosts excepted; due again after `for_`.

    However many are due, a bounded number is looked at: the longest due, and those of a few hosts from `after_host` on.
    Nearly always the first few do, and only they are looked at: who fetches repos claims one after another.
    """
    claims: list[HostClaim] = []
    for looked_at, hosts_looked_at in ((at_most + FIRST_LOOKED_AT, 0), (LOOKED_AT, HOSTS_LOOKED_AT)):
        rows = await _SQL.claim_of_hosts.fetch(
            conn,
            kind=kind,
            now=now,
            claim=for_,
            at_most=at_most - len(claims),
            busy_hosts=list(busy_hosts),
            after_host=after_host,
            looked_at=looked_at,
            hosts_looked_at=hosts_looked_at,
            looked_at_each=LOOKED_AT_EACH,
        )
        claims += [
            HostClaim(
                row["repo"], kind, *(row[name] for name in ("reason", "attempts", "requested_at", "host", "claimed_at"))
            )
            for row in rows
            if row["repo"] is not None
        ]
        looked_up_to: str | None = rows[0]["looked_up_to"]
        if len(claims) == at_most or looked_up_to is None:  # enough, or all that are due were looked at
            break
    return Claims(claims, looked_up_to or "")


async def keep_claim(conn: Connection, claim: HostClaim, for_: timedelta, now: datetime | None = None) -> None:
    """Keeps others off for so long from now on, if none has taken over."""
    await _SQL.keep_claim.execute(conn, repo=claim.repo, kind=claim.kind, attempts=claim.attempts, claim=for_, now=now)


async def put_back(
    conn: Connection,
    claim: HostClaim,
    wait: timedelta,
    *,
    attempted: bool,
    failure: str | None = None,
    now: datetime | None = None,
) -> None:
    """Leaves a request for later; `attempted`: whether this was one of its attempts, `failure`: why it failed.

    One that somebody else has taken over is theirs.
    """
    await _SQL.put_back.execute(
        conn,
        repo=claim.repo,
        kind=claim.kind,
        attempts=claim.attempts,
        wait=wait,
        uncounted=0 if attempted else 1,
        failure=failure,
        now=now,
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
    conn: Connection, repos: Sequence[str], reason: str, claim: timedelta, now: datetime | None = None
) -> set[str]:
    """Has tracked repos fetched without further wait; returns those of `repos` that are tracked."""
    await _SQL.let_fetches_begin.execute(conn, repos=list(repos))
    rows = await _SQL.order_fetches.fetch(conn, repos=list(repos), reason=reason, now=now, claim=claim)
    return {row["repo"] for row in rows}


async def repos_after(conn: Connection, after: str, state: RepoState | None, at_most: int) -> list[str]:
    """The next tracked repos in order."""
    return [row["repo"] for row in await _SQL.repos_after.fetch(conn, after=after, state=state, at_most=at_most)]


async def take_back_forsaken(conn: Connection, now: datetime | None = None) -> int:
    """Marks repos whose fetch was killed as desynchronized; says how many."""
    return len(await _SQL.forsaken_fetches.fetch(conn, now=now))


async def ask_unasked(conn: Connection, at_most: int, now: datetime | None = None) -> int:
    """Asks for repos that are not whole and that nothing asks for; says how many."""
    return len(await _SQL.unasked_fetches.fetch(conn, now=now, at_most=at_most))


async def compare_next(conn: Connection, at_most: int, now: datetime | None = None) -> str | None:
    """Works off a piece of one source's gap, in a transaction; the source, or null where no gap is left."""
    gap = await _SQL.next_gap.fetchrow(conn)
    if gap is None:
        return None
    source: str = gap["source"]
    compared_from: str | None = gap["gap_compared_to"]
    compared_to = await _SQL.compare_repos_after.fetchval(conn, after=compared_from or "", at_most=at_most, now=now)
    # Last, for this row is every writer's.
    await _SQL.gap_compared.execute(conn, source=source, compared_from=compared_from, compared_to=compared_to)
    return source


async def audit(conn: Connection, every: timedelta, at_most: int, now: datetime | None = None) -> int:
    """Asks where repos stand that were not compared for so long; says how many."""
    return len(await _SQL.audit_repos.fetch(conn, now=now, audit_every=every, at_most=at_most))


async def track(
    conn: Connection,
    repos: Sequence[tuple[str, str | None]],
    now: datetime | None = None,
    *,
    listed_by: str | None = None,
) -> int:
    """Tracks repos, given with their hosts where known; says how many are new. `listed_by`: whose word they are."""
    ordered = dict(repos)
    rows = await _SQL.track_repos.fetch(
        conn, repos=list(ordered), hosts=list(ordered.values()), listed_by=listed_by, now=now
    )
    return len(rows)


async def count_unverified(conn: Connection, listed_by: str, of_one: int, of_all: int) -> tuple[int, int]:
    """Of how many repos that one list, or any, has named nothing was verified yet; counted up to these bounds."""
    row = await _SQL.count_unverified.fetchrow(conn, listed_by=listed_by, of_one=of_one, of_all=of_all)
    return (row["of_one"], row["of_all"]) if row else (0, 0)


async def fetch_unfetched(conn: Connection, repos: Sequence[str], now: datetime | None = None) -> int:
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


async def hold_up_sweep(conn: Connection, origin: str, sweep: Sweep, now: datetime) -> None:
    """Notes that no more of a list is read for a while."""
    await _SQL.hold_up_discovery.execute(
        conn,
        origin=origin,
        page_cursor=sweep.page_cursor,
        repos_found=sweep.repos_found,
        started_at=sweep.started_at,
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


async def fetch_is_due(
    conn: Connection,
    asked_until: datetime,
    patience: timedelta,
    hosts_away: Iterable[str],
    now: datetime | None = None,
) -> bool:
    """Whether a fetch asked for until then (by the database's clock) is untried, and can be tried before long."""
    due: bool = await _SQL.fetch_is_due.fetchval(
        conn, asked_until=asked_until, patience=patience, hosts_away=list(hosts_away), now=now
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
    is_far: bool  # whether that is not before long
    host: str | None
    state: str
    reason: str | None
    visible: bool
    status: str | None


async def outcomes_of_fetches(
    conn: Connection, repos: Sequence[str], patience: timedelta, now: datetime | None = None
) -> list[FetchOutcome]:
    """What became of the fetches of tracked repos; more than `patience` away is not before long."""
    rows = await _SQL.outcomes_of_fetches.fetch(conn, repos=list(repos), patience=patience, now=now)
    return [FetchOutcome(*tuple(row)) for row in rows]
