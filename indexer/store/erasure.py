"""Statements that take what is gone out of the files. They take minutes on a large index, and run in no transaction."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from memory.queries import Connection, load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "erasure.sql")

TIMEOUT_S: Final = 8 * 3600.0

_REWRITES: Final = {
    "memories": _SQL.rewrite_memories,
    "memory_versions": _SQL.rewrite_versions,
    "invalid_records": _SQL.rewrite_invalid_records,
    "parked_commits": _SQL.rewrite_parked_commits,
    "quarantine": _SQL.rewrite_quarantine,
    "embeddings": _SQL.rewrite_embeddings,
    "embedding_requests": _SQL.rewrite_embedding_requests,
    "pg_statistic": _SQL.rewrite_samples,  # last: the others are sampled when they are written
}
REWRITTEN: Final = tuple(_REWRITES)


@dataclass(frozen=True, slots=True)
class State:
    """When it was last seen to, and what was changed by then and by now: equal where nothing was changed since."""

    last_at: datetime | None
    last_changes: str
    now: datetime  # the database's
    changes: str


async def load_state(conn: Connection) -> State:
    """How it stands."""
    row = await _SQL.load_erasure.fetchrow(conn)
    if row is None:
        raise AssertionError("it selects constants")
    at, _, changes = (row["last"] or "").partition(" ")
    return State(datetime.fromisoformat(at) if at else None, changes, row["now"], row["changes"])


async def store_state(conn: Connection, at: datetime, changes: str) -> None:
    """It was seen to at `at`, of all that `changes` counts."""
    await _SQL.store_erasure.execute(conn, value=f"{at.isoformat()} {changes}")


async def try_lock(conn: Connection) -> bool:
    """Whether this session is now the one that erases."""
    return bool(await _SQL.try_lock_erasure.fetchval(conn))


async def unlock(conn: Connection) -> None:
    """It no longer is."""
    await _SQL.unlock_erasure.execute(conn)


async def limit_lock_waits(conn: Connection, timeout_s: int) -> None:
    """How long this session waits for locks; 0: for ever."""
    await _SQL.limit_lock_waits.execute(conn, timeout=f"{timeout_s}s")


async def table_bytes(conn: Connection) -> dict[str, int]:
    """What each of REWRITTEN takes on disk."""
    return {row["name"]: row["bytes"] for row in await _SQL.table_bytes.fetch(conn)}


async def vacuum(conn: Connection) -> None:
    """Forgets dead rows, and samples of them."""
    await _SQL.vacuum_contents.execute_for(conn, TIMEOUT_S)
    await _SQL.vacuum_samples.execute_for(conn, TIMEOUT_S)


async def rebuild_terms(conn: Connection) -> None:
    """Builds the index of terms beside the old one, which serves meanwhile."""
    await _SQL.drop_broken_index.execute_for(conn, TIMEOUT_S)
    await _SQL.drop_replaced_index.execute_for(conn, TIMEOUT_S)
    await _SQL.rebuild_terms.execute_for(conn, TIMEOUT_S)


async def rewrite(conn: Connection, table: str) -> None:
    """Writes one of REWRITTEN anew, and its indexes; nobody reads it meanwhile."""
    await _REWRITES[table].execute_for(conn, TIMEOUT_S)
