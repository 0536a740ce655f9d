"""Which Spaces an access token may read, what viewers grant and end, and what authorities say of their Spaces."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from memory.queries import Connection, load_queries
from memory.space import ReadableSpaces, SpaceRef

MAX_GRANTS: Final = 1_000
"""Spaces that one access token may read at a time."""

MAX_NOTICES: Final = 10_000
"""Authors of one Space of whom something is waiting to be acted on; of more, a sweep will tell."""

_QUERIES: Final = load_queries(Path(__file__).parent / "sql" / "grants.sql")
_REQUESTS: Final = load_queries(Path(__file__).parent / "sql" / "requests.sql")


@dataclass(frozen=True, slots=True, repr=False)
class Grant:
    """A Space that is granted to an access token; `ready`: what is held of it may be read."""

    space: str
    granted_at: datetime
    expires_at: datetime
    ready: bool


@dataclass(frozen=True, slots=True, repr=False)
class SealedCredential:
    """What reads the Space's repos for a grant, and by which key it is sealed."""

    sealed: bytes
    key_id: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, repr=False)
class ToldWrite:
    """Where an author's repo is said to stand, true or not. `hash` has 32 bytes."""

    author: str
    rev: str
    hash: bytes


async def load_readable_spaces(conn: Connection, repo: str, token: str, *, now: datetime) -> ReadableSpaces:
    """The Spaces that an access token of a viewer may read now: the one place where they come from."""
    rows = await _QUERIES.readable_spaces.fetch(conn, repo=repo, token=token, now=now)
    return ReadableSpaces(frozenset(row["space"] for row in rows))


async def list_grants(conn: Connection, repo: str, token: str, *, now: datetime) -> list[Grant]:
    """What is granted to an access token of a viewer and has not expired, by Space; `MAX_GRANTS` at most."""
    rows = await _QUERIES.grants_of.fetch(conn, repo=repo, token=token, now=now, at_most=MAX_GRANTS)
    return [Grant(*row) for row in rows]


async def is_held(conn: Connection, space: SpaceRef) -> bool:
    """Whether what is held of a Space may be read by those to whom it is granted."""
    return bool(await _QUERIES.is_held.fetchval(conn, repo=space.authority, space=str(space)))


async def is_authority(conn: Connection, did: str) -> bool:
    """Whether somebody governs a Space that was opened here."""
    return bool(await _QUERIES.is_authority.fetchval(conn, repo=did))


async def hold_token(conn: Connection, repo: str, token: str, *, now: datetime) -> datetime | None:
    """Until when an access token holds, which cannot be revoked until the transaction ends; None: it holds no more."""
    expires_at: datetime | None = await _REQUESTS.hold_access_token.fetchval(conn, repo=repo, id=token, now=now)
    return expires_at


async def add_grant(
    conn: Connection,
    repo: str,
    token: str,
    space: SpaceRef,
    credential: SealedCredential,
    *,
    granted_at: datetime,
    expires_at: datetime,
) -> bool:
    """Let an access token read a Space, and have the indexer follow it; False if it reads as many as may be.

    In a transaction, which holds a lock.
    """
    # Before anything of this transaction is read: what another added is counted.
    await _REQUESTS.lock_access_tokens.fetchval(conn, repo=repo)
    added = await _REQUESTS.add_grant.execute(
        conn,
        repo=repo,
        token=token,
        space=str(space),
        granted_at=granted_at,
        expires_at=expires_at,
        at_most=MAX_GRANTS,
    )
    if not added:
        return False
    await _REQUESTS.put_credential.execute(
        conn,
        repo=repo,
        token=token,
        space=str(space),
        sealed=credential.sealed,
        key_id=credential.key_id,
        expires_at=credential.expires_at,
    )
    await _REQUESTS.put_opened.execute(conn, repo=space.authority, space=str(space))
    return True


async def delete_grant(conn: Connection, repo: str, space: str, *, token: str | None) -> None:
    """Let an access token of a viewer, or None for all of them, read a Space no more. In a transaction."""
    if token is None:
        await _REQUESTS.delete_grants_of_space.execute(conn, repo=repo, space=space)
        await _REQUESTS.delete_credentials_of_space.execute(conn, repo=repo, space=space)
    else:
        await _REQUESTS.delete_grant.execute(conn, repo=repo, token=token, space=space)
        await _REQUESTS.delete_credential.execute(conn, repo=repo, token=token, space=space)


async def delete_grants_of_token(conn: Connection, repo: str, token: str) -> None:
    """Let an access token read no Space any more. In the transaction that has deleted it: then none is added."""
    await _REQUESTS.delete_grants_of_token.execute(conn, repo=repo, token=token)
    await _REQUESTS.delete_credentials_of_token.execute(conn, repo=repo, token=token)


async def put_write(conn: Connection, space: SpaceRef, told: ToldWrite) -> None:
    """Leave it to the indexer that an author wrote in a Space, if that was opened here."""
    await _REQUESTS.put_written.execute(
        conn,
        repo=space.authority,
        space=str(space),
        author=told.author,
        rev=told.rev,
        hash=told.hash,
        at_most=MAX_NOTICES,
    )


async def put_deletion(conn: Connection, space: SpaceRef) -> None:
    """Leave it to the indexer to purge a Space, if that was opened here. Nobody reads it from now on."""
    await _REQUESTS.put_deleted.execute(conn, repo=space.authority, space=str(space))
