"""Rows about repos and their accounts: state, statuses, requests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from indexer.arrivals import SourceKind
from indexer.books import Answer, Request
from indexer.repo_state import RepoKey, RepoRow, RepoState, SourceStatus
from memory.queries import Connection, load_queries

# What is due within that may be claimed: by the clock of who claims it, before which a frame may have waited here.
SOON: Final = timedelta(minutes=2)

_SQL = load_queries(Path(__file__).parent / "sql" / "repos.sql")


def columns(keys: Iterable[RepoKey]) -> tuple[list[str], list[str]]:
    """Two parallel arrays, repos and spaces, as statements take keys."""
    ordered = list(keys)
    return [key[0] for key in ordered], [key[1] for key in ordered]


async def insert_repos(conn: Connection, rows: Sequence[tuple[RepoKey, datetime]]) -> None:
    """Tracks repos from the given times on; those that are tracked stay as they are."""
    repos, spaces = columns(key for key, _ in rows)
    await _SQL.insert_repos.execute(conn, repos=repos, spaces=spaces, times=[at for _, at in rows])


async def lock_repos(conn: Connection, keys: Iterable[RepoKey]) -> dict[RepoKey, RepoRow]:
    """The rows at `keys` that exist, locked until the transaction ends, in the order of their keys."""
    repos, spaces = columns(keys)
    found = await _SQL.lock_repos.fetch(conn, repos=repos, spaces=spaces)
    rows = (RepoRow(row[0], row[1], RepoState(row[2]), *row[3:]) for row in map(tuple, found))
    return {row.key: row for row in rows}


async def update_repos(conn: Connection, rows: Sequence[RepoRow]) -> None:
    """Stores what a batch leaves of its repos."""
    await _SQL.update_repos.execute(
        conn,
        repos=[row.repo for row in rows],
        spaces=[row.space for row in rows],
        states=[row.state for row in rows],
        reasons=[row.reason for row in rows],
        revs=[row.rev for row in rows],
        commit_cids=[row.commit_cid for row in rows],
        data_cids=[row.data_cid for row in rows],
        visibles=[row.visible for row in rows],
        statuses=[row.status for row in rows],
        memory_counts=[row.memory_count for row in rows],
        memory_bytes=[row.memory_bytes for row in rows],
        edge_counts=[row.edge_count for row in rows],
        over_quota_counts=[row.over_quota_count for row in rows],
        quota_edges=[row.quota_edge for row in rows],
        hosts=[row.host for row in rows],
        signing_keys=[row.signing_key for row in rows],
        changed_ats=[row.changed_at for row in rows],
        fetch_tokens=[row.fetch_token for row in rows],
        fetch_afters=[row.fetch_after for row in rows],
        latest_asked_ats=[row.latest_asked_at for row in rows],
        audited_ats=[row.audited_at for row in rows],
        hastened_ats=[row.hastened_at for row in rows],
        invalid_counts=[row.invalid_count for row in rows],
        invalid_edges=[row.invalid_edge for row in rows],
        first_indexed_ats=[row.first_indexed_at for row in rows],
        status_changed_ats=[row.status_changed_at for row in rows],
        entries_added=[row.entries_added for row in rows],
        entry_bytes_added=[row.entry_bytes_added for row in rows],
    )


async def tracked_repos(conn: Connection) -> set[str]:
    """Every DID that is tracked."""
    return {row["repo"] for row in await _SQL.tracked_repos.fetch(conn)}


async def account_statuses(conn: Connection, repos: Iterable[str]) -> dict[str, dict[str, SourceStatus]]:
    """Repo → source → what it last said of the account."""
    found: dict[str, dict[str, SourceStatus]] = {}
    for row in await _SQL.account_statuses.fetch(conn, repos=list(repos)):
        repo, source, kind, seq, active, status, event_time = tuple(row)
        found.setdefault(repo, {})[source] = SourceStatus(source, SourceKind(kind), seq, active, status, event_time)
    return found


async def upsert_account_statuses(conn: Connection, words: Sequence[tuple[str, SourceStatus]]) -> None:
    """Stores newer words, as pairs of a repo and a status."""
    await _SQL.upsert_account_statuses.execute(
        conn,
        repos=[repo for repo, _ in words],
        sources=[word.source for _, word in words],
        source_kinds=[word.kind for _, word in words],
        seqs=[word.seq for _, word in words],
        actives=[word.active for _, word in words],
        statuses=[word.status for _, word in words],
        event_times=[word.event_time for _, word in words],
    )


async def upsert_requests(conn: Connection, requests: Sequence[Request]) -> None:
    """Writes down what must be asked."""
    repos, spaces = columns(request.key for request in requests)
    await _SQL.upsert_requests.execute(
        conn,
        repos=repos,
        spaces=spaces,
        kinds=[request.kind for request in requests],
        reasons=[request.reason for request in requests],
        times=[request.at for request in requests],
    )
    urgent = [request for request in requests if request.urgent]
    if urgent:
        repos, spaces = columns(request.key for request in urgent)
        await _SQL.hasten_requests.execute(
            conn,
            repos=repos,
            spaces=spaces,
            kinds=[request.kind for request in urgent],
            times=[request.at for request in urgent],
            soon=SOON,
        )


async def lock_requests(conn: Connection, requests: Iterable[Request | Answer]) -> None:
    """Locks what there is of these; for who deletes some and writes others."""
    ordered = list(requests)
    repos, spaces = columns(request.key for request in ordered)
    await _SQL.lock_requests.execute(conn, repos=repos, spaces=spaces, kinds=[request.kind for request in ordered])


async def delete_requests(conn: Connection, answered: Sequence[Answer]) -> None:
    """Crosses out what was answered; what was asked for again since its claim is due now."""
    repos, spaces = columns(answer.key for answer in answered)
    await _SQL.delete_requests.execute(
        conn,
        repos=repos,
        spaces=spaces,
        kinds=[answer.kind for answer in answered],
        asked_ats=[answer.asked_at for answer in answered],
    )


async def open_requests(conn: Connection, repos: Iterable[str]) -> list[tuple[str, str, str]]:
    """What waits to be asked about public repos, as (repo, kind, reason)."""
    return [
        (row["repo"], row["kind"], row["reason"]) for row in await _SQL.open_requests.fetch(conn, repos=list(repos))
    ]


async def purge(conn: Connection, keys: Iterable[RepoKey]) -> None:
    """Deletes everything of these repos but their rows in `repos`, and what signs their accounts in."""
    repos, spaces = columns(keys)
    await _SQL.purge_memories.execute(conn, repos=repos, spaces=spaces)
    await _SQL.purge_embeddings.execute(conn, repos=repos, spaces=spaces)
    await _SQL.purge_embedding_requests.execute(conn, repos=repos, spaces=spaces)
    await _SQL.purge_edges.execute(conn, repos=repos, spaces=spaces)
    await _SQL.purge_versions.execute(conn, repos=repos, spaces=spaces)
    await _SQL.purge_invalid_records.execute(conn, repos=repos, spaces=spaces)
    accounts = [repo for repo, space in zip(repos, spaces, strict=True) if not space]
    await _SQL.purge_parked_commits.execute(conn, repos=accounts)
    await _SQL.purge_access_tokens.execute(conn, repos=accounts)


async def ping(conn: Connection) -> None:
    """Returns if the database answers."""
    await _SQL.ping.fetchval(conn)
