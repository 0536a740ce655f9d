"""The cache of identities that all processes share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from memory.identity import Identity
from memory.queries import Connection, load_queries

_SQL: Final = load_queries(Path(__file__).parent / "sql" / "identities.sql")


@dataclass(frozen=True, slots=True)
class UnsettledHandle:
    """The document's handle could neither be verified nor refused, for its own side could not be asked."""

    retry_at: datetime
    misses: int  # on end


@dataclass(frozen=True, slots=True)
class HeldHandle:
    """What is cached of a handle."""

    handle: str | None  # verified; null: none is
    misses: int  # look-ups on end that could not ask for it


async def load_identities(conn: Connection, dids: Iterable[str]) -> list[Identity]:
    """The cached identities of `dids`; unknown ones are left out."""
    return [Identity(*row) for row in await _SQL.load_identities.fetch(conn, dids=list(dids))]


async def held_handle(conn: Connection, did: str) -> HeldHandle:
    """What is cached of the handle of `did`, whoever looked it up."""
    row = await _SQL.held_handle.fetchrow(conn, did=did)
    return HeldHandle(None, 0) if row is None else HeldHandle(*row)


async def store_identity(conn: Connection, identity: Identity, unsettled: UnsettledHandle | None = None) -> None:
    """Caches an identity, unless a newer one is there; `unsettled`: its handle is to be asked for again."""
    await _store(conn, [(identity, unsettled)])


async def store_identities(conn: Connection, identities: Sequence[Identity]) -> None:
    """Caches identities of different DIDs, their handles settled, each unless a newer one is there."""
    await _store(conn, [(identity, None) for identity in identities])


async def _store(conn: Connection, found: Sequence[tuple[Identity, UnsettledHandle | None]]) -> None:
    await _SQL.store_identities.execute(
        conn,
        dids=[identity.did for identity, _ in found],
        handles=[identity.handle for identity, _ in found],
        hosts=[identity.host for identity, _ in found],
        signing_keys=[identity.signing_key for identity, _ in found],
        tombstoned=[identity.tombstoned for identity, _ in found],
        resolved_ats=[identity.resolved_at for identity, _ in found],
        handle_retry_ats=[unsettled.retry_at if unsettled else None for _, unsettled in found],
        handle_misses=[unsettled.misses if unsettled else 0 for _, unsettled in found],
    )
