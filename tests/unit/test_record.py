from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import regex
from cbrrr import CID, encode_dag_cbor
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.identifiers import COLLECTION
from memory.record import (
    InvalidReason,
    InvalidRecord,
    Memory,
    Occurrence,
    Precision,
    _count_graphemes,
    interpret_record,
)

RECORDING = Path(__file__).parents[1] / "recordings" / "firehose" / "expected-memories.json"

RKEY = "3mine22222222"
ABSENT = object()
BASE: dict[str, Any] = {"$type": COLLECTION, "content": "The user prefers tea.", "createdAt": "2026-11-01T10:00:00Z"}
FAMILY = "👩\u200d👩\u200d👧\u200d👦"  # one grapheme of seven code points

NOT_STRINGS: list[Any] = [None, True, False, 0, 42, b"text", CID.cidv1_raw_sha256_32_from(b""), [], ["text"], {}]


def block(**changes: Any) -> bytes:
    """A valid record's block with these properties changed; `ABSENT` takes one away."""
    properties = {name: value for name, value in {**BASE, **changes}.items() if value is not ABSENT}
    return encode_dag_cbor(properties)


def memory(**changes: Any) -> Memory:
    interpreted = interpret_record(RKEY, block(**changes))
    assert isinstance(interpreted, Memory), interpreted
    return interpreted


def reason(**changes: Any) -> InvalidReason:
    interpreted = interpret_record(RKEY, block(**changes))
    assert isinstance(interpreted, InvalidRecord), interpreted
    return interpreted.reason


# What a valid record says


def test_a_record_with_required_properties_only_is_a_memory() -> None:
    assert memory() == Memory(
        content="The user prefers tea.",
        kind=None,
        scope=None,
        agent=None,
        client=None,
        source_uri=None,
        created_at=datetime(2026, 11, 1, 10, tzinfo=UTC),
        updated_at=None,
        occurred=None,
        supersedes=(),
    )


def test_every_known_property_is_read() -> None:
    full = memory(
        kind="preference",
        scope="app:1",
        updatedAt="2026-11-02T12:00:00+02:00",
        provenance={"agent": "codex", "client": "https://app.example/client.json", "sourceUri": "https://example.com"},
        occurredAt={"from": "2026-10-01T00:00:00Z", "precision": "month"},
        supersedes=["at://did:plc:alice/dev.bastienrobert.memory.record/3mold22222222", "at://"],
    )
    assert (full.kind, full.scope, full.agent) == ("preference", "app:1", "codex")
    assert (full.client, full.source_uri) == ("https://app.example/client.json", "https://example.com")
    assert full.updated_at == datetime(2026, 11, 2, 10, tzinfo=UTC)
    assert full.occurred == Occurrence(
        datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC), Precision.MONTH
    )
    assert full.supersedes == ("at://did:plc:alice/dev.bastienrobert.memory.record/3mold22222222", "at://")


def test_unknown_properties_are_tolerated_everywhere() -> None:
    memory(
        confidence=87,
        x={"deep": [None, b"\0"]},
        provenance={"model": 4},
        occurredAt={"from": "2026-10-01T00:00:00Z", "zone": None},
    )


def test_open_strings_may_be_anything_even_empty() -> None:
    odd = memory(content="", kind="", scope="", provenance={"agent": "", "client": "no uri", "sourceUri": ""})
    assert (odd.content, odd.kind, odd.scope) == ("", "", "")
    assert (odd.agent, odd.client, odd.source_uri) == ("", "no uri", "")
    assert memory(kind="hunch").kind == "hunch"


def test_nul_characters_survive() -> None:
    assert memory(content="nul\0inside", scope="\0").content == "nul\0inside"


def test_entries_are_kept_as_they_stand_however_odd() -> None:
    assert memory(supersedes=["", "x", "x", "at://did:plc:a/b"]).supersedes == ("", "x", "x", "at://did:plc:a/b")
    assert memory(supersedes=[]).supersedes == ()
    assert memory(provenance={}).agent is None


# Why a record is invalid


@pytest.mark.parametrize(
    "rkey", ["self", "my:mem~1._x", "3mine2222222", "3mine222222222", "zmine22222222", "", "k" * 512]
)
def test_a_record_key_must_be_a_tid(rkey: str) -> None:
    assert interpret_record(rkey, block()) == InvalidRecord(InvalidReason.RKEY_NO_TID)


@pytest.mark.parametrize("undecodable", [b"", b"\x80", b"\xa1", encode_dag_cbor({**BASE, "x": 1.5}), block() + b"\0"])
def test_a_block_must_decode(undecodable: bytes) -> None:
    assert interpret_record(RKEY, undecodable) == InvalidRecord(InvalidReason.UNDECODABLE)


def test_levels_are_counted_with_the_record_as_the_first() -> None:
    def nested(levels: int) -> list[Any]:
        value: list[Any] = []
        for _ in range(levels - 1):
            value = [value]
        return value

    memory(x=nested(511))
    assert reason(x=nested(512)) is InvalidReason.NESTED_TOO_DEEP
    assert reason(x=nested(1_500)) is InvalidReason.NESTED_TOO_DEEP


def test_a_record_must_say_its_type() -> None:
    assert interpret_record(RKEY, block(**{"$type": ABSENT})) == InvalidRecord(InvalidReason.TYPE_MISSING)


@pytest.mark.parametrize("other", [*NOT_STRINGS, "", "app.bsky.feed.post", f"{COLLECTION}#main"])
def test_a_record_must_be_of_the_type(other: Any) -> None:
    assert interpret_record(RKEY, block(**{"$type": other})) == InvalidRecord(InvalidReason.OTHER_TYPE)


def test_content_and_creation_are_required() -> None:
    assert reason(content=ABSENT) is InvalidReason.CONTENT_MISSING
    assert reason(createdAt=ABSENT) is InvalidReason.CREATED_AT_MISSING


def test_an_occurrence_needs_its_beginning() -> None:
    assert reason(occurredAt={}) is InvalidReason.OCCURRED_FROM_MISSING
    assert reason(occurredAt={"to": "2026-01-01T00:00:00Z"}) is InvalidReason.OCCURRED_FROM_MISSING


@pytest.mark.parametrize("value", NOT_STRINGS)
@pytest.mark.parametrize("name", ["content", "createdAt", "updatedAt", "kind", "scope"])
def test_strings_must_be_strings(name: str, value: Any) -> None:
    assert reason(**{name: value}) is InvalidReason.WRONG_TYPE


@pytest.mark.parametrize("value", NOT_STRINGS)
@pytest.mark.parametrize("name", ["agent", "client", "sourceUri"])
def test_strings_of_the_provenance_must_be_strings(name: str, value: Any) -> None:
    assert reason(provenance={name: value}) is InvalidReason.WRONG_TYPE


@pytest.mark.parametrize("value", NOT_STRINGS)
@pytest.mark.parametrize("name", ["from", "to", "precision"])
def test_strings_of_the_occurrence_must_be_strings(name: str, value: Any) -> None:
    assert reason(occurredAt={"from": "2026-01-01T00:00:00Z", name: value}) is InvalidReason.WRONG_TYPE


@pytest.mark.parametrize("value", ["text", *(value for value in NOT_STRINGS if value != {})])
@pytest.mark.parametrize("name", ["provenance", "occurredAt"])
def test_objects_must_be_objects(name: str, value: Any) -> None:
    assert reason(**{name: value}) is InvalidReason.WRONG_TYPE


@pytest.mark.parametrize("value", ["at://did:plc:a", None, True, 1, b"", {}])
def test_entries_must_be_a_list(value: Any) -> None:
    assert reason(supersedes=value) is InvalidReason.WRONG_TYPE


@pytest.mark.parametrize("value", NOT_STRINGS)
def test_every_entry_must_be_a_string(value: Any) -> None:
    assert reason(supersedes=["at://did:plc:a", value]) is InvalidReason.SUPERSEDES_NO_STRING


def test_twenty_entries_are_allowed() -> None:
    assert len(memory(supersedes=["x"] * 20).supersedes) == 20
    assert reason(supersedes=["x"] * 21) is InvalidReason.SUPERSEDES_TOO_MANY


def test_ten_thousand_bytes_of_content_are_allowed() -> None:
    family_bytes = len(FAMILY.encode())
    fitting = FAMILY * (10_000 // family_bytes)
    memory(content=fitting + "x" * (10_000 % family_bytes))
    assert reason(content=fitting + "x" * (10_000 % family_bytes + 1)) is InvalidReason.CONTENT_TOO_LONG
    assert reason(content="é" * 5_001) is InvalidReason.CONTENT_TOO_LONG
    assert reason(content="x" * 900_000) is InvalidReason.CONTENT_TOO_LONG


def test_twenty_five_hundred_graphemes_are_allowed() -> None:
    memory(content="x" * 2_500)
    memory(content="e\u0301" * 2_500)
    assert reason(content="x" * 2_501) is InvalidReason.CONTENT_TOO_MANY_GRAPHEMES
    assert reason(content="e\u0301" * 2_500 + "x") is InvalidReason.CONTENT_TOO_MANY_GRAPHEMES
    assert reason(content="日" * 2_501) is InvalidReason.CONTENT_TOO_MANY_GRAPHEMES
    memory(content="\r\n" * 2_500)


def test_scope_is_measured_in_bytes() -> None:
    memory(scope="é" * 256)
    assert reason(scope="é" * 256 + "x") is InvalidReason.SCOPE_TOO_LONG


def test_agent_is_measured_in_bytes() -> None:
    memory(provenance={"agent": "é" * 128})
    assert reason(provenance={"agent": "é" * 128 + "x"}) is InvalidReason.AGENT_TOO_LONG


@pytest.mark.parametrize("text", ["yesterday", "", "2026-01-01T00:00:00-00:00", "0000-01-01T00:00:00Z"])
def test_datetimes_must_have_the_protocols_format(text: str) -> None:
    assert reason(createdAt=text) is InvalidReason.NO_DATETIME
    assert reason(updatedAt=text) is InvalidReason.NO_DATETIME
    assert reason(occurredAt={"from": text}) is InvalidReason.NO_DATETIME
    assert reason(occurredAt={"from": "2026-01-01T00:00:00Z", "to": text}) is InvalidReason.NO_DATETIME


@pytest.mark.parametrize("text", ["decade", "", "Year", "year "])
def test_a_precision_is_one_of_four(text: str) -> None:
    assert reason(occurredAt={"from": "2026-01-01T00:00:00Z", "precision": text}) is InvalidReason.UNKNOWN_PRECISION


def test_every_reason_has_its_own_name() -> None:
    assert len({reason.value for reason in InvalidReason}) == len(InvalidReason)


def test_recorded_records_are_valid_except_those_made_wrong() -> None:
    accounts = {a["account"]: a["memories"] for a in json.loads(RECORDING.read_text()).values()}
    reasons: dict[str, Counter[str]] = {}
    for name, records in accounts.items():
        reasons[name] = Counter()
        for path, expected in records.items():
            if isinstance(expected["value"], dict):
                encoded = encode_dag_cbor(expected["value"], atjson_mode=True)
                interpreted = interpret_record(path.removeprefix(f"{COLLECTION}/"), encoded)
                reasons[name][interpreted.reason if isinstance(interpreted, InvalidRecord) else "valid"] += 1
    assert reasons["alice"] == {"valid": 9}
    assert reasons["bob"] == {"valid": 6, "supersedesTooMany": 1, "wrongType": 1}
    assert reasons["carol"] == {"valid": 9, "contentTooLong": 1, "contentTooManyGraphemes": 2}
    assert reasons["dave"] == {
        "valid": 9,
        "wrongType": 3,
        "noDatetime": 3,
        "rkeyNoTid": 3,
        "contentMissing": 1,
        "createdAtMissing": 1,
        "occurredFromMissing": 1,
        "unknownPrecision": 1,
        "scopeTooLong": 1,
    }
    assert reasons["heidi"] == {"valid": 450}


# Whatever comes


graphemes = st.lists(st.sampled_from(["🇫", "🇷", "x", "\r", "\n", "\u0301", "\u200d", "👩", "क", "्", "ᄀ", "\u0600"]))


@settings(max_examples=300)
@given(graphemes.map("".join))
def test_graphemes_are_counted_as_unicode_divides_them(text: str) -> None:
    assert _count_graphemes(text) == len(regex.findall(r"\X", text))


json_like: Any = st.recursive(
    st.sampled_from(["2026-01-01T00:00:00Z", "year", "\0", *NOT_STRINGS]) | st.integers(-5, 5),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["from", "to", "precision", "agent", "x"]), inner),
    max_leaves=6,
)


names = st.sampled_from([*BASE, "updatedAt", "kind", "scope", "occurredAt", "provenance", "supersedes"])


@settings(max_examples=200)
@given(st.dictionaries(names, json_like))
def test_every_record_is_a_memory_or_invalid_for_a_reason(changes: dict[str, Any]) -> None:
    assert isinstance(interpret_record(RKEY, encode_dag_cbor({**BASE, **changes})), Memory | InvalidRecord)


@settings(max_examples=300)
@given(st.binary(max_size=100), st.text(max_size=20))
def test_no_bytes_and_no_key_break_the_interpreter(noise: bytes, rkey: str) -> None:
    for candidate in (noise, block()[: len(noise)] + noise):
        assert isinstance(interpret_record(rkey, candidate), Memory | InvalidRecord)
        assert isinstance(interpret_record(RKEY, candidate), Memory | InvalidRecord)
