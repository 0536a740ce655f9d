"""Blocks that claim much and hold little: what a decoder would make room for is never asked of it.

Without the bounds each of these takes minutes and gigabytes.
"""

from __future__ import annotations

from hashlib import sha256

import pytest

from indexer.interpret import InvalidMemory, interpret_block
from indexer.verify.car import Link, read_car
from indexer.verify.node import parse_node
from indexer.verify.reasons import Fault, Inconsistent, Unattributable
from indexer.verify.signed import parse_commit
from memory.errors import Rejected
from memory.identifiers import cid_text
from memory.space import PUBLIC
from tests.feed import rkey

SIZE = 1_000_000


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


def test_car_whose_header_claims_much_is_no_car():
    bomb = nested_claims(SIZE, b"\xa1ar")
    length = len(bomb)
    varint = bytes([length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14])
    with pytest.raises(Rejected) as caught:
        read_car(varint + bomb)
    assert caught.value.reason == Unattributable.MALFORMED_CAR
