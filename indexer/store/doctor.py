"""What `doctor` asks the database about itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from memory.queries import Connection, load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "doctor.sql")


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What kind of server it is, and as whom we are there."""

    version_number: int  # 150004 is 15.4
    version: str
    encoding: str  # of the database, as Postgres calls it: `UTF8`
    role: str
    superuser: bool


@dataclass(frozen=True, slots=True)
class TableRights:
    """What may be done with one table. Of the API's role null if there is no such role."""

    table: str
    ours: bool  # we may read and write it
    api_reads: bool | None
    api_changes: bool | None  # in some way
    api_writes: bool | None  # in all ways but truncate


async def server_facts(conn: Connection) -> ServerFacts:
    """Asks for what does not change."""
    row = await _SQL.server_facts.fetchrow(conn)
    assert row is not None
    return ServerFacts(*tuple(row))


async def server_time(conn: Connection) -> datetime:
    """Reads its clock."""
    time: datetime = await _SQL.server_time.fetchval(conn)
    return time


async def server_settings(conn: Connection, names: Sequence[str]) -> dict[str, str]:
    """Those of the settings that the server has."""
    return {row["name"]: row["setting"] for row in await _SQL.server_settings.fetch(conn, names=names)}


async def table_rights(conn: Connection, *, api_role: str) -> list[TableRights]:
    """The rights on each table, by its name."""
    return [TableRights(*tuple(row)) for row in await _SQL.table_rights.fetch(conn, api_role=api_role)]
