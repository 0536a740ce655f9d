"""Quotas per repo: the smallest rkeys count, so that the order of arrival decides nothing.

What is indexed of a repo is the longest run of its memories in order of rkey whose number, bytes and edges stay within
the limits. The first that does not fit is the quota edge: every memory before it is held; at it and behind it nothing
is, neither memory nor invalid record, and what is there is only counted. Of the invalid records before it those with
the smallest rkeys are kept; the first that does not fit is the invalid edge, from where on they are counted too. So a
record that stands where an edge keeps out, and is not held, is one of those that are counted.

An edge moves down here, when more comes before it; it moves up only by a fetch, which is asked for when what stands at
it is gone, or something behind it may fit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from indexer.books import RecordKey
from indexer.interpret import InvalidMemory, StoredMemory
from indexer.ledger import Ledger
from indexer.record_state import RecordState
from indexer.repo_state import RepoKey, RepoRow
from indexer.store import embeddings
from indexer.store import records as record_rows
from memory.queries import Connection

DROPPED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class QuotaLimits:
    """What one repo may hold."""

    max_memories: int
    max_bytes: int  # record blocks
    max_edges: int  # `supersedes` entries that point into the same repo and Space
    max_invalid: int = 1_000  # records that fail the lexicon


def withhold(ledger: Ledger) -> None:
    """Takes out of the batch what stands at an edge of its repo or behind it.

    Where the batch rewrites or deletes all that was kept out, there is no edge: all contents are known again.
    """
    for key, freed in ledger.freed.items():
        ledger.rows[key].count(over_quota=-freed)
    for (repo, space, rkey), state in ledger.records.items():
        row = ledger.rows[repo, space]
        if row.quota_edge is not None and rkey >= row.quota_edge:
            withheld = state.withhold()
        else:
            withheld = row.invalid_edge is not None and rkey >= row.invalid_edge and state.withhold_invalid()
        if withheld:
            row.count(over_quota=1)


async def settle(
    conn: Connection, ledger: Ledger, changed: Mapping[RecordKey, RecordState], limits: QuotaLimits
) -> list[RecordKey]:
    """Counts what the batch leaves, drops what no longer fits, and asks for what may fit now.

    Returns the records whose masks that may change.
    """
    states: dict[RepoKey, dict[str, RecordState]] = defaultdict(dict)
    for (repo, space, rkey), state in changed.items():
        states[repo, space][rkey] = state
    affected: list[RecordKey] = []
    for key in sorted(states):
        row = ledger.rows[key]
        before = _Standing(row.quota_edge, row.usage, row.invalid_count)
        for state in states[key].values():
            memories, record_bytes, edges, invalid = state.growth()
            row.count(memories=memories, record_bytes=record_bytes, edges=edges, invalid=invalid)
        await _forget(conn, key, states[key])
        affected += await _drop(conn, row, limits)
        await _drop_invalid(conn, row, limits)
        if _may_fit(row, before, states[key], limits):
            ledger.request_refill(key, row.changed_at)
    return affected


@dataclass(frozen=True, slots=True)
class _Standing:
    """Where a repo stood before a batch."""

    edge: str | None
    usage: tuple[int, int, int]
    invalid_count: int


def _may_fit(row: RepoRow, before: _Standing, states: Mapping[str, RecordState], limits: QuotaLimits) -> bool:
    """Whether something that is kept out may be held after a batch."""
    if row.invalid_edge is not None and row.invalid_count < min(before.invalid_count, limits.max_invalid):
        return True
    if before.edge is None or before.edge != row.quota_edge:  # a new edge is known not to fit
        return False
    at_edge = states.get(before.edge)
    if at_edge is not None and not isinstance(at_edge.withheld, StoredMemory):  # the edge is elsewhere now
        return True
    shrunk = any(now < then for now, then in zip(row.usage, before.usage, strict=True))
    return (shrunk or at_edge is not None) and _has_room(row, limits)


def _exceeds(row: RepoRow, limits: QuotaLimits) -> bool:
    return (
        row.memory_count > limits.max_memories
        or row.memory_bytes > limits.max_bytes
        or row.edge_count > limits.max_edges
    )


def _has_room(row: RepoRow, limits: QuotaLimits) -> bool:
    """Whether any memory at all could fit: one without edges, of a single byte."""
    return row.memory_count < limits.max_memories and row.memory_bytes < limits.max_bytes


async def _forget(conn: Connection, key: RepoKey, states: Mapping[str, RecordState]) -> None:
    """No version tells of an invalid record that is kept out, also not of the memory that it was before."""
    rkeys = [
        rkey for rkey, state in states.items() if isinstance(state.withheld, InvalidMemory) and state.held.last_number
    ]
    if rkeys:
        await record_rows.forget_versions(conn, key, rkeys)


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
        await embeddings.forget(conn, keys)
        await record_rows.replace_edges(conn, keys, [])
        await record_rows.forget_versions(conn, row.key, [rkey for _, _, rkey in keys])
    if affected and row.quota_edge is not None:
        await _keep_out(conn, row, await record_rows.drop_invalid_records_from(conn, row.key, row.quota_edge))
        if row.invalid_edge is not None and row.invalid_edge >= row.quota_edge:
            row.invalid_edge = None
    return affected


async def _drop_invalid(conn: Connection, row: RepoRow, limits: QuotaLimits) -> None:
    """Drops invalid records from the greatest rkey down until no more are left than are kept."""
    if row.invalid_count > limits.max_invalid:
        count = row.invalid_count - limits.max_invalid
        rkeys = await record_rows.drop_last_invalid_records(conn, row.key, count)
        await _keep_out(conn, row, rkeys)
        row.invalid_edge = min(rkeys, default=row.invalid_edge)


async def _keep_out(conn: Connection, row: RepoRow, rkeys: Sequence[str]) -> None:
    """Counts invalid records that were dropped."""
    if rkeys:
        row.count(invalid=-len(rkeys), over_quota=len(rkeys))
        await record_rows.forget_versions(conn, row.key, rkeys)
