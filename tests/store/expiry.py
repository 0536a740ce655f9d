"""Lets time pass over an index."""

from __future__ import annotations

from datetime import datetime, timedelta

from indexer.store import upkeep
from indexer.upkeep import PUT_ASIDE_KEPT, STRANGERS_KEPT
from memory.database import Database

WEEK = timedelta(days=7)
INSTANT = timedelta(microseconds=1)


async def expire(database: Database, now: datetime, *, slice_rows: int = 1000) -> int:
    """Forgets all that has had its time by then; how many rows that took."""
    rows = 0
    for expiry in upkeep.expiries(
        kept_since=now - PUT_ASIDE_KEPT,
        content_since=now - timedelta(days=30),
        deletions_since=now - timedelta(days=90),
        resolved_since=now - STRANGERS_KEPT,
    ):
        while not expiry.ended:
            async with database.connection() as conn:
                rows += await expiry.take_slice(conn, slice_rows)
    return rows
