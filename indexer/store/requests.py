"""What has to be asked, taken up by whoever has time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from indexer.books import RequestKind
from memory.queries import Connection, load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "requests.sql")

PLC: Final = "did:plc"
LOOKED_AT: Final = 200  # requests of sites that may be asked more, for one claim
HANDLE_UNSETTLED: Final = "handle_unsettled"  # why an identity is asked for of which only the handle is missing
HANDLES_LOOKED_AT: Final = 1000  # strangers' among them


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
    site: str  # that will be asked: the directory of did:plc is one, a domain with all names below it


@dataclass(frozen=True, slots=True)
class SiteShares:
    """How many claims one site may have, and how many it has."""

    plc: int
    others: int
    busy: Mapping[str, int]

    def full(self) -> list[str]:
        """The sites that may have no more."""
        return [site for site, claims in self.busy.items() if claims >= (self.plc if site == PLC else self.others)]


async def claim(
    conn: Connection,
    kind: RequestKind,
    now: datetime,
    for_: timedelta,
    *,
    at_most: int,
    tracked: bool,
    shares: SiteShares,
) -> list[Claim]:
    """Takes up to so many due requests of `kind`, of repos that are tracked or of strangers; there may be more.

    Without an answer they are due again after `for_`.
    """
    rows = await _SQL.claim_requests.fetch(
        conn,
        kind=kind,
        now=now,
        claimed_until=now + for_,
        at_most=at_most,
        looked_at=LOOKED_AT,
        tracked=tracked,
        plc_share=shares.plc,
        site_share=shares.others,
        plc_is_full=PLC in shares.full(),
        full_sites=[site for site in shares.full() if site != PLC],
        busy_sites=list(shares.busy),
        busy_claims=list(shares.busy.values()),
    )
    return [Claim(*tuple(row)) for row in rows]


async def postpone(conn: Connection, claim: Claim, not_before: datetime) -> None:
    """Leaves a request for later."""
    await _SQL.postpone_request.execute(
        conn, repo=claim.repo, space=claim.space, kind=claim.kind, not_before=not_before
    )


async def ask_for_handles(
    conn: Connection, now: datetime, *, at_most: int, shortest: timedelta, longest: timedelta
) -> None:
    """Has the handles of tracked repos that are due asked for again, of which no more than `at_most` wait for it then.

    If nothing comes of it they are due again after the `shortest` wait; strangers' after one between that and the
    `longest`. In two transactions, so that no row of `identities` is locked while one of `requests` is waited for.
    """
    rows = await _SQL.claim_handles.fetch(
        conn,
        now=now,
        at_most=at_most,
        looked_at=HANDLES_LOOKED_AT,
        reason=HANDLE_UNSETTLED,
        shortest=shortest,
        longest=longest,
    )
    if rows:
        repos = [row["repo"] for row in rows]
        await _SQL.ask_for_handles.execute(conn, repos=repos, reason=HANDLE_UNSETTLED, now=now)
