from __future__ import annotations

import base64
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from cbrrr import CID, encode_dag_cbor
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.data_model import (
    ITEMS_MAX,
    NESTING_LEVELS_MAX,
    NestedTooDeep,
    TooManyItems,
    Undecodable,
    decode_record,
    record_json,
)
from memory.errors import Rejected

VECTORS = Path(__file__).parents[2].parent / "shared" / "vectors"
RECORDING = Path(__file__).parents[1] / "recordings" / "firehose" / "expected-memories.json"

LINK = CID.cidv1_dag_cbor_sha256_32_from(b"some block")


def vectors(name: str) -> list[dict[str, Any]]:
    path = VECTORS / name
    if not path.exists():
        pytest.skip(f"the interoperability vectors are not here: {name}")
    return json.loads(path.read_text())


def block_of(value: Any) -> bytes:
    return encode_dag_cbor(value)


def record(value: object) -> bytes:
    """A block with one property, whatever it is."""
    return block_of({"x": value})


def from_json(value: Any) -> bytes:
    """The block of a record in its JSON form."""
    return encode_dag_cbor(value, atjson_mode=True)


def literally(value: Any) -> bytes:
    """The block of a value in its JSON form; a map that only looks like a link or bytes stays a map."""
    try:
        return from_json(value)
    except (TypeError, ValueError):
        return block_of(value)


def with_item(item: bytes) -> bytes:
    """A block with one property that is written in these very bytes."""
    return b"\xa1\x61x" + item


def nested_lists(levels: int) -> bytes:
    """A record of so many levels, itself the first."""
    return with_item(b"\x81" * (levels - 2) + b"\x80")


def test_links_and_bytes_are_kept_apart() -> None:
    block = block_of({"link": LINK, "bytes": bytes(LINK)})
    assert decode_record(block) == {"link": LINK, "bytes": bytes(LINK)}
    assert record_json(block) == {
        "link": {"$link": LINK.encode()},
        "bytes": {"$bytes": base64.b64encode(bytes(LINK)).decode().rstrip("=")},
    }


def test_nul_characters_survive_in_values_and_keys() -> None:
    properties = {"k\0ey": "a\0b"}
    assert decode_record(block_of(properties)) == properties
    assert record_json(block_of(properties)) == properties


def test_a_link_to_raw_bytes_and_one_by_blake3_are_links() -> None:
    for head in (b"\x01\x55\x12\x20", b"\x01\x71\x1e\x20"):
        link = CID(head + bytes(32))
        assert decode_record(record(link)) == {"x": link}


def test_every_level_up_to_the_bound_is_read() -> None:
    value = record_json(nested_lists(NESTING_LEVELS_MAX))["x"]
    levels = 1
    while isinstance(value, list):
        levels += 1
        value = value[0] if value else None
    assert levels == NESTING_LEVELS_MAX


@pytest.mark.parametrize("levels", [NESTING_LEVELS_MAX + 1, 1_500, 100_000])
@pytest.mark.parametrize("read", [decode_record, record_json])
def test_a_level_beyond_the_bound_is_refused(read: Callable[[bytes], object], levels: int) -> None:
    with pytest.raises(NestedTooDeep) as refused:
        read(nested_lists(levels))
    assert refused.value.reason == "nestedTooDeep"


def test_maps_are_levels_too() -> None:
    with pytest.raises(NestedTooDeep):
        decode_record(with_item(b"\xa1\x61x" * NESTING_LEVELS_MAX + b"\x01"))


def test_levels_that_follow_one_another_are_not_inside_one_another() -> None:
    siblings: list[list[object]] = [[[], {}]] * 2_000
    assert decode_record(record(siblings)) == {"x": siblings}


def test_record_of_very_many_items_is_refused() -> None:
    decode_record(with_item(b"\x99" + (ITEMS_MAX - 10).to_bytes(2) + bytes(ITEMS_MAX - 10)))
    with pytest.raises(TooManyItems):
        decode_record(with_item(b"\x99" + ITEMS_MAX.to_bytes(2) + bytes(ITEMS_MAX)))


def test_lists_that_claim_more_than_the_block_holds_are_refused_before_they_are_made() -> None:
    claim = b"\x9a" + (900_000).to_bytes(4, "big")
    with pytest.raises((Undecodable, TooManyItems)):
        decode_record(with_item(claim * 400 + b"\0" * 990_000))


@pytest.mark.parametrize(
    "item",
    [
        pytest.param(b"\xfb" + bytes(8), id="float"),
        pytest.param(b"\xfb\x7f\xf8" + bytes(6), id="not a number"),
        pytest.param(b"\xf9\x3c\x00", id="half float"),
        pytest.param(b"\xf7", id="undefined"),
        pytest.param(b"\xf8\x20", id="simple value"),
        pytest.param(b"\x62\xff\xfe", id="bad UTF-8"),
        pytest.param(b"\x63\xed\xa0\x80", id="surrogate"),
        pytest.param(b"\x1b\x80" + bytes(7), id="integer beyond 64 bits"),
        pytest.param(b"\x3b\xff" + bytes(7), id="negative integer beyond 64 bits"),
        pytest.param(b"\x18\x01", id="long spelling of an integer"),
        pytest.param(b"\x78\x01a", id="long spelling of a length"),
        pytest.param(b"\x7b" + b"\xff" * 8, id="text longer than can be"),
        pytest.param(b"\x9b" + b"\xff" * 8, id="list longer than can be"),
        pytest.param(b"\xbb" + b"\xff" * 8, id="map longer than can be"),
        pytest.param(b"\x9f\x01\xff", id="list of open length"),
        pytest.param(b"\x1c", id="reserved head"),
        pytest.param(b"\xc1\x01", id="other tag"),
        pytest.param(b"\xd8\x2a\x41\x00", id="link without CID"),
        pytest.param(b"\xd8\x2a\x58\x25\x01" + bytes(LINK), id="link without prefix"),
        pytest.param(b"\xd8\x2a\x58\x23\x00" + bytes(LINK)[:34], id="link cut short"),
        pytest.param(b"\xd8\x2a\x58\x25\x00" + bytes(LINK)[:30], id="link beyond the end"),
        pytest.param(b"\xd8\x2a\x01", id="link that is a number"),
        pytest.param(b"\xa2\x61b\x01\x61a\x01", id="keys out of order"),
        pytest.param(b"\xa2\x62aa\x01\x61b\x01", id="longer key first"),
        pytest.param(b"\xa2\x61a\x01\x61a\x01", id="repeated key"),
        pytest.param(b"\xa1\x01\x01", id="key that is no text"),
        pytest.param(b"\xa1\x61\xff\x01", id="key that is no UTF-8"),
        pytest.param(b"\xa1\x65$link\x61b", id="key kept for links"),
        pytest.param(b"\xa1\x66$bytes\x60", id="key kept for bytes"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x82\x01", id="list cut short"),
        pytest.param(b"\x01\x01", id="bytes left over"),
    ],
)
@pytest.mark.parametrize("read", [decode_record, record_json])
def test_what_is_not_of_the_data_model_is_undecodable(read: Callable[[bytes], object], item: bytes) -> None:
    with pytest.raises(Undecodable) as refused:
        read(with_item(item))
    assert refused.value.reason == "undecodable"


@pytest.mark.parametrize("read", [decode_record, record_json])
@pytest.mark.parametrize(
    "block", [b"", b"\x80", b"\x01", b"\x61a", b"\x41a", b"\xf6", b"\xd8\x2a\x58\x25\0" + bytes(LINK)]
)
def test_a_record_is_a_map(read: Callable[[bytes], object], block: bytes) -> None:
    with pytest.raises(Undecodable):
        read(block)


def test_reserved_keys_are_only_reserved_as_keys() -> None:
    properties: dict[str, Any] = {"x": ["$link", "$bytes", "\x65$link"], "$link2": 1}
    assert decode_record(block_of(properties)) == properties


def test_a_refusal_quotes_nothing_of_the_record() -> None:
    for block in (record(1.5), b"\xa2\x66secret\x01\x66secret\x01", with_item(b"\x67secret\xff")):
        with pytest.raises(Undecodable) as refused:
            decode_record(block)
        assert refused.value.__cause__ is None
        assert refused.value.__context__ is None or refused.value.__suppress_context__
        assert "secret" not in str(refused.value)


def test_integers_of_64_bits_are_kept() -> None:
    numbers = [0, 23, 24, 255, 256, 65_535, 65_536, 2**32, 2**53, 2**63 - 1, -1, -24, -25, -257, -(2**63)]
    assert decode_record(record(numbers)) == {"x": numbers}


def test_thousands_of_properties_are_read() -> None:
    properties = {f"k{n}": n for n in range(2_000)}
    assert decode_record(block_of(properties)) == properties


def test_every_recorded_record_comes_out_as_it_was_written() -> None:
    checked = 0
    for account in json.loads(RECORDING.read_text()).values():
        for expected in account["memories"].values():
            if isinstance(expected["value"], dict):
                block = from_json(expected["value"])
                assert CID.cidv1_dag_cbor_sha256_32_from(block).encode() == expected["cid"]
                assert record_json(block) == expected["value"]
                checked += 1
    assert checked > 500


def test_the_vectors_of_the_data_model_agree() -> None:
    for vector in vectors("data-model-fixtures.json"):
        block = base64.b64decode(vector["cbor_base64"] + "==")
        assert record_json(block) == vector["json"]
        assert from_json(vector["json"]) == block
        assert block_of(decode_record(block)) == block


def test_valid_vectors_of_the_data_model_are_read() -> None:
    for vector in vectors("data-model-valid.json"):
        value = json.loads(json.dumps(vector["json"]), parse_float=lambda text: int(float(text)))
        assert record_json(block_of(value)) == value


def test_invalid_vectors_that_are_not_of_the_data_model_are_refused() -> None:
    refused: set[str] = set()
    for vector in vectors("data-model-invalid.json"):
        try:
            record_json(literally(vector["json"]))
        except Undecodable:
            refused.add(vector["note"])
    # The others concern `$type` and blobs, which are properties like any other here.
    assert refused == {
        "top-level not an object",
        "float",
        "bytes with wrong field type",
        "bytes with extra fields",
        "link with wrong field type",
        "link with bogus CID",
        "link with extra fields",
    }


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
keys = texts.filter(lambda key: key not in ("$link", "$bytes"))
links = st.binary(max_size=8).map(CID.cidv1_dag_cbor_sha256_32_from)
scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | texts | st.binary(max_size=40) | links
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4), max_leaves=10
)
records = st.dictionaries(keys, values, max_size=4)


@given(records)
def test_the_json_form_encodes_to_the_same_block(properties: dict[str, Any]) -> None:
    block = block_of(properties)
    assert decode_record(block) == properties
    in_json = record_json(block)
    assert from_json(in_json) == block
    assert json.loads(json.dumps(in_json)) == in_json


@given(records, st.data())
def test_mutated_records_are_read_or_rejected_alike(properties: dict[str, Any], data: st.DataObject) -> None:
    block = bytearray(block_of(properties))
    for _ in range(data.draw(st.integers(1, 3))):
        block[data.draw(st.integers(0, len(block) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(block[: data.draw(st.integers(0, len(block)))])
    for candidate in (bytes(block), cut):
        try:
            decoded = decode_record(candidate)
        except Rejected:
            with pytest.raises(Rejected):
                record_json(candidate)
        else:
            # Canonical: nothing else has these bytes.
            assert block_of(decoded) == candidate
            assert from_json(record_json(candidate)) == candidate


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_no_bytes_break_the_reader(block: bytes) -> None:
    for candidate in (block, with_item(block)):
        with suppress(Undecodable, NestedTooDeep):
            decode_record(candidate)
