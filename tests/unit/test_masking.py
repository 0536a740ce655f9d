from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.identifiers import COLLECTION
from memory.masking import (
    COMPONENT_MEMBERS_MAX,
    Effect,
    Mask,
    Node,
    Target,
    effect_of,
    evaluate,
    is_upward,
    order_key,
    resolve,
    targets,
)
from memory.space import PUBLIC
from tests.masking_model import ModelMemory, component, ignores, is_masked, newest, there_at

DAY_ZERO = datetime(2026, 1, 1, tzinfo=UTC)

ALICE = "did:plc:alice"
BOB = "did:plc:bob"
SPACE = "at://did:plc:host/space/dev.bastienrobert.memory.space/main"
OTHER_SPACE = "at://did:plc:host/space/dev.bastienrobert.memory.space/second"
OWN = "3mine22222222"
OLD = "3mold22222222"


def day(number: int) -> datetime:
    return DAY_ZERO + timedelta(days=number)


def node(rkey: str, *replaced: str, age: int = 0, effective: int = 0) -> Node:
    return Node(rkey, order_key(day(age), None, rkey), day(effective), replaced)


def masks_of(*nodes: Node, component_members_max: int = COMPONENT_MEMBERS_MAX) -> dict[str, Mask]:
    return evaluate({node.rkey: node for node in nodes}, component_members_max)


def public(rkey: str, did: str = ALICE, collection: str = COLLECTION) -> str:
    return f"at://{did}/{collection}/{rkey}"


def in_space(rkey: str, space: str = SPACE, did: str = ALICE, collection: str = COLLECTION) -> str:
    return f"{space}/{did}/{collection}/{rkey}"


# Entries


def test_a_public_entry_of_the_same_author_is_a_target() -> None:
    assert resolve(public(OLD), ALICE, PUBLIC, OWN) == Target(OLD)


def test_an_entry_of_the_same_author_and_space_is_a_target() -> None:
    assert resolve(in_space(OLD), ALICE, SPACE, OWN) == Target(OLD)


@pytest.mark.parametrize(
    "entry",
    [
        "",
        "not a uri",
        f"at://{ALICE}",
        f"at://{ALICE}/{COLLECTION}",
        f"{public(OLD)}?x=1",
        f"{public(OLD)}#/text",
        f"{public(OLD)}/",
        f"at://{ALICE}/{COLLECTION}/%33mold22222222",
        f"at://alice.test/{COLLECTION}/{OLD}",
        SPACE,
        f"{SPACE}/alice.test/{COLLECTION}/{OLD}",
    ],
)
def test_what_is_no_record_uri_is_unresolved(entry: str) -> None:
    assert resolve(entry, ALICE, PUBLIC, OWN) is Effect.UNRESOLVED


def test_reasons_come_in_the_order_of_the_rule() -> None:
    elsewhere = "app.bsky.feed.post"
    assert resolve(in_space(OWN, did=BOB, collection=elsewhere), ALICE, PUBLIC, OWN) is Effect.OTHER_COLLECTION
    assert resolve(in_space(OWN, did=BOB), ALICE, PUBLIC, OWN) is Effect.OTHER_SPACE
    assert resolve(public(OWN, did=BOB), ALICE, PUBLIC, OWN) is Effect.OTHER_REPO
    assert resolve(public(OWN), ALICE, PUBLIC, OWN) is Effect.SELF


def test_a_public_record_is_in_another_space_than_a_record_in_a_space() -> None:
    assert resolve(public(OLD), ALICE, SPACE, OWN) is Effect.OTHER_SPACE
    assert resolve(in_space(OLD, space=OTHER_SPACE), ALICE, SPACE, OWN) is Effect.OTHER_SPACE


def test_targets_are_distinct_and_only_inside_repo_and_space() -> None:
    supersedes = [public("b"), "nonsense", public("a"), public("b"), public("c", did=BOB), in_space("d"), public(OWN)]
    assert targets(supersedes, ALICE, PUBLIC, OWN) == ("b", "a")


def test_effects_of_targets_depend_on_what_is_there() -> None:
    target = Target(OLD)
    assert effect_of(target, target_is_current=True, edge_is_ignored=False) is Effect.MASKS
    assert effect_of(target, target_is_current=True, edge_is_ignored=True) is Effect.CYCLE
    assert effect_of(target, target_is_current=False, edge_is_ignored=False) is Effect.MISSING


def test_whether_a_foreign_target_exists_changes_nothing() -> None:
    for current in (True, False):
        assert effect_of(Effect.OTHER_REPO, target_is_current=current, edge_is_ignored=False) is Effect.OTHER_REPO


# Order


def test_the_last_revision_decides_then_creation_then_the_rkey() -> None:
    assert order_key(day(0), day(5), "a") > order_key(day(4), None, "b")
    assert order_key(day(4), None, "a") > order_key(day(3), None, "b")
    assert order_key(day(4), None, "b") > order_key(day(4), None, "a")


def test_an_edge_is_upward_when_its_target_is_not_older() -> None:
    older, newer = order_key(day(0), None, "a"), order_key(day(1), None, "b")
    assert is_upward(older, newer)
    assert not is_upward(newer, older)


# Masks


def test_a_memory_that_nothing_replaces_is_visible() -> None:
    assert masks_of(node("a")) == {"a": Mask(None, None, None, frozenset())}


def test_a_memory_is_masked_from_its_first_replacer_on() -> None:
    masks = masks_of(node("a"), node("b", "a", age=1, effective=7), node("c", "a", age=2, effective=3))
    assert masks["a"].masked_from == day(3)
    assert masks["b"].masked_from is None


def test_a_masked_memory_still_masks() -> None:
    masks = masks_of(node("a"), node("b", "a", age=1, effective=1), node("c", "b", age=2, effective=2))
    assert masks["a"].masked_from == day(1)
    assert masks["b"].masked_from == day(2)


def test_deleting_the_middle_of_a_chain_brings_its_targets_back() -> None:
    assert masks_of(node("a"), node("c", "b", age=2))["a"].masked_from is None


def test_an_older_memory_may_replace_a_newer_one() -> None:
    masks = masks_of(node("old", "new", age=0), node("new", age=9, effective=2))
    assert masks["new"] == Mask(day(0), None, None, frozenset())


def test_in_a_circle_only_the_newest_stays_visible() -> None:
    masks = masks_of(
        node("a", "b", age=1, effective=1), node("b", "c", age=3, effective=2), node("c", "a", age=2, effective=3)
    )
    assert masks["b"] == Mask(None, ((day(1), day(3)),), "b", frozenset({"a"}))
    assert masks["a"] == Mask(day(3), ((day(3), None),), "b", frozenset())
    assert masks["c"] == Mask(day(2), ((day(2), None),), "b", frozenset())


def test_revising_the_oldest_of_a_circle_makes_it_the_visible_one() -> None:
    a, b = node("a", "b", age=1), node("b", "a", age=2)
    assert masks_of(a, b)["a"].masked_from == day(0)
    revised = replace(a, order=order_key(day(1), day(3), "a"))
    assert masks_of(revised, b)["a"].masked_from is None
    assert masks_of(revised, b)["b"].masked_from == day(0)


def test_of_equally_old_memories_in_a_circle_the_greatest_rkey_is_newest() -> None:
    masks = masks_of(node("3mcyclea22222", "3mcycleb22222"), node("3mcycleb22222", "3mcyclea22222"))
    assert masks["3mcycleb22222"].masked_from is None
    assert masks["3mcyclea22222"].masked_from == day(0)


def test_an_edge_from_outside_masks_even_the_newest_of_a_circle() -> None:
    masks = masks_of(node("a", "b", age=1), node("b", "a", age=2), node("out", "b", age=0, effective=5))
    assert masks["b"] == Mask(day(5), ((day(5), None),), "b", frozenset({"a"}))
    assert masks["out"].component is None


def test_a_member_was_visible_before_its_circle_closed() -> None:
    masks = masks_of(node("a", "b", age=1, effective=0), node("b", "a", age=2, effective=4))
    assert masks["a"].spans == ((day(4), None),)
    # b is masked by a for those who ask about a time before b itself, when nobody is served b.
    assert masks["b"].spans == ((day(0), day(4)),)


def test_every_circle_is_judged_by_itself() -> None:
    masks = masks_of(node("a", "b", age=1), node("b", "a", age=2), node("c", "d", "a", age=3), node("d", "c", age=4))
    assert {rkey: mask.component for rkey, mask in masks.items()} == {"a": "b", "b": "b", "c": "d", "d": "d"}
    assert [rkey for rkey, mask in masks.items() if mask.masked_from is None] == ["b", "d"]


def test_an_oversize_circle_ignores_upward_edges_at_all_times() -> None:
    members = COMPONENT_MEMBERS_MAX + 1
    circle = [node(f"{n:03}", f"{(n + 1) % members:03}", age=n, effective=n) for n in range(members)]
    masks = masks_of(*circle)
    newest_rkey = circle[-1].rkey
    assert masks["000"] == Mask(day(members - 1), None, newest_rkey, frozenset())
    assert all(masks[f"{n:03}"] == Mask(None, None, newest_rkey, frozenset({f"{n - 1:03}"})) for n in range(1, members))


def test_a_long_chain_with_a_circle_at_its_end_needs_no_recursion() -> None:
    length = 20_000
    chain = [node(f"{n:06}", f"{n + 1:06}", age=length - n) for n in range(length)]
    masks = masks_of(*chain, node(f"{length:06}", f"{length - 1:06}", age=0))
    assert masks[f"{length:06}"].masked_from == day(0)
    assert masks[f"{length - 1:06}"].component == f"{length - 1:06}"
    assert masks["000000"].masked_from is None


def test_a_circle_of_the_largest_size_that_is_evaluated_agrees_with_itself() -> None:
    chooser = random.Random(2026)
    rkeys = [f"{n:03}" for n in range(COMPONENT_MEMBERS_MAX)]
    nodes = [
        node(rkey, rkeys[(n + 1) % len(rkeys)], *chooser.sample(rkeys, 3), age=n, effective=chooser.randrange(40))
        for n, rkey in enumerate(rkeys)
    ]
    nodes = [replace(n, targets=tuple(t for t in n.targets if t != n.rkey)) for n in nodes]
    masks = masks_of(*nodes)
    assert [rkey for rkey, mask in masks.items() if mask.masked_from is None] == [rkeys[-1]]
    assert all(mask.spans is not None for mask in masks.values())


# Against the model

RKEYS = "abcdefghi"


@st.composite
def worlds(draw: st.DrawFn) -> dict[str, ModelMemory]:
    rkeys = RKEYS[: draw(st.integers(2, len(RKEYS)))]
    # Mostly targets that exist; "z" never does.
    replaced = st.frozensets(st.sampled_from(rkeys + "z"), max_size=3)
    return {
        rkey: ModelMemory(rkey, draw(st.integers(0, 4)), draw(st.integers(0, 5)), draw(replaced) - {rkey})
        for rkey in rkeys
    }


TIMES = range(-1, 7)


def nodes_of(world: Mapping[str, ModelMemory]) -> dict[str, Node]:
    return {
        rkey: node(rkey, *sorted(memory.replaces), age=memory.age, effective=memory.effective)
        for rkey, memory in world.items()
    }


def masked_as_of(mask: Mask, time: datetime) -> bool:
    """The question that readers ask, as they ask it."""
    if mask.spans is not None:
        return any(start <= time and (end is None or time < end) for start, end in mask.spans)
    return mask.masked_from is not None and mask.masked_from <= time


@settings(max_examples=400)
@given(worlds())
def test_masks_are_the_models_now_and_at_every_time(world: dict[str, ModelMemory]) -> None:
    masks = evaluate(nodes_of(world))
    assert masks.keys() == world.keys()
    for rkey, mask in masks.items():
        assert (mask.masked_from is not None) == is_masked(world, rkey)
    for time in TIMES:
        there = there_at(world, time)
        for rkey in world:
            assert masked_as_of(masks[rkey], day(time)) == is_masked(there, rkey), (rkey, time)


@settings(max_examples=200)
@given(worlds())
def test_components_and_ignored_edges_are_the_models(world: dict[str, ModelMemory]) -> None:
    masks = evaluate(nodes_of(world))
    for rkey, mask in masks.items():
        members = component(world, rkey)
        assert mask.component == (newest(world, members) if members else None)
        assert (mask.spans is not None) == bool(members)
        replacers = {memory.rkey for memory in world.values() if rkey in memory.replaces}
        assert mask.ignored == {source for source in replacers if ignores(world, source, rkey)}


@settings(max_examples=300)
@given(worlds(), st.integers(1, 4))
def test_oversize_components_are_the_models(world: dict[str, ModelMemory], members_max: int) -> None:
    masks = evaluate(nodes_of(world), component_members_max=members_max)
    for rkey, mask in masks.items():
        assert (mask.masked_from is not None) == is_masked(world, rkey, members_max)
        replacers = {memory.rkey: memory for memory in world.values() if rkey in memory.replaces}
        assert mask.ignored == {source for source in replacers if ignores(world, source, rkey, members_max)}
        if len(component(world, rkey)) > members_max:
            effective = [day(replacers[source].effective) for source in replacers.keys() - mask.ignored]
            assert mask.masked_from == min(effective, default=None)
            assert mask.spans is None


@settings(max_examples=200)
@given(worlds(), st.integers(1, 9))
def test_a_cycle_never_hides_all_of_its_members(world: dict[str, ModelMemory], members_max: int) -> None:
    nodes = nodes_of(world)
    masks = evaluate(nodes, component_members_max=members_max)
    for rkey in world:
        members = component(world, rkey)
        alone = {member: nodes[member] for member in members}
        if members:
            assert any(mask.masked_from is None for mask in evaluate(alone, members_max).values())
            # With others around, only an edge from outside can hide the last of them.
            outside = {t for other in world.values() if other.rkey not in members for t in other.replaces}
            assert outside & members or any(masks[member].masked_from is None for member in members)


@settings(max_examples=200)
@given(worlds())
def test_spans_are_maximal_in_order_and_end_with_masked_from(world: dict[str, ModelMemory]) -> None:
    for mask in evaluate(nodes_of(world)).values():
        spans = mask.spans or ()
        assert all(end is None or start < end for start, end in spans)
        for (_, end), (start, _) in pairwise(spans):
            assert end is not None
            assert end < start
        if mask.spans is not None:
            assert mask.masked_from == (spans[-1][0] if spans and spans[-1][1] is None else None)


@settings(max_examples=200)
@given(worlds(), st.randoms(use_true_random=False), st.integers(1, 9))
def test_the_order_of_nodes_and_targets_changes_nothing(
    world: dict[str, ModelMemory], chooser: random.Random, members_max: int
) -> None:
    nodes = nodes_of(world)
    shuffled = list(nodes.values())
    chooser.shuffle(shuffled)
    again = {n.rkey: replace(n, targets=tuple(chooser.sample(n.targets, len(n.targets)))) for n in shuffled}
    assert evaluate(again, members_max) == evaluate(nodes, members_max)


@settings(max_examples=200)
@given(worlds())
def test_a_part_that_holds_components_and_first_replacers_suffices(world: dict[str, ModelMemory]) -> None:
    nodes = nodes_of(world)
    whole = evaluate(nodes)
    for rkey in world:
        members = component(world, rkey) or {rkey}
        part = set(members)
        for member in members:
            outside = [m for m in world.values() if member in m.replaces and m.rkey not in members]
            part |= {m.rkey for m in sorted(outside, key=lambda m: m.effective)[:1]}
        assert evaluate({rkey: nodes[rkey] for rkey in part})[rkey] == whole[rkey]
