"""The assistants' face: what cannot be meant by a body, and which field it is in."""

from __future__ import annotations

from typing import Any, cast

import pytest

from appview.faces.assistants.fields import GET, LIST, SEARCH, load_fields
from appview.http import MAX_BODY_BYTES
from memory.database import Database
from tests.api_client import CATALOGUE
from tests.assistants_client import URI, VALID, Assistant, refused
from tests.memory_rows import ALICE, BOB, SPACE


@pytest.fixture
def nowhere() -> Assistant:
    """A client of a face without a database: what is refused here is refused before anything is looked up."""
    return Assistant(cast("Database", None))


TEXTS = (1, 1.5, True, [], ["x"], {}, {"a": 1})
WRONG: dict[str, dict[str, tuple[Any, ...]]] = {
    GET: {
        "id": (
            *TEXTS,
            "",
            "x",
            "at://",
            URI + "/",
            URI + "?a",
            f"at://alice.test/a.b.c/{1}",
            URI + "\0",
            "a" * 100_000,
        ),
        "memoryId": (*TEXTS, "x"),
    },
    LIST: {
        "userId": (*TEXTS, "", "x", "did:", "-.test", ALICE + "\0", "a" * 100_000),
        "agentId": (*TEXTS, "\0", "a" * 257, "ä" * 129),
        "appId": (*TEXTS, "x", URI, "at://did:plc:x", "\0", "a" * 3001),
        "runId": (*TEXTS, "\0", "a" * 513),
        "pageSize": ("1", "", True, False, 1.0, 1.5, 0, -1, 101, 10**30, [1], {}),
        "limit": ("1", True, 0, 101),
        "pageToken": (*TEXTS, "", "x", "\0", "a" * 24_001, "é"),
        "page": (*TEXTS, "x", 2),
        "filters": (
            "x",
            1,
            True,
            [],
            [{}],
            {"colour": "red"},
            {"colour": None},
            {"userId": ALICE},
            {"kind": 1},
            {"kind": [1]},
            {"kind": [None]},
            {"kind": ["a" * 513]},
            {"kind": ["\0"]},
            {"kind": ["a"] * 51},
            {"kind": {"$ne": "fact"}},
            {"AND": []},
            {"repo": ["x"]},
            {"space": [SPACE, ""]},
            {"createdAfter": "yesterday"},
            {"createdAfter": "2026-01-01"},
            {"createdBefore": 1767225600},
            {"occurredAfter": ["2026-01-01T00:00:00Z"]},
            {"occurredBefore": ""},
            {"asOf": "2026-13-01T00:00:00Z"},
            {"includeSuperseded": "true"},
            {"includeSuperseded": 1},
            {"publicOnly": "no"},
            {"limit": 5},
            {"order": "oldest"},
        ),
    },
    SEARCH: {
        "query": (*TEXTS, None, "", "\0", "a" * 1001, "👩‍👩‍👧" * 1001, "a" * 100_000),
        "topK": ("1", True, 1.0, 1.5, 0, -1, 101),
        "limit": ("1", True, 0, 101),
        "threshold": ("0.5", "", True, False, -0.001, 1.001, 2, -1, 10**30, [], {}),
        "pageToken": (*TEXTS, "x"),
        "page": (*TEXTS, "x"),
        "userId": (*TEXTS, "x"),
        "filters": ({"q": "x"}, {"minScore": 1}, {"colour": 1}),
    },
}


BODIES = [
    (method, name, value) for method, fields in WRONG.items() for name, values in fields.items() for value in values
]


@pytest.mark.parametrize(
    ("method", "name", "value"), BODIES, ids=[f"{method}-{name}-{value!r:.40}" for method, name, value in BODIES]
)
async def test_a_value_that_cannot_be_meant_is_refused_by_its_name(
    nowhere: Assistant, method: str, name: str, value: Any
) -> None:
    others = {field: valid for field, valid in VALID[method].items() if (field, name) != ("id", "memoryId")}
    refusal = await nowhere.refuse(method, others | {name: value})
    assert (refusal.status, refusal.code) == (400, "invalid_argument")
    assert name.removesuffix("s") in refusal.message
    # What was sent is not said again, but for the beginning of a filter's name.
    assert len(refusal.message) < 500


def test_every_field_is_tried_above() -> None:
    for method, fields in load_fields(CATALOGUE).items():
        named = {name for field in fields for name in field.names}
        assert set(WRONG[method]) <= named
    assert {name for fields in WRONG.values() for name in fields} == {
        name for fields in load_fields(CATALOGUE).values() for field in fields for name in field.names
    }


@pytest.mark.parametrize(
    ("method", "body"),
    [
        (GET, {}),
        (GET, {"id": None}),
        (GET, {"id": None, "memoryId": None}),
        (SEARCH, {"userId": ALICE}),
        (SEARCH, {"userId": ALICE, "q": "tea"}),
    ],
)
async def test_what_is_required_must_be_there(nowhere: Assistant, method: str, body: dict[str, Any]) -> None:
    refusal = await nowhere.refuse(method, body)
    assert (refusal.status, refusal.code) == (400, "invalid_argument")
    assert "required" in refusal.message


@pytest.mark.parametrize(
    ("method", "body"),
    [
        (GET, {"memoryId": URI[:-1] + "b"}),
        (LIST, {"pageSize": 1, "limit": 2}),
        (LIST, {"pageToken": "a", "page": "b"}),
        (SEARCH, {"topK": 1, "limit": 2}),
        (LIST, {"filters": {"repo": [BOB]}}),
        (LIST, {"filters": {"repo": [ALICE, BOB]}}),
        (SEARCH, {"filters": {"repo": []}}),
        (LIST, {"runId": "home", "filters": {"scope": ["work"]}}),
        (LIST, {"agentId": "codex", "filters": {"agent": ["claude-code", "codex"]}}),
        (LIST, {"appId": "", "filters": {"space": [SPACE]}}),
        (LIST, {"appId": SPACE, "filters": {"publicOnly": True}}),
        (LIST, {"appId": SPACE, "filters": {"space": [SPACE + "2"]}}),
        (LIST, {"filters": {"publicOnly": True, "space": [SPACE]}}),
    ],
)
async def test_spellings_that_contradict_one_another_are_refused(method: str, body: dict[str, Any]) -> None:
    member = Assistant(cast("Database", None), did=ALICE, spaces=frozenset({SPACE}))
    refusal = await member.refuse(method, VALID[method] | body)
    assert (refusal.status, refusal.code) == (400, "invalid_argument")


@pytest.mark.parametrize("method", VALID)
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"x"',
        b"1",
        b"\xff\xfe{}",
        b'{"id": "\xff"}',
        b'{"id": "\\ud800"}',
        b'{"threshold": NaN}',
        b'{"threshold": 1e999}',
        b"{}{}",
        b'{"filters": ' + b'{"kind":' * 500 + b"1" + b"}" * 500 + b"}",
        b'{"x": ' + b"[" * 990 + b"]" * 990 + b"}",
        b'{"x": ' + b"[" * 60_000 + b"]" * 60_000 + b"}",
    ],
    ids=lambda body: repr(body[:24]),
)
async def test_a_body_that_is_no_plain_object_is_refused(nowhere: Assistant, method: str, body: bytes) -> None:
    refusal = refused(await nowhere.send_text(method, body))
    assert (refusal.status, refusal.code) == (400, "invalid_argument")


@pytest.mark.parametrize("repeated", ['"userId": "a.test"', '"x": {"a": 1, "a": 1}', '"filters": {"q": 1, "q": 1}'])
async def test_a_field_stands_once_in_a_body(nowhere: Assistant, repeated: str) -> None:
    refusal = refused(await nowhere.send_text(LIST, f'{{"userId": "a.test", {repeated}}}'))
    assert (refusal.status, refusal.code) == (400, "invalid_argument")
    assert "twice" in refusal.message


@pytest.mark.parametrize("method", VALID)
async def test_a_body_of_a_megabyte_is_refused(nowhere: Assistant, method: str) -> None:
    for text in (b" " * 1_000_000, b'{"query": "' + b"x" * 1_000_000 + b'"}', b"{" * (MAX_BODY_BYTES + 1)):
        refusal = refused(await nowhere.send_text(method, text))
        assert (refusal.status, refusal.code) == (413, "invalid_argument")
