"""Connections to Postgres: opened, shared out and closed, with the driver's errors in our terms.

`connect_database` is the way in for a service, `open_database` for what has a URL already. Both raise `Misconfigured`
for what must be mended and `Unavailable` for what may pass.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Protocol, cast

import asyncpg

from memory.embedded import hold_cluster
from memory.errors import Misconfigured, Unavailable
from memory.queries import DRIVER_ERRORS, DRIVER_FAILURES, Connection, Isolation, driver_errors, translate
from memory.schema import apply_migrations, pending_migrations
from memory.settings import DatabaseSettings

CONNECT_TIMEOUT_S: Final = 10
COMMAND_TIMEOUT_S: Final = 60
CLOSE_TIMEOUT_S: Final = 3
# A statement that is given up is cancelled at the server; one that says nothing of it loses its connection.
GIVE_UP_TIMEOUT_S: Final = 2
_STATEMENT_CACHE: Final = 500  # more than there are statements: each is prepared once a connection
_SESSION: Final = {
    "jit": "off",  # compiles for longer than our queries run
    "timezone": "UTC",
    "idle_in_transaction_session_timeout": f"{COMMAND_TIMEOUT_S}s",  # a process that hangs holds no rows for ever
}


class Pool(Protocol):
    """The part of asyncpg's pool that we use."""

    def acquire(self) -> Awaitable[Connection]: ...
    def release(self, connection: Connection, *, timeout: float) -> Awaitable[None]: ...
    def close(self) -> Awaitable[None]: ...
    def terminate(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Database:
    """A pool of connections."""

    pool: Pool

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        """Lends a connection; each statement is its own transaction."""
        with driver_errors():
            lent = await self.pool.acquire()
        try:
            yield lent
        except DRIVER_ERRORS as failure:
            raise translate(failure) from None
        finally:
            with suppress(*DRIVER_FAILURES):  # it is closed then; how the block ended stands, a cancellation above all
                await self.pool.release(lent, timeout=GIVE_UP_TIMEOUT_S)

    @asynccontextmanager
    async def transaction(
        self, *, isolation: Isolation | None = None, readonly: bool = False
    ) -> AsyncGenerator[Connection]:
        """Lends a connection in a transaction that commits at the end, or rolls back if anything is raised inside."""
        async with self.connection() as conn:
            transaction = conn.transaction(isolation=isolation, readonly=readonly)
            try:
                await transaction.start()  # whoever is cancelled in it leaves one open
                yield conn
            except BaseException:
                with suppress(*DRIVER_FAILURES):  # a lost connection has rolled back; the first error tells more
                    async with asyncio.timeout(GIVE_UP_TIMEOUT_S):
                        await transaction.rollback()
                raise
            with driver_errors():
                await transaction.commit()


@asynccontextmanager
async def connect_database(
    settings: DatabaseSettings, *, application_name: str, connections: int
) -> AsyncGenerator[Database]:
    """The database of the settings, its schema up to date; the embedded one is started and migrated when needed.

    That start blocks the event loop, for there is nothing to do without a database: connect first.
    """
    if settings.url is None:
        with hold_cluster(settings.data_dir) as cluster:
            apply_migrations(cluster.url())
            async with open_database(
                cluster.url(), application_name=application_name, connections=connections
            ) as database:
                yield database
        return
    url = settings.url.get_secret_value()
    async with open_database(url, application_name=application_name, connections=connections) as database:
        async with database.connection() as conn:
            pending = await pending_migrations(conn)
        if pending:
            missing = ", ".join(file.stem for file in pending)
            raise Misconfigured(
                f"The database lacks migrations ({missing}): run `python -m migrations up`.", setting="DATABASE_URL"
            )
        yield database


@asynccontextmanager
async def open_database(url: str, *, application_name: str, connections: int) -> AsyncGenerator[Database]:
    """A pool of up to so many connections to that URL, one of them open from the start."""
    pool = await _open_pool(url, application_name, connections)
    try:
        yield Database(pool)
    finally:
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await pool.close()
        except DRIVER_FAILURES:
            pool.terminate()


async def _keep_as_it_is(_: object) -> None:
    """Nothing of ours sets a session's state, and transactions end before a connection is given back: a reset between
    two uses would only cost a round trip.
    """


async def _open_pool(url: str, application_name: str, connections: int) -> Pool:
    try:
        pool = await asyncpg.create_pool(  # pyright: ignore[reportUnknownMemberType]  it has no types
            url,
            min_size=1,
            max_size=connections,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=COMMAND_TIMEOUT_S,
            statement_cache_size=_STATEMENT_CACHE,
            reset=_keep_as_it_is,
            max_cached_statement_lifetime=0,
            server_settings={"application_name": application_name, **_SESSION},
        )
        return cast("Pool", pool)
    except (asyncpg.InvalidAuthorizationSpecificationError, asyncpg.InvalidCatalogNameError) as failure:
        raise Misconfigured(
            f"The database refuses us (SQLSTATE {failure.sqlstate}): mend user, password or name in DATABASE_URL. "
            "A database that does not exist yet is made by `python -m migrations up`.",
            setting="DATABASE_URL",
        ) from None
    except ValueError:  # asyncpg's error for a URL, which it quotes
        raise Misconfigured("DATABASE_URL is no URL that the driver understands.", setting="DATABASE_URL") from None
    except OSError:
        raise Unavailable("The database of DATABASE_URL does not answer.") from None
    except DRIVER_ERRORS as failure:
        raise translate(failure) from None
