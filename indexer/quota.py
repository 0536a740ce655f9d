"""Quotas per repo: the smallest rkeys count, so that the order of arrival decides nothing.

What is indexed of a repo is the longest run of its memories in order of rkey whose number, bytes and edges stay within
the limits. The rest, from the first that does not fit on, is counted and not stored. Its beginning is the quota edge:
every memory before it is held, none at it or behind it is, whatever its size. The edge moves down here, when more comes
before it; it moves up only by a fetch, which is asked for when what stands at the edge may fit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from indexer.books import RecordKey
from indexer.ledger import Ledger
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
    """Takes out of the batch what stands at the quota edge of its repo or behind it.

    Where the batch rewrites or deletes all that was kept out, the edge is gone: all contents are known again.
    """
    for key, freed in ledger.freed.items():
        ledger.rows[key].count(over_quota=-freed)
    for (repo, space, rkey), state in ledger.records.items():
        row = ledger.rows[repo, space]
        if row.quota_edge is not None and rkey >= row.quota_edge and state.withhold():
            row.count(over_quota=1)


async def settle(
    conn: Connection, ledger: Ledger, changed: Mapping[RecordKey, RecordState], limits: QuotaLimits
) -> list[RecordKey]:
    """Counts what the batch leaves, drops what no longer fits, and asks for what may fit now.

    Returns the records whose masks that may change.
    """
    states: dict[RepoKey, list[RecordState]] = defaultdict(list)
    for (repo, space, _), state in changed.items():
        states[repo, space].append(state)
    affected: list[RecordKey] = []
    for key in sorted(states):
        row = ledger.rows[key]
        edge, before = row.quota_edge, row.usage
        for state in states[key]:
            memories, record_bytes, edges = state.growth()
            row.count(memories=memories, record_bytes=record_bytes, edges=edges)
        affected += await _drop(conn, row, limits)
        if edge is not None and edge == row.quota_edge and _has_room(row, limits):  # a new edge is known not to fit
            shrunk = any(now < then for now, then in zip(row.usage, before, strict=True))
            if shrunk or (*key, edge) in changed:
                ledger.request_refill(key, row.changed_at)
    return affected


def _exceeds(row: RepoRow, limits: QuotaLimits) -> bool:
    return (
        row.memory_count > limits.max_memories
        or row.memory_bytes > limits.max_bytes
        or row.edge_count > limits.max_edges
    )


def _has_room(row: RepoRow, limits: QuotaLimits) -> bool:
    """Whether any memory at all could fit: one without edges, of a single byte."""
    return row.memory_count < limits.max_memories and row.memory_bytes < limits.max_bytes


async def _drop(conn: Connection, row: RepoRow, limits: QuotaLimits) -> list[RecordKey]:
    """Drops from the greatest rkey down until the rest is within the limits; the last that goes is the new edge."""
    affected: list[RecordKey] = []
    while _exceeds(row, limits) and (last := await record_rows.last_memories(conn, row.key, DROPPED_AT_ONCE)):
        keys: list[RecordKey] = []
        for memory in last:
            if not _exceeds(row, limits):
                break
            edges = len(memory.targets)
            row.count(memories=-1, record_bytes=-memory.record_bytes, edges=-edges, over_quota=1)
            row.quota_edge = memory.rkey
            keys.append((*row.key, memory.rkey))
            affected += [(*row.key, rkey) for rkey in (memory.rkey, *memory.targets)]
        await record_rows.delete_memories(conn, keys)
        await record_rows.replace_edges(conn, keys, [])
        await record_rows.forget_versions(conn, row.key, [rkey for _, _, rkey in keys])
    return affected
