"""Deletes all that is held of a Space that is no more.

First nothing of it is served and nobody is granted it any more, in one transaction; then it goes author by author, each
in a transaction of its own, last its own row. Killed in between, whoever takes it up next goes on. What viewers opened
since, or its authority said since, is about another Space of the same name, and stays.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime

from indexer.patience import despite_conflicts
from indexer.store import space_purge
from indexer.store.spaces import SpaceClaim
from memory.database import Database
from memory.telemetry import get_logger


async def purge(
    database: Database, claim: SpaceClaim, deleted_at: datetime, reason: str, keep: Callable[[], Awaitable[None]]
) -> None:
    """Deletes a Space that was deleted then; `keep` is called between authors to keep the claim up."""
    async with database.transaction() as conn:
        before = await space_purge.mark(conn, claim, deleted_at)
        more = before is not None and await space_purge.drop_grants(conn, claim.space, before)
    if before is None:
        return
    while more:
        async with database.transaction() as conn:
            more = await space_purge.drop_grants(conn, claim.space, before)
    more = True
    while more:
        async with database.transaction() as conn:
            more = await space_purge.drop_names(conn, claim)
    authors = 0
    while True:
        author = await _next(database, claim)
        if author is not None:
            await keep()
            await despite_conflicts(lambda author=author: _delete_author(database, author, claim.space), "space_purge")
            authors += 1
        elif await _end(database, claim, before):
            break
        elif await _next(database, claim) is None:
            return  # somebody else has it by now, and goes on
    get_logger().info("space_purged", reason=reason, repos=authors)


class _NotAll(Exception):
    """There is more to delete, or it is another's to do."""


async def _end(database: Database, claim: SpaceClaim, before: datetime) -> bool:
    """Deletes the last of it; False: not yet, or not we."""
    try:
        async with database.transaction() as conn:
            # What was granted before, and was committed since.
            await space_purge.drop_grants(conn, claim.space, before)
            if not await space_purge.delete_space(conn, claim, before):
                raise _NotAll
    except _NotAll:
        return False
    return True


async def _next(database: Database, claim: SpaceClaim) -> str | None:
    async with database.connection() as conn:
        return await space_purge.next_author(conn, claim)


async def _delete_author(database: Database, author: str, space: str) -> None:
    async with database.transaction() as conn:
        await space_purge.delete_author(conn, author, space)
