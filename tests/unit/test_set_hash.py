"""The set hash: what the reference implementation says, and what makes it the hash of a set."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.verify.set_hash import EMPTY_HASH, EMPTY_STATE, SetHash, element
from memory.space_protocol import SET_STATE_BYTES
from tests.space_repos import recorded

VECTORS: list[dict[str, Any]] = recorded("vectors-lthash.json")["lthash"]
ELEMENTS = st.lists(st.binary(min_size=1, max_size=80), max_size=150)


def set_of(elements: list[bytes]) -> SetHash:
    records = SetHash()
    records.add(elements)
    return records


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_states_and_hashes_are_those_of_the_reference(vector: dict[str, Any]) -> None:
    added = vector["add"] if "add" in vector else [vector["element"]] * vector["times"]
    records = set_of([each.encode() for each in added])
    records.remove(each.encode() for each in vector.get("remove", ()))
    if "stateB64" in vector:
        assert records.state() == b64decode(vector["stateB64"])
    assert records.digest().hex() == vector["digestHex"]


def test_one_element_is_the_row_that_the_reference_expands_it_to() -> None:
    xof = recorded("vectors-lthash.json")["xof"]
    state = set_of([xof["element"].encode()]).state()
    assert state.hex() == xof["blake3Xof2048Hex"]
    assert [int.from_bytes(state[at : at + 2], "little") for at in range(0, 16, 2)] == xof["first8LanesLE"]


def test_an_element_is_path_and_cid() -> None:
    assert element("a.b.c/self", "bafy") == b"a.b.c/self/bafy"


def test_nothing_has_the_hash_of_zeros() -> None:
    assert (SetHash().state(), SetHash().digest()) == (EMPTY_STATE, EMPTY_HASH)
    assert EMPTY_HASH.hex() == VECTORS[0]["digestHex"]


@given(ELEMENTS, st.randoms(use_true_random=False))
def test_order_does_not_matter(elements: list[bytes], draw: Any) -> None:
    shuffled = draw.sample(elements, len(elements))
    assert set_of(shuffled).state() == set_of(elements).state()


@given(ELEMENTS, ELEMENTS)
def test_what_is_added_and_then_removed_leaves_nothing(kept: list[bytes], gone: list[bytes]) -> None:
    records = set_of(kept)
    records.add(gone)
    records.remove(reversed(gone))
    assert records.state() == set_of(kept).state()


@given(ELEMENTS, ELEMENTS)
def test_it_goes_on_from_a_stored_state(first: list[bytes], second: list[bytes]) -> None:
    records = SetHash(set_of(first).state())
    records.add(second)
    assert records.state() == set_of(first + second).state()


@given(st.lists(st.binary(min_size=1, max_size=80), min_size=1, max_size=150))
def test_many_at_once_are_the_same_as_one_by_one(elements: list[bytes]) -> None:
    slowly = SetHash()
    for each in elements:
        slowly.add([each])
    assert slowly.state() == set_of(elements).state()
    for each in elements:
        slowly.remove([each])
    assert slowly.state() == EMPTY_STATE


@given(
    st.sets(st.binary(min_size=1, max_size=80), max_size=20), st.sets(st.binary(min_size=1, max_size=80), max_size=20)
)
def test_other_sets_have_other_hashes(some: set[bytes], others: set[bytes]) -> None:
    assert (set_of(sorted(some)).digest() == set_of(sorted(others)).digest()) == (some == others)


def test_what_is_added_twice_is_in_it_twice() -> None:
    records = set_of([b"a", b"a"])
    records.remove([b"a"])
    assert records.state() == set_of([b"a"]).state()


def test_a_copy_goes_its_own_way() -> None:
    records = set_of([b"a"])
    copied = records.copy()
    copied.add([b"b"])
    assert records.state() == set_of([b"a"]).state()
    assert copied.state() == set_of([b"a", b"b"]).state()


@pytest.mark.parametrize("size", [0, 1, SET_STATE_BYTES - 1, SET_STATE_BYTES + 1])
def test_a_state_of_another_size_is_none(size: int) -> None:
    with pytest.raises(ValueError, match="size"):
        SetHash(bytes(size))
