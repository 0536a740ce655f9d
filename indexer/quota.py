"""Quotas per repo: the smallest rkeys count, so that the order of arrival decides nothing.

What is indexed of a repo is the longest run of its memories in order of rkey whose number, bytes and edges stay within the
limits. The rest is counted, not stored; places that become free are filled by a fetch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from indexer.arrivals import CommitArrived
from indexer.ledger import Ledger, RecordKey
from indexer.record_state import RecordState
from indexer.repo_state import RepoKey, RepoRow
from indexer.store import records as record_rows
from memory.queries import Connection


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """What one repo may hold."""

    max_memories: int
    max_bytes: int  # record blocks
    max_edges: int  # `supersedes` entries that point into the same repo and Space


async def enforce(
    conn: Connection, ledger: Ledger, changed: Mapping[RecordKey, RecordState], limits: QuotaLimits
) -> list[RecordKey]:
    """Drops what the batch left behind the quota; returns the records whose masks that may change."""
    affected: list[RecordKey] = []
    for key in sorted({(repo, space) for repo, space, _ in changed}):
        row = ledger.rows[key]
        if _exceeds(row, limits):
            affected += await _drop(conn, row, limits)
        elif row.over_quota_count > 0 and _has_room(key, changed):
            ledger.request_refill(key, row.changed_at)
    return affected


def _exceeds(row: RepoRow, limits: QuotaLimits) -> bool:
    return (
        row.memory_count > limits.max_memories
        or row.memory_bytes > limits.max_bytes
        or row.edge_count > limits.max_edges
    )


def _has_room(key: RepoKey, changed: Mapping[RecordKey, RecordState]) -> bool:
    growth = [state.growth() for record, state in changed.items() if record[:2] == key]
    return any(sum(column) < 0 for column in zip(*growth, strict=True))


async def _drop(conn: Connection, row: RepoRow, limits: QuotaLimits) -> list[RecordKey]:
    behind = await record_rows.records_over_quota(
        conn, row.key, max_memories=limits.max_memories, max_bytes=limits.max_bytes, max_edges=limits.max_edges
    )
    keys = [(row.repo, row.space, record.rkey) for record in behind]
    await record_rows.delete_memories(conn, keys)
    await record_rows.replace_edges(conn, keys, [])
    await record_rows.forget_versions(conn, row.key, [record.rkey for record in behind])
    row.count(
        memories=-len(behind),
        record_bytes=-sum(record.record_bytes for record in behind),
        edges=-sum(len(record.targets) for record in behind),
        over_quota=len(behind),
    )
    targets = {(row.repo, row.space, target) for record in behind for target in record.targets}
    return keys + sorted(targets)


def unstorable(arrival: CommitArrived) -> CommitArrived:
    """The same commit, judged as inconsistent: the database cannot hold what it brings."""
    return replace(arrival, commit=replace(arrival.commit, fault="unstorable"), ops=())
