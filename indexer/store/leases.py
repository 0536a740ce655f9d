"""Who follows which source, and where each goes on."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

from indexer.store.streams import QUARANTINED_BYTES
from memory.queries import Connection, load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "leases.sql")


@dataclass(frozen=True, slots=True)
class SourceState:
    """What is known of a source; without a row, nothing."""

    cursor: int | None  # null: it was never followed
    stopped_reason: str | None


async def take_lease(conn: Connection, source: str, holder: UUID, ttl: timedelta) -> bool:
    """Takes or renews the lease of a source for `ttl`; False: another daemon has it."""
    return await _SQL.take_lease.fetchval(conn, source=source, holder=holder, ttl=ttl) is not None


async def give_up_lease(conn: Connection, source: str, holder: UUID) -> None:
    """Gives the lease up, if it is ours."""
    await _SQL.give_up_lease.execute(conn, source=source, holder=holder)


async def source_state(conn: Connection, source: str) -> SourceState:
    """Where a source goes on."""
    row = await _SQL.source_state.fetchrow(conn, source=source)
    return SourceState(row["seq"], row["stopped_reason"]) if row else SourceState(None, None)


async def begin_source(conn: Connection, source: str, seq: int, now: datetime) -> None:
    """Stores the cursor of a first start; one that is there stays."""
    await _SQL.begin_source.execute(conn, source=source, seq=seq, now=now)


async def stop_source(conn: Connection, source: str, reason: str, now: datetime) -> None:
    """Marks a source as one that waits for an operator."""
    await _SQL.stop_source.execute(conn, source=source, reason=reason, now=now)


async def note_gap(conn: Connection, source: str, now: datetime) -> None:
    """Notes that frames of a source were lost."""
    await _SQL.note_gap.execute(conn, source=source, now=now)


async def set_cursor(conn: Connection, source: str, seq: int, now: datetime) -> None:
    """Sets the cursor as an operator wants it, and lets a stopped source go on; run it in a transaction."""
    await _SQL.set_cursor.execute(conn, source=source, seq=seq, now=now)
    await _SQL.forget_account_seqs.execute(conn, source=source)


async def times_met(conn: Connection, source: str, previous_seq: int, frame: bytes) -> int:
    """How often these bytes were quarantined at this place."""
    met = await _SQL.times_met.fetchval(conn, source=source, previous_seq=previous_seq, frame=frame[:QUARANTINED_BYTES])
    return 0 if met is None else int(met)
