"""What an operator took down, by hash: the list itself tells nobody what was on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from hashlib import sha256
from pathlib import Path

from indexer.books import RecordKey, Subject
from indexer.repo_state import RepoKey
from memory.identifiers import COLLECTION
from memory.queries import Connection, load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "denials.sql")


async def denied(conn: Connection, repos: Iterable[RepoKey], records: Iterable[RecordKey]) -> set[Subject]:
    """Which of these repos and records are taken down."""
    if not await _SQL.any_denials.fetchval(conn):
        return set()
    hashes: dict[bytes, Subject] = {hash_subject((*key, None)): (*key, None) for key in repos}
    hashes |= {hash_subject(key): key for key in records}
    rows = await _SQL.denied_subjects.fetch(conn, subjects=list(hashes))
    return {hashes[row["subject_sha256"]] for row in rows}


async def store_denials(conn: Connection, denials: Mapping[Subject, bool], now: datetime | None) -> None:
    """Takes down what maps to True, and lifts what maps to False; `now` may be None where nothing is taken down."""
    await _SQL.insert_denials.execute(conn, subjects=[hash_subject(s) for s, down in denials.items() if down], now=now)
    await _SQL.delete_denials.execute(conn, subjects=[hash_subject(s) for s, down in denials.items() if not down])


def hash_subject(subject: Subject) -> bytes:
    """SHA-256 of the DID, or of the record's at-uri."""
    repo, space, rkey = subject
    text = repo if rkey is None else f"at://{repo}/{COLLECTION}/{rkey}"
    return sha256((f"{space} {text}" if space else text).encode()).digest()
