"""The cache of identities that all processes share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from memory.identity import Identity
from memory.queries import Connection, load_queries

_SQL: Final = load_queries(Path(__file__).parent / "sql" / "identities.sql")


async def load_identities(conn: Connection, dids: Iterable[str]) -> list[Identity]:
    """The cached identities of `dids`; unknown ones are left out."""
    return [Identity(*row) for row in await _SQL.load_identities.fetch(conn, dids=list(dids))]


async def store_identity(conn: Connection, identity: Identity) -> None:
    """Caches an identity, unless a newer one is there."""
    await _SQL.store_identity.execute(
        conn,
        did=identity.did,
        handle=identity.handle,
        host=identity.host,
        signing_key=identity.signing_key,
        tombstoned=identity.tombstoned,
        resolved_at=identity.resolved_at,
    )
