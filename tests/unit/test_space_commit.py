"""Commits of Space repos: both of their forms, and each thing that makes one count for nothing."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.verify.set_hash import SetHash
from indexer.verify.space_commit import (
    HashMismatch,
    SpaceCommit,
    SpaceRepo,
    check_contents,
    commit_context,
    commit_mac,
    json_bytes,
    parse_commit_block,
    parse_commit_json,
)
from memory.signatures import parse_did_key
from tests.builders import P256_ORDER, SigningKey, tid
from tests.fakes.space_bytes import Cid, encode_cbor, to_json
from tests.space_repos import NOW, BuiltRepo, reason_of, recorded, recorded_repo

VECTORS: list[dict[str, Any]] = recorded("vectors-commit.json")["commits"]
BUILT = BuiltRepo.of("a", "b")
FIELDS = BUILT.commit()
COMMIT = parse_commit_block(encode_cbor(FIELDS))
K256_ORDER = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141
LATE = datetime(2600, 1, 1, tzinfo=UTC)


def repo_of(vector: dict[str, Any]) -> SpaceRepo:
    return SpaceRepo(vector["space"], vector["author"], parse_did_key(vector["didKey"]))


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_commits_of_the_reference_verify(vector: dict[str, Any]) -> None:
    commit = parse_commit_block(bytes.fromhex(vector["commitCborHex"]))
    context = commit_context(vector["space"], vector["author"], vector["rev"], commit.ikm)
    assert context.hex() == vector["ctxHex"]
    assert commit_mac(context, commit.ikm, commit.hash).hex() == vector["macHex"] == commit.mac.hex()
    assert (commit.rev, commit.hash.hex(), commit.ikm.hex(), commit.signature.hex()) == (
        vector["rev"],
        vector["hashHex"],
        vector["ikmHex"],
        vector["sigHex"],
    )
    repo_of(vector).check(commit, LATE)
    records = SetHash()
    records.add(each.encode() for each in vector["elements"])
    check_contents(commit, records)


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_both_forms_say_the_same(vector: dict[str, Any]) -> None:
    block = bytes.fromhex(vector["commitCborHex"])
    names = {"hash": "hashHex", "ikm": "ikmHex", "mac": "macHex", "sig": "sigHex"}
    as_json = {name: to_json(bytes.fromhex(vector[hex_name])) for name, hex_name in names.items()}
    assert parse_commit_json(as_json | {"ver": 1, "rev": vector["rev"]}) == parse_commit_block(block)


def test_a_recorded_answer_verifies_with_its_type_and_without() -> None:
    answer = orjson.loads(recorded("oplog.json")["D.getLatestCommit.bob"])["commit"]
    assert "$type" in answer
    recorded_repo("bob").check(parse_commit_json(answer), NOW)
    del answer["$type"]
    recorded_repo("bob").check(parse_commit_json(answer), NOW)


def test_keys_of_the_other_curve_sign_as_well() -> None:
    built = BuiltRepo.of("a", signer=SigningKey("space author", "p256"))
    built.repo.check(parse_commit_json(built.commit_json()), NOW)


@pytest.mark.parametrize("name", FIELDS)
@pytest.mark.parametrize("form", ["block", "json"])
def test_a_commit_that_lacks_a_field_is_malformed(name: str, form: str) -> None:
    assert refused_to_parse({key: value for key, value in FIELDS.items() if key != name}, form) == "malformed_commit"


@pytest.mark.parametrize(
    "change",
    [
        {"rev": "not a tid"},
        {"rev": b"3m6aaaaaaaa2a"},
        {"rev": None},
        {"ver": "1"},
        {"ver": True},
        {"ver": None},
        {"hash": "text"},
        {"hash": bytes(31)},
        {"hash": bytes(33)},
        {"ikm": b""},
        {"ikm": bytes(31)},
        {"mac": bytes(31)},
        {"mac": bytes(64)},
        {"sig": bytes(63)},
        {"sig": bytes(65)},
        {"sig": None},
        {"prev": None},
    ],
    ids=str,
)
@pytest.mark.parametrize("form", ["block", "json"])
def test_a_field_of_another_kind_or_size_is_malformed(change: dict[str, Any], form: str) -> None:
    assert refused_to_parse(FIELDS | change, form) == "malformed_commit"


def refused_to_parse(commit: dict[str, Any], form: str) -> str:
    if form == "block":
        return reason_of(parse_commit_block, encode_cbor(commit))
    return reason_of(parse_commit_json, to_json(commit))


@pytest.mark.parametrize("version", [0, 2, -1])
def test_another_version_is_told_apart(version: int) -> None:
    assert reason_of(parse_commit_block, encode_cbor(FIELDS | {"ver": version})) == "commit_version"
    assert reason_of(parse_commit_json, to_json(FIELDS | {"ver": version})) == "commit_version"


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\xa0",
        b"\x80",
        b"\xf6",
        encode_cbor(FIELDS) + b"\x00",
        encode_cbor(FIELDS)[:-1],
        encode_cbor(FIELDS).replace(b"cver\x01", b"cver\x18\x01"),  # not the shortest form
        encode_cbor(FIELDS | {"ikm": "x" * 5000}),
        encode_cbor(FIELDS | {"hash": Cid(b"\x01\x71\x12\x20" + bytes(32))}),
    ],
)
def test_a_block_that_is_no_canonical_commit_is_malformed(block: bytes) -> None:
    assert reason_of(parse_commit_block, block) == "malformed_commit"


@pytest.mark.parametrize("value", [None, [], "commit", 1, {}])
def test_json_that_is_no_commit_is_malformed(value: object) -> None:
    assert reason_of(parse_commit_json, value) == "malformed_commit"


def test_json_of_another_type_is_malformed() -> None:
    assert reason_of(parse_commit_json, BUILT.commit_json() | {"$type": "a.b.c#signedCommit"}) == "malformed_commit"


@pytest.mark.parametrize(
    "value",
    [
        None,
        "AAE",
        {},
        {"$bytes": None},
        {"$bytes": "AAE", "other": 1},
        {"$link": "AAE"},
        {"$bytes": "AAE="},  # padded
        {"$bytes": "A"},
        {"$bytes": "AAF"},  # bits left over
        {"$bytes": "-_8"},  # the other alphabet
        {"$bytes": "AA E"},
        {"$bytes": "AAé"},
        {"$bytes": "=AAE"},
    ],
    ids=str,
)
def test_bytes_have_one_spelling(value: object) -> None:
    assert json_bytes(value) is None


@given(st.binary(max_size=100))
def test_bytes_of_every_length_are_read(data: bytes) -> None:
    assert json_bytes(to_json(data)) == data


def test_a_commit_of_another_space_author_or_key_is_not_theirs() -> None:
    repo = BUILT.repo
    other_key = parse_did_key(SigningKey("somebody else").did_key)
    for other in (
        replace(repo, space=repo.space + "2"),
        replace(repo, author="did:plc:cccccccccccccccccccccccc"),
        replace(repo, key=other_key),
    ):
        assert reason_of(other.check, COMMIT, NOW) == "bad_signature"


def test_the_parts_of_a_context_cannot_be_shifted() -> None:
    assert commit_context("ab", "c", "", b"") != commit_context("a", "bc", "", b"")


@given(st.integers(0, 31), st.integers(1, 255))
def test_another_hash_is_not_bound_to_the_commit(place: int, change: int) -> None:
    changed = bytearray(COMMIT.hash)
    changed[place] ^= change
    assert reason_of(BUILT.repo.check, replace(COMMIT, hash=bytes(changed)), NOW) == "bad_mac"


def test_a_mac_made_for_another_commit_does_not_pass() -> None:
    later = BuiltRepo.of("a", "b", rev="3m6aaaaaaab2a")
    other = parse_commit_json(later.commit_json())
    assert reason_of(BUILT.repo.check, replace(COMMIT, mac=other.mac), NOW) == "bad_mac"


def test_a_signature_in_the_upper_half_is_refused() -> None:
    for curve, order in (("k256", K256_ORDER), ("p256", P256_ORDER)):
        built = BuiltRepo.of("a", signer=SigningKey("space author", curve))  # type: ignore[arg-type]
        commit = parse_commit_json(built.commit_json())
        twin = commit.signature[:32] + (order - int.from_bytes(commit.signature[32:])).to_bytes(32)
        assert reason_of(built.repo.check, replace(commit, signature=twin), NOW) == "signature_not_low_s"


@given(st.data())
def test_any_byte_changed_in_a_block_is_refused(data: st.DataObject) -> None:
    block = bytearray(encode_cbor(FIELDS))
    block[data.draw(st.integers(0, len(block) - 1))] ^= data.draw(st.integers(1, 255))

    def take() -> None:
        BUILT.repo.check(parse_commit_block(bytes(block)), NOW)

    assert reason_of(take) in {"malformed_commit", "commit_version", "bad_signature", "bad_mac", "signature_not_low_s"}


def test_a_rev_may_be_five_minutes_ahead_and_no_more() -> None:
    for lead, refused in ((timedelta(minutes=5), False), (timedelta(minutes=5, milliseconds=1), True)):
        built = BuiltRepo.of("a", rev=tid(NOW + lead))
        commit = parse_commit_json(built.commit_json())
        if refused:
            assert reason_of(built.repo.check, commit, NOW) == "rev_in_future"
        else:
            built.repo.check(commit, NOW)


def test_other_contents_do_not_match_and_the_commit_is_told() -> None:
    with pytest.raises(HashMismatch) as caught:
        check_contents(COMMIT, SetHash())
    assert caught.value.commit == COMMIT
    assert caught.value.reason == "hash_mismatch"


def test_nothing_of_a_space_shows_in_a_repr() -> None:
    shown = repr(BUILT.repo) + repr(COMMIT) + repr(HashMismatch(COMMIT))
    assert not any(word in shown for word in (BUILT.repo.space, BUILT.repo.author, COMMIT.rev))
    assert {each.name for each in fields(SpaceCommit)} == {"rev", "hash", "ikm", "signature", "mac"}
