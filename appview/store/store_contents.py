"""What one memory store holds: pages of its memories and of their versions, and what there is to tell of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from appview.keys import Key
from appview.store.stores import STORE_QUERIES, StoreKey
from appview.store.views import MAX_PAGE_BYTES
from memory.datetimes import LATEST
from memory.queries import Connection
from memory.space import ReadableSpaces

_LAST_NUMBER: Final = 2**31 - 1
_LAST_RKEY: Final = "~"  # after every TID


class EntryPlace(NamedTuple):
    """Where a memory stands in its store, which goes by when they took effect. It changes only with its record."""

    effective_at: datetime
    rkey: str


class VersionPlace(NamedTuple):
    """Where a version stands among those of its store. It never changes."""

    observed_at: datetime
    rkey: str
    number: int


FIRST_ENTRY_PLACE: Final = EntryPlace(LATEST, _LAST_RKEY)
FIRST_VERSION_PLACE: Final = VersionPlace(LATEST, _LAST_RKEY, _LAST_NUMBER)


@dataclass(frozen=True, slots=True, repr=False)
class EntryFilters:
    """Which memories of a store are listed."""

    include_superseded: bool = False
    path_prefix: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class StoredEntry:
    """One memory, there now. `record` is its block, if that was asked for."""

    key: Key
    cid: str
    kind: str | None
    scope: str | None
    agent: str | None
    created_at: datetime
    updated_at: datetime | None
    version: int
    content_bytes: int
    content_sha256: bytes
    superseded: bool
    record: bytes | None


@dataclass(frozen=True, slots=True, repr=False)
class StoredVersion:
    """One observed state of a record, as far as the viewer may see it: nothing of its content once it is redacted."""

    key: Key
    number: int
    id_hash: bytes
    operation: str
    observed_at: datetime
    scope: str | None
    content_bytes: int
    content_sha256: bytes
    redacted_at: datetime | None
    record: bytes | None


class FoundMemory(NamedTuple):
    """A record that an id names, and its place if it is there now."""

    rkey: str
    place: EntryPlace | None


async def find_memory(
    conn: Connection, store: StoreKey, id_hash: bytes, *, spaces: ReadableSpaces
) -> FoundMemory | None:
    """The memory of a store whose id means this hash, whether it is there or was deleted."""
    row = await STORE_QUERIES.memory_place_by_id.fetchrow(
        conn, repo=store.repo, space=store.space, hash=id_hash, spaces=spaces.as_list()
    )
    if row is None:
        return None
    rkey: str = row["rkey"]
    effective_at: datetime | None = row["effective_at"]
    return FoundMemory(rkey, None if effective_at is None else EntryPlace(effective_at, rkey))


async def list_entries(
    conn: Connection,
    store: StoreKey,
    filters: EntryFilters,
    *,
    place: EntryPlace | None,
    backward: bool,
    limit: int,
    spaces: ReadableSpaces,
) -> list[EntryPlace]:
    """Up to `limit` places behind `place`, latest in effect first; `backward`, those in front of it, from there on."""
    place = place or FIRST_ENTRY_PLACE
    statement = STORE_QUERIES.entries_before if backward else STORE_QUERIES.entries_after
    rows = await statement.fetch(
        conn,
        repo=store.repo,
        space=store.space,
        sort_at=place.effective_at,
        at_rkey=place.rkey,
        include_superseded=filters.include_superseded,
        path_prefix=filters.path_prefix or None,
        limit=limit,
        spaces=spaces.as_list(),
    )
    return [EntryPlace(row["effective_at"], row["rkey"]) for row in rows]


async def load_entries(
    conn: Connection, store: StoreKey, rkeys: Sequence[str], *, with_records: bool, spaces: ReadableSpaces
) -> tuple[list[StoredEntry], int]:
    """Those of `rkeys` that are there, in order, until a page is full; and how many were gone through for them."""
    rows = await STORE_QUERIES.entries_by_key.fetch(
        conn,
        repo=store.repo,
        space=store.space,
        rkeys=rkeys,
        with_record=with_records,
        max_bytes=MAX_PAGE_BYTES,
        spaces=spaces.as_list(),
    )
    reached = next((row["ordinal"] - 1 for row in rows if row["cid"] is None), len(rkeys))
    entries = [
        StoredEntry(
            key=Key(store.repo, store.space, row["rkey"]),
            cid=row["cid"],
            kind=row["kind"],
            scope=row["scope"],
            agent=row["agent"],
            created_at=row["created_at"],
            updated_at=row["updated_at"],
            version=row["version"],
            content_bytes=row["content_bytes"],
            content_sha256=row["content_sha256"],
            superseded=row["superseded"],
            record=row["record"],
        )
        for row in rows
        if row["ordinal"] <= reached
    ]
    return entries, reached


async def find_version(
    conn: Connection, store: StoreKey, id_hash: bytes, *, spaces: ReadableSpaces
) -> VersionPlace | None:
    """The version of a store whose id means this hash."""
    row = await STORE_QUERIES.version_place_by_id.fetchrow(
        conn, repo=store.repo, space=store.space, hash=id_hash, spaces=spaces.as_list()
    )
    return None if row is None else VersionPlace(row["observed_at"], row["rkey"], row["number"])


async def list_versions(
    conn: Connection,
    store: StoreKey,
    rkey: str | None,
    *,
    place: VersionPlace | None,
    backward: bool,
    limit: int,
    spaces: ReadableSpaces,
) -> list[VersionPlace]:
    """Up to `limit` places behind `place`, latest first; `backward`, those in front of it, from there on.

    All versions of a store go by when they were observed, those of one memory, `rkey`, by their numbers.
    """
    place = place or FIRST_VERSION_PLACE
    asked = {
        "repo": store.repo,
        "space": store.space,
        "at_number": place.number,
        "limit": limit,
        "spaces": spaces.as_list(),
    }
    if rkey is None:
        statement = STORE_QUERIES.versions_before if backward else STORE_QUERIES.versions_after
        rows = await statement.fetch(conn, **asked, sort_at=place.observed_at, at_rkey=place.rkey)
    else:
        statement = STORE_QUERIES.memory_versions_before if backward else STORE_QUERIES.memory_versions_after
        rows = await statement.fetch(conn, **asked, rkey=rkey)
    return [VersionPlace(row["observed_at"], row["rkey"], row["number"]) for row in rows]


async def load_store_versions(
    conn: Connection,
    store: StoreKey,
    places: Sequence[VersionPlace],
    *,
    is_owner: bool,
    with_records: bool,
    spaces: ReadableSpaces,
) -> list[StoredVersion]:
    """The versions at `places` that are there, in order. The owner of the repo also sees what was overwritten."""
    rows = await STORE_QUERIES.versions_by_key.fetch(
        conn,
        repo=store.repo,
        space=store.space,
        rkeys=[place.rkey for place in places],
        numbers=[place.number for place in places],
        is_owner=is_owner,
        with_record=with_records,
        spaces=spaces.as_list(),
    )
    return [
        StoredVersion(
            key=Key(store.repo, store.space, row["rkey"]),
            number=row["number"],
            id_hash=row["id_hash"],
            operation=row["operation"],
            observed_at=row["observed_at"],
            scope=row["scope"],
            content_bytes=row["content_bytes"],
            content_sha256=row["content_sha256"],
            redacted_at=row["redacted_at"],
            record=row["record"],
        )
        for row in rows
    ]
