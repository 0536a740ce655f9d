"""CAR files: every block is what its CID says, or nothing is taken."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.verify.car import Link, decode_block, encode_block, read_car
from memory.errors import Rejected
from tests.builders import block_cid, write_car
from tests.recorded import FOLDER

ROOT = block_cid(encode_block({"n": 0}))
BLOCKS: dict[bytes, bytes] = {block_cid(block): block for block in (encode_block({"n": n}) for n in range(5))}
CAR = write_car(ROOT, BLOCKS.items())
RAW_BYTES = b"\xff no DAG-CBOR"
RAW = Link(block_cid(RAW_BYTES).replace(b"\x71", b"\x55", 1))


def refused(data: bytes) -> str:
    with pytest.raises(Rejected) as caught:
        read_car(data)
    return caught.value.reason


@given(st.permutations(list(BLOCKS.items())))
def test_blocks_come_in_any_order(blocks: list[tuple[bytes, bytes]]) -> None:
    car = read_car(write_car(ROOT, blocks))
    assert (car.root, car.blocks) == (ROOT, BLOCKS)


def test_repeated_and_extra_blocks_are_legal() -> None:
    extra = encode_block({"nobody": "asked"})
    car = read_car(write_car(ROOT, [*BLOCKS.items(), *BLOCKS.items(), (block_cid(extra), extra)]))
    assert car.blocks == {**BLOCKS, block_cid(extra): extra}


def test_a_root_need_not_be_there() -> None:
    car = read_car(write_car(ROOT, []))
    assert (car.root, car.blocks) == (ROOT, {})


def test_raw_blocks_are_checked_and_left_out() -> None:
    assert read_car(write_car(ROOT, [*BLOCKS.items(), (RAW, RAW_BYTES)])).blocks == BLOCKS
    assert refused(write_car(ROOT, [(RAW, RAW_BYTES + b"!")])) == "block_hash"


@pytest.mark.parametrize("cid", BLOCKS)
def test_one_changed_byte_in_any_block_is_noticed(cid: bytes) -> None:
    block = BLOCKS[cid]
    for changed in (block[:-1] + bytes([block[-1] ^ 1]), block[:-1], block + b"\x00", b""):
        assert refused(write_car(ROOT, {**BLOCKS, cid: changed}.items())) == "block_hash"


def test_a_truncated_car_is_malformed_unless_whole_blocks_are_gone() -> None:
    whole = {len(write_car(ROOT, list(BLOCKS.items())[:count])) for count in range(len(BLOCKS))}
    for length in range(len(CAR)):
        if length in whole:
            assert read_car(CAR[:length]).blocks.items() < BLOCKS.items()
        else:
            assert refused(CAR[:length]) == "malformed_car"


HEADER = encode_block({"roots": [ROOT], "version": 1})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x80",
        b"\xff" * 20,
        bytes([len(HEADER) + 1]) + HEADER,
        b"\x01\xff",
        *(
            bytes([len(header)]) + header
            for header in (
                encode_block({"roots": [ROOT], "version": 2}),
                encode_block({"roots": [], "version": 1}),
                encode_block({"roots": [bytes(ROOT)], "version": 1}),
                encode_block({"roots": ROOT, "version": 1}),
                encode_block({"version": 1}),
                encode_block([ROOT]),
                HEADER[:-1] + b"\x18\x01",  # the version, not in its shortest form
            )
        ),
        bytes([len(HEADER) | 0x80, 0x00]) + HEADER,  # the length, not in its shortest form
        CAR + b"\x00",
        CAR + b"\x01\x01",
        CAR + b"\x23" + ROOT[:35],
        CAR + b"\xff\xff\xff\xff\x7f" + ROOT,
        CAR + b"\xff\xff\xff\xff\xff\x7f" + ROOT,
        CAR + b"\x26\x12\x20" + b"\x00" * 36,  # a CID of version 0
        CAR + b"\x26\x01\x71\x12\x1f" + b"\x00" * 34,
        CAR + b"\x26\x01\x70\x12\x20" + b"\x00" * 34,  # another codec
        CAR + b"\x26\x01\x71\x13\x20" + b"\x00" * 34,  # another hash
    ],
)
def test_what_is_no_car_is_malformed(data: bytes) -> None:
    assert refused(data) == "malformed_car"


@given(st.binary(max_size=120))
def test_any_bytes_are_a_car_or_refused(data: bytes) -> None:
    for candidate in (data, CAR + data, bytes([len(HEADER)]) + HEADER + data):
        try:
            read_car(candidate)
        except Rejected as error:
            assert error.reason in ("malformed_car", "block_hash")  # noqa: PT017


def test_recorded_repos_are_read_whole() -> None:
    for path in sorted((FOLDER / "repos").glob("*.car")):
        car = read_car(path.read_bytes())
        assert car.root in car.blocks
        for cid, block in car.blocks.items():
            assert block_cid(block) == cid


def test_links_and_bytes_stay_apart() -> None:
    value = {"link": ROOT, "bytes": bytes(ROOT)}
    decoded = decode_block(encode_block(value))
    assert {name: type(held) for name, held in decoded.items()} == {"link": Link, "bytes": bytes}
    assert encode_block(decoded) == encode_block(value)


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\x18\x01",
        b"\xa2ab\x01aa\x01",
        b"\xa2aa\x01aa\x01",
        b"\x9f\xff",
        b"\xf9\x3c\x00",
        b"\x61\xff",
        b"\x01\x01",
    ],
)
def test_blocks_have_one_form_only(block: bytes) -> None:
    assert decode_block(block) is None


@pytest.mark.parametrize("unit", [b"\x81", b"\xa1ax"])
def test_a_deeply_nested_block_breaks_nothing(unit: bytes) -> None:
    block = unit * 100_000 + b"\x01"
    assert encode_block(decode_block(block)) == block
