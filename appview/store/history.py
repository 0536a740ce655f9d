"""What became of one memory: its observed states, what it replaced and what replaced it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from appview.keys import Key
from appview.store.views import MAX_PAGE_BYTES
from memory.datetimes import EARLIEST, LATEST
from memory.queries import Connection, Statement, load_queries
from memory.space import ReadableSpaces

MAX_RELATED: Final = 1_000
"""Memories on one side that a walk along replacements reaches; there may be more."""

FIRST_VERSION_PLACE: Final = 2**31 - 1

_QUERIES: Final = load_queries(Path(__file__).parent / "sql" / "history.sql")


@dataclass(frozen=True, slots=True)
class ObservedVersion:
    """One state of a record that was seen. Unless it is `current`, nothing of its content is there to show.

    But to the repo's owner, what was overwritten is shown while it is kept, with its `block`. `is_beyond`: that is left
    out, as it would make all more than a page's worth of bytes; never of the first.
    """

    number: int
    operation: str
    observed_at: datetime
    current: bool
    redacted_at: datetime | None
    cid: str | None
    scope: str | None
    content_bytes: int
    content_sha256: bytes
    block: bytes | None
    is_beyond: bool


@dataclass(frozen=True, slots=True)
class RelatedPlace:
    """Where one memory stands among those that another replaced, or that replaced it."""

    effective_at: datetime
    rkey: str


FIRST_REPLACED_PLACE: Final = RelatedPlace(LATEST, "")
FIRST_REPLACING_PLACE: Final = RelatedPlace(EARLIEST, "")


@dataclass(frozen=True, slots=True)
class Related:
    """A page of related memories. `capped`: the walk met more than MAX_RELATED; the nearest are among those shown."""

    places: tuple[RelatedPlace, ...]
    capped: bool


async def load_versions(
    conn: Connection, key: Key, *, before: int, limit: int, is_owner: bool, spaces: ReadableSpaces
) -> list[ObservedVersion]:
    """The observed states of a record with numbers below `before`, latest first; `is_owner`: it is the viewer's own."""
    rows = await _QUERIES.observed_versions.fetch(
        conn,
        repo=key.repo,
        space=key.space,
        rkey=key.rkey,
        before=before,
        limit=limit,
        is_owner=is_owner,
        max_bytes=MAX_PAGE_BYTES,
        spaces=spaces.as_list(),
    )
    return [
        ObservedVersion(
            number=row["number"],
            operation=row["operation"],
            observed_at=row["observed_at"],
            current=row["is_current"],
            redacted_at=row["redacted_at"],
            cid=row["cid"],
            scope=row["scope"],
            content_bytes=row["content_bytes"],
            content_sha256=row["content_sha256"],
            block=row["record"],
            is_beyond=row["kept_bytes"] is not None and row["record"] is None,
        )
        for row in rows
    ]


async def find_replaced(
    conn: Connection, key: Key, *, after: RelatedPlace, limit: int, spaces: ReadableSpaces
) -> Related:
    """The memories that this one masks, directly or through others, latest in effect first."""
    return await _find_related(_QUERIES.replaced_memories, conn, key, after=after, limit=limit, spaces=spaces)


async def find_replacing(
    conn: Connection, key: Key, *, after: RelatedPlace, limit: int, spaces: ReadableSpaces
) -> Related:
    """The memories that mask this one, directly or through others, earliest in effect first."""
    return await _find_related(_QUERIES.replacing_memories, conn, key, after=after, limit=limit, spaces=spaces)


async def _find_related(
    statement: Statement, conn: Connection, key: Key, *, after: RelatedPlace, limit: int, spaces: ReadableSpaces
) -> Related:
    # The walk also counts the memory itself, and one more tells that there are more.
    max_walked = MAX_RELATED + 2
    rows = await statement.fetch(
        conn,
        repo=key.repo,
        space=key.space,
        rkey=key.rkey,
        sort_at=after.effective_at,
        at_rkey=after.rkey,
        max_walked=max_walked,
        limit=limit,
        spaces=spaces.as_list(),
    )
    places = tuple(RelatedPlace(row["effective_at"], row["rkey"]) for row in rows)
    return Related(places, capped=bool(rows) and rows[0]["walked"] >= max_walked)
