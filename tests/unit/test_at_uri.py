from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.at_uri import AtUri, parse_record_uri
from memory.identifiers import COLLECTION
from memory.space import PUBLIC, SpaceRef

VECTORS = Path(__file__).parents[2].parent / "shared" / "vectors"

SPACE = SpaceRef("did:plc:host", "dev.bastienrobert.memory.space", "main")
PUBLIC_URI = "at://did:plc:alice/dev.bastienrobert.memory.record/3mine22222222"
SPACE_URI = f"{SPACE}/did:plc:alice/dev.bastienrobert.memory.record/3mine22222222"


def vectors(name: str) -> list[str]:
    path = VECTORS / name
    if not path.exists():
        pytest.skip(f"the interoperability vectors are not here: {name}")
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def test_a_public_record_uri_comes_out_as_it_went_in() -> None:
    uri = parse_record_uri(PUBLIC_URI)
    assert uri == AtUri("did:plc:alice", COLLECTION, "3mine22222222", None)
    assert uri is not None
    assert str(uri) == PUBLIC_URI
    assert uri.space_uri == PUBLIC


def test_a_record_uri_in_a_space_comes_out_as_it_went_in() -> None:
    uri = parse_record_uri(SPACE_URI)
    assert uri == AtUri("did:plc:alice", COLLECTION, "3mine22222222", SPACE)
    assert uri is not None
    assert str(uri) == SPACE_URI
    assert uri.space_uri == str(SPACE)


def test_a_space_never_shows_in_the_repr_of_a_record() -> None:
    assert "did:plc:host" not in repr(parse_record_uri(SPACE_URI))


@pytest.mark.parametrize("uri", [PUBLIC_URI, SPACE_URI])
@pytest.mark.parametrize("ending", ["/", "?", "?x=1", "#", "#/text", "/more", " ", "\n", "%20", "\0"])
def test_a_record_uri_ends_with_its_key(uri: str, ending: str) -> None:
    assert parse_record_uri(uri + ending) is None


@pytest.mark.parametrize("uri", [PUBLIC_URI, SPACE_URI])
@pytest.mark.parametrize("part", ["alice", "memory.record", "3mine"])
@pytest.mark.parametrize("oddity", ["%61", " ", "?", "#", "//", "é"])
def test_an_oddity_in_any_part_is_no_record_uri(uri: str, part: str, oddity: str) -> None:
    assert parse_record_uri(uri.replace(part, oddity + part)) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "at://",
        "at:///",
        "AT://did:plc:alice/dev.bastienrobert.memory.record/3mine22222222",
        "at://alice.test/dev.bastienrobert.memory.record/3mine22222222",
        "at://did:plc:alice",
        "at://did:plc:alice/dev.bastienrobert.memory.record",
        "at://did:plc:alice/dev.bastienrobert.memory.record/..",
        "at://did:plc:alice/space/3mine22222222",
        str(SPACE),
        f"{SPACE}/did:plc:alice",
        f"{SPACE}/did:plc:alice/dev.bastienrobert.memory.record",
        f"{SPACE}/alice.test/dev.bastienrobert.memory.record/3mine22222222",
        "at://host.test/space/dev.bastienrobert.memory.space/main/did:plc:alice/dev.bastienrobert.memory.record/a",
        "at://did:plc:host/Space/dev.bastienrobert.memory.space/main/did:plc:alice/dev.bastienrobert.memory.record/a",
        "at://did:plc:host/space/short/main/did:plc:alice/dev.bastienrobert.memory.record/a",
        "at://did:plc:host/space/dev.bastienrobert.memory.space/a b/did:plc:alice/dev.bastienrobert.memory.record/a",
        "at://did:plc:alice/dev.bastienrobert.memory.record/" + "o" * 513,
        "at://" + "/" * 1_000_000,
    ],
)
def test_what_names_no_record_is_no_record_uri(text: str) -> None:
    assert parse_record_uri(text) is None


def test_every_valid_record_uri_of_the_vectors_parses() -> None:
    records = [uri for uri in vectors("aturi_syntax_valid.txt") if uri.startswith("at://did:") and uri.count("/") == 4]
    assert len(records) > 10
    for uri in records:
        assert str(parse_record_uri(uri)) == uri


def test_what_the_vectors_have_beside_record_uris_does_not_parse() -> None:
    for uri in vectors("aturi_syntax_valid.txt"):
        if not uri.startswith("at://did:") or uri.count("/") != 4:
            assert parse_record_uri(uri) is None


def test_nothing_that_the_vectors_call_invalid_parses() -> None:
    for uri in vectors("aturi_syntax_invalid.txt"):
        assert parse_record_uri(uri) is None


@given(st.text(alphabet="at:/did.plc-_~%?#space \0", max_size=60) | st.text(max_size=60))
def test_what_parses_comes_out_as_it_went_in(text: str) -> None:
    for candidate in (text, f"at://{text}", f"at://did:plc:a/{text}", f"{SPACE}/{text}"):
        uri = parse_record_uri(candidate)
        assert uri is None or str(uri) == candidate
