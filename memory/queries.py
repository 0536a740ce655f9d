"""Named SQL statements out of `store/sql/*.sql`, and what becomes of a driver's failures.

A file holds blocks of `-- name: lock_repos`, a `--` line that says what it is for, and one statement with `:name`
parameters. `load_queries(path).lock_repos` is that statement; call it by one typed function in `store/`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Protocol, cast

import asyncpg
from aiosql.adapters.asyncpg import AsyncPGAdapter
from aiosql.query_loader import QueryLoader
from aiosql.types import AsyncDriverAdapterProtocol

from memory.errors import MemoryAppviewError, Unavailable

Row = asyncpg.Record
Isolation = Literal["read_committed", "repeatable_read", "serializable"]


class Transaction(Protocol):
    """What `Connection.transaction` returns; `async with` it to nest one in `Database.transaction`."""

    async def start(self) -> None: ...
    async def commit(self) -> None: ...
    async def rollback(self) -> None: ...
    async def __aenter__(self) -> object: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...


class Connection(Protocol):
    """What a statement runs on: the part of asyncpg's connections, pooled or not, that we use."""

    async def fetch(self, query: str, *args: object) -> list[Row]: ...
    async def fetchrow(self, query: str, *args: object) -> Row | None: ...
    async def fetchval(self, query: str, *args: object) -> Any: ...
    async def execute(self, query: str, *args: object, timeout: float | None = None) -> str: ...  # noqa: ASYNC109  the driver's
    def transaction(self, *, isolation: Isolation | None = None, readonly: bool = False) -> Transaction: ...
    def terminate(self) -> None: ...


class StatementFailed(MemoryAppviewError):
    """The database refused a statement."""

    def __init__(self, sqlstate: str | None, statement: str | None = None) -> None:
        self.sqlstate = sqlstate
        self.statement = statement
        what = f"statement {statement}" if statement else "a statement"
        super().__init__(f"The database refused {what} (SQLSTATE {sqlstate or 'unknown'}).", sqlstate=sqlstate)


class StatementTimedOut(Unavailable):
    """A statement took longer than any should."""


DRIVER_ERRORS = (asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
DRIVER_FAILURES = (*DRIVER_ERRORS, OSError)  # of a socket, where only the driver is at work

# Class 08 connection, 40 rollback (deadlock, serialization), 53 resources, 57 operator (shutdown, timeout), 58 system;
# 25006: a standby took over. All of them may be gone when the same statement is run again.
_TRANSIENT = ("08", "40", "53", "57", "58", "25006")


def translate(failure: BaseException, statement: str | None = None) -> MemoryAppviewError:
    """The error of ours for one of DRIVER_FAILURES; nothing of its message or detail, they can quote a record."""
    match failure:
        case asyncpg.PostgresError(sqlstate=str(sqlstate)):
            if sqlstate.startswith(_TRANSIENT):
                return Unavailable("The database cannot answer at the moment.", sqlstate=sqlstate)
            return StatementFailed(sqlstate, statement)
        case asyncpg.DataError():  # raised by the driver's own encoders, which speak no SQLSTATE
            return StatementFailed("22000", statement)
        case TimeoutError():
            return StatementTimedOut()
        case _:
            return Unavailable("The connection to the database is lost.")


@contextmanager
def driver_errors() -> Generator[None]:
    """Translates what the driver raises inside, for calls that are no `Statement`: acquire, begin, commit."""
    try:
        yield
    except DRIVER_FAILURES as failure:
        raise translate(failure) from None


@dataclass(frozen=True, slots=True)
class Statement:
    """One SQL statement. Its methods take every parameter by name; all raise `Unavailable` or `StatementFailed`."""

    name: str
    purpose: str
    sql: str  # with $1, $2, …
    parameters: tuple[str, ...]  # in the order of $1, $2, …

    async def fetch(self, conn: Connection, **parameters: object) -> list[Row]:
        """All rows."""
        try:
            return await conn.fetch(self.sql, *self._arguments(parameters))
        except DRIVER_FAILURES as failure:
            raise translate(failure, self.name) from None

    async def fetchrow(self, conn: Connection, **parameters: object) -> Row | None:
        """The first row, if there is one."""
        try:
            return await conn.fetchrow(self.sql, *self._arguments(parameters))
        except DRIVER_FAILURES as failure:
            raise translate(failure, self.name) from None

    async def fetchval(self, conn: Connection, **parameters: object) -> Any:
        """The first column of the first row; None without one."""
        try:
            return await conn.fetchval(self.sql, *self._arguments(parameters))
        except DRIVER_FAILURES as failure:
            raise translate(failure, self.name) from None

    async def execute(self, conn: Connection, **parameters: object) -> int:
        """The number of rows that were inserted, updated, deleted or selected."""
        try:
            status = await conn.execute(self.sql, *self._arguments(parameters))
        except DRIVER_FAILURES as failure:
            raise translate(failure, self.name) from None
        count = status.rpartition(" ")[2]
        return int(count) if count.isdecimal() else 0

    async def execute_for(self, conn: Connection, timeout_s: float) -> None:
        """Runs a statement without parameters that may take longer than all others: so many seconds."""
        try:
            await conn.execute(self.sql, timeout=timeout_s)
        except DRIVER_FAILURES as failure:
            raise translate(failure, self.name) from None

    def _arguments(self, given: dict[str, object]) -> list[object]:
        if len(given) == len(self.parameters):
            try:
                return [given[name] for name in self.parameters]
            except KeyError:
                pass  # as many, but others: told below
        raise TypeError(f"{self.name} takes {', '.join(self.parameters) or 'nothing'}; given: {', '.join(given)}")


class Queries:
    """The statements of some files, as attributes and in the order of the files."""

    def __init__(self, statements: Iterable[Statement]) -> None:
        self._statements: dict[str, Statement] = {}
        for statement in statements:
            if statement.name in self._statements:
                raise ValueError(f"two statements are called {statement.name}")
            self._statements[statement.name] = statement

    def __getattr__(self, name: str) -> Statement:
        try:
            return self._statements[name]
        except KeyError:
            raise AttributeError(f"no statement is called {name}") from None

    def __iter__(self) -> Iterator[Statement]:
        return iter(self._statements.values())


def load_queries(path: Path) -> Queries:
    """Reads one `.sql` file, or all of a folder. ValueError: a name used twice or a `:parameter` that is no name."""
    files = sorted(path.glob("*.sql")) if path.is_dir() else [path]
    return Queries(statement for file in files for statement in _statements(file))


def _statements(file: Path) -> Iterator[Statement]:
    # Of aiosql its parser and its way of numbering parameters; its methods would look for a pool at every call.
    loader = QueryLoader(cast("AsyncDriverAdapterProtocol", AsyncPGAdapter()), None, mandatory_parameters=False)
    for block in loader.load_query_data_from_sql(file.read_text(encoding="utf-8"), [], file):
        names = () if block.signature is None else tuple(block.signature.parameters)[1:]  # the first is `self`
        if f"${len(names) + 1}" in block.sql:
            raise ValueError(f"{block.query_name} in {file.name}: the :2 of a slice [1:2] reads as a parameter")
        purpose = block.doc_comments.partition("\n")[0]
        yield Statement(block.query_name, purpose, block.sql.rstrip().removesuffix(";"), names)
