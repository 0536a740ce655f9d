"""Rows about Spaces: what is to be done of each, who writes there, and until when it may be served."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final
from uuid import UUID

from memory.queries import Connection, load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "spaces.sql")

OPENED_AT_ONCE: Final = 1_000
CREDENTIALS_TRIED: Final = 8
CREDENTIAL_MARGIN: Final = timedelta(seconds=15)  # what ends sooner may end on the way
NOTES_AT_ONCE: Final = 1_000
HASTENED: Final = timedelta(seconds=30)  # what failed is tried again so soon when somebody has written since


class NoteKind(StrEnum):
    """What the API says of a Space."""

    OPENED = "opened"  # by a viewer
    WRITTEN = "written"  # its authority says so of an author
    DELETED = "deleted"  # its authority says so


@dataclass(frozen=True, slots=True, repr=False)
class SpaceClaim:
    """A Space that nobody else works on for a while. Times are those of the shared clock."""

    authority: str
    space: str
    token: UUID
    now: datetime  # when it was claimed
    listed_at: datetime | None
    sweep_after: datetime
    attempts: int  # to list its writers, that failed on end
    registered_until: datetime | None
    register_after: datetime
    credentialed_until: datetime
    deleted_at: datetime | None
    is_told: bool  # there are notes

    @property
    def told(self) -> dict[str, object]:
        """What a log may say of it: not which Space, for that is as private as what it holds."""
        return {"kind": "space", "attempts": self.attempts}


@dataclass(frozen=True, slots=True, repr=False)
class Note:
    """Something that the API was told, or did."""

    kind: NoteKind
    author: str
    rev: str | None
    hash: bytes | None
    received_at: datetime


@dataclass(frozen=True, slots=True, repr=False)
class SealedCredential:
    """What `memory/space_credential.py` opens for this viewer and its Space."""

    viewer: str
    sealed: bytes


@dataclass(frozen=True, slots=True)
class Standing:
    """Where an author's repo in a Space stands."""

    listed_rev: str | None
    listed_hash: bytes | None
    in_step: bool
    hash: bytes | None
    waits: bool  # to be pulled
    hidden: str | None


@dataclass(frozen=True, slots=True)
class Listed:
    """What a Space's host says of an author; without a rev: it does not list them any more."""

    author: str
    rev: str | None
    hash: bytes | None


@dataclass(frozen=True, slots=True)
class Freshness:
    """How long what was confirmed may be served, and how long before that end it is seen to."""

    staleness: timedelta
    margin: timedelta


async def open_spaces(conn: Connection) -> None:
    """Takes in what viewers opened."""
    await _SQL.open_spaces.execute(conn, at_most=OPENED_AT_ONCE)


async def claim(
    conn: Connection,
    token: UUID,
    for_: timedelta,
    *,
    at_most: int,
    now: datetime | None,
    authorities: Collection[str] | None = None,
) -> list[SpaceClaim]:
    """Takes up to so many Spaces with something to do, until `for_` has passed; there may be more.

    Only those of `authorities`, if these are given.
    """
    rows = await _SQL.claim_spaces.fetch(
        conn,
        token=token,
        claim=for_,
        at_most=at_most,
        authorities=None if authorities is None else list(authorities),
        tried_later=HASTENED,
        now=now,
    )
    return [SpaceClaim(row[0], row[1], token, *row[2:]) for row in map(tuple, rows)]


async def keep(conn: Connection, claim: SpaceClaim, for_: timedelta, now: datetime | None) -> None:
    """Works on it for longer."""
    await _SQL.keep_space.execute(conn, repo=claim.authority, space=claim.space, token=claim.token, claim=for_, now=now)


async def live_credentials(conn: Connection, space: str, now: datetime | None) -> list[SealedCredential]:
    """Some that hold, those that do longest first."""
    rows = await _SQL.live_credentials.fetch(
        conn, space=space, margin=CREDENTIAL_MARGIN, at_most=CREDENTIALS_TRIED, now=now
    )
    return [SealedCredential(row["repo"], row["sealed"]) for row in rows]


async def load_notes(conn: Connection, claim: SpaceClaim) -> list[Note]:
    """What was said of a Space, deletions first; there may be more."""
    rows = await _SQL.load_notes.fetch(conn, repo=claim.authority, space=claim.space, at_most=NOTES_AT_ONCE)
    return [Note(NoteKind(row[0]), *row[1:]) for row in map(tuple, rows)]


async def drop_notes(conn: Connection, claim: SpaceClaim, notes: Sequence[Note]) -> None:
    """Crosses out what was acted upon."""
    await _SQL.drop_notes.execute(
        conn,
        repo=claim.authority,
        space=claim.space,
        token=claim.token,
        kinds=[note.kind for note in notes],
        authors=[note.author for note in notes],
        times=[note.received_at for note in notes],
    )


async def load_listed(conn: Connection, space: str) -> dict[str, Standing]:
    """All authors that were ever listed."""
    rows = await _SQL.load_listed.fetch(conn, space=space)
    return {row[0]: Standing(*row[1:]) for row in map(tuple, rows)}


async def store_listed(conn: Connection, claim: SpaceClaim, listed: Sequence[Listed], now: datetime | None) -> None:
    """Stores what a listing or a notification changed; who is to be pulled is, and who may not be seen is hidden."""
    changed = await _SQL.store_listed.fetch(
        conn,
        authority=claim.authority,
        space=claim.space,
        token=claim.token,
        repos=[each.author for each in listed],
        revs=[each.rev for each in listed],
        hashes=[each.hash for each in listed],
        listed_at=claim.listed_at,
        hastened=HASTENED,
        now=now,
    )
    await show(conn, claim.space, (row["repo"] for row in changed), now)


async def note_listing(conn: Connection, claim: SpaceClaim, sweep_after: datetime) -> bool:
    """Says that all writers are known as of the claim; False: somebody else has the Space by now."""
    found = await _SQL.note_listing.fetchrow(
        conn,
        repo=claim.authority,
        space=claim.space,
        token=claim.token,
        listed_at=claim.now,
        sweep_after=sweep_after,
    )
    return found is not None


async def confirm_listing(
    conn: Connection, claim: SpaceClaim, listed: Mapping[str, Listed], sweep_after: datetime, freshness: Freshness
) -> bool:
    """Ends the claim of a Space in which nothing waits, if a listing brings nothing new; False: there is more to do."""
    found = await _SQL.confirm_listing.fetchrow(
        conn,
        repo=claim.authority,
        space=claim.space,
        token=claim.token,
        listed_at=claim.now,
        sweep_after=sweep_after,
        staleness=freshness.staleness,
        repos=[each.author for each in listed.values()],
        revs=[each.rev for each in listed.values()],
        hashes=[each.hash for each in listed.values()],
    )
    return found is not None


async def note_failed_listing(
    conn: Connection, claim: SpaceClaim, failure: str | None, sweep_after: datetime, *, attempted: bool
) -> None:
    """Says why the writers could not be listed, and when that is tried again."""
    await _SQL.note_failed_listing.execute(
        conn,
        repo=claim.authority,
        space=claim.space,
        token=claim.token,
        failure=failure,
        counted=int(attempted),
        sweep_after=sweep_after,
    )


async def hasten_listing(conn: Connection, claim: SpaceClaim, sweep_after: datetime) -> None:
    """Has the writers listed by then, unless that fails at the moment."""
    await _SQL.hasten_listing.execute(
        conn, repo=claim.authority, space=claim.space, token=claim.token, sweep_after=sweep_after
    )


async def note_registration(
    conn: Connection, claim: SpaceClaim, registered_until: datetime | None, register_after: datetime
) -> None:
    """Until when the Space's host tells us of writes; None: as before. And when it is asked again."""
    await _SQL.note_registration.execute(
        conn,
        repo=claim.authority,
        space=claim.space,
        token=claim.token,
        registered_until=registered_until,
        register_after=register_after,
    )


async def hide_stale(conn: Connection, space: str, before: datetime, now: datetime | None) -> int:
    """Hides whose contents were last confirmed before that, and have changed since; how many."""
    lapsed = await _SQL.hide_stale.fetch(conn, space=space, before=before)
    await show(conn, space, (row["repo"] for row in lapsed), now)
    return len(lapsed)


async def settle(
    conn: Connection,
    authority: str,
    space: str,
    token: UUID,
    freshness: Freshness,
    *,
    release: bool,
    not_before: datetime | None = None,
    is_locked: bool = False,
) -> None:
    """Says until when the Space may be served, and when there is something to do.

    With `release` the claim ends, and nothing is done before `not_before`. Last in a transaction, for its row is that
    of all who work on the Space's repos; `is_locked`: it is this transaction's already.
    """
    if not is_locked:
        await _SQL.lock_space.execute(conn, repo=authority, space=space)
    await _SQL.settle_space.execute(
        conn,
        repo=authority,
        space=space,
        token=token,
        staleness=freshness.staleness,
        margin=freshness.margin,
        release=release,
        not_before=not_before,
    )


async def stop_pulls(conn: Connection, space: str) -> None:
    """Has nothing pulled until the next listing."""
    await _SQL.stop_pulls.execute(conn, space=space)


async def show(conn: Connection, space: str, repos: Iterable[str], now: datetime | None) -> None:
    """Has readers see what may be seen of these authors in a Space, and nothing else."""
    if ordered := sorted(set(repos)):
        await _SQL.show_space_repos.execute(conn, space=space, repos=ordered, now=now)
