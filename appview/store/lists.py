"""Lists memories by time: one page of keys after a place, in one of three orders."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from itertools import islice
from pathlib import Path
from typing import Final

from appview.filters import Filters, Reach
from appview.keys import Key
from memory.datetimes import EARLIEST, LATEST
from memory.queries import Connection, Row, Statement, load_queries
from memory.space import PUBLIC, ReadableSpaces

_QUERIES: Final = load_queries(Path(__file__).parent / "sql" / "lists.sql")

_LAST_TEXT: Final = "\U0010ffff"  # after every DID, by bytes


class Order(StrEnum):
    """By what a list goes."""

    NEWEST = "newest"  # latest in effect first
    OLDEST = "oldest"  # earliest in effect first
    OCCURRED = "occurred"  # latest occurrence first, memories without one after all that have one


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Where one memory stands in a list. It does not change while the memory does not.

    `sort_at`: when it took effect; in the order `occurred`, when its occurrence began if it is `dated`. In the others,
    all are dated.
    """

    dated: bool
    sort_at: datetime
    repo: str
    rkey: str
    space: str

    @property
    def key(self) -> Key:
        """The memory there."""
        return Key(self.repo, self.space, self.rkey)


def start_of(order: Order, as_of: datetime | None) -> Place:
    """The place before all that are listed."""
    match order:
        case Order.OLDEST:
            return Place(True, EARLIEST, "", "", PUBLIC)
        case Order.NEWEST:
            return Place(True, as_of or LATEST, _LAST_TEXT, "", PUBLIC)
        case Order.OCCURRED:
            return Place(True, LATEST, _LAST_TEXT, "", PUBLIC)


async def list_places(
    conn: Connection, order: Order, filters: Filters, *, after: Place, limit: int, spaces: ReadableSpaces
) -> list[Place]:
    """Up to `limit` places of readable memories that pass the filters, from the one behind `after` on."""
    reach = filters.reach(spaces)
    if filters.repos is not None:
        return await _list_of(conn, order, filters, filters.repos, after=after, limit=limit, reach=reach)
    public: list[Place] = []
    if reach.public:
        public += [_place(row) for row in await _fetch(_STATEMENTS[order], conn, order, filters, after, limit)]
    authors = await find_authors(conn, spaces=reach.spaces)
    private = Reach(reach.spaces, public=False)
    own = await _list_of(conn, order, filters, authors, after=after, limit=limit, reach=private)
    return list(islice(heapq.merge(public, own, reverse=order is not Order.OLDEST), limit))


async def find_authors(conn: Connection, *, spaces: ReadableSpaces) -> list[str]:
    """The authors with memories in some Spaces, in no order."""
    if not spaces.spaces:
        return []
    return [row["repo"] for row in await _QUERIES.repos_in_spaces.fetch(conn, spaces=spaces.as_list())]


async def find_repos(conn: Connection, handles: Sequence[str]) -> dict[str, str]:
    """The DIDs behind verified handles, which are public whatever their repos hold; unknown ones are left out."""
    rows = await _QUERIES.repos_by_handle.fetch(conn, handles=handles)
    return {row["handle"]: row["repo"] for row in rows}


async def _list_of(
    conn: Connection,
    order: Order,
    filters: Filters,
    repos: Sequence[str],
    *,
    after: Place,
    limit: int,
    reach: Reach,
) -> list[Place]:
    if not repos:
        return []
    more = {"repos": repos, "spaces": reach.spaces.as_list(), "public": reach.public}
    return [_place(row) for row in await _fetch(_STATEMENTS_OF[order], conn, order, filters, after, limit, **more)]


async def _fetch(
    statement: Statement,
    conn: Connection,
    order: Order,
    filters: Filters,
    after: Place,
    limit: int,
    **more: object,
) -> list[Row]:
    dated = {"dated": after.dated} if order is Order.OCCURRED else {}
    return await statement.fetch(
        conn,
        sort_at=after.sort_at,
        at_repo=after.repo,
        at_rkey=after.rkey,
        at_space=after.space,
        limit=limit,
        **filters.in_sql(),
        **dated,
        **more,
    )


def _place(row: Row) -> Place:
    return Place(row["dated"], row["sort_at"], row["repo"], row["rkey"], row["space"])


_STATEMENTS: Final = {
    Order.NEWEST: _QUERIES.list_newest,
    Order.OLDEST: _QUERIES.list_oldest,
    Order.OCCURRED: _QUERIES.list_occurred,
}
_STATEMENTS_OF: Final = {
    Order.NEWEST: _QUERIES.list_newest_of,
    Order.OLDEST: _QUERIES.list_oldest_of,
    Order.OCCURRED: _QUERIES.list_occurred_of,
}
