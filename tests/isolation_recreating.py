"""A Space that is purged as the indexer purges it, and one of the same name that is synced in its place."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import cast
from uuid import UUID

from indexer.spaces.purge import purge
from indexer.store.spaces import SpaceClaim
from memory.database import Database
from tests.isolation import Cast, draw_rows, hold
from tests.isolation_indexes import Index
from tests.memory_rows import _insert

_CLAIM = UUID(int=1)


async def purge_now(database: Database, space: str, told_at: datetime) -> None:
    """Deletes all of a Space that was told to be deleted then."""
    authority = space.split("/")[2]
    async with database.transaction() as conn:
        await conn.execute(
            "insert into spaces (repo, space, state, opened_at, credentialed_until, claim_token)"
            " values ($1, $2, 'ready', now(), now(), $3)"
            " on conflict (repo, space) do update set claim_token = excluded.claim_token",
            *(authority, space, _CLAIM),
        )
        # By the clock of the database; here it is the cast's.
        await conn.execute(
            "update space_inbox set received_at = case kind when 'deleted' then $2::timestamptz else $3 end"
            " where space = $1",
            *(space, told_at, told_at + timedelta(seconds=1)),
        )
    # All that a purge asks of a claim.
    claim = cast("SpaceClaim", SimpleNamespace(authority=authority, space=space, token=_CLAIM))

    async def keep() -> None:
        pass

    await purge(database, claim, told_at, "told", keep)
    async with database.connection() as conn:
        for table in ("spaces", "repos", "memories", "memory_versions", "memory_edges", "embeddings"):
            assert not await conn.fetchval(f"select count(*) from {table} where space = $1", space), table


async def make_again(index: Index, seed: int, drawn: Cast, space: str) -> None:
    """What the indexer holds once it has synced the new one, in which there is the same."""
    rows = draw_rows(seed, drawn, [space])._rows()
    async with index.database.transaction() as conn:
        for table in ("memories", "memory_edges", "memory_versions", "repos"):
            await _insert(conn, table, [row for row in rows[table] if row["space"] == space])
        await conn.execute("delete from space_inbox where space = $1", space)
    await hold(index.database, space)
    await index.embed()
