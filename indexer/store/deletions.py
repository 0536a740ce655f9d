"""The list of what was deleted, by hash: what a restored backup has to delete again before it serves anybody."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from indexer.books import RecordKey, RequestKind, Subject
from indexer.ledger import Ledger
from indexer.record_state import RecordState
from indexer.store.denials import hash_subject
from memory.database import Database
from memory.queries import Connection, load_queries
from memory.space import PUBLIC

_SQL = load_queries(Path(__file__).parent / "sql" / "deletions.sql")

_PAGE_ROWS = 1000
_BEGINNING = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Deletion:
    """Something of a repo that is gone."""

    repo: str
    subject_sha256: bytes  # as of a takedown
    deleted_at: datetime


@dataclass(frozen=True, slots=True)
class Denial:
    """Something that stays away."""

    subject_sha256: bytes
    denied_at: datetime


@dataclass(frozen=True, slots=True)
class HeldThoughDeleted:
    """What a backup brought back."""

    repo: str
    rkey: str | None  # null: the whole repo
    deleted_at: datetime


async def settle(conn: Connection, ledger: Ledger) -> None:
    """Writes down what a batch deletes; what is parked of the same repos goes where nobody needs it any more.

    What is parked behind the gate would only be thrown away. What is parked of a repo of which a record is taken down
    may hold that record, and nobody can read it yet: it goes, and the repo is fetched.
    """
    gone = list(_gone(ledger))
    if not gone:
        return
    await remember(conn, [Deletion(subject[0], hash_subject(subject), at) for subject, at in gone])
    revs = {row.repo: row.rev for (repo, space, _), _ in gone if (row := ledger.rows[repo, space]).rev is not None}
    await _SQL.drop_parked_behind.execute(conn, repos=list(revs), revs=list(revs.values()))
    if taken_down := {subject[0] for subject, down in ledger.denials.items() if down and subject[2] is not None}:
        for row in await _SQL.drop_parked.fetch(conn, repos=list(taken_down)):
            key = (row["repo"], PUBLIC)
            ledger.request(key, RequestKind.FETCH, "takedown", ledger.rows[key].changed_at)


def _gone(ledger: Ledger) -> Iterable[tuple[Subject, datetime]]:
    """Not in Spaces: what is held of them is served only once their hosts confirm it, also after a restore."""
    for key in ledger.purged & ledger.rows.keys():
        yield (*key, None), ledger.rows[key].changed_at
    for key, state in ledger.records.items():
        if state.changed and key[1] == PUBLIC and (at := _gone_at(key, state, ledger)) is not None:
            yield key, at


def _gone_at(key: RecordKey, state: RecordState, ledger: Ledger) -> datetime | None:
    """When a record went; null: it did not, or it was never there. What a quota keeps out was not deleted."""
    if state.redacted_at is not None:
        return state.redacted_at
    deleted = state.entry is None and state.withheld is None
    was_held = state.held.cid is not None or state.held.invalid_cid is not None
    return state.indexed_at if deleted and (was_held or ledger.denials.get(key)) else None


async def remember(conn: Connection, deletions: Sequence[Deletion]) -> None:
    """Writes deletions down; of one that is known, the newer time counts."""
    await _SQL.insert_deletions.execute(
        conn,
        repos=[each.repo for each in deletions],
        subjects=[each.subject_sha256 for each in deletions],
        times=[each.deleted_at for each in deletions],
    )


async def remember_denials(conn: Connection, denials: Sequence[Denial]) -> None:
    """Takes down again what was."""
    await _SQL.insert_denials_of_old.execute(
        conn, subjects=[each.subject_sha256 for each in denials], times=[each.denied_at for each in denials]
    )


async def delete_access_tokens(database: Database) -> int:
    """Ends all access tokens, for whoever revoked one must not find it to hold again; how many there were."""
    deleted = 0
    while True:
        async with database.connection() as conn:
            rows = await _SQL.delete_access_tokens.execute(conn, at_most=_PAGE_ROWS)
        deleted += rows
        if rows < _PAGE_ROWS:
            return deleted


async def read_deletions(database: Database, since: datetime | None) -> AsyncGenerator[Deletion | Denial]:
    """All that was deleted, in the order of its time, then all that is taken down; of `since` and later."""
    since = since or _BEGINNING
    last = Deletion("", b"", _BEGINNING)
    while True:
        async with database.connection() as conn:
            rows = await _SQL.deletions_since.fetch(
                conn,
                since=since,
                after_at=last.deleted_at,
                after_repo=last.repo,
                after_subject=last.subject_sha256,
                at_most=_PAGE_ROWS,
            )
        for row in rows:
            last = Deletion(row["repo"], row["subject_sha256"], row["deleted_at"])
            yield last
        if len(rows) < _PAGE_ROWS:
            break
    async with database.connection() as conn:
        for row in await _SQL.denials_since.fetch(conn, since=since):
            yield Denial(row["subject_sha256"], row["denied_at"])


async def held_though_deleted(conn: Connection, deletions: Sequence[Deletion]) -> list[HeldThoughDeleted]:
    """What is held of these in public repos, and was indexed before its deletion."""
    rows = await _SQL.held_though_deleted.fetch(
        conn,
        repos=[each.repo for each in deletions],
        subjects=[each.subject_sha256 for each in deletions],
        times=[each.deleted_at for each in deletions],
    )
    return [HeldThoughDeleted(row["repo"], row["rkey"], row["at"]) for row in rows]


async def drop_parked_before(conn: Connection, deletions: Sequence[Deletion]) -> set[str]:
    """Forgets what was parked before something of its repo was deleted: it may be just that; of which repos."""
    newest: dict[str, datetime] = {}
    for each in deletions:
        newest[each.repo] = max(each.deleted_at, newest.get(each.repo, each.deleted_at))
    rows = await _SQL.drop_parked_before.fetch(conn, repos=list(newest), times=list(newest.values()))
    return {row["repo"] for row in rows}
