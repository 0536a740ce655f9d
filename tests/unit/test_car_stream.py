"""A CAR in pieces: whatever the pieces, what `read_car` says of the whole."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.verify.car import Link, encode_block, read_car
from indexer.verify.car_stream import MAX_BLOCK_BYTES, MAX_HEADER_BYTES, CarStream
from memory.errors import Rejected
from memory.record import RECORD_BYTES_MAX
from tests.builders import block_cid, write_car
from tests.mutations import mutate
from tests.recorded import FOLDER

ROOT = block_cid(encode_block({"n": 0}))
# Sizes around those at which a length takes another byte.
BLOCKS: dict[bytes, bytes] = {
    block_cid(block): block for size in (0, 1, 90, 91, 92, 127, 128, 300, 16_347, 16_348) for block in [b"x" * size]
}
CAR = write_car(ROOT, BLOCKS.items())
HEADER = write_car(ROOT, [])
EMPTY = block_cid(b"")  # all that the section of an empty block holds
RAW_BYTES = b"\xff no DAG-CBOR"


def raw_cid(block: bytes) -> Link:
    return Link(block_cid(block).replace(b"\x71", b"\x55", 1))


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def split(*chunks: bytes) -> tuple[bytes | None, list[tuple[bytes, bytes]]]:
    """The root, and all blocks in order."""
    stream = CarStream()
    found = [pair for chunk in chunks for pair in stream.feed(chunk)]
    stream.finish()
    return stream.root, found


def refused(*chunks: bytes) -> str:
    with pytest.raises(Rejected) as caught:
        split(*chunks)
    return caught.value.reason


@given(st.permutations(list(BLOCKS.items())), st.lists(st.integers(0, len(CAR)), max_size=12))
def test_blocks_come_in_any_order_and_in_any_pieces(blocks: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    car = write_car(ROOT, blocks)
    places = [0, *sorted(cuts), len(car)]
    chunks = [car[start:end] for start, end in pairwise(places)]
    assert split(*chunks) == (ROOT, blocks)


@pytest.mark.parametrize("size", [1, 2, 3, 35, 36, 37, 64, 4096, 2 * len(CAR)])
def test_pieces_of_every_size_are_the_same_car(size: int) -> None:
    assert split(*pieces(CAR, size)) == (ROOT, list(BLOCKS.items()))


def test_empty_pieces_change_nothing() -> None:
    assert split(b"", CAR[:7], b"", CAR[7:], b"") == (ROOT, list(BLOCKS.items()))


def test_a_block_is_given_with_the_piece_in_which_it_ends() -> None:
    first, second = list(BLOCKS.items())[7:9]
    car = write_car(ROOT, [first, second])
    stream = CarStream()
    assert stream.feed(HEADER[:-1]) == []
    assert stream.root is None
    assert stream.feed(HEADER[-1:]) == []
    assert stream.root == ROOT
    assert stream.feed(car[len(HEADER) : -1]) == [first]
    assert stream.feed(car[-1:]) == [second]


def test_repeated_and_extra_blocks_are_legal() -> None:
    twice = [*BLOCKS.items(), *BLOCKS.items()]
    assert split(write_car(ROOT, twice)) == (ROOT, twice)


def test_raw_blocks_are_checked_and_counted_and_left_out() -> None:
    stream = CarStream()
    assert stream.feed(write_car(ROOT, [(raw_cid(RAW_BYTES), RAW_BYTES), *BLOCKS.items()])) == list(BLOCKS.items())
    assert stream.blocks == 1 + len(BLOCKS)
    assert refused(write_car(ROOT, [(raw_cid(RAW_BYTES), RAW_BYTES + b"!")])) == "block_hash"


@pytest.mark.parametrize("cid", BLOCKS)
def test_one_changed_byte_in_any_block_is_noticed(cid: bytes) -> None:
    block = BLOCKS[cid]
    for changed in (block[:-1] + b"y", block + b"\x00"):
        assert refused(*pieces(write_car(ROOT, {**BLOCKS, cid: changed}.items()), 50)) == "block_hash"


def test_blocks_before_a_wrong_one_in_the_same_piece_are_lost_with_it() -> None:
    (cid, block), *_ = BLOCKS.items()
    with pytest.raises(Rejected):
        CarStream().feed(write_car(ROOT, [(cid, block), (cid, b"another")]))


def test_a_car_that_ends_early_is_truncated_unless_whole_blocks_are_gone() -> None:
    blocks = list(BLOCKS.items())[:8]
    car = write_car(ROOT, blocks)
    whole = {len(write_car(ROOT, blocks[:count])): count for count in range(len(blocks))}
    for length in range(len(car)):
        if length in whole:
            assert split(car[:length]) == (ROOT, blocks[: whole[length]])
        else:
            assert refused(car[:length]) == "truncated_car"
            assert refused(*pieces(car[:length], 100)) == "truncated_car"


@pytest.mark.parametrize(
    "data",
    [
        b"\x00",
        b"\xff" * 20,
        b"\x01\xff",
        *(
            bytes([len(header)]) + header
            for header in (
                encode_block({"roots": [ROOT], "version": 2}),
                encode_block({"version": 2}),  # how CARs of version 2 begin
                encode_block({"roots": [], "version": 1}),
                encode_block({"roots": [bytes(ROOT)], "version": 1}),
                encode_block({"roots": ROOT, "version": 1}),
                encode_block({"version": 1}),
                encode_block([ROOT]),
                HEADER[1:-1] + b"\x18\x01",  # the version, not in its shortest form
            )
        ),
        bytes([HEADER[0] | 0x80, 0x00]) + HEADER[1:],  # the length, not in its shortest form
        CAR + b"\x00",
        CAR + b"\x01\x01",
        CAR + b"\x23" + ROOT[:35],
        CAR + b"\x23" + EMPTY + b"\x24" + EMPTY,
        CAR + b"\xa4\x00" + EMPTY,
        CAR + b"\xa4\x80\x00" + EMPTY,
        CAR + b"\xff\xff\xff\xff\xff\x7f" + ROOT,
        CAR + b"\xff\xff\xff\xff\x80",
        CAR + b"\x26\x12\x20" + b"\x00" * 36,  # a CID of version 0
        CAR + b"\x26\x01\x71\x12\x1f" + b"\x00" * 34,
        CAR + b"\x26\x01\x70\x12\x20" + b"\x00" * 34,  # another codec
        CAR + b"\x26\x01\x71\x13\x20" + b"\x00" * 34,  # another hash
        CAR + b"\xff\xff\xff\xff\x7f\x01\x70\x12\x20" + b"\x00" * 32,  # the same of a long one
    ],
)
def test_what_is_no_car_is_malformed(data: bytes) -> None:
    assert refused(data) == "malformed_car"
    assert refused(*pieces(data, 1)) == "malformed_car"


def test_a_length_without_end_is_malformed_before_its_end() -> None:
    stream = CarStream()
    stream.feed(CAR + b"\xff" * 4)
    with pytest.raises(Rejected):
        stream.feed(b"\xff")


def header_of(size: int) -> bytes:
    """A header of so many bytes, with its length before it."""
    fields = {"roots": [ROOT] * 24, "version": 1}
    missing = size - len(encode_block(fields | {"x": ""}))
    header = next(
        block for n in range(missing + 1) if len(block := encode_block(fields | {"x": "y" * (missing - n)})) == size
    )
    return bytes([size & 0x7F | 0x80, size >> 7]) + header


def test_a_header_is_a_small_thing() -> None:
    assert split(header_of(MAX_HEADER_BYTES)) == (ROOT, [])
    assert refused(header_of(MAX_HEADER_BYTES + 1)) == "malformed_car"


def test_a_header_that_claims_more_is_refused_unread() -> None:
    with pytest.raises(Rejected):
        CarStream().feed(b"\x81\x08")


def test_a_header_of_nested_claims_costs_nothing() -> None:
    hostile = b"\x99\xff\xff" * (MAX_HEADER_BYTES // 3)
    assert refused(bytes([len(hostile) & 0x7F | 0x80, len(hostile) >> 7]) + hostile) == "malformed_car"


# Long blocks


@pytest.mark.parametrize("surplus", [0, 1, 2, 200_000, 5_000_000])
@pytest.mark.parametrize("size", [10_000_000, 65_536])
def test_of_a_long_block_only_the_beginning_is_kept(surplus: int, size: int) -> None:
    block = b"z" * (RECORD_BYTES_MAX + surplus)
    blocks = [*BLOCKS.items(), (block_cid(block), block), *BLOCKS.items()]
    _, found = split(*pieces(write_car(ROOT, blocks), size))
    given_block = dict(found)[block_cid(block)]
    assert given_block == block[:MAX_BLOCK_BYTES]
    assert (len(given_block) > RECORD_BYTES_MAX) is (surplus > 0)
    assert [cid for cid, _ in found] == [cid for cid, _ in blocks]


def test_no_more_of_a_long_block_is_ever_held() -> None:
    stream = CarStream()
    stream.feed(HEADER + b"\x80\x80\x80\x80\x10" + ROOT)  # 4 GB
    for _ in range(100):
        assert stream.feed(b"z" * 65_536) == []
        assert stream._long is not None
        assert len(stream._held) + len(stream._long.head) <= MAX_BLOCK_BYTES


@pytest.mark.parametrize("cid", [block_cid(b"another"), raw_cid(b"another")])
def test_a_long_block_is_checked_whole(cid: bytes) -> None:
    block = b"z" * 3_000_000
    car = write_car(ROOT, [(cid, block)])
    assert refused(*pieces(car, 100_000)) == "block_hash"
    assert refused(*pieces(write_car(ROOT, [(block_cid(block), block[:-1] + b"y")]), 100_000)) == "block_hash"


def test_a_long_raw_block_is_counted_and_left_out() -> None:
    block = b"z" * 3_000_000
    stream = CarStream()
    found = stream.feed(write_car(ROOT, [(raw_cid(block), block), *BLOCKS.items()]))
    assert found == list(BLOCKS.items())
    assert stream.blocks == 1 + len(BLOCKS)


@pytest.mark.parametrize("left", [1, 2_000_000, 2_999_999])
def test_a_car_that_ends_within_a_long_block_is_truncated(left: int) -> None:
    block = b"z" * 3_000_000
    assert refused(*pieces(write_car(ROOT, [(block_cid(block), block)])[:-left], 100_000)) == "truncated_car"


# Against `read_car`


def test_damaged_cars_are_judged_as_if_they_came_whole(seed: int) -> None:
    draw = random.Random(seed)
    car = write_car(ROOT, list(BLOCKS.items())[:8])
    for _ in range(3000):
        damaged = mutate(car, draw)
        try:
            expected = read_car(damaged)
        except Rejected as rejected:
            # One that ends early is malformed to those who have it whole.
            allowed = {rejected.reason, "truncated_car"} if rejected.reason == "malformed_car" else {rejected.reason}
            assert refused(*pieces(damaged, draw.choice((1, 7, 100, 10_000)))) in allowed
        else:
            root, found = split(*pieces(damaged, draw.choice((1, 7, 100, 10_000))))
            assert (root, dict(found)) == (expected.root, expected.blocks)


@given(st.binary(max_size=120), st.integers(1, 50))
def test_any_bytes_are_a_car_or_refused(data: bytes, size: int) -> None:
    for candidate in (data, HEADER + data):
        try:
            split(*pieces(candidate, size))
        except Rejected as error:
            assert error.reason in ("malformed_car", "block_hash", "truncated_car")  # noqa: PT017


def test_recorded_repos_are_split_as_if_they_came_whole() -> None:
    for path in sorted((FOLDER / "repos").glob("*.car")):
        whole = read_car(path.read_bytes())
        for size in (1, 1000, 1 << 16):
            root, found = split(*pieces(path.read_bytes(), size))
            assert (root, dict(found)) == (whole.root, whole.blocks)
