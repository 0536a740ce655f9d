"""The partial tree: the same as the definition, whatever is done to it, and never fooled by a malformed one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.verify.car import Link, decode_block, encode_block, read_car
from indexer.verify.node import Child, Node, node_cid
from indexer.verify.node_bytes import MAX_NODE_ENTRIES
from indexer.verify.reasons import Fault, Inconsistent
from indexer.verify.tree import EMPTY_TREE, Tree
from tests.builders import block_cid
from tests.recorded import FOLDER
from tests.tree_model import key_of_layer, layer_of, tree_of

VALUE, OTHER = block_cid(b"\x01"), block_cid(b"\x02")
LOW, MIDDLE, HIGH = (key_of_layer(layer) for layer in (0, 1, 2))

# Keys of many layers that share prefixes of many lengths.
KEYS = [
    *(f"{name}/{number}".encode() for name in ("a", "com.example.thing", "com.example.other") for number in range(60)),
    *(key_of_layer(layer, prefix) for layer in (3, 4, 5) for prefix in ("b/", "com.example.thing/", "d/")),
]

entries = st.dictionaries(st.sampled_from(KEYS), st.sampled_from([VALUE, OTHER]), max_size=40)
changes = st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from([VALUE, OTHER, None])), max_size=25)


def links_left(child: Child) -> int:
    if isinstance(child, Node):
        return sum(map(links_left, child.children))
    return child is not None


def change(tree: Tree, held: dict[bytes, bytes], key: bytes, value: bytes | None) -> None:
    """Bring `key` to `value`, in the tree and in the plain dict beside it."""
    current = held.pop(key, None)
    if value is not None:
        held[key] = value
    if current is None and value is not None:
        tree.insert(key, value)
    elif current is not None and value is None:
        tree.remove(key, current)
    elif current is not None and value is not None:
        tree.replace(key, current, value)


@given(entries, changes)
def test_a_changed_tree_has_the_root_of_its_entries(
    start: dict[bytes, bytes], steps: list[tuple[bytes, bytes]]
) -> None:
    held: dict[bytes, bytes] = dict(start)
    tree = Tree.load(*tree_of(held))
    for key, value in steps:
        change(tree, held, key, value)
        assert tree.seal() == tree_of(held)[0]


@given(entries, changes)
def test_a_changed_tree_makes_the_nodes_of_its_entries(
    start: dict[bytes, bytes], steps: list[tuple[bytes, bytes]]
) -> None:
    held: dict[bytes, bytes] = dict(start)
    root, blocks = tree_of(held)
    tree = Tree.load(root, blocks)
    for key, value in steps:
        change(tree, held, key, value)
    made: dict[bytes, bytes] = {}
    tree.seal(made)
    assert tree_of(held)[1].items() <= blocks.items() | made.items()


@given(entries, changes, st.data())
def test_a_tree_with_nodes_left_out_goes_right_or_says_so(
    start: dict[bytes, bytes], steps: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    held: dict[bytes, bytes] = dict(start)
    root, blocks = tree_of(held)
    kept = data.draw(st.sets(st.sampled_from(sorted(blocks))))
    tree = Tree.load(root, {cid: block for cid, block in blocks.items() if cid in kept})
    fault = None
    try:
        for key, value in steps:
            change(tree, held, key, value)
        sealed = tree.seal()
    except Inconsistent as error:
        fault, sealed = error.fault, None
    if sealed is None:
        assert fault is Fault.TREE_INCOMPLETE
    else:
        # A root whose node is not at hand may need trimming, which then nobody can see.
        assert sealed == tree_of(held)[0] or isinstance(tree.root, Link)


@given(entries)
def test_order_of_insertion_does_not_matter(held: dict[bytes, bytes]) -> None:
    tree = Tree()
    for key, value in sorted(held.items(), key=lambda item: item[0][::-1]):
        tree.insert(key, value)
    assert tree.seal() == tree_of(held)[0]


def test_an_empty_tree_has_the_root_that_new_repos_have() -> None:
    made: dict[bytes, bytes] = {}
    assert Tree().seal(made) == EMPTY_TREE == tree_of({})[0]
    assert made == tree_of({})[1]
    assert Tree.load(EMPTY_TREE, {}).root is None


def test_keys_with_gaps_between_layers_are_joined_by_nodes_without_keys() -> None:
    held: dict[bytes, bytes] = {LOW: VALUE}
    tree = Tree.load(*tree_of(held))
    tree.insert(top := key_of_layer(4), VALUE)
    held[top] = VALUE
    root, blocks = tree_of(held)
    assert tree.seal() == root
    assert sum(not decode_block(block)["e"] for block in blocks.values()) == 3
    tree.remove(top, VALUE)
    assert tree.seal() == tree_of({LOW: VALUE})[0]


def test_removing_the_only_low_key_drops_the_nodes_that_led_to_it() -> None:
    top = key_of_layer(4)
    tree = Tree.load(*tree_of({top: VALUE, LOW: VALUE}))
    tree.remove(LOW, VALUE)
    assert tree.seal() == tree_of({top: VALUE})[0]


@pytest.mark.parametrize("account", ["alice", "bob", "carol", "dave", "erin", "grace", "heidi"])
def test_recorded_repos_are_the_trees_of_their_entries(account: str) -> None:
    car = read_car((FOLDER / "repos" / f"{account}.car").read_bytes())
    data = decode_block(car.blocks[car.root])["data"]
    tree = Tree.load(data, car.blocks)
    held = dict(walk(tree.root))
    root, blocks = tree_of(held)
    assert links_left(tree.root) == 0
    assert root == data
    assert blocks.items() <= car.blocks.items()
    rebuilt = Tree()
    for key, value in held.items():
        rebuilt.insert(key, value)
    made: dict[bytes, bytes] = {}
    assert rebuilt.seal(made) == data
    assert made == blocks


def walk(child: Child) -> list[tuple[bytes, bytes]]:
    if not isinstance(child, Node):
        return []
    found = walk(child.children[0])
    for key, value, below in zip(child.keys, child.values, child.children[1:], strict=True):
        found += [(key, value), *walk(below)]
    return found


@pytest.mark.parametrize(("name", "present"), [("alice-present", True), ("alice-absent", False)])
def test_recorded_proofs_of_one_record_hold(name: str, present: bool) -> None:
    car = read_car((FOLDER / "proofs" / f"{name}.car").read_bytes())
    data = decode_block(car.blocks[car.root])["data"]
    tree = Tree.load(data, car.blocks)
    paths = {
        True: b"dev.bastienrobert.memory.record/3mputcreate22",
        False: b"dev.bastienrobert.memory.record/3zzzzzzzzzz2z",
    }
    assert (paths[present] in dict(walk(tree.root))) is present
    if not present:
        with pytest.raises(Inconsistent) as caught:
            tree.remove(paths[present], VALUE)
        assert caught.value.fault is Fault.OP_MISMATCH


# What must not be changed


@pytest.mark.parametrize("held", [{}, {LOW: VALUE}, {MIDDLE: VALUE}, {HIGH: VALUE, LOW: VALUE}])
@pytest.mark.parametrize("expected", [VALUE, OTHER])
def test_a_key_that_is_not_as_expected_is_a_mismatch(held: dict[bytes, bytes], expected: Link) -> None:
    key = MIDDLE if expected is VALUE and MIDDLE not in held else next(iter(held), MIDDLE)
    for act in (lambda tree: tree.remove(key, expected), lambda tree: tree.replace(key, expected, expected)):
        if held.get(key) == expected:
            continue
        with pytest.raises(Inconsistent) as caught:
            act(Tree.load(*tree_of(held)))
        assert caught.value.fault is Fault.OP_MISMATCH


def test_a_key_that_is_there_cannot_be_inserted() -> None:
    with pytest.raises(Inconsistent) as caught:
        Tree.load(*tree_of({LOW: VALUE, HIGH: VALUE})).insert(LOW, OTHER)
    assert caught.value.fault is Fault.OP_MISMATCH


@pytest.mark.parametrize("act", [lambda tree: tree.insert(LOW, VALUE), lambda tree: tree.remove(LOW, VALUE)])
def test_a_tree_without_its_root_cannot_be_changed_but_has_one(act: Callable[[Tree], None]) -> None:
    tree = Tree.load(VALUE, {})
    assert tree.seal() == VALUE
    with pytest.raises(Inconsistent) as caught:
        act(tree)
    assert caught.value.fault is Fault.TREE_INCOMPLETE


# Malformed trees


def entry(key: bytes, shared: int = 0, link: Link | None = None, **fields: Any) -> dict[str, Any]:
    return {"k": key, "p": shared, "t": link, "v": VALUE, **fields}


def node(*listed: dict[str, Any], link: Link | None = None, **fields: Any) -> bytes:
    return encode_block({"e": list(listed), "l": link, **fields})


LOWS = sorted(key for key in KEYS if layer_of(key) == 0 and key.startswith(b"a/"))
FIRST, SECOND = LOWS[:2]
SHARED = next(n for n in range(9) if FIRST[:n] != SECOND[:n]) - 1

MALFORMED = {
    "no map": encode_block([1]),
    "no DAG-CBOR": b"\xff",
    "nested too deep": b"\x81" * 5000 + b"\x01",
    "no entries": encode_block({"l": None}),
    "no link": encode_block({"e": []}),
    "one field too many": node(entry(FIRST), x=1),
    "another field for one": encode_block({"e": [], "x": None}),
    "entries are no list": encode_block({"e": {}, "l": None}),
    "link is bytes": encode_block({"e": [entry(FIRST)], "l": bytes(VALUE)}),
    "entry is no map": encode_block({"e": [1], "l": None}),
    "entry with a field too many": node(entry(FIRST, x=1)),
    "entry without link": encode_block({"e": [{"k": FIRST, "p": 0, "v": VALUE}], "l": None}),
    "key is text": node(entry(FIRST, k="a/1")),
    "key is a link": node(entry(FIRST, k=VALUE)),
    "shared is negative": node(entry(FIRST), entry(SECOND, -1)),
    "shared is bool": node(entry(FIRST, p=False)),
    "shares more than there is": node(entry(FIRST, 1)),
    "shares less than it could": node(entry(FIRST), entry(SECOND, 0)),
    "key adds nothing": node(entry(FIRST), entry(b"", len(FIRST))),
    "key is empty": node(entry(b"")),
    "same key twice": node(entry(FIRST), entry(FIRST)),
    "keys out of order": node(entry(SECOND), entry(FIRST[SHARED:], SHARED)),
    "value is bytes": node(entry(FIRST, v=bytes(VALUE))),
    "value is null": node(entry(FIRST, v=None)),
    "link below is bytes": node(entry(FIRST, t=bytes(VALUE))),
    "number not in shortest form": node(entry(FIRST)).replace(b"ap\x00", b"ap\x18\x00"),
    "keys of two layers": node(entry(LOW), entry(HIGH)) if LOW < HIGH else node(entry(HIGH), entry(LOW)),
    "link below the lowest layer": node(entry(FIRST), link=VALUE),
    "root without keys": node(link=VALUE),
    "key too long": node(entry(next(k for n in range(99) if layer_of(k := b"a/%d" % n + b"x" * 1024) == 0))),
    "too many entries": encode_block({"e": [entry(b"a%04d" % n) for n in range(MAX_NODE_ENTRIES + 1)], "l": None}),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_root_is_refused(name: str) -> None:
    block = MALFORMED[name]
    with pytest.raises(Inconsistent) as caught:
        Tree.load(node_cid(block), {node_cid(block): block})
    assert caught.value.fault is Fault.MALFORMED_TREE


UNDER_MIDDLE = {
    "a child of the same layer": node(entry(MIDDLE)),
    "a child two layers down": node(entry(key_of_layer(3))),
    "a child with nothing below": node(),
    "a child that leads below the lowest layer": node(link=VALUE),
    "a child whose keys stand on the other side": node(entry(key_of_layer(0, MIDDLE.decode() + "/"))),
}


@pytest.mark.parametrize("name", UNDER_MIDDLE)
def test_a_malformed_child_is_refused(name: str) -> None:
    child = UNDER_MIDDLE[name]
    root = node(entry(MIDDLE), link=node_cid(child))
    with pytest.raises(Inconsistent) as caught:
        Tree.load(node_cid(root), {node_cid(block): block for block in (root, child)})
    assert caught.value.fault is Fault.MALFORMED_TREE


def test_a_child_out_of_its_grandparents_bounds_is_refused() -> None:
    top = key_of_layer(2)
    beyond = node(entry(key_of_layer(0, "z/")))
    between = node(link=node_cid(beyond))
    root = node(entry(top), link=node_cid(between))
    with pytest.raises(Inconsistent) as caught:
        Tree.load(node_cid(root), {node_cid(block): block for block in (root, between, beyond)})
    assert caught.value.fault is Fault.MALFORMED_TREE


def test_a_node_that_is_linked_to_again_and_again_is_met_twice_at_most() -> None:
    blocks: dict[bytes, bytes] = {}
    below: Link | None = None
    for layer in range(8):
        listed, previous = [], b""
        for key in sorted(key_of_layer(layer, f"{name}/") for name in "abcdef"):
            assert key[:1] != previous[:1]
            listed.append(entry(key, link=below))
            previous = key
        block = node(*listed, link=below)
        below = node_cid(block)
        blocks[below] = block
    assert below is not None
    with pytest.raises(Inconsistent) as caught:
        Tree.load(below, blocks)
    assert caught.value.fault is Fault.MALFORMED_TREE
