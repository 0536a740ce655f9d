"""A whole tree: every node is there, hashed into the one above, in its place, and gives exactly the records of ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.verify import commit as ops
from indexer.verify.car import Link, decode_block, encode_block, read_car
from indexer.verify.node import node_cid
from indexer.verify.node_bytes import MAX_NODE_ENTRIES
from indexer.verify.reasons import Fault, Inconsistent
from indexer.verify.sync import MAX_SYNC_BYTES
from indexer.verify.tree import EMPTY_TREE
from indexer.verify.whole_repo import _PATH, STRETCH_ENTRIES, BlockStore, Leaf, our_leaves, read_commit, verify_tree
from memory.errors import Rejected
from memory.identifiers import COLLECTION
from tests.builders import RepoBuilder, block_cid, memory
from tests.recorded import FOLDER
from tests.tree_model import key_of_layer, layer_of, tree_of
from tests.unit.test_tree import MALFORMED, UNDER_MIDDLE, entry, node

OURS = f"{COLLECTION}/".encode()
RECORD = encode_block(memory("x"))
VALUE = block_cid(RECORD)

# Collections on both sides of ours, and its nearest neighbours.
COLLECTIONS = [
    COLLECTION, COLLECTION, "app.bsky.feed.post", "zz.a.b", COLLECTION[:-1], COLLECTION + "s", COLLECTION + ".",
    COLLECTION + "-x",
]  # fmt: skip
KEYS = [
    *(f"{collection}/{number}".encode() for collection in COLLECTIONS[1:] for number in range(60)),
    *(key_of_layer(layer, f"{name}/") for layer in (3, 4, 5) for name in (COLLECTION, "a.b.c", "zz.a.b")),
]
entries = st.lists(st.sampled_from(KEYS), unique=True, max_size=120).map(lambda keys: dict.fromkeys(keys, VALUE))


def whole(held: Mapping[bytes, bytes]) -> tuple[bytes, dict[bytes, bytes]]:
    """A tree of these entries, with the records of ours."""
    root, blocks = tree_of(held)
    return root, {**blocks, VALUE: RECORD}


def refused(root: bytes, blocks: BlockStore) -> Fault:
    with pytest.raises(Inconsistent) as caught:
        list(verify_tree(root, blocks))
    return caught.value.fault


def store(*blocks: bytes) -> dict[bytes, bytes]:
    return {node_cid(block): block for block in (*blocks, RECORD)}


def rkeys_of_ours(keys: Iterable[bytes]) -> list[str]:
    return [key.removeprefix(OURS).decode() for key in sorted(keys) if key.startswith(OURS)]


@given(entries)
def test_a_tree_gives_all_of_its_entries_and_ours_in_order(held: dict[bytes, bytes]) -> None:
    root, blocks = whole(held)
    assert sum(verify_tree(root, blocks)) == len(held)
    assert list(our_leaves(root, blocks)) == [Leaf(rkey, VALUE) for rkey in rkeys_of_ours(held)]


@given(entries, st.integers(0, 3))
def test_the_first_of_ours_are_told_while_the_tree_is_verified(held: dict[bytes, bytes], most: int) -> None:
    root, blocks = whole(held)
    ours: list[Leaf] = []
    assert sum(verify_tree(root, blocks, ours, most_ours=most)) == len(held)
    assert ours == list(our_leaves(root, blocks))[:most]


@given(entries, st.data())
def test_any_missing_node_is_noticed(held: dict[bytes, bytes], data: st.DataObject) -> None:
    root, blocks = tree_of(held)
    missing = data.draw(st.sampled_from(sorted(blocks)))
    if missing != EMPTY_TREE:
        del blocks[missing]
        assert refused(root, {**blocks, VALUE: RECORD}) is Fault.REPO_INCOMPLETE


def test_the_tree_of_an_empty_repo_needs_no_block() -> None:
    for blocks in ({}, tree_of({})[1]):
        assert sum(verify_tree(EMPTY_TREE, blocks)) == 0
        assert list(our_leaves(EMPTY_TREE, blocks)) == []


def test_a_record_of_ours_must_be_there() -> None:
    root, blocks = tree_of({OURS + b"a": VALUE})
    assert refused(root, blocks) is Fault.REPO_INCOMPLETE
    assert sum(verify_tree(root, {**blocks, VALUE: b"in whatever shape"})) == 1


def test_records_of_others_need_not_be_there() -> None:
    root, blocks = tree_of({key: VALUE for key in KEYS if not key.startswith(OURS)})
    assert sum(verify_tree(root, blocks)) == sum(not key.startswith(OURS) for key in KEYS)


def test_ours_are_found_without_reading_the_rest_of_the_tree() -> None:
    class Reading(dict[bytes, bytes]):
        read = 0

        def get(self, cid: bytes, /) -> bytes | None:  # pyright: ignore[reportIncompatibleMethodOverride]
            self.read += 1
            return super().get(cid)

    held = {f"{name}/{number}".encode(): VALUE for name in ("a.b.c", "zz.a.b") for number in range(2000)}
    held |= {OURS + b"%d" % number: VALUE for number in range(3)}
    root, blocks = whole(held)
    reading = Reading(blocks)
    assert len(list(our_leaves(root, reading))) == 3
    assert reading.read < 40 < len(blocks) / 20


def test_a_long_walk_comes_up_for_air() -> None:
    root, blocks = tree_of({f"a.b.c/{number}".encode(): VALUE for number in range(3500)})
    stretches = list(verify_tree(root, blocks))
    assert sum(stretches) == 3500
    assert len(stretches) == 4
    assert max(stretches) < STRETCH_ENTRIES + MAX_NODE_ENTRIES


@pytest.mark.parametrize("path", sorted((FOLDER / "repos").glob("*.car")), ids=lambda path: path.stem)
def test_recorded_repos_are_whole(path: Path) -> None:
    car = read_car(path.read_bytes())
    data = decode_block(car.blocks[car.root])["data"]
    leaves = list(our_leaves(data, car.blocks))
    assert sum(verify_tree(data, car.blocks)) >= len(leaves) > 0


# Malformed trees


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_root_is_refused(name: str) -> None:
    block = MALFORMED[name]
    assert refused(node_cid(block), store(block)) is Fault.MALFORMED_TREE


# A path of another form comes first there; keys out of their bounds have tests of their own.
@pytest.mark.parametrize("name", sorted(UNDER_MIDDLE.keys() - {"a child whose keys stand on the other side"}))
def test_a_malformed_child_is_refused(name: str) -> None:
    child = UNDER_MIDDLE[name]
    root = node(entry(key_of_layer(1)), link=node_cid(child))
    assert refused(node_cid(root), store(root, child)) is Fault.MALFORMED_TREE


def test_a_key_among_others_on_the_wrong_layer_is_refused() -> None:
    low, high = sorted((key_of_layer(0), key_of_layer(1)))
    shared = len(low) - 1
    block = node(entry(low), entry(high[shared:], shared))
    assert low[:shared] == high[:shared]
    assert refused(node_cid(block), store(block)) is Fault.MALFORMED_TREE


@pytest.mark.parametrize(("layer", "of_child"), [(0, 1), (0, 2), (2, 1), (2, 3), (2, 0)])
def test_a_child_of_another_layer_than_the_next_is_refused(layer: int, of_child: int) -> None:
    child = node(entry(key_of_layer(of_child, "a.a.a/")))
    root = node(entry(key_of_layer(layer + 1, "m.m.m/")), link=node_cid(child))
    assert refused(node_cid(root), store(root, child)) is Fault.MALFORMED_TREE


@pytest.mark.parametrize("side", ["before", "behind"])
def test_keys_must_grow_over_the_borders_of_nodes(side: str) -> None:
    middle = key_of_layer(1, "m.m.m/")
    child = node(entry(key_of_layer(0, "z.z.z/" if side == "before" else "a.a.a/")))
    link = node_cid(child)
    root = node(entry(middle), link=link) if side == "before" else node(entry(middle, link=link))
    assert refused(node_cid(root), store(root, child)) is Fault.MALFORMED_TREE


def test_the_same_child_must_not_stand_on_both_sides_of_a_key() -> None:
    low = node(entry(key_of_layer(0, "a.a.a/")))
    root = node(entry(key_of_layer(1, "b.b.b/"), link=node_cid(low)), link=node_cid(low))
    assert refused(node_cid(root), store(root, low)) is Fault.MALFORMED_TREE


def test_a_child_out_of_its_grandparents_bounds_is_refused() -> None:
    beyond = node(entry(key_of_layer(0, "z.z.z/")))
    between = node(link=node_cid(beyond))
    root = node(entry(key_of_layer(2, "a.a.a/")), link=node_cid(between))
    assert refused(node_cid(root), store(root, between, beyond)) is Fault.MALFORMED_TREE


def test_a_subtree_that_is_linked_to_again_and_again_is_not_followed_again() -> None:
    blocks: dict[bytes, bytes] = {}
    below: Link | None = None
    for layer in range(8):
        keys = [key_of_layer(layer, f"{name}/") for name in "abcdef"]
        block = node(*(entry(key, link=below) for key in keys), link=below)
        below = node_cid(block)
        blocks[below] = block
    assert below is not None
    assert refused(below, blocks) is Fault.MALFORMED_TREE


@pytest.mark.parametrize("layer", range(5))
def test_a_circle_of_nodes_ends_at_the_lowest_layer(layer: int) -> None:
    """No hash allows it; if a store did, the walk would end."""
    circle = bytes(VALUE)
    root = node(entry(key_of_layer(layer)), link=Link(circle))
    assert refused(node_cid(root), {circle: node(link=Link(circle)), node_cid(root): root}) is Fault.MALFORMED_TREE
    assert refused(circle, {circle: root}) is Fault.MALFORMED_TREE


def test_a_chain_of_nodes_as_deep_as_its_top_key_is_walked() -> None:
    top, low = key_of_layer(6), key_of_layer(0)
    root, blocks = tree_of({top: VALUE, low: VALUE})
    assert len(blocks) == 7
    assert sum(verify_tree(root, blocks)) == 2


def test_a_chain_of_nodes_that_leads_to_nothing_is_refused() -> None:
    chain = [node()]
    for _ in range(6):
        chain.append(node(link=node_cid(chain[-1])))
    root = node(entry(key_of_layer(6)), link=node_cid(chain[5]))
    assert refused(node_cid(root), store(root, *chain)) is Fault.MALFORMED_TREE


# Paths


NO_PATHS = ["nothing", "/a", "a/", "a/b/c", "a//b", "a/.", "a/..", "a b/c", "a/b c", "a/ü", "a/b%", "a/b\x7f"]


@pytest.mark.parametrize("path", [*NO_PATHS, "a/" + "b" * 513, "a" * 318 + "/b"])
def test_a_path_that_is_none_is_refused(path: str) -> None:
    block = node(entry(path.encode()))
    assert refused(node_cid(block), store(block)) is Fault.BAD_PATH


@pytest.mark.parametrize("path", ["a/b", "a/...", "a/.a", "a.b-c/~_:.-", "a/" + "b" * 512, "a" * 317 + "/b"])
def test_a_path_of_another_collection_is_held_to_its_form_only(path: str) -> None:
    root, blocks = tree_of({path.encode(): VALUE})
    assert sum(verify_tree(root, blocks)) == 1


@given(st.text(st.sampled_from("ab/.~ %\n\x00é"), max_size=12))
def test_paths_are_those_that_ops_may_name(path: str) -> None:
    as_op = ops._PATH.fullmatch(path) is not None and not path.endswith(ops._DOTS)
    assert (_PATH.fullmatch(path.encode()) is not None) is as_op


# Commits


def test_a_commit_of_the_asked_repo_is_read() -> None:
    alice = RepoBuilder("alice")
    alice.create("3kaaaaaaaaa2a", memory("x"))
    assert alice.commit is not None
    read = read_commit(*alice.commit, alice.did)
    assert (read.did, read.rev, read.data) == (alice.did, alice.rev, alice.data)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"did": "did:plc:another"}, "did_mismatch"),
        ({"version": 2}, "malformed_commit"),
        ({"data": None}, "malformed_commit"),
        ({"more": "x" * MAX_SYNC_BYTES}, "malformed_commit"),
    ],
)
def test_another_commit_is_refused(change: dict[str, object], reason: str) -> None:
    alice = RepoBuilder("alice")
    alice.apply()
    assert alice.commit is not None
    block = encode_block({**decode_block(alice.commit[1]), **change})
    with pytest.raises(Rejected) as caught:
        read_commit(block_cid(block), block, alice.did)
    assert caught.value.reason == reason


def test_a_commit_of_lists_that_claim_the_rest_of_it_is_refused_without_their_being_made() -> None:
    """To decode this would take hours, or a terabyte."""
    block = b"\x9a\x00\x0f\x00\x00" * 200_000
    with pytest.raises(Rejected) as caught:
        read_commit(block_cid(block), block, "did:plc:a")
    assert caught.value.reason == "malformed_commit"


def test_layers_are_those_of_the_definition() -> None:
    """Else the trees that the tests build would be as wrong as what reads them."""
    for layer in range(6):
        key = key_of_layer(layer)
        assert layer_of(key) == layer
        root, blocks = tree_of({key: VALUE})
        assert sum(verify_tree(root, blocks)) == 1
