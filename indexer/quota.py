"""Quotas per repo: the smallest rkeys count, so that the order of arrival decides nothing.

What is indexed of a repo is the longest run of its memories in order of rkey whose number, bytes and edges stay within
the limits. The rest is counted, not stored; places that become free are filled by a fetch.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from indexer.ledger import Ledger, RecordKey
from indexer.record_state import RecordState
from indexer.repo_state import RepoKey, RepoRow
from indexer.store import records as record_rows
from memory.queries import Connection

DROPPED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """What one repo may hold."""

    max_memories: int
    max_bytes: int  # record blocks
    max_edges: int  # `supersedes` entries that point into the same repo and Space


def withhold(ledger: Ledger) -> None:
    """Takes out of the batch what stands behind all that is held while other records are kept out there."""
    for key, freed in ledger.freed.items():
        ledger.rows[key].count(over_quota=-freed)
    edges = {key: edge for key, edge in ledger.quota_edges.items() if ledger.rows[key].over_quota_count > 0}
    for (repo, space, rkey), state in ledger.records.items():
        edge = edges.get((repo, space))
        if edge is not None and rkey > edge and state.withhold():
            ledger.rows[repo, space].count(over_quota=1)


async def settle(
    conn: Connection, ledger: Ledger, changed: Mapping[RecordKey, RecordState], limits: QuotaLimits
) -> list[RecordKey]:
    """Counts what the batch leaves, and drops what then is behind the quota.

    Returns the records whose masks that may change.
    """
    states: dict[RepoKey, list[RecordState]] = defaultdict(list)
    for (repo, space, _), state in changed.items():
        states[repo, space].append(state)
    affected: list[RecordKey] = []
    for key in sorted(states):
        row = ledger.rows[key]
        before = row.usage
        for state in states[key]:
            memories, record_bytes, edges = state.growth()
            row.count(memories=memories, record_bytes=record_bytes, edges=edges)
        affected += await _drop(conn, row, limits)
        shrunk = any(now < then for now, then in zip(row.usage, before, strict=True))
        if row.over_quota_count > 0 and (shrunk or ledger.freed[key]) and _has_room(row, limits):
            ledger.request_refill(key, row.changed_at)
    return affected


def _exceeds(row: RepoRow, limits: QuotaLimits) -> bool:
    return (
        row.memory_count > limits.max_memories
        or row.memory_bytes > limits.max_bytes
        or row.edge_count > limits.max_edges
    )


def _has_room(row: RepoRow, limits: QuotaLimits) -> bool:
    return row.memory_count < limits.max_memories and row.memory_bytes < limits.max_bytes


async def _drop(conn: Connection, row: RepoRow, limits: QuotaLimits) -> list[RecordKey]:
    """Drops from the greatest rkey down until the rest is within the limits."""
    affected: list[RecordKey] = []
    while _exceeds(row, limits) and (last := await record_rows.last_memories(conn, row.key, DROPPED_AT_ONCE)):
        keys: list[RecordKey] = []
        for memory in last:
            if not _exceeds(row, limits):
                break
            edges = len(memory.targets)
            row.count(memories=-1, record_bytes=-memory.record_bytes, edges=-edges, over_quota=1)
            keys.append((*row.key, memory.rkey))
            affected += [(*row.key, rkey) for rkey in (memory.rkey, *memory.targets)]
        await record_rows.delete_memories(conn, keys)
        await record_rows.replace_edges(conn, keys, [])
        await record_rows.forget_versions(conn, row.key, [rkey for _, _, rkey in keys])
    return affected
