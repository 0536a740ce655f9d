"""Deletes what is held of Spaces that are no more, and what has had its time."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from indexer.store import repos as repo_rows
from indexer.store.spaces import SpaceClaim
from memory.queries import Connection, Statement, load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "space_purge.sql")

ROWS_AT_ONCE: Final = 1_000
ORPHANS_KEPT: Final = timedelta(hours=1)


async def mark(conn: Connection, claim: SpaceClaim, deleted_at: datetime) -> datetime | None:
    """Has nothing of a Space served from now on; when it was deleted. None: somebody else has it by now."""
    return await _SQL.mark_deleted.fetchval(
        conn, repo=claim.authority, space=claim.space, token=claim.token, deleted_at=deleted_at
    )


async def drop_grants(conn: Connection, space: str, before: datetime) -> bool:
    """Ends some of what was granted until then; whether there may be more."""
    grants = await _SQL.drop_grants.execute(conn, space=space, before=before, at_most=ROWS_AT_ONCE)
    credentials = await _SQL.drop_credentials.execute(conn, space=space, at_most=ROWS_AT_ONCE)
    return ROWS_AT_ONCE in (grants, credentials)


async def drop_names(conn: Connection, claim: SpaceClaim) -> bool:
    """Forgets some authors of whom nothing was ever pulled; whether there may be more."""
    dropped = await _SQL.drop_names.execute(
        conn, repo=claim.authority, space=claim.space, token=claim.token, at_most=ROWS_AT_ONCE
    )
    return dropped == ROWS_AT_ONCE


async def next_author(conn: Connection, claim: SpaceClaim) -> str | None:
    """One of whom something is left; None also if somebody else has the Space by now."""
    return await _SQL.next_in_space.fetchval(conn, repo=claim.authority, space=claim.space, token=claim.token)


async def delete_author(conn: Connection, author: str, space: str) -> None:
    """Deletes all that one author holds in a Space."""
    await _SQL.delete_space_repo.execute(conn, repo=author, space=space)
    await repo_rows.lock_repos(conn, [(author, space)])
    await repo_rows.purge(conn, [(author, space)])
    await _SQL.delete_requests_of.execute(conn, repo=author, space=space)
    await _SQL.delete_repo.execute(conn, repo=author, space=space)


async def delete_space(conn: Connection, claim: SpaceClaim, before: datetime) -> bool:
    """Deletes the last of a Space; what was said of it since is of another one.

    False: something of it is left, or somebody else has it by now, and the transaction has to be rolled back.
    """
    await _SQL.leave_space.execute(conn, space=claim.space)
    await _SQL.delete_inbox.execute(conn, repo=claim.authority, space=claim.space, before=before)
    deleted = await _SQL.delete_space.fetchval(conn, repo=claim.authority, space=claim.space, token=claim.token)
    return deleted is not None


async def expire(conn: Connection, now: datetime | None) -> bool:
    """Forgets some of what holds no more; whether there may be more."""
    limited: list[Statement] = [_SQL.expire_grants, _SQL.expire_credentials]
    counts = [await statement.execute(conn, at_most=ROWS_AT_ONCE, now=now) for statement in limited]
    counts.append(await _SQL.expire_notes.execute(conn, at_most=ROWS_AT_ONCE, kept=ORPHANS_KEPT, now=now))
    return ROWS_AT_ONCE in counts


async def forget_samples(conn: Connection) -> None:
    """Leaves the planner no sample of what was in tables that are empty by now."""
    await _SQL.forget_samples.execute(conn)
