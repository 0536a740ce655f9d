"""A node from its bytes: the same as decoding it and looking at every field, at a cost that no claim in it raises."""

from __future__ import annotations

import random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.verify.car import Link, decode_block, encode_block, read_car
from indexer.verify.node import Child, Node, encode_node
from indexer.verify.node_bytes import _ENTRIES, MAX_KEY_BYTES, MAX_NODE_ENTRIES, split_node
from indexer.verify.reasons import Fault, Inconsistent
from memory.identifiers import is_binary_cid
from tests.builders import block_cid
from tests.mutations import mutate
from tests.recorded import FOLDER
from tests.tree_model import tree_of
from tests.unit.test_tree import KEYS, entry, node

Split = tuple[list[Any], list[Any], list[Any]]

# Of DAG-CBOR maps, whose keys come in one order only.
_NODE_FIELDS = ("e", "l")
_ENTRY_FIELDS = ("k", "p", "t", "v")

VALUE = block_cid(b"\x01")
# Digests whose bytes could be taken for bytes of the node.
DIGESTS = [
    (part * 32)[:length].rjust(32, b"x")
    for part in (b"al\xf6", b"al\xd8\x2aX\x25\x00", b"av\xd8\x2aX\x25\x00", b"\xa4akAxap\x00at\xf6", b"ap\x00", b"\xf6")
    for length in (len(part), 32)
]
CIDS = [Link(prefix + digest) for prefix in (b"\x01\x71\x12\x20", b"\x01\x55\x12\x20") for digest in DIGESTS]

keys_of_a_node = st.lists(
    st.one_of(st.sampled_from(KEYS), st.text(st.characters(min_codepoint=0x20), min_size=1).map(str.encode)),
    unique=True,
    max_size=30,
).map(sorted)
links = st.one_of(st.none(), st.sampled_from(CIDS))


def split_or_refuse(block: bytes) -> Split | None:
    try:
        return split_node(block)
    except Inconsistent as error:
        assert error.fault is Fault.MALFORMED_TREE  # noqa: PT017
        return None


def decoded_node(block: bytes) -> tuple[list[bytes], list[Link], list[Child]]:
    """The same by way of a decoder, which says what is canonical."""
    fields = decode_block(block)
    if not _is_map_of(_NODE_FIELDS, fields):
        raise Inconsistent(Fault.MALFORMED_TREE)
    listed, first = fields.values()
    if not isinstance(listed, list) or not (first is None or type(first) is Link):
        raise Inconsistent(Fault.MALFORMED_TREE)
    entries = cast(list[Any], listed)
    if len(entries) > MAX_NODE_ENTRIES:
        raise Inconsistent(Fault.MALFORMED_TREE)
    keys: list[bytes] = []
    values: list[Link] = []
    links: list[Child] = [first]
    key = b""
    for each in entries:
        if not _is_map_of(_ENTRY_FIELDS, each):
            raise Inconsistent(Fault.MALFORMED_TREE)
        suffix, shared, link, value = each.values()
        if type(suffix) is not bytes or type(shared) is not int or type(value) is not Link:
            raise Inconsistent(Fault.MALFORMED_TREE)
        if not (link is None or type(link) is Link):
            raise Inconsistent(Fault.MALFORMED_TREE)
        if not suffix or not 0 <= shared <= len(key) or shared + len(suffix) > MAX_KEY_BYTES:
            raise Inconsistent(Fault.MALFORMED_TREE)
        # In one comparison: the key is greater than the one before it, and shares no more with it than it says.
        if shared < len(key) and suffix[0] <= key[shared]:
            raise Inconsistent(Fault.MALFORMED_TREE)
        key = key[:shared] + suffix
        keys.append(key)
        values.append(value)
        links.append(link)
    return keys, values, links


def _is_map_of(fields: tuple[str, ...], value: Any) -> bool:
    return type(value) is dict and tuple(cast(dict[str, Any], value)) == fields


def decode_or_refuse(block: bytes) -> Split | None:
    """What decoding gives, but for control characters in keys and CIDs of kinds that repos do not use."""
    try:
        keys, values, children = decoded_node(block)
    except Inconsistent:
        return None
    cids = [*values, *(child for child in children if isinstance(child, Link))]
    if any(byte < 0x20 for key in keys for byte in key) or not all(map(is_binary_cid, cids)):
        return None
    return keys, values, children


@given(keys_of_a_node, links, st.data())
def test_a_node_reads_as_it_was_written(keys: list[bytes], first: Link | None, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.sampled_from(CIDS), min_size=len(keys), max_size=len(keys)))
    behind = data.draw(st.lists(links, min_size=len(keys), max_size=len(keys)))
    block = encode_node(Node(0, keys, values, [first, *behind]))
    assert split_node(block) == (keys, values, [first, *behind])


def test_damaged_nodes_are_judged_as_by_decoding_them(seed: int) -> None:
    draw = random.Random(seed)
    kept = refused = 0
    for _ in range(20_000):
        keys = sorted(draw.sample(KEYS, draw.randrange(5)))
        children: list[Any] = [draw.choice((None, *CIDS)) for _ in range(len(keys) + 1)]
        block = mutate(encode_node(Node(0, keys, [draw.choice(CIDS) for _ in keys], children)), draw)
        found = split_or_refuse(block)
        assert found == decode_or_refuse(block), block.hex()
        kept, refused = kept + (found is not None), refused + (found is None)
    assert min(kept, refused) > 1000  # else the damage is too small or too great to prove anything


def test_recorded_nodes_read_as_decoded() -> None:
    blocks = [
        block for path in (FOLDER / "repos").glob("*.car") for block in read_car(path.read_bytes()).blocks.values()
    ]
    assert [split_or_refuse(block) for block in blocks] == [decode_or_refuse(block) for block in blocks]
    assert sum(split_or_refuse(block) is not None for block in blocks) > 100


@pytest.mark.parametrize("size", [1, 22, 23, 24, 25, 255, 256, 257, 1023, MAX_KEY_BYTES])
def test_suffixes_and_prefixes_of_every_length_are_read(size: int) -> None:
    first = b"k" * size
    assert split_node(node(entry(first)))[0] == [first]
    if size < MAX_KEY_BYTES:
        assert split_node(node(entry(first), entry(b"x", size)))[0] == [first, first + b"x"]


@pytest.mark.parametrize("block", [node(entry(b"k" * 1025)), node(entry(b"k" * 1024), entry(b"x", 1024))])
def test_longer_keys_are_refused(block: bytes) -> None:
    assert split_or_refuse(block) is None


@pytest.mark.parametrize("count", [0, 1, 23, 24, 25, 255, 256, 257, MAX_NODE_ENTRIES])
def test_nodes_of_every_length_are_read(count: int) -> None:
    keys = [b"%04d" % number for number in range(count)]
    block = encode_node(Node(0, keys, [VALUE] * count, [None] * (count + 1)))
    assert split_node(block)[0] == keys
    assert split_or_refuse(block.replace(b"\xa2ae", b"\xa2ae\x98", 1)) is None


def test_a_node_of_more_entries_is_refused() -> None:
    keys = [b"%04d" % number for number in range(MAX_NODE_ENTRIES + 1)]
    assert split_or_refuse(encode_node(Node(0, keys, [VALUE] * len(keys), [None] * (len(keys) + 1)))) is None


@pytest.mark.parametrize("claimed", [0, 1, 3])
def test_a_node_that_claims_another_number_of_entries_is_refused(claimed: int) -> None:
    block = node(entry(b"a"), entry(b"b"))
    assert split_or_refuse(block) is not None
    assert split_or_refuse(block.replace(b"\xa2ae\x82", b"\xa2ae" + bytes([0x80 + claimed]), 1)) is None


@pytest.mark.parametrize("block", [node(), node(link=VALUE), node(entry(b"a"), entry(b"b"), link=VALUE)])
def test_a_part_of_a_node_is_no_node(block: bytes) -> None:
    assert split_or_refuse(block) is not None
    for length in range(len(block)):
        assert split_or_refuse(block[:length]) is None
        assert split_or_refuse(block[length + 1 :]) is None


@pytest.mark.parametrize("place", range(3))
def test_bytes_between_entries_are_refused(place: int) -> None:
    first, second = (encode_block(entry(key)) for key in (b"a", b"b"))
    for rest in (b"x", b"\xa4ak", first[:-1], b"al\xf6"):
        parts = [first, second]
        parts.insert(place, rest)
        assert split_or_refuse(b"\xa2ae\x82" + b"".join(parts) + b"al\xf6") is None


@pytest.mark.parametrize("character", [b"\x00", b"\n", b"\x1f"])
def test_a_key_with_a_control_character_is_no_key(character: bytes) -> None:
    assert split_or_refuse(node(entry(b"a/" + character + b"b"))) is None


@pytest.mark.parametrize("prefix", [b"\x01\x71\x12\x1f", b"\x01\x70\x12\x20", b"\x01\x71\x1e\x20", b"\x12\x20\x01\x71"])
def test_a_link_of_another_kind_is_no_link(prefix: bytes) -> None:
    other = Link(prefix + b"d" * 32)
    for block in (node(entry(b"a", v=other)), node(entry(b"a", link=other)), node(entry(b"a"), link=other)):
        assert split_or_refuse(block) is None


def test_lists_that_claim_the_rest_of_the_block_are_refused_without_being_made() -> None:
    """To decode this would take hours, or a terabyte."""
    block = b"\xa2ae" + b"\x9a\x00\x0f\x00\x00" * 200_000 + b"al\xf6"
    assert split_or_refuse(block) is None


def test_what_is_no_entry_is_not_searched_for_entries() -> None:
    """Every fourth byte of this could begin one, and be tried for a thousand bytes."""
    rest = b"\xa4akA" * 250_000
    for block in (rest, encode_block(entry(b"a")) + rest):
        assert len(_ENTRIES.findall(block)) == 1 + (block != rest)
        assert split_or_refuse(b"\xa2ae\x81" + block + b"al\xf6") is None


def test_whole_trees_read_as_decoded(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(20):
        _, blocks = tree_of({key: draw.choice(CIDS) for key in draw.sample(KEYS, 60)})
        for block in blocks.values():
            assert split_node(block) == decode_or_refuse(block)
