"""Repos as memory stores: pages of them, and what there is to tell of each."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from memory.datetimes import EARLIEST, LATEST
from memory.queries import Connection, Row, load_queries
from memory.space import ReadableSpaces

STORE_QUERIES: Final = load_queries(Path(__file__).parent / "sql" / "stores.sql")

MAX_NAMED: Final = 1_000
"""Authors whose name begins as asked for that are looked at one by one; more are met while going through all stores."""

_LAST_TEXT: Final = "\U0010ffff"  # after every DID, Space and name, by bytes


class StoreKey(NamedTuple):
    """The key of a store: its author's DID, and a Space's at-uri or `PUBLIC`."""

    repo: str
    space: str


class StorePlace(NamedTuple):
    """Where a store stands in the list, which goes by age. It never changes."""

    first_indexed_at: datetime
    repo: str
    space: str

    @property
    def key(self) -> StoreKey:
        """The store there."""
        return StoreKey(self.repo, self.space)


@dataclass(frozen=True, slots=True, repr=False)
class StoreFilters:
    """Which stores are listed: first indexed between two times, both inclusive; `name_prefix` in lower case."""

    include_archived: bool = False
    name_prefix: str | None = None
    oldest: datetime | None = None
    newest: datetime | None = None

    def in_sql(self) -> dict[str, object]:
        """The parameters by which the statements apply them."""
        return {
            "include_archived": self.include_archived,
            "name_prefix": self.name_prefix or None,
            "oldest": self.oldest or EARLIEST,
            "newest": self.newest or LATEST,
        }


@dataclass(frozen=True, slots=True, repr=False)
class StoredStore:
    """What there is to tell of one store. Of an archived one, nothing is counted.

    `entry_bytes`: contents of its unmasked memories as UTF-8. `changed_at`: when a memory of it, or its status, last
    became another, as far as it was seen.
    """

    key: StoreKey
    handle: str | None
    entry_count: int
    entry_bytes: int
    archived_at: datetime | None
    created_at: datetime
    changed_at: datetime


async def load_id_key(conn: Connection) -> bytes | None:
    """The key of ids that the migrations made."""
    key: str | None = await STORE_QUERIES.id_key.fetchval(conn)
    return None if key is None else bytes.fromhex(key)


async def list_stores(
    conn: Connection,
    filters: StoreFilters,
    *,
    place: StorePlace | None,
    backward: bool,
    limit: int,
    spaces: ReadableSpaces,
) -> list[StorePlace]:
    """Up to `limit` places behind `place`, newest first; `backward`, those in front of it, from there on."""
    if place is None:
        place = StorePlace(LATEST, _LAST_TEXT, _LAST_TEXT)
    if filters.name_prefix:
        repos = await _find_named(conn, filters.name_prefix, spaces=spaces)
        if repos is not None:
            return await _list_named(conn, filters, repos, place=place, backward=backward, limit=limit, spaces=spaces)
    in_sql = {
        **filters.in_sql(),
        "sort_at": place.first_indexed_at,
        "at_repo": place.repo,
        "at_space": place.space,
        "limit": limit,
    }
    public_stores = STORE_QUERIES.public_stores_before if backward else STORE_QUERIES.public_stores_after
    public = [_place(row) for row in await public_stores.fetch(conn, **in_sql)]
    if not spaces.spaces:
        return public
    space_stores = STORE_QUERIES.space_stores_before if backward else STORE_QUERIES.space_stores_after
    shared = [_place(row) for row in await space_stores.fetch(conn, **in_sql, spaces=spaces.as_list())]
    return list(islice(heapq.merge(public, shared, reverse=not backward), limit))


async def find_store(
    conn: Connection, *, public_hash: bytes, space_hash: bytes, include_archived: bool, spaces: ReadableSpaces
) -> StorePlace | None:
    """The store with this id, of which `public_hash` is the meaning if it is public, `space_hash` if it is not."""
    row = await STORE_QUERIES.store_place_by_id.fetchrow(
        conn,
        public_hash=public_hash,
        space_hash=space_hash,
        include_archived=include_archived,
        spaces=spaces.as_list(),
    )
    return None if row is None else _place(row)


async def load_stores(conn: Connection, keys: Sequence[StoreKey], *, spaces: ReadableSpaces) -> list[StoredStore]:
    """Those of `keys` that are there, in order."""
    rows = await STORE_QUERIES.stores_by_key.fetch(
        conn,
        repos=[key.repo for key in keys],
        spaces_of=[key.space for key in keys],
        spaces=spaces.as_list(),
    )
    return [_read(row) for row in rows]


async def _find_named(conn: Connection, name_prefix: str, *, spaces: ReadableSpaces) -> list[str] | None:
    """Whose handle or DID begins so; None if they are too many. Of a name in a Space, only its first part counts."""
    author = name_prefix.partition("/")[0]
    rows = await STORE_QUERIES.repos_by_name.fetch(
        conn,
        name_prefix=author,
        name_end=author + _LAST_TEXT,
        limit=MAX_NAMED + 1,
        spaces=spaces.as_list(),
    )
    return None if len(rows) > MAX_NAMED else sorted({row["repo"] for row in rows})


async def _list_named(
    conn: Connection,
    filters: StoreFilters,
    repos: Sequence[str],
    *,
    place: StorePlace,
    backward: bool,
    limit: int,
    spaces: ReadableSpaces,
) -> list[StorePlace]:
    rows = await STORE_QUERIES.stores_of_repos.fetch(conn, **filters.in_sql(), repos=repos, spaces=spaces.as_list())
    places = sorted(map(_place, rows), reverse=not backward)
    return [found for found in places if (found > place if backward else found < place)][:limit]


def _place(row: Row) -> StorePlace:
    return StorePlace(row["first_indexed_at"], row["repo"], row["space"])


def _read(row: Row) -> StoredStore:
    changes = (row["first_indexed_at"], row["observed_at"], row["status_changed_at"])
    return StoredStore(
        key=StoreKey(row["repo"], row["space"]),
        handle=row["handle"],
        entry_count=row["entry_count"],
        entry_bytes=row["entry_bytes"],
        archived_at=None if row["visible"] else row["status_changed_at"] or row["first_indexed_at"],
        created_at=row["first_indexed_at"],
        changed_at=max(moment for moment in changes if moment is not None),
    )
