"""What `supersedes` does: which memories are masked, since when, and what becomes of each entry.

Everything here is a function of one repo's current, valid memories in one Space. An *edge* runs from a memory to one
that it replaces, rkey to rkey. A *component* is a strongly connected component of two or more: memories that replace
one another in a circle. It is *oversize* beyond a bound on its members.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeAlias

from memory.at_uri import parse_record_uri
from memory.identifiers import COLLECTION

COMPONENT_MEMBERS_MAX: Final = 100
"""Members of the largest component that is evaluated at every time."""

OrderKey: TypeAlias = tuple[datetime, bytes]
Span: TypeAlias = tuple[datetime, datetime | None]


class Effect(StrEnum):
    """What one `supersedes` entry does."""

    MASKS = "masks"
    CYCLE = "cycle"  # its edge is ignored by the rule for cycles
    UNRESOLVED = "unresolved"
    OTHER_COLLECTION = "otherCollection"
    OTHER_SPACE = "otherSpace"
    OTHER_REPO = "otherRepo"
    SELF = "self"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Target:
    """The record in the same repo and Space that an entry points to; it need not exist."""

    rkey: str


@dataclass(frozen=True, slots=True)
class Node:
    """A current, valid memory as masking sees it."""

    rkey: str
    order: OrderKey
    effective_at: datetime  # min(created_at, first indexed at): from then on it is there
    targets: tuple[str, ...]  # rkeys in its repo and Space, its own not among them; they need not exist


@dataclass(frozen=True, slots=True)
class Mask:
    """What the others do to one memory.

    `masked_from`: since when it is masked, the earliest effective time of a replacer; None if it is visible now.
    `spans`: only of members of a component that is not oversize: every time T at which it is masked as of T, as maximal
    half-open intervals in order, the last one open (None) if it is masked now. Then `masked_from` is that one's start.
    `component`: the rkey of the newest member of its component.
    `ignored`: the replacers whose edge to it the rule for cycles ignores, among all that is there now.
    """

    masked_from: datetime | None
    spans: tuple[Span, ...] | None
    component: str | None
    ignored: frozenset[str]


def resolve(entry: str, author: str, space: str, rkey: str) -> Target | Effect:
    """The record in the same repo and Space that an entry of the record `rkey` points to, or why it points to none.

    Of the reasons, the first that applies: unresolved, otherCollection, otherSpace, otherRepo, self. Nothing here looks
    at what exists.
    """
    uri = parse_record_uri(entry)
    if uri is None:
        return Effect.UNRESOLVED
    if uri.collection != COLLECTION:
        return Effect.OTHER_COLLECTION
    if uri.space_uri != space:
        return Effect.OTHER_SPACE
    if uri.did != author:
        return Effect.OTHER_REPO
    if uri.rkey == rkey:
        return Effect.SELF
    return Target(uri.rkey)


def targets(supersedes: Sequence[str], author: str, space: str, rkey: str) -> tuple[str, ...]:
    """The distinct rkeys that a record's entries point to inside its repo and Space, in the order of the entries."""
    if not supersedes:  # of nearly all
        return ()
    resolved = (resolve(entry, author, space, rkey) for entry in supersedes)
    return tuple(dict.fromkeys(target.rkey for target in resolved if isinstance(target, Target)))


def effect_of(resolved: Target | Effect, *, target_is_current: bool, edge_is_ignored: bool) -> Effect:
    """What an entry does now. `target_is_current`: the target exists and is valid; asked of a `Target` only."""
    if isinstance(resolved, Effect):
        return resolved
    if not target_is_current:
        return Effect.MISSING
    return Effect.CYCLE if edge_is_ignored else Effect.MASKS


def order_key(created_at: datetime, updated_at: datetime | None, rkey: str) -> OrderKey:
    """What decides which of two memories is newer: last revision, else creation, then the greater rkey by bytes."""
    return (updated_at or created_at, rkey.encode())


def is_upward(source: OrderKey, target: OrderKey) -> bool:
    """Whether an edge points to something not older than its source. Every circle has such an edge."""
    return target > source


def evaluate(
    nodes: Mapping[str, Node],
    component_members_max: int = COMPONENT_MEMBERS_MAX,
    *,
    only: Collection[str] | None = None,
) -> dict[str, Mask]:
    """The masks of memories by rkey, from a part of a repo or all of it.

    The mask of a memory is right if `nodes` has all of its component's members, and its replacers; of those from
    outside the component the one that is effective first suffices. Keep no other masks: a node whose own replacers or
    fellow members were left out comes out wrong. The order of `nodes` does not matter.

    In a component the newest member ignores the edges from inside; as of T that is judged among the memories effective
    by then. In an oversize component every upward edge is ignored at all times instead, which leaves no circle.

    `only`: answers for these memories and for whoever is in a component with one of them, and for no others; judging a
    component in time is what costs.
    """
    wanted: Collection[str] = nodes if only is None else only
    replacers: dict[str, list[Node]] = {rkey: [] for rkey in nodes}
    circles_possible = False
    for node in nodes.values():
        for target in node.targets:
            if target in nodes:
                replacers[target].append(node)
                circles_possible = circles_possible or is_upward(node.order, nodes[target].order)
    masks: dict[str, Mask] = {}
    if circles_possible:
        for rkeys in _components(nodes):
            if rkeys.isdisjoint(wanted):
                continue
            members = {rkey: nodes[rkey] for rkey in rkeys}
            if len(members) > component_members_max:
                masks |= _oversize_masks(members, replacers)
            else:
                masks |= _component_masks(members, replacers)
    # What is in no component now is in none as of any time: a component among some of the memories lies inside one
    # among all of them. So no edge to it is ever ignored, and it is masked from its first replacer on.
    for rkey in (nodes.keys() & wanted) - masks.keys():
        masks[rkey] = Mask(_first_effective(replacers[rkey]), None, None, frozenset())
    return masks


def _component_masks(members: Mapping[str, Node], replacers: Mapping[str, list[Node]]) -> dict[str, Mask]:
    """Masks at every time: they change only where a member, or a first replacer from outside, becomes effective."""
    outside = {rkey: _first_effective(r for r in replacers[rkey] if r.rkey not in members) for rkey in members}
    inside = {rkey: [r for r in replacers[rkey] if r.rkey in members] for rkey in members}
    times = sorted({node.effective_at for node in members.values()} | {time for time in outside.values() if time})
    ends = [*times[1:], None]
    spans: dict[str, list[Span]] = {rkey: [] for rkey in members}
    ignored: dict[str, frozenset[str]] = {}
    for start, end in zip(times, ends, strict=True):
        present = {rkey: node for rkey, node in members.items() if node.effective_at <= start}
        ignored = {}
        for rkeys in _components(present):
            ignored[_newest(rkeys, present)] = rkeys
        for rkey, own in spans.items():
            outside_from = outside[rkey]
            masked = (outside_from is not None and outside_from <= start) or any(
                r.rkey in present and r.rkey not in ignored.get(rkey, ()) for r in inside[rkey]
            )
            if masked and own and own[-1][1] == start:
                own[-1] = (own[-1][0], end)
            elif masked:
                own.append((start, end))
    # The last round had every member present: `ignored` is what holds now.
    newest = _newest(members, members)
    return {
        rkey: Mask(
            masked_from=own[-1][0] if own and own[-1][1] is None else None,
            spans=tuple(own),
            component=newest,
            ignored=frozenset(r.rkey for r in inside[rkey]) & ignored.get(rkey, frozenset()),
        )
        for rkey, own in spans.items()
    }


def _oversize_masks(members: Mapping[str, Node], replacers: Mapping[str, list[Node]]) -> dict[str, Mask]:
    newest = _newest(members, members)
    masks: dict[str, Mask] = {}
    for rkey, node in members.items():
        ignored = frozenset(r.rkey for r in replacers[rkey] if r.rkey in members and is_upward(r.order, node.order))
        masked_from = _first_effective(r for r in replacers[rkey] if r.rkey not in ignored)
        masks[rkey] = Mask(masked_from, None, newest, ignored)
    return masks


def _components(nodes: Mapping[str, Node]) -> Iterator[frozenset[str]]:
    """The components among `nodes`, by Tarjan's algorithm, with a stack of its own instead of recursion."""
    index: dict[str, int] = {}  # order of discovery
    low: dict[str, int] = {}  # the earliest that is known to be reached from here and on `path`
    path: dict[str, None] = {}  # discovered, not yet assigned to a component; ordered
    for root in nodes:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        path[root] = None
        walk = [(root, iter(nodes[root].targets))]
        while walk:
            rkey, rest = walk[-1]
            for target in rest:
                if target in path:
                    low[rkey] = min(low[rkey], index[target])
                elif target in nodes and target not in index:
                    index[target] = low[target] = len(index)
                    path[target] = None
                    walk.append((target, iter(nodes[target].targets)))
                    break
            else:
                walk.pop()
                if walk:
                    parent = walk[-1][0]
                    low[parent] = min(low[parent], low[rkey])
                if low[rkey] == index[rkey]:
                    component = _pop_until(path, rkey)
                    if len(component) > 1:
                        yield component


def _pop_until(path: dict[str, None], rkey: str) -> frozenset[str]:
    """Take `rkey` and all that comes after it off the path."""
    taken: set[str] = set()
    while rkey in path:
        taken.add(path.popitem()[0])
    return frozenset(taken)


def _newest(rkeys: Iterable[str], nodes: Mapping[str, Node]) -> str:
    return max((nodes[rkey] for rkey in rkeys), key=lambda node: node.order).rkey


def _first_effective(nodes: Iterable[Node]) -> datetime | None:
    return min((node.effective_at for node in nodes), default=None)
