"""Masks and the edges that make them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from indexer.books import RecordKey
from indexer.repo_state import RepoKey
from indexer.store.records import record_columns
from indexer.store.repos import columns
from memory.masking import Mask, Node, order_key
from memory.queries import Connection, load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "masks.sql")


async def flag_upward_edges(conn: Connection, changed: Iterable[RecordKey]) -> None:
    """Compares the order keys at both ends of every edge that begins or ends at one of `changed`."""
    await _SQL.flag_upward_edges.execute(conn, **record_columns(changed))


async def repos_with_upward_edges(conn: Connection, keys: Iterable[RepoKey]) -> set[RepoKey]:
    """Which of `keys` can hold a cycle."""
    repos, spaces = columns(keys)
    rows = await _SQL.repos_with_upward_edges.fetch(conn, repos=repos, spaces=spaces)
    return {(row["repo"], row["space"]) for row in rows}


async def mask_plainly(conn: Connection, keys: Sequence[RecordKey]) -> None:
    """Masks these records as members of no cycle; every edge into them counts."""
    await _SQL.heed_edges.execute(conn, **record_columns(keys))
    await _SQL.mask_plainly.execute(conn, **record_columns(keys))


async def component_members(conn: Connection, key: RepoKey, components: Iterable[str]) -> set[str]:
    """The rkeys that were last flagged as members of these cycles."""
    rows = await _SQL.component_members.fetch(conn, repo=key[0], space=key[1], components=list(components))
    return {row["rkey"] for row in rows}


Edge = tuple[str, str]  # (rkey, target)


@dataclass(frozen=True, slots=True)
class Region:
    """A part of a repo that no cycle of its inside leaves."""

    nodes: dict[str, Node]  # with all direct replacers of those inside
    inside: set[str]
    ignored: set[Edge]  # among the edges between nodes


async def replaced_region(conn: Connection, key: RepoKey, rkeys: Iterable[str]) -> Region:
    """What `rkeys` replace, directly or through others, themselves and all direct replacers included."""
    region = Region({}, set(), set())
    for row in await _SQL.replaced_region.fetch(conn, repo=key[0], space=key[1], rkeys=list(rkeys)):
        rkey = row["rkey"]
        order = order_key(row["revised_at"], None, rkey)
        region.nodes[rkey] = Node(rkey, order, row["effective_at"], tuple(row["targets"]))
        region.ignored.update((rkey, target) for target in row["ignored"])
        if row["inside"]:
            region.inside.add(rkey)
    return region


async def store_masks(conn: Connection, key: RepoKey, masks: Mapping[str, Mask], region: Region) -> None:
    """Stores masks of a region, and which edges into their memories the rule for cycles ignores from now on."""
    repo, space = key
    await _SQL.store_masks.execute(
        conn,
        repo=repo,
        space=space,
        rkeys=list(masks),
        masked_froms=[mask.masked_from for mask in masks.values()],
        spans=[None if mask.spans is None else _multirange(mask.spans) for mask in masks.values()],
        components=[mask.component for mask in masks.values()],
    )
    # An edge to what is no more is in no cycle.
    before = {edge for edge in region.ignored if edge[1] in masks or edge[1] not in region.nodes}
    now = {(replacer, rkey) for rkey, mask in masks.items() for replacer in mask.ignored}
    turned = sorted(before ^ now)
    if turned:
        await _SQL.turn_edges.execute(
            conn,
            repo=repo,
            space=space,
            rkeys=[rkey for rkey, _ in turned],
            targets=[target for _, target in turned],
        )


def _multirange(spans: Iterable[tuple[datetime, datetime | None]]) -> str:
    """Text form of a tstzmultirange of half-open spans; an open end means for ever."""
    return "{" + ",".join(f"[{start.isoformat()},{end.isoformat() if end else ''})" for start, end in spans) + "}"
