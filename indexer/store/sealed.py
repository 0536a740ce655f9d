"""Sealed credentials, to be sealed by another key."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from memory.queries import Connection, load_queries

_QUERIES: Final = load_queries(Path(__file__).parent / "sql" / "sealed.sql")


@dataclass(frozen=True, slots=True, repr=False)
class SealedRow:
    """A credential as it is kept: of a viewer (`repo`), an access token and a Space."""

    repo: str
    token: str
    space: str
    sealed: bytes


BEFORE_ALL: Final = SealedRow("", "", "", b"")


async def load_sealed_by_others(conn: Connection, key_id: str, after: SealedRow, at_most: int) -> list[SealedRow]:
    """Credentials that another key seals, in the order of their keys."""
    rows = await _QUERIES.sealed_by_other_keys.fetch(
        conn, repo=after.repo, token=after.token, space=after.space, key_id=key_id, at_most=at_most
    )
    return [SealedRow(*row) for row in rows]


async def replace_sealed(conn: Connection, row: SealedRow, resealed: bytes, key_id: str) -> bool:
    """Keep it as it was sealed anew; False if it is another one, or gone, by now."""
    replaced = await _QUERIES.replace_sealed.execute(
        conn,
        repo=row.repo,
        token=row.token,
        space=row.space,
        sealed=row.sealed,
        resealed=resealed,
        key_id=key_id,
    )
    return replaced == 1
