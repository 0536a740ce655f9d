"""Loads what record views show: blocks, and the replacements around them as of one time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from appview.keys import Key
from memory.masking import Node, evaluate, order_key
from memory.queries import Connection, Row, load_queries
from memory.space import ReadableSpaces

MAX_PAGE_BYTES: Final = 4_000_000
"""A page ends before the memory that would take its blocks, or its JSON, over this."""

MAX_SUPERSEDED_BY: Final = 100
"""Replacers that a view names; more are only said to be there."""

# Replacers inside a cycle, which has 100 members at most, may turn out to be ignored: so many more are read.
_MAX_REPLACERS_READ: Final = 2 * MAX_SUPERSEDED_BY + 1

_QUERIES: Final = load_queries(Path(__file__).parent / "sql" / "views.sql")


@dataclass(frozen=True, slots=True, repr=False)
class StoredMemory:
    """One current memory and what replaces what around it, as of the time that was asked about.

    `replacers` mask it; `targets` are those of its targets that exist, `ignored_targets` those of them that the rule
    for cycles keeps from being masked by it. All are rkeys in its repo and Space.
    """

    key: Key
    cid: str
    record: bytes
    handle: str | None
    updated_at: datetime | None
    indexed_at: datetime
    version: int
    superseded: bool
    replacers: tuple[str, ...]
    replacers_capped: bool
    targets: frozenset[str]
    ignored_targets: frozenset[str]


async def load_memories(
    conn: Connection, keys: Sequence[Key], *, as_of: datetime | None, spaces: ReadableSpaces
) -> list[StoredMemory | None]:
    """Load the visible memories among `keys`, which are distinct: one item for each key, in order, None for the others.

    Ends before the memory that would make it more than a page's worth of bytes, never before the first. As of a time,
    all must be in effect by then.
    """
    if not keys:
        return []
    rows = await _QUERIES.memories_by_key.fetch(
        conn,
        repos=[key.repo for key in keys],
        spaces_of=[key.space for key in keys],
        rkeys=[key.rkey for key in keys],
        as_of=as_of,
        max_bytes=MAX_PAGE_BYTES,
        max_replacers=_MAX_REPLACERS_READ,
        spaces=spaces.as_list(),
    )
    end = next((row["ordinal"] - 1 for row in rows if row["record"] is None), len(keys))
    shown = [row for row in rows if row["ordinal"] <= end]
    cycles = _NO_CYCLES if as_of is None else await _load_cycles(conn, shown, as_of=as_of, spaces=spaces)
    memories: list[StoredMemory | None] = [None] * end
    for row in shown:
        memories[row["ordinal"] - 1] = _read(row, cycles)
    return memories


async def load_memory(conn: Connection, key: Key, *, spaces: ReadableSpaces) -> StoredMemory | None:
    """Load one memory as it is now, as `load_memories` does; None if it is not there or not readable."""
    row = await _QUERIES.memory_by_key.fetchrow(
        conn, **key._asdict(), max_replacers=_MAX_REPLACERS_READ, spaces=spaces.as_list()
    )
    return None if row is None else _read(row, _NO_CYCLES)


@dataclass(frozen=True, slots=True)
class _Cycles:
    """What the rule for cycles ignores at another time than now, in the components that were judged for it."""

    ignored_replacers: dict[Key, frozenset[str]]

    def is_ignored(self, source: str, target: Key, *, stored: bool) -> bool:
        """Whether the edge of `source` to `target` is ignored; `stored` says so of what was not judged."""
        judged = self.ignored_replacers.get(target)
        return stored if judged is None else source in judged


_NO_CYCLES: Final = _Cycles({})


async def _load_cycles(conn: Connection, rows: Sequence[Row], *, as_of: datetime, spaces: ReadableSpaces) -> _Cycles:
    components = sorted({(row["repo"], row["space"], row["component"]) for row in rows if row["component"] is not None})
    if not components:
        return _NO_CYCLES
    members = await _QUERIES.component_members.fetch(
        conn,
        repos=[repo for repo, _, _ in components],
        spaces_of=[space for _, space, _ in components],
        components=[component for _, _, component in components],
        as_of=as_of,
        spaces=spaces.as_list(),
    )
    nodes: defaultdict[tuple[str, str], dict[str, Node]] = defaultdict(dict)
    for row in members:
        order = order_key(row["created_at"], row["updated_at"], row["rkey"])
        node = Node(row["rkey"], order, row["effective_at"], tuple(row["targets"]))
        nodes[row["repo"], row["space"]][row["rkey"]] = node
    return _Cycles(
        {
            Key(repo, space, rkey): mask.ignored
            for (repo, space), present in nodes.items()
            for rkey, mask in evaluate(present).items()
        }
    )


def _read(row: Row, cycles: _Cycles) -> StoredMemory:
    key = Key(row["repo"], row["space"], row["rkey"])
    ignored_replacers = frozenset[str](row["ignored_replacers"] or ())
    replacers = [
        rkey for rkey in row["replacers"] or () if not cycles.is_ignored(rkey, key, stored=rkey in ignored_replacers)
    ]
    targets = frozenset[str](row["targets"] or ())
    ignored_targets = frozenset[str](row["ignored_targets"] or ())
    return StoredMemory(
        key=key,
        cid=row["cid"],
        record=row["record"],
        handle=row["handle"],
        updated_at=row["updated_at"],
        indexed_at=row["indexed_at"],
        version=row["version"],
        superseded=row["superseded"],
        replacers=tuple(replacers[:MAX_SUPERSEDED_BY]),
        replacers_capped=len(replacers) > MAX_SUPERSEDED_BY,
        targets=targets,
        ignored_targets=frozenset(
            rkey
            for rkey in targets
            if cycles.is_ignored(key.rkey, key._replace(rkey=rkey), stored=rkey in ignored_targets)
        ),
    )
