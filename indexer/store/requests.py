"""What has to be asked, taken up by whoever has time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from indexer.ledger import RequestKind
from memory.queries import Connection, load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "requests.sql")


@dataclass(frozen=True, slots=True)
class Claim:
    """A request that nobody else works on for a while."""

    repo: str
    space: str
    kind: str
    reason: str
    attempts: int  # this one included
    requested_at: datetime
    tracked: bool  # whether it is about a repo that is tracked


async def claim(
    conn: Connection, kind: RequestKind, now: datetime, for_: timedelta, *, at_most: int, tracked: bool
) -> list[Claim]:
    """Takes up to so many due requests of `kind`, of repos that are tracked or of strangers.

    Without an answer they are due again after `for_`.
    """
    rows = await _SQL.claim_requests.fetch(
        conn, kind=kind, now=now, claimed_until=now + for_, at_most=at_most, tracked=tracked
    )
    return [Claim(*tuple(row)) for row in rows]


async def postpone(conn: Connection, claim: Claim, not_before: datetime) -> None:
    """Leaves a request for later."""
    await _SQL.postpone_request.execute(
        conn, repo=claim.repo, space=claim.space, kind=claim.kind, not_before=not_before
    )
