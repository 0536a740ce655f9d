"""A Space's CAR in pieces: the recorded ones, and whatever else a host may send in the place of one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.verify.car_stream import MAX_BLOCK_BYTES
from indexer.verify.set_hash import SetHash
from indexer.verify.space_car import SpaceCar, SpaceRecord, VerifiedSpaceRepo
from indexer.verify.space_commit import HashMismatch, SpaceRepo, parse_commit_block
from memory.errors import Rejected
from memory.identifiers import COLLECTION
from memory.signatures import parse_did_key
from tests.builders import SigningKey, memory
from tests.fakes.space_bytes import Cid, cid_of, encode_cbor, encode_map, from_json, hash_of, signed_commit, write_car
from tests.mutations import mutate
from tests.space_repos import (
    AUTHOR,
    CORE,
    NOW,
    REV,
    SPACE,
    BuiltRepo,
    car_of,
    path,
    reason_of,
    recorded,
    recorded_cars,
    recorded_repo,
)

RECORDED = recorded_cars()
BUILT = BuiltRepo.of("b", "a", "cc")
CAR = BUILT.car()
REPO = BUILT.repo
HEADER_BYTES = 100
INDEX_AT = len(write_car([], BUILT.parts()[:1])) - len(write_car([], [])) + HEADER_BYTES
TWINS = BuiltRepo({path(rkey): memory("The same." if rkey in "ac" else rkey) for rkey in "abcd"})
MALFORMED_INDEXES: dict[str, Callable[[], bytes]] = {
    "a list": lambda: encode_cbor([]),
    "not a map": lambda: b"\x00",
    "a map of no known length": lambda: b"\xbf\xff",
    "a map of 64 bits": lambda: b"\xbb" + bytes(8),
    "bytes behind it": lambda: encode_cbor(BUILT.index) + b"\x00",
    "an entry less than it says": lambda: b"\xa4" + encode_cbor(BUILT.index)[1:],
    "an entry more than it says": lambda: b"\xa2" + encode_cbor(BUILT.index)[1:],
    "a longer form of its head": lambda: b"\xb8\x03" + encode_cbor(BUILT.index)[1:],
    "entries by bytes, not by length": lambda: encode_map(sorted(BuiltRepo.of("b", "aa").index.items())),
    "a path longer than it says": lambda: encode_cbor(BUILT.index).replace(b"\x78\x21", b"\x78\x20"),
    "a longer form of a path's length": lambda: encode_cbor(BUILT.index).replace(b"\x78\x21", b"\x79\x00\x21"),
    "the same path twice": lambda: encode_map([*BuiltRepo.of("a").index.items()] * 2),
    "a path without a key": lambda: encode_cbor({COLLECTION: cid_of(b"")}),
    "an empty key": lambda: encode_cbor({f"{COLLECTION}/": cid_of(b"")}),
    "three parts": lambda: encode_cbor({f"{COLLECTION}/a/b": cid_of(b"")}),
    "a dot": lambda: encode_cbor({f"{COLLECTION}/.": cid_of(b"")}),
    "two dots": lambda: encode_cbor({f"{COLLECTION}/..": cid_of(b"")}),
    "another character": lambda: encode_cbor({f"{COLLECTION}/é": cid_of(b"")}),
    "too long a key": lambda: encode_cbor({f"{COLLECTION}/{'x' * 513}": cid_of(b"")}),
    "too long a collection": lambda: encode_cbor({f"{'x' * 318}/a": cid_of(b"")}),
    "never an entry": lambda: b"\xa1" + b"x" * 4000,
    "bytes, not a link": lambda: encode_cbor({path("a"): bytes(cid_of(b""))}),
    "text, not a link": lambda: encode_cbor({path("a"): "bafy"}),
    "a raw record": lambda: encode_cbor({path("a"): Cid(cid_of(b"").replace(b"\x71", b"\x55", 1))}),
    "a CID of another hash": lambda: encode_cbor({path("a"): Cid(b"\x01\x71\x1e\x20" + bytes(32))}),
    "a CID of version 0": lambda: encode_cbor({path("a"): Cid(b"\x12\x20" + bytes(32))}),
}


def pieces(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def read(
    chunks: Sequence[bytes], repo: SpaceRepo = REPO, *, values: bool = True, **limits: int
) -> tuple[VerifiedSpaceRepo, list[SpaceRecord]]:
    car = SpaceCar(repo, NOW, values=values, **limits)
    records = [record for chunk in chunks for record in car.feed(chunk)]
    return car.finish(), records


def refusal(*chunks: bytes, **options: Any) -> str:
    return reason_of(read, chunks, **options)


def contents(records: list[SpaceRecord]) -> dict[str, bytes]:
    """By path, each of which is given once."""
    blocks = {f"{record.collection}/{record.rkey}": record.block for record in records}
    assert len(blocks) == len(records)
    return blocks


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_recorded_repos_verify_in_any_pieces(name: str, size: int) -> None:
    repo, data = RECORDED[name]
    verified, records = read(pieces(data, size), repo)
    assert [cid_of(record.block) for record in records] == [record.cid for record in records]
    assert [record[:3] for record in records] == list(verified.index)
    assert len(records) == len(verified.index)
    assert SetHash(verified.state).digest() == verified.commit.hash


def test_a_car_lists_what_its_vectors_say() -> None:
    repo, data = RECORDED["python-built"]
    verified, records = read([data], repo)
    expected = {
        key: from_json({"$link": cid}) for key, cid in recorded("vectors-commit.json")["pythonCar"]["records"].items()
    }
    assert {f"{each.collection}/{each.rkey}": each.cid for each in verified.index} == expected
    assert contents(records).keys() == expected.keys()


def test_an_empty_repo_has_no_records() -> None:
    repo, data = RECORDED["repo-empty"]
    verified, records = read([data], repo)
    assert (len(verified.index), list(verified.index), records) == (0, [], [])


def test_a_recorded_index_alone_tells_the_same_as_the_whole_repo() -> None:
    data = (CORE / "repo-bob-index-only.car").read_bytes()
    alone, records = read(pieces(data, 50), recorded_repo("bob"), values=False)
    whole, _ = read([RECORDED["repo-bob"][1]], recorded_repo("bob"))
    assert records == []
    assert (list(alone.index), alone.state, alone.commit.hash) == (list(whole.index), whole.state, whole.commit.hash)


@pytest.mark.parametrize("size", [64, 100_000])
def test_a_torn_repo_has_a_good_commit_and_the_wrong_hash(size: int) -> None:
    about = recorded("repo-race-inconsistent.json")
    repo = SpaceRepo(about["space"], about["author"], parse_did_key(about["didKey"]))
    data = (CORE / "repo-race-inconsistent-index-only.car").read_bytes()
    with pytest.raises(HashMismatch) as caught:
        read(pieces(data, size), repo, values=False)
    repo.check(caught.value.commit, NOW)
    assert caught.value.reason == "hash_mismatch"


def test_a_mismatch_is_told_before_any_record_is_given() -> None:
    torn = BUILT.parts(commit=encode_cbor(BUILT.commit(digest=hash_of({}))))
    car, given = SpaceCar(REPO, NOW), list[SpaceRecord]()
    with pytest.raises(HashMismatch):
        for piece in pieces(car_of(torn), 10):
            given += car.feed(piece)
    assert given == []
    assert car.verified is None


@given(st.lists(st.integers(0, len(CAR)), max_size=12))
def test_any_pieces_are_the_same_repo(cuts: list[int]) -> None:
    chunks = [CAR[start:end] for start, end in pairwise([0, *sorted(cuts), len(CAR)])]
    verified, records = read(chunks)
    assert contents(records) == BUILT.blocks
    assert verified.commit.hash == BUILT.hash


@given(
    st.dictionaries(
        st.text("abcXYZ0189._:~-", min_size=1, max_size=30).filter(lambda rkey: rkey not in (".", "..")),
        st.integers(0, 5),
        max_size=300,
    )
)
def test_every_repo_is_read_as_it_was_built(numbers: dict[str, int]) -> None:
    built = BuiltRepo({path(rkey): {"n": number} for rkey, number in numbers.items()})
    verified, records = read(pieces(built.car(), 100))
    assert contents(records) == built.blocks
    assert list(verified.index) == [(*key.split("/"), cid) for key, cid in built.index.items()]


def test_the_longest_paths_are_read() -> None:
    built = BuiltRepo({f"{'c' * 317}/{'k' * 512}": {}, "a/b": {}})
    assert contents(read(pieces(built.car(), 33))[1]) == built.blocks


def test_a_car_cut_anywhere_is_refused() -> None:
    for length in range(len(CAR)):
        assert refusal(CAR[:length]) in {"truncated_car", "record_missing"}, length


def test_an_index_cut_anywhere_is_refused() -> None:
    data = car_of(BUILT.parts()[:2])
    read([data], values=False)
    for length in range(len(data)):
        assert refusal(data[:length], values=False) == "truncated_car", length


def test_whole_blocks_that_are_gone_from_the_end_are_missed() -> None:
    for count in range(2, 5):
        assert refusal(car_of(BUILT.parts()[:count])) == "record_missing"


def test_any_byte_changed_is_refused() -> None:
    for place in range(len(CAR)):
        for change in (1, 0x20, 0x80):
            changed = bytearray(CAR)
            changed[place] ^= change
            assert refusal(bytes(changed)), place


def test_damage_of_any_kind_is_refused_whatever_the_pieces() -> None:
    for seed in range(3000):
        draw = random.Random(seed)
        damaged = mutate(CAR, draw)
        if damaged != CAR:
            assert refusal(*pieces(damaged, draw.choice((1, 50, 5000)))), seed


def test_a_car_with_another_header_is_malformed() -> None:
    parts = BUILT.parts()
    (commit, _), (index, _), *_ = parts
    for roots in ([], [commit], [commit, index, index], [Cid(commit.replace(b"\x71", b"\x55", 1)), index]):
        assert refusal(write_car(roots, parts)) == "malformed_car"
    assert refusal(CAR.replace(b"gversion\x01", b"gversion\x02")) == "malformed_car"
    assert refusal(b"<!doctype html>" * 10) == "malformed_car"


@pytest.mark.parametrize("order", [(1, 0), (0, 0), (1, 1)])
def test_commit_and_index_come_first_and_in_this_order(order: tuple[int, int]) -> None:
    parts = BUILT.parts()
    data = write_car([parts[0][0], parts[1][0]], [*(parts[at] for at in order), *parts[2:]])
    assert refusal(data) == "root_mismatch"


@pytest.mark.parametrize("length", [b"\x00", b"\x24", b"\x80\x00", b"\xff" * 5 + b"\x01"], ids=bytes.hex)
@pytest.mark.parametrize("start", [HEADER_BYTES, INDEX_AT])
def test_a_root_without_a_length_is_malformed(length: bytes, start: int) -> None:
    assert refusal(CAR[:start] + length + CAR[start + 2 :]) == "malformed_car"


@pytest.mark.parametrize("start", [HEADER_BYTES, INDEX_AT])
def test_a_length_in_a_longer_form_is_malformed(start: int) -> None:
    assert CAR[start] > 0x7F > CAR[start + 1]
    longer = bytes((CAR[start + 1] | 0x80, 0))
    assert refusal(CAR[: start + 1] + longer + CAR[start + 2 :]) == "malformed_car"


@pytest.mark.parametrize("garbage", [b"x", b"\xd8", b"a/"])
def test_what_is_no_entry_is_refused_long_before_the_index_ends(garbage: bytes) -> None:
    car = SpaceCar(REPO, NOW)
    car.feed(CAR[:INDEX_AT] + b"\xff\xff\x3f" + CAR[INDEX_AT + 2 : INDEX_AT + 2 + 36])
    assert reason_of(car.feed, b"\xb9\xff\xff" + garbage * 2000) == "malformed_index"


def test_a_giant_commit_is_refused_by_what_it_claims() -> None:
    car = SpaceCar(REPO, NOW)
    claimed = CAR[:HEADER_BYTES] + b"\xff\xff\x3f" + CAR[HEADER_BYTES + 2 : HEADER_BYTES + 2 + 36]
    assert reason_of(car.feed, claimed) == "malformed_commit"


def test_a_commit_that_is_too_long_is_malformed() -> None:
    assert refusal(car_of(BUILT.parts(commit=b"x" * 4097))) == "malformed_commit"


def test_a_commit_that_is_none_is_malformed() -> None:
    assert refusal(car_of(BUILT.parts(commit=encode_cbor({})))) == "malformed_commit"


def test_a_commit_of_another_author_or_hash_is_refused() -> None:
    stranger = BuiltRepo(BUILT.records, signer=SigningKey("somebody else"))
    assert refusal(stranger.car()) == "bad_signature"
    other_hash = BUILT.commit() | {"hash": bytes(32)}
    assert refusal(car_of(BUILT.parts(commit=encode_cbor(other_hash)))) == "bad_mac"


def test_roots_that_are_not_what_their_cids_say_are_refused() -> None:
    commit, index, *records = BUILT.parts()
    other_commit = encode_cbor(signed_commit(BUILT.signer, SPACE, AUTHOR, REV, digest=BUILT.hash, ikm=bytes(32)))
    assert refusal(car_of([(commit[0], other_commit), index, *records])) == "block_hash"
    assert refusal(car_of([commit, (index[0], encode_cbor({})), *records])) == "block_hash"


@pytest.mark.parametrize("name", MALFORMED_INDEXES)
@pytest.mark.parametrize("size", [3, 10_000])
def test_an_index_in_another_form_is_malformed(name: str, size: int) -> None:
    data = car_of(BUILT.parts(index=MALFORMED_INDEXES[name]()))
    assert refusal(*pieces(data, size)) == "malformed_index"


def test_an_index_may_have_a_most_size() -> None:
    size = len(encode_cbor(BUILT.index))
    assert len(read([CAR], most_index_bytes=size)[1]) == 3
    assert refusal(CAR, most_index_bytes=size - 1) == "index_too_big"


def test_a_giant_index_is_refused_by_what_it_claims() -> None:
    claimed = CAR[:INDEX_AT] + b"\xff\xff\xff\xff\x0f" + CAR[INDEX_AT + 2 : INDEX_AT + 2 + 36]
    assert reason_of(SpaceCar(REPO, NOW).feed, claimed) == "index_too_big"


def test_records_in_another_order_are_unexpected() -> None:
    commit, index, *records = BUILT.parts()
    assert refusal(car_of([commit, index, *reversed(records)])) == "record_unexpected"


def test_a_record_that_is_left_out_is_noticed_with_the_next_one() -> None:
    commit, index, first, _, third = BUILT.parts()
    assert refusal(car_of([commit, index, first, third])) == "record_unexpected"


def test_a_record_too_much_is_unexpected() -> None:
    extra = encode_cbor(memory("Not listed."))
    parts = BUILT.parts()
    assert refusal(car_of([*parts, (cid_of(extra), extra)])) == "record_unexpected"
    assert refusal(car_of([*parts, parts[-1]])) == "record_unexpected"


def test_a_raw_block_is_unexpected() -> None:
    raw = Cid(cid_of(b"raw").replace(b"\x71", b"\x55", 1))
    for data in (b"raw",):
        assert refusal(car_of([*BUILT.parts(), (raw, data)])) == "record_unexpected"


def test_a_record_that_is_not_what_its_cid_says_is_refused() -> None:
    *parts, (cid, block) = BUILT.parts()
    assert refusal(car_of([*parts, (cid, block + b"\x00")])) == "block_hash"


def test_records_behind_an_index_that_was_asked_for_alone_are_unexpected() -> None:
    assert refusal(CAR, values=False) == "record_unexpected"


@pytest.mark.parametrize("sent", [(0, 1, 2, 3), (0, 1, 3)], ids=["each time", "once"])
@pytest.mark.parametrize("size", [40, 10_000])
def test_a_record_that_stands_at_two_keys_may_come_once_or_each_time(sent: tuple[int, ...], size: int) -> None:
    commit, index, *records = TWINS.parts()
    assert records[0] == records[2]
    data = car_of([commit, index, *(records[at] for at in sent)])
    assert contents(read(pieces(data, size))[1]) == TWINS.blocks


def test_a_record_that_stands_at_the_last_keys_may_come_once() -> None:
    built = BuiltRepo({path(rkey): memory("The same.") for rkey in "abc"})
    assert contents(read([car_of(built.parts()[:3])])[1]) == built.blocks
    assert refusal(car_of(built.parts()[:2])) == "record_missing"
    assert refusal(car_of([*built.parts(), built.parts()[-1]])) == "record_unexpected"


def test_of_a_giant_record_only_the_beginning_is_given_once_all_is_checked() -> None:
    built = BuiltRepo({path("a"): memory("x" * MAX_BLOCK_BYTES), path("b"): memory("small")})
    (giant, small) = read(pieces(built.car(), 50_000))[1]
    assert giant.block == built.blocks[path("a")][:MAX_BLOCK_BYTES]
    assert (giant.cid, small.block) == (built.index[path("a")], built.blocks[path("b")])


def test_what_is_held_of_a_car_does_not_grow_with_its_records() -> None:
    built = BuiltRepo({path(f"{n}"): memory("x" * 10_000 + f"{n}") for n in range(200)})
    car = SpaceCar(built.repo, NOW)
    for piece in pieces(built.car(), 5000):
        car.feed(piece)
        assert car._records is None or len(car._records._blocks._held) < 20_000
    assert len(car.finish().index) == 200


def test_empty_pieces_change_nothing() -> None:
    chunks = [each for piece in pieces(CAR, 40) for each in (b"", piece, b"")]
    assert contents(read(chunks)[1]) == BUILT.blocks


def test_a_commit_may_be_read_before_the_records_come() -> None:
    car = SpaceCar(REPO, NOW)
    car.feed(car_of(BUILT.parts()[:2]))
    assert car.verified is not None
    assert car.verified.commit == parse_commit_block(BUILT.parts()[0][1])
    with pytest.raises(Rejected):
        car.finish()
