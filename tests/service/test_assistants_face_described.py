"""What the OpenAPI document and the written page say of the assistants' face, held against what it does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from appview.faces.assistants.face import CODES, OUT_OF_RANGE, PREFIX
from appview.faces.assistants.fields import FILTERS, load_fields
from appview.faces.assistants.openapi import assistants_paths, assistants_schemas
from memory.database import Database
from tests.api_client import CATALOGUE
from tests.assistants_client import FIELDS, VALID, Assistant
from tests.memory_rows import ALICE, MemoryRows
from tests.service.test_assistants_face_bodies import WRONG

TESTS = Path(__file__).parent
PAGE = (TESTS.parents[1] / "docs" / "assistants.md").read_text(encoding="utf-8")
METHODS = load_fields(CATALOGUE)
PATHS: dict[str, Any] = assistants_paths(METHODS)
SCHEMAS: dict[str, Any] = assistants_schemas()


def operation(method: str) -> dict[str, Any]:
    return PATHS[PREFIX + method]["post"]


def validator(schema: dict[str, Any]) -> Draft202012Validator:
    """A schema of the document, with what it refers to."""
    return Draft202012Validator({**schema, "components": {"schemas": SCHEMAS}})


def body_schema(method: str) -> dict[str, Any]:
    return operation(method)["requestBody"]["content"]["application/json"]["schema"]


def answer_schema(method: str, status: int = 200) -> dict[str, Any]:
    return operation(method)["responses"][str(status)]["content"]["application/json"]["schema"]


EXAMPLES = [
    (method, name)
    for method in METHODS
    for name in operation(method)["requestBody"]["content"]["application/json"]["examples"]
]


@pytest.fixture
async def assistant(database: Database) -> Assistant:
    """A client of an index that has what the examples ask for."""
    rows = MemoryRows()
    rows.repo(ALICE, handle="alice.test")
    text, rkey = "Prefers green tea to coffee.", "3kaaaaaaaaa2a"
    rows.put(ALICE, text, rkey=rkey, days=3, agent="claude-code", kind="preference", scope="home")
    rows.put(ALICE, "Tea at five.", days=4)
    await rows.write(database)
    return Assistant(database)


@pytest.mark.parametrize(("method", "name"), EXAMPLES)
async def test_examples_are_valid_and_answered_as_described(assistant: Assistant, method: str, name: str) -> None:
    body = operation(method)["requestBody"]["content"]["application/json"]["examples"][name]["value"]
    assert validator(body_schema(method)).is_valid(body)
    answer = await assistant.ask(method, **body)
    assert answer.get("memory") or answer["memories"]
    validator(answer_schema(method)).validate(answer)


@pytest.mark.parametrize("method", list(METHODS))
async def test_example_answers_are_as_described_and_look_like_real_ones(assistant: Assistant, method: str) -> None:
    response = operation(method)["responses"]["200"]["content"]["application/json"]
    validator(response["schema"]).validate(response["example"])
    real = await assistant.ask(method, **VALID[method])
    [shown, answered] = [
        answer["memories"][-1] if "memories" in answer else answer["memory"] for answer in (response["example"], real)
    ]
    assert set(shown) == set(answered)


@pytest.mark.parametrize("method", list(METHODS))
async def test_errors_are_as_described(assistant: Assistant, method: str) -> None:
    for status, body in ((400, {"id": 1, "query": 1}), (413, {"x": "x" * 200_000})):
        response = await assistant.send(method, body)
        assert response.status_code == status
        validator(answer_schema(method, status)).validate(response.json())


@pytest.mark.parametrize("method", list(METHODS))
def test_bodies_are_described_by_all_their_names(method: str) -> None:
    described = body_schema(method)["properties"]
    assert set(described) == {name for field in METHODS[method] for name in field.names}
    if "filters" in described:
        assert set(described["filters"]["anyOf"][0]["properties"]) == set(FILTERS)


def test_the_schema_refuses_no_body_that_is_answered_and_most_that_are_not() -> None:
    """Formats, empty page tokens and contradictions are beyond it."""
    refused = total = 0
    for method, fields in WRONG.items():
        checks = validator(body_schema(method))
        assert checks.is_valid(VALID[method])
        assert checks.is_valid(VALID[method] | {"anything": {"else": None}})
        for name, values in fields.items():
            for value in values:
                total += 1
                refused += not checks.is_valid(VALID[method] | {name: value})
    assert refused > total * 0.7


@pytest.mark.parametrize(
    ("method", "body"), [("get-memory", {}), ("get-memory", {"id": None}), ("search-memories", {"userId": ALICE})]
)
def test_the_schema_demands_what_is_required(method: str, body: dict[str, Any]) -> None:
    assert not validator(body_schema(method)).is_valid(body)


def test_memories_are_described_by_all_their_fields() -> None:
    assert set(SCHEMAS["assistantMemory"]["properties"]) == set(FIELDS)


def test_operations_name_every_error() -> None:
    for method in METHODS:
        assert set(operation(method)["responses"]) == {"200", *(str(status) for status in CODES)}
    assert set(SCHEMAS["assistantError"]["properties"]["code"]["enum"]) == {*CODES.values(), OUT_OF_RANGE}


def test_the_written_page_names_every_path_field_filter_and_code() -> None:
    named = set(re.findall(r"`(\w+(?:-\w+)?)`", PAGE))
    assert {name for fields in METHODS.values() for field in fields for name in field.names} <= named
    assert {*FILTERS, *FIELDS, *CODES.values(), OUT_OF_RANGE} <= named
    assert set(SCHEMAS["assistantMemory"]["properties"]["metadata"]["properties"]) <= named
    for method in METHODS:
        assert PREFIX + method in PAGE


def test_every_row_of_the_schema_has_tests_that_there_are() -> None:
    table = PAGE.partition("## Every row has its test")[2]
    rows = dict(re.findall(r"^\| `?([^|`]+?)`? \| (.+) \|$", table, re.MULTILINE))
    assert set(FIELDS) <= set(rows)
    there = "".join(path.read_text(encoding="utf-8") for path in TESTS.glob("test_assistants_face*.py"))
    for row in FIELDS:
        assert re.findall(r"`(test_\w+)`", rows[row]), row
    for name in re.findall(r"`(test_\w+)`", table):
        assert f"def {name}(" in there, name
