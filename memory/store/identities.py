"""The cache of identities that all processes share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    await store_identities(conn, [identity])


async def store_identities(conn: Connection, identities: Sequence[Identity]) -> None:
    """Caches identities of different DIDs, each unless a newer one is there."""
    await _SQL.store_identities.execute(
        conn,
        dids=[identity.did for identity in identities],
        handles=[identity.handle for identity in identities],
        hosts=[identity.host for identity in identities],
        signing_keys=[identity.signing_key for identity in identities],
        tombstoned=[identity.tombstoned for identity in identities],
        resolved_ats=[identity.resolved_at for identity in identities],
    )
