"""The lexicons, what is decoded by them, and page cursors."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from appview.answers.pages import fill_page
from appview.lexicon import LEXICONS, ArrayType, RefType, StringType, Type, load_catalogue, problems
from appview.page_cursor import PageCursors, Place, Question
from appview.parameters import decode_body, decode_query
from appview.refusals import InvalidCursor, InvalidRequest
from memory.at_uri import parse_record_uri
from memory.errors import Misconfigured

CATALOGUE = load_catalogue()
SEARCH = CATALOGUE.methods["dev.bastienrobert.memory.searchRecords"]
GET = CATALOGUE.methods["dev.bastienrobert.memory.getRecord"]
LIST = CATALOGUE.methods["dev.bastienrobert.memory.listRecords"]
DID = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"


def test_every_file_stands_at_its_nsid() -> None:
    for path in LEXICONS.rglob("*.json"):
        document = json.loads(path.read_text())
        assert document["lexicon"] == 1
        assert document["id"] == ".".join(path.relative_to(LEXICONS).with_suffix("").parts)


def test_every_reference_leads_to_a_definition() -> None:
    def references(schema: Type) -> set[str]:
        match schema:
            case RefType():
                return {schema.ref}
            case ArrayType():
                return references(schema.items)
            case _:
                return {ref for item in getattr(schema, "properties", {}).values() for ref in references(item)}

    schemas = [*CATALOGUE.definitions.values(), *(method.output for method in CATALOGUE.methods.values())]
    assert {ref for schema in schemas for ref in references(schema)} == set(CATALOGUE.definitions)


def test_parameters_have_types_that_can_be_decoded() -> None:
    for method in CATALOGUE.methods.values():
        assert method.parameters.required <= method.parameters.properties.keys()
        for schema in method.parameters.properties.values():
            assert not isinstance(schema, RefType)
            assert not isinstance(schema, ArrayType) or isinstance(schema.items, StringType)


def test_required_properties_are_declared() -> None:
    for schema in CATALOGUE.definitions.values():
        assert getattr(schema, "required", frozenset()) <= getattr(schema, "properties", {}).keys()


@pytest.mark.parametrize("kind", ["blob", "union", "token", None])
def test_a_lexicon_with_unknown_features_does_not_load(tmp_path: Path, kind: str | None) -> None:
    document = {"lexicon": 1, "id": "a.b.c", "defs": {"thing": {"type": "object", "properties": {"x": {"type": kind}}}}}
    (tmp_path / "c.json").write_text(json.dumps(document))
    with pytest.raises(Misconfigured):
        load_catalogue(tmp_path)


def test_no_uri_is_called_an_at_uri_which_validators_know_too_narrowly(tmp_path: Path) -> None:
    assert [path.name for path in LEXICONS.rglob("*.json") if '"at-uri"' in path.read_text()] == []
    uri = {"type": "string", "format": "at-uri"}
    document = {"lexicon": 1, "id": "a.b.c", "defs": {"thing": {"type": "object", "properties": {"x": uri}}}}
    (tmp_path / "c.json").write_text(json.dumps(document))
    with pytest.raises(Misconfigured):
        load_catalogue(tmp_path)


@pytest.mark.parametrize(
    "uri",
    [
        f"at://{DID}/dev.bastienrobert.memory.record/3kaaaaaaaaa2a",
        f"at://{DID}/space/com.example.team/notes/{DID}/dev.bastienrobert.memory.record/3kaaaaaaaaa2a",
    ],
)
def test_uri_of_a_record_of_either_form_is_taken(uri: str) -> None:
    decoded = decode_query(GET, f"uri={quote(uri)}".encode()).record_uri("uri")
    assert decoded == parse_record_uri(uri)
    assert decoded is not None


@pytest.mark.parametrize(
    "text",
    [
        *("", "tea", "https://example.com/", "at://", "at://alice.test/a.b.c/d", f"at://{DID}", f"at://{DID}/a.b.c"),
        *(f"at://{DID}/dev.bastienrobert.memory.record/3kaaaaaaaaa2a/", f"at://{DID}/space/com.example.team/notes"),
    ],
)
def test_uri_of_no_record_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        decode_query(GET, f"uri={quote(text)}".encode())
    example = "at://did:plc:…/collection/rkey"
    assert refused.value.message == f"The parameter uri must be a record's at-uri such as {example}."


COUNT = CATALOGUE.definitions["dev.bastienrobert.memory.defs#count"]
SUPERSESSION = CATALOGUE.definitions["dev.bastienrobert.memory.defs#supersession"]
TALLY = CATALOGUE.definitions["dev.bastienrobert.memory.defs#tally"]
VIEW = CATALOGUE.definitions["dev.bastienrobert.memory.defs#recordView"]


@pytest.mark.parametrize(
    ("schema", "value", "expected"),
    [
        (COUNT, {"value": "", "records": 1}, []),
        (COUNT, {"value": "", "records": 0}, ["answer.records must be from 1 to None"]),
        (COUNT, {"value": "", "records": True}, ["answer.records must be an integer"]),
        (COUNT, {"value": 1, "records": 1}, ["answer.value must be a string"]),
        (COUNT, {"records": 1}, ["answer.value is missing"]),
        (COUNT, {"value": "", "records": 1, "more": 1}, ["answer.more is not declared"]),
        (COUNT, [], ["answer must be an object"]),
        (
            TALLY,
            {"values": [{"value": "", "records": 1.0}], "distinct": 1},
            ["answer.values[0].records must be an integer"],
        ),
        (
            TALLY,
            {"values": [{"value": "", "records": 1}] * 51, "distinct": 1},
            ["answer.values must have at most 50 items"],
        ),
        (TALLY, {"values": {}, "distinct": 1}, ["answer.values must be an array"]),
    ],
)
def test_answers_are_held_against_their_type(schema: Type, value: Any, expected: list[str]) -> None:
    assert list(problems(CATALOGUE, schema, value)) == expected


def test_an_effect_outside_the_list_is_a_problem() -> None:
    [problem] = problems(CATALOGUE, SUPERSESSION, {"uri": "x", "effect": "deletes"})
    assert problem.startswith("answer.effect must be one of masks, ")


def test_formats_are_checked_in_answers() -> None:
    found = list(
        problems(
            CATALOGUE,
            VIEW,
            {
                "uri": "at://nowhere",
                "cid": "!",
                "repo": "alice",
                "handle": "no handle",
                "value": "text",
                "indexedAt": "now",
                "version": 1,
                "superseded": "no",
                "supersededBy": [],
                "supersedes": [],
            },
        )
    )
    assert [problem.split()[0] for problem in found] == [
        f"answer.{name}" for name in ("uri", "cid", "repo", "handle", "value", "indexedAt", "superseded")
    ]


def test_defaults_are_filled_in() -> None:
    parameters = decode_query(SEARCH, b"q=tea")
    assert (parameters.integer("limit"), parameters.text("mode"), parameters.flag("explain")) == (25, "hybrid", False)
    assert parameters.texts("kind") is None
    assert parameters.instant("asOf") is None
    assert parameters.record_uri("explainUri") is None


def test_a_query_and_a_body_decode_to_the_same() -> None:
    query = decode_query(SEARCH, b"q=a+b%20c&kind=&kind=fact&limit=3&explain=true&asOf=2026-01-01T00:00:00Z")
    body = decode_body(
        SEARCH,
        b'{"q": "a b c", "kind": ["", "fact"], "limit": 3, "explain": true, "asOf": "2026-01-01T00:00:00Z"}',
    )
    assert query.values == body.values
    assert query.fingerprint() == body.fingerprint()


def test_a_getter_of_the_wrong_type_is_our_mistake() -> None:
    parameters = decode_query(SEARCH, b"q=tea&kind=fact&asOf=2026-01-01T00:00:00Z")
    for wrong in (parameters.texts, parameters.instant, parameters.record_uri, parameters.integer, parameters.flag):
        with pytest.raises(TypeError):
            wrong("q")
    with pytest.raises(TypeError):
        parameters.text("kind")


def test_parameters_are_not_shown() -> None:
    assert "tea" not in repr(decode_query(SEARCH, b"q=tea"))


def test_a_fingerprint_leaves_out_only_where_and_how_much() -> None:
    first = decode_query(LIST, b"kind=fact")
    assert decode_query(LIST, b"kind=fact&limit=3&cursor=x").fingerprint() == first.fingerprint()
    for other in (b"kind=fact&order=oldest", b"kind=fact&kind=fact", b"scope=fact", b""):
        assert decode_query(LIST, other).fingerprint() != first.fingerprint()


@given(st.binary(max_size=200))
def test_any_query_string_decodes_or_is_refused(query: bytes) -> None:
    with suppress(InvalidRequest):
        decode_query(LIST, query)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda s: st.lists(s) | st.dictionaries(st.sampled_from(sorted(SEARCH.parameters.properties)) | st.text(), s),
        max_leaves=8,
    )
)
def test_any_body_decodes_or_is_refused(value: Any) -> None:
    with suppress(InvalidRequest):
        decode_body(SEARCH, json.dumps(value).encode())


PLACES = st.recursive(st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), st.lists, max_leaves=9)
QUESTION = Question("", "a.b.c", b"{}")


@given(PLACES)
def test_a_cursor_gives_back_its_place(place: Place) -> None:
    cursors = PageCursors(b"key")
    assert cursors.open(QUESTION, cursors.seal(QUESTION, place)) == place


@given(st.text(max_size=80))
def test_no_text_of_others_is_a_cursor(text: str) -> None:
    with pytest.raises(InvalidCursor):
        PageCursors(b"key").open(QUESTION, text)


@pytest.mark.parametrize(
    "other",
    [
        Question("did:plc:viewer", "a.b.c", b"{}"),
        Question("", "a.b.d", b"{}"),
        Question("", "a.b.c", b'{"q":"x"}'),
        Question("a", ".b.c", b"{}"),
    ],
)
def test_a_cursor_holds_good_for_one_question(other: Question) -> None:
    cursors = PageCursors(b"key")
    sealed = cursors.seal(QUESTION, ["place"])
    with pytest.raises(InvalidCursor):
        cursors.open(other, sealed)
    with pytest.raises(InvalidCursor):
        PageCursors(b"other key").open(QUESTION, sealed)


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(PageCursors(b"secret"))


@given(st.lists(st.none() | st.binary(min_size=1, max_size=9), max_size=12), st.integers(1, 40))
def test_a_page_takes_what_fits_and_at_least_one(views: list[bytes | None], max_bytes: int) -> None:
    page, gone_through = fill_page(iter(views), max_bytes=max_bytes)
    assert page == [view for view in views[:gone_through] if view is not None]
    assert sum(map(len, page)) <= max_bytes or len(page) == 1
    if gone_through < len(views):
        assert page
        following = views[gone_through]
        assert following is not None
        assert sum(map(len, page)) + len(following) > max_bytes


def test_a_fingerprint_is_json() -> None:
    assert orjson.loads(decode_query(LIST, b"asOf=2026-01-01T00:00:00Z").fingerprint())["order"] == "newest"
