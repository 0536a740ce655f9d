"""Keeps masks true after a batch: recomputes them where an edge, or an end of one, changed."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Mapping

from indexer.books import RecordKey
from indexer.record_state import RecordState
from indexer.repo_state import RepoKey
from indexer.store import masks as rows
from indexer.store import records as record_rows
from memory.masking import evaluate
from memory.queries import Connection


def affected(changed: Mapping[RecordKey, RecordState]) -> list[RecordKey]:
    """The records whose masks `changed` may change: both ends of each old and new edge. None: no edge is near."""
    found: set[RecordKey] = set()
    for (repo, space, rkey), state in changed.items():
        targets = {*state.held.targets, *(state.memory.targets if state.memory else ())}
        if targets or state.held.replaced:
            found.add((repo, space, rkey))
            found |= {(repo, space, target) for target in targets}
    return sorted(found)


async def recompute(conn: Connection, affected: Iterable[RecordKey]) -> None:
    """Recomputes the masks of `affected`, and of the cycles that they are or were part of."""
    by_repo: dict[RepoKey, set[str]] = defaultdict(set)
    for repo, space, rkey in affected:
        by_repo[repo, space].add(rkey)
    keys = sorted((repo, space, rkey) for (repo, space), rkeys in by_repo.items() for rkey in rkeys)
    await rows.flag_upward_edges(conn, keys)
    cyclic = await rows.repos_with_upward_edges(conn, sorted(by_repo))
    held = await record_rows.held_records(conn, keys)
    broken: dict[RepoKey, set[str]] = defaultdict(set)
    for (repo, space, _), record in held.items():
        if record.component:
            broken[repo, space].add(record.component)
    for key, components in broken.items():
        by_repo[key] |= await rows.component_members(conn, key, components)
    plain = [(*key, rkey) for key, rkeys in sorted(by_repo.items()) if key not in cyclic for rkey in sorted(rkeys)]
    if plain:
        await rows.mask_plainly(conn, plain)
    for key in sorted(cyclic):
        await _evaluate_region(conn, key, by_repo[key])


async def _evaluate_region(conn: Connection, key: RepoKey, rkeys: set[str]) -> None:
    """Cycles that lie in reach, and have none of `rkeys` in them, are as they were: most of a region is only walked."""
    region = await rows.replaced_region(conn, key, sorted(rkeys))
    # In a thread, for a region may be as large as a repo's quota of edges, and sockets and leases must not wait for it.
    found = await asyncio.to_thread(evaluate, region.nodes, only=rkeys)
    masks = {rkey: found[rkey] for rkey in sorted(region.inside) if rkey in found}
    await rows.store_masks(conn, key, masks, region)
