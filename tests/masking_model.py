"""What `supersedes` does, once more: naive, slow, close to the words of the rules. Uses nothing of `memory.masking`.

A world is a set of memories, and everything is asked anew of the memories that are there at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ModelMemory:
    """A memory: its place in the order of age (ties go to the greater rkey), its effective time, what it replaces."""

    rkey: str
    age: int
    effective: int
    replaces: frozenset[str]


World = Mapping[str, ModelMemory]


def there_at(world: World, time: int) -> World:
    """The memories whose effective time has come."""
    return {rkey: memory for rkey, memory in world.items() if memory.effective <= time}


def reachable(world: World, start: str) -> set[str]:
    """Everything that a chain of one or more replacements leads to."""
    reached: set[str] = set()
    while True:
        step = {
            target
            for source in reached | {start}
            for target in world[source].replaces
            if target in world and target not in reached
        }
        if not step:
            return reached
        reached |= step


def component(world: World, rkey: str) -> set[str]:
    """All that reach `rkey` and are reached from it, with itself; empty if there is no other, or it is not there."""
    if rkey not in world:
        return set()
    members = {other for other in reachable(world, rkey) if rkey in reachable(world, other)}
    return members if len(members - {rkey}) > 0 else set()


def newest(world: World, members: set[str]) -> str:
    """The member that is newest by age, then by rkey."""
    return max(members, key=lambda rkey: (world[rkey].age, rkey))


def ignores(world: World, source: str, target: str, members_max: int | None = None) -> bool:
    """Whether the edge from `source` to `target` counts for nothing because of a cycle."""
    members = component(world, target)
    if source not in members:
        return False
    if members_max is not None and len(members) > members_max:
        return newest(world, {source, target}) == target
    return newest(world, members) == target


def is_masked(world: World, rkey: str, members_max: int | None = None) -> bool:
    """Whether one of the memories that are there replaces `rkey`, and is not ignored."""
    return any(
        rkey in memory.replaces and not ignores(world, memory.rkey, rkey, members_max) for memory in world.values()
    )
