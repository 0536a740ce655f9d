"""Blocks that claim much and hold little: what a decoder would make room for is never asked of it.

Without the bounds each of these takes minutes and gigabytes.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.frames import OVERCLAIMING, BrokenFrame, event_of_others, open_frame
from indexer.interpret import InvalidMemory, interpret_block
from indexer.verify.car import Link, encode_block, read_car
from indexer.verify.node import parse_node
from indexer.verify.reasons import Fault, Inconsistent, Unattributable
from indexer.verify.signed import parse_commit
from memory.claimed_lengths import ITEMS_MAX, LACKING_MAX, overclaims
from memory.errors import Rejected
from memory.identifiers import cid_text
from memory.space import PUBLIC
from tests.builders import block_cid
from tests.feed import rkey

SIZE = 1_000_000
LINK = block_cid(b"\x01")
json_like = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**63), 2**63 - 1), st.text(), st.binary(), st.just(LINK)),
    lambda inner: st.one_of(st.lists(inner, max_size=30), st.dictionaries(st.text(), inner, max_size=30)),
    max_leaves=50,
)


def nested_claims(size: int, head: bytes = b"") -> bytes:
    """Lists in lists, each of which claims all that is left."""
    levels = size // 5
    return (head + b"".join(b"\x9a" + (size - 5 * level).to_bytes(4) for level in range(levels)))[:size]


def cid_of(block: bytes) -> Link:
    return Link(b"\x01\x71\x12\x20" + sha256(block).digest())


def test_commit_that_claims_much_is_no_commit():
    bomb = nested_claims(SIZE, b"\xa1asa")
    with pytest.raises(Rejected) as caught:
        parse_commit(cid_of(bomb), bomb)
    assert caught.value.reason == Unattributable.MALFORMED_COMMIT


def test_node_that_claims_much_is_no_node():
    bomb = nested_claims(SIZE, b"\xa2ae")
    with pytest.raises(Inconsistent) as caught:
        parse_node(cid_of(bomb), bomb, None)
    assert caught.value.fault is Fault.MALFORMED_TREE


def test_record_that_claims_much_is_invalid():
    bomb = nested_claims(SIZE - 10, b"\xa1atx")
    found = interpret_block("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", PUBLIC, rkey(1), cid_text(cid_of(bomb)), bomb)
    assert isinstance(found, InvalidMemory)


def test_frame_that_claims_much_is_broken():
    bomb = encode_block({"op": 1, "t": "#commit"}) + nested_claims(SIZE, b"\xa1ax")
    assert event_of_others(bomb, lambda _: False) is None
    with pytest.raises(BrokenFrame) as caught:
        open_frame(bomb)
    assert caught.value.reason == OVERCLAIMING


def test_frame_of_very_many_items_is_broken():
    many = encode_block({"op": 1, "t": "#commit"}) + encode_block({"x": [0] * (2 * ITEMS_MAX)})
    with pytest.raises(BrokenFrame):
        open_frame(many)


@given(st.lists(json_like, min_size=2, max_size=2))
def test_what_a_decoder_reads_has_room_for_its_claims(items: list[Any]):
    data = b"".join(encode_block(item) for item in items)
    assert not overclaims(data, 2)
    assert not overclaims(data, 2 + LACKING_MAX)
    assert not overclaims(data[:-1], 2), "cut off, it is broken in a common way"


def test_record_of_very_many_items_is_invalid():
    block = encode_block({"$type": "dev.bastienrobert.memory.record", "x": [{}] * ITEMS_MAX})
    found = interpret_block("did:plc:aaaaaaaaaaaaaaaaaaaaaaaa", PUBLIC, rkey(1), cid_text(cid_of(block)), block)
    assert isinstance(found, InvalidMemory)
    assert found.reason == "tooManyItems"


def test_car_whose_header_claims_much_is_no_car():
    bomb = nested_claims(SIZE, b"\xa1ar")
    length = len(bomb)
    varint = bytes([length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14])
    with pytest.raises(Rejected) as caught:
        read_car(varint + bomb)
    assert caught.value.reason == Unattributable.MALFORMED_CAR
