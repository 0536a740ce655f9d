"""Rows about records: memories, edges, versions, invalid records, and what a quota keeps out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from indexer.books import RecordKey
from indexer.interpret import InvalidMemory, StoredMemory, storable
from indexer.record_state import EMPTY_SHA256, HeldRecord, NewVersion, Operation
from indexer.repo_state import RepoKey
from memory.queries import Connection, load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "records.sql")


def record_columns(keys: Iterable[RecordKey]) -> dict[str, object]:
    """Three parallel arrays, repos, spaces and rkeys, as statements take keys."""
    ordered = list(keys)
    return {
        "repos": [key[0] for key in ordered],
        "spaces": [key[1] for key in ordered],
        "rkeys": [key[2] for key in ordered],
    }


_Value = TypeVar("_Value")


def _column(values: Iterable[_Value]) -> list[_Value]:
    """Values for one column of an `unnest`, which fills what is missing with nulls: none at all if all are null.

    The driver looks at each value several times, and most columns of most batches are empty.
    """
    column = list(values)
    return column if any(value is not None for value in column) else []


async def held_records(conn: Connection, keys: Iterable[RecordKey]) -> dict[RecordKey, HeldRecord]:
    """What is held at each of `keys`."""
    held: dict[RecordKey, HeldRecord] = {}
    for row in await _SQL.held_records.fetch(conn, **record_columns(keys)):
        repo, space, rkey, cid, version, effective_at, first_indexed_at, size, component, targets = row[:10]
        replaced, last_number, last_operation, invalid_cid, content_bytes, masked = row[10:]
        held[repo, space, rkey] = HeldRecord(
            cid=cid,
            version=version,
            effective_at=effective_at,
            first_indexed_at=first_indexed_at,
            record_bytes=size,
            targets=tuple(targets),
            replaced=replaced,
            component=component,
            last_number=last_number,
            last_operation=Operation(last_operation) if last_operation else None,
            invalid_cid=invalid_cid,
            content_bytes=content_bytes,
            masked=masked,
        )
    return held


async def keep_overwritten(conn: Connection, rows: Sequence[tuple[RecordKey, datetime]]) -> None:
    """Moves held contents into their versions; run it before the new contents are stored."""
    await _SQL.keep_overwritten.execute(conn, **record_columns(key for key, _ in rows), times=[at for _, at in rows])


async def redact_versions(conn: Connection, rows: Sequence[tuple[RecordKey, datetime]]) -> None:
    """Erases every version at these keys."""
    await _SQL.redact_versions.execute(conn, **record_columns(key for key, _ in rows), times=[at for _, at in rows])


async def insert_versions(conn: Connection, rows: Sequence[tuple[RecordKey, NewVersion]]) -> None:
    """Stores observed states; only overwritten ones carry their record."""
    entries = [version.entry for _, version in rows]
    await _SQL.insert_versions.execute(
        conn,
        **record_columns(key for key, _ in rows),
        numbers=[version.number for _, version in rows],
        operations=[version.operation for _, version in rows],
        cids=[entry and entry.cid for entry in entries],
        scopes=_column(entry and storable(entry.memory.scope) for entry in entries),
        content_bytes=[entry.content_bytes if entry else 0 for entry in entries],
        content_sha256s=[entry.content_sha256 if entry else EMPTY_SHA256 for entry in entries],
        records=_column(
            version.entry.record if version.entry and version.overwritten_at else None for _, version in rows
        ),
        observed_ats=[version.observed_at for _, version in rows],
        overwritten_ats=_column(version.overwritten_at for _, version in rows),
        redacted_ats=_column(version.redacted_at for _, version in rows),
        named_cids=[version.named_cid for _, version in rows],
    )


async def delete_memories(conn: Connection, keys: Iterable[RecordKey]) -> None:
    """Deletes memories; their edges are deleted apart."""
    await _SQL.delete_memories.execute(conn, **record_columns(keys))


@dataclass(frozen=True, slots=True)
class CurrentMemory:
    """A row for `memories`."""

    key: RecordKey
    entry: StoredMemory
    rev: str
    version: int
    first_indexed_at: datetime
    indexed_at: datetime


async def upsert_memories(conn: Connection, rows: Sequence[CurrentMemory]) -> None:
    """Stores memories as they are now, without touching their masks, nor what their repos count."""
    memories = [row.entry.memory for row in rows]
    await _SQL.upsert_memories.execute(
        conn,
        **record_columns(row.key for row in rows),
        cids=[row.entry.cid for row in rows],
        revs=[row.rev for row in rows],
        records=[row.entry.record for row in rows],
        contents=[storable(memory.content) for memory in memories],
        kinds=_column(storable(memory.kind) for memory in memories),
        scopes=_column(storable(memory.scope) for memory in memories),
        agents=_column(storable(memory.agent) for memory in memories),
        clients=_column(storable(memory.client) for memory in memories),
        created_ats=[memory.created_at for memory in memories],
        updated_ats=_column(memory.updated_at for memory in memories),
        first_indexed_ats=[row.first_indexed_at for row in rows],
        indexed_ats=[row.indexed_at for row in rows],
        occurred_froms=_column(memory.occurred and memory.occurred.start for memory in memories),
        occurred_tos=_column(memory.occurred and memory.occurred.end for memory in memories),
        versions=[row.version for row in rows],
        content_bytes=[row.entry.content_bytes for row in rows],
        terms=[row.entry.terms for row in rows],
        term_counts=[row.entry.term_count for row in rows],
    )


async def replace_edges(conn: Connection, changed: Iterable[RecordKey], edges: Sequence[tuple[RecordKey, str]]) -> None:
    """Deletes the edges of `changed`, then stores `edges`, as pairs of a key and the rkey that it replaces."""
    await _SQL.delete_edges.execute(conn, **record_columns(changed))
    await _SQL.insert_edges.execute(conn, **record_columns(key for key, _ in edges), targets=[to for _, to in edges])


async def delete_invalid_records(conn: Connection, keys: Iterable[RecordKey]) -> None:
    """Forgets invalid records."""
    await _SQL.delete_invalid_records.execute(conn, **record_columns(keys))


async def upsert_invalid_records(conn: Connection, rows: Sequence[tuple[RecordKey, InvalidMemory, datetime]]) -> None:
    """Stores why records are invalid, with the beginning of each."""
    await _SQL.upsert_invalid_records.execute(
        conn,
        **record_columns(key for key, _, _ in rows),
        cids=[entry.cid for _, entry, _ in rows],
        reasons=[entry.reason for _, entry, _ in rows],
        excerpts=[entry.excerpt for _, entry, _ in rows],
        seen_ats=[at for _, _, at in rows],
    )


@dataclass(frozen=True, slots=True)
class SizedMemory:
    """What a memory takes of a quota."""

    rkey: str
    record_bytes: int
    targets: tuple[str, ...]


async def last_memories(conn: Connection, key: RepoKey, count: int) -> list[SizedMemory]:
    """The memories with the greatest rkeys, from the greatest down."""
    rows = await _SQL.last_memories.fetch(conn, repo=key[0], space=key[1], count=count)
    return [SizedMemory(row["rkey"], row["record_bytes"], tuple(row["targets"])) for row in rows]


async def drop_last_invalid_records(conn: Connection, key: RepoKey, count: int) -> list[str]:
    """Forgets so many invalid records, those with the greatest rkeys; says which."""
    rows = await _SQL.drop_last_invalid_records.fetch(conn, repo=key[0], space=key[1], count=count)
    return [row["rkey"] for row in rows]


async def drop_invalid_records_from(conn: Connection, key: RepoKey, edge: str) -> list[str]:
    """Forgets the invalid records at `edge` and behind it; says which."""
    rows = await _SQL.drop_invalid_records_from.fetch(conn, repo=key[0], space=key[1], edge=edge)
    return [row["rkey"] for row in rows]


async def forget_versions(conn: Connection, key: RepoKey, rkeys: Sequence[str]) -> None:
    """Deletes every version at these rkeys."""
    await _SQL.forget_versions.execute(conn, repo=key[0], space=key[1], rkeys=rkeys)


async def analyze(conn: Connection) -> None:
    """Has Postgres count the rows of these tables, for its plans."""
    await _SQL.analyze.execute(conn)
