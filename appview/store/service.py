"""What the API asks of the database that is nobody's record."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from memory.errors import Unavailable
from memory.queries import Connection, Statement, StatementFailed, load_queries

_QUERIES: Final = load_queries(Path(__file__).parent / "sql" / "service.sql")

_HAS_ENDED: Final = frozenset({"42704", "55000"})  # of a transaction whose snapshot is asked for


async def load_page_cursor_key(conn: Connection) -> bytes | None:
    """The key of page cursors that all API processes of this index share."""
    key: str | None = await _QUERIES.page_cursor_key.fetchval(conn)
    return None if key is None else bytes.fromhex(key)


async def load_repo_rev(conn: Connection, repo: str) -> str | None:
    """The rev up to which an author's public repo is indexed; None if it is not served, or nothing of it is there."""
    rev: str | None = await _QUERIES.repo_rev.fetchval(conn, repo=repo)
    return rev


async def plan_anew(conn: Connection) -> None:
    """Have Postgres plan every statement for its own values, until the end of the transaction.

    It costs a millisecond or less, so what is fast with any plan does without.
    """
    await _QUERIES.plan_anew.fetchval(conn)


async def plan_as_ever(conn: Connection) -> None:
    """Have Postgres plan as it does without `plan_anew`: what is asked by keys is planned once."""
    await _QUERIES.plan_as_ever.fetchval(conn)


async def share_snapshot(conn: Connection) -> str:
    """A name for what this transaction sees, until it ends."""
    name: str = await _QUERIES.export_snapshot.fetchval(conn)
    return name


async def take_snapshot(conn: Connection, name: str) -> None:
    """Has a transaction that did nothing yet see what another does, by the name that it gave; it plans anew, too.

    Raise Unavailable if the other has ended: its connection was lost.
    """
    assert re.fullmatch(r"[0-9A-F-]+", name)  # it stands in the statement, which takes no parameters
    both = f"set transaction snapshot '{name}'; {_QUERIES.plan_anew.sql}"  # at once, for it takes as long as one
    try:
        await Statement("take_snapshot", "", both, ()).execute(conn)
    except StatementFailed as failure:
        if failure.sqlstate in _HAS_ENDED:
            raise Unavailable("The transaction whose snapshot is taken has ended.") from None
        raise
