"""/openapi.json and /docs: made from the lexicons, complete, and true of real answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appview.keys import uri_of
from appview.lexicon import ObjectType
from appview.openapi import GENERAL_ERRORS
from memory.database import Database
from tests.api_client import CATALOGUE, NAMESPACE, Api
from tests.memory_rows import ALICE, MemoryRows, day, text


@pytest.fixture
async def document(database: Database) -> dict[str, Any]:
    """The document as it is served."""
    response = await Api(database).send("GET", "/openapi.json")
    assert response.headers["content-type"] == "application/json"
    assert response.headers["access-control-allow-origin"] == "*"
    return response.json()


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every object inside a JSON value."""
    match value:
        case dict():
            yield value
            for item in value.values():
                yield from nodes(item)
        case list():
            for item in value:
                yield from nodes(item)
        case _:
            pass


async def test_every_method_is_described_with_all_its_parameters(document: dict[str, Any]) -> None:
    assert document["openapi"] == "3.1.0"
    assert set(document["paths"]) == {f"/xrpc/{nsid}" for nsid in CATALOGUE.methods} | {"/xrpc/_health"}
    for nsid, method in CATALOGUE.methods.items():
        operation = document["paths"][f"/xrpc/{nsid}"]["post" if method.acts else "get"]
        if method.acts:
            body = operation["requestBody"]["content"]["application/json"]["schema"]
            named, required = set(body["properties"]), set(body["required"])
        else:
            named = {parameter["name"] for parameter in operation["parameters"]}
            required = {parameter["name"] for parameter in operation["parameters"] if parameter["required"]}
        assert named == set(method.parameters.properties)
        assert required == method.parameters.required
        for error in method.errors:
            assert error.name in operation["responses"]["400"]["description"]
    assert "post" in document["paths"][f"/xrpc/{NAMESPACE}searchRecords"]
    assert "post" not in document["paths"][f"/xrpc/{NAMESPACE}listRecords"]
    assert "get" not in document["paths"][f"/xrpc/{NAMESPACE}createAccessToken"]


async def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    references = {node["$ref"] for node in nodes(document) if "$ref" in node}
    assert references
    for reference in references:
        assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]


async def test_operation_ids_are_unique(document: dict[str, Any]) -> None:
    ids = [node["operationId"] for node in nodes(document["paths"]) if "operationId" in node]
    assert len(ids) == len(set(ids))


def holds(document: dict[str, Any], schema: dict[str, Any], value: Any) -> bool:
    """Whether a value is valid, by as much of JSON Schema as the document uses."""
    if "$ref" in schema:
        return holds(document, document["components"]["schemas"][schema["$ref"].rpartition("/")[2]], value)
    match schema["type"]:
        case "object":
            known = schema.get("properties", {})
            return (
                isinstance(value, dict)
                and value.keys() >= set(schema.get("required", ()))
                and all(holds(document, known[name], item) for name, item in value.items() if name in known)
            )
        case "array":
            return (
                isinstance(value, list)
                and len(value) <= schema.get("maxItems", len(value))
                and all(holds(document, schema["items"], item) for item in value)
            )
        case "string":
            return isinstance(value, str) and value in schema.get("enum", (value,))
        case "integer":
            low, high = schema.get("minimum", value), schema.get("maximum", value)
            return isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
        case "boolean":
            return isinstance(value, bool)
        case other:
            raise AssertionError(other)


async def test_real_answers_are_as_described(database: Database, document: dict[str, Any]) -> None:
    rows = MemoryRows()
    rows.repo(ALICE, handle="alice.test")
    old = rows.put(ALICE, "green tea", kind="fact")
    rows.put(ALICE, "black tea", supersedes=[old, "nonsense"])
    await rows.write(database)
    api = Api(database)
    asked: list[tuple[str, dict[str, Any]]] = [
        ("searchRecords", {"q": "tea", "explain": True, "explainUri": uri_of(old), "asOf": text(day(9)), "limit": 1}),
        ("listRecords", {"includeSuperseded": True, "limit": 1}),
        ("getRecord", {"uri": uri_of(old)}),
        ("getHistory", {"uri": uri_of(old), "limit": 1}),
        ("getStats", {"repo": ALICE}),
    ]
    of_tokens = {"createAccessToken", "listAccessTokens", "revokeAccessToken"}  # asked in test_access_tokens.py
    assert {method for method, _ in asked} | of_tokens == {nsid.removeprefix(NAMESPACE) for nsid in CATALOGUE.methods}
    for method, parameters in asked:
        described = document["paths"][f"/xrpc/{NAMESPACE}{method}"]["get"]["responses"]["200"]
        assert holds(document, described["content"]["application/json"]["schema"], await api.get(method, **parameters))


def test_the_written_page_names_every_method_and_error() -> None:
    written = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    for nsid, method in CATALOGUE.methods.items():
        assert f"`{nsid.removeprefix(NAMESPACE)}`" in written
        for error in method.errors:
            assert f"`{error.name}`" in written
    for name, _ in GENERAL_ERRORS.values():
        assert f"`{name}`" in written


async def test_the_page_of_docs_names_every_method_property_and_error(database: Database) -> None:
    page = (await Api(database).send("GET", "/docs")).text
    named = set(re.findall(r"<code>([^<]+)</code>", page))
    for nsid, method in CATALOGUE.methods.items():
        assert f'id="{nsid.removeprefix(NAMESPACE)}"' in page
        assert set(method.parameters.properties) <= named
        assert {error.name for error in method.errors} <= named
    for schema in CATALOGUE.definitions.values():
        assert isinstance(schema, ObjectType)
        assert set(schema.properties) <= named
    for target in re.findall(r'href="#(\w+)"', page):
        assert f'id="{target}"' in page
