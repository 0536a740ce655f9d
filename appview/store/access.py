"""Access tokens and used service-auth tokens: what viewers asked for, which the API writes itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from appview.tokens import AccessToken
from memory.queries import Connection, load_queries

MAX_ACCESS_TOKENS: Final = 100
"""Access tokens that one viewer may have at a time."""

_QUERIES: Final = load_queries(Path(__file__).parent / "sql" / "access.sql")
_REQUESTS: Final = load_queries(Path(__file__).parent / "sql" / "requests.sql")


@dataclass(frozen=True, slots=True, repr=False)
class StoredToken:
    """An access token as its viewer sees it: all but itself."""

    id: str
    name: str
    created_at: datetime
    expires_at: datetime


async def is_token_kept(conn: Connection, token: AccessToken, *, now: datetime) -> bool:
    """Whether that access token was made, is not revoked and has not expired."""
    row = await _QUERIES.access_token.fetchrow(conn, repo=token.did, id=token.id)
    return row is not None and token.matches(row["token_sha256"]) and now < row["expires_at"]


async def list_access_tokens(conn: Connection, repo: str, *, now: datetime) -> list[StoredToken]:
    """The access tokens of a viewer that have not expired, the newest first; `MAX_ACCESS_TOKENS` at most."""
    rows = await _QUERIES.access_tokens_of.fetch(conn, repo=repo, now=now, at_most=MAX_ACCESS_TOKENS)
    return [StoredToken(*row) for row in rows]


async def use_service_token(conn: Connection, repo: str, jti_sha256: bytes, *, expires_at: datetime) -> bool:
    """Note that a token of that issuer is used; False if it was before."""
    used = await _REQUESTS.use_service_token.execute(conn, repo=repo, jti_sha256=jti_sha256, expires_at=expires_at)
    return used == 1


async def add_access_token(
    conn: Connection, token: AccessToken, name: str, *, created_at: datetime, expires_at: datetime
) -> bool:
    """Keep a new access token; False if its viewer has as many as may be. In a transaction, which holds a lock."""
    await _REQUESTS.lock_access_tokens.fetchval(conn, repo=token.did)
    added = await _REQUESTS.add_access_token.execute(
        conn,
        repo=token.did,
        id=token.id,
        token_sha256=token.digest(),
        name=name,
        created_at=created_at,
        expires_at=expires_at,
        at_most=MAX_ACCESS_TOKENS,
    )
    return added == 1


async def delete_access_token(conn: Connection, repo: str, token_id: str) -> bool:
    """Revoke an access token of a viewer; False if there is none of that id. What is granted to it is left."""
    return await _REQUESTS.delete_access_token.execute(conn, repo=repo, id=token_id) == 1
