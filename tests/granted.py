"""Spaces as the indexer holds them, and grants as the API writes them, for tests of what may be read.

await hold(database, SPACE)                               # fresh until tomorrow, by the database's clock
token = await grant(database, ALICE, SPACE, now=NOW)      # a new access token, which may read it for an hour
await grant(database, ALICE, WORK, now=NOW, token=token)  # and this too
"""

from __future__ import annotations

from datetime import datetime, timedelta

from appview.store.access import add_access_token
from appview.tokens import AccessToken, make_access_token
from memory.database import Database

HOUR = timedelta(hours=1)


async def hold(database: Database, *spaces: object, fresh: bool = True, state: str = "ready") -> None:
    """What the indexer writes of Spaces that it holds; `fresh`: what it holds may be read until tomorrow."""
    async with database.transaction() as conn:
        for space in map(str, spaces):
            await conn.execute(
                "insert into spaces (repo, space, state, opened_at, fresh_until, credentialed_until)"
                " values (split_part($1, '/', 3), $1, $2, now(),"
                " case when $3 then now() + '1 day' else '-infinity' end, now() + '1 day')"
                " on conflict (repo, space) do update set state = excluded.state, fresh_until = excluded.fresh_until",
                space,
                state,
                fresh,
            )


async def make_token(database: Database, viewer: str, *, now: datetime, lasts: timedelta = HOUR * 24) -> AccessToken:
    """An access token of a viewer."""
    token = make_access_token(viewer)
    async with database.transaction() as conn:
        assert await add_access_token(conn, token, "x", created_at=now, expires_at=now + lasts)
    return token


async def grant(
    database: Database,
    viewer: str,
    *spaces: object,
    now: datetime,
    lasts: timedelta = HOUR,
    token: AccessToken | None = None,
) -> AccessToken:
    """Grants Spaces to an access token of a viewer, or to a new one."""
    token = token or await make_token(database, viewer, now=now)
    async with database.transaction() as conn:
        for space in map(str, spaces):
            await conn.execute(
                "insert into grants values ($1, $2, $3, $4, $5)", viewer, token.id, space, now, now + lasts
            )
            await conn.execute(
                "insert into credentials values ($1, $2, $3, '', 'k', $4)", viewer, token.id, space, now + lasts
            )
    return token


async def texts(database: Database, query: str, *values: object) -> list[str]:
    """The first column of all rows, in order."""
    async with database.connection() as conn:
        return sorted(row[0] for row in await conn.fetch(query, *values))
