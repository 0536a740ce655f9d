"""/openapi.json and /docs: made from what the faces are made of, complete, and true of real answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from appview.access import Viewer
from appview.faces.assistants.fields import load_fields
from appview.faces.assistants.openapi import assistants_paths, assistants_schemas
from appview.faces.stores.openapi import stores_paths, stores_schemas
from appview.faces.xrpc_openapi import GENERAL_ERRORS
from appview.keys import uri_of
from appview.lexicon import ObjectType
from memory.database import Database
from memory.space import ReadableSpaces
from tests.api_client import CATALOGUE, NAMESPACE, Api, in_query
from tests.described import (
    DOCUMENT,
    EXAMPLE_DELEGATION,
    EXAMPLE_TOKEN,
    EXAMPLE_VERSION,
    OF_ACCESS_TOKENS,
    SIGNED_IN,
    Example,
    check_answer,
    example_api,
    examples,
    fill_index,
    find_version,
    real_delegation,
    validator,
)
from tests.memory_rows import ALICE, MemoryRows, day, text

EXAMPLES = list(examples())
STATUS = {"ServiceAuthRequired": "403", "AccessTokenRequired": "403", "SpaceHostUnavailable": "503"}
NAMES = [f"{example.verb} {example.path.rpartition('/')[2]}: {example.name}" for example in EXAMPLES]


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
    xrpc = {path for path in document["paths"] if path.startswith("/xrpc/")}
    assert xrpc == {f"/xrpc/{nsid}" for nsid in CATALOGUE.methods} | {"/xrpc/_health"}
    assert set(document["paths"]) - xrpc == {*stores_paths(), *assistants_paths(load_fields(CATALOGUE))}
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
            status = STATUS.get(error.name, "400")
            assert error.name in operation["responses"][status]["description"]
    assert "post" in document["paths"][f"/xrpc/{NAMESPACE}searchRecords"]
    assert "post" not in document["paths"][f"/xrpc/{NAMESPACE}listRecords"]
    assert "get" not in document["paths"][f"/xrpc/{NAMESPACE}createAccessToken"]


async def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    references = {node["$ref"] for node in nodes(document) if "$ref" in node}
    assert references
    for reference in references:
        _, components, kind, name = reference.split("/")
        assert name in document[components][kind]


async def test_operation_ids_are_unique(document: dict[str, Any]) -> None:
    ids = [node["operationId"] for node in nodes(document["paths"]) if "operationId" in node]
    assert len(ids) == len(set(ids))


async def test_real_answers_are_as_described(database: Database) -> None:
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
    # Those of the viewer are among the examples below.
    of_tokens = {"createAccessToken", "listAccessTokens", "revokeAccessToken"}
    of_spaces = {"openSpace", "closeSpace", "listGrants"}
    assert {method for method, _ in asked} | of_tokens | of_spaces == {
        nsid.removeprefix(NAMESPACE) for nsid in CATALOGUE.methods
    }
    for method, parameters in asked:
        response = await api.send("GET", f"/xrpc/{NAMESPACE}{method}", params=in_query(parameters))
        assert response.status_code == 200
        check_answer(DOCUMENT["paths"][f"/xrpc/{NAMESPACE}{method}"]["get"], response)


def test_every_operation_has_an_example() -> None:
    asked = {(example.path, example.verb) for example in EXAMPLES}
    assert asked == {(path, verb) for path, item in DOCUMENT["paths"].items() for verb in item}


@pytest.mark.parametrize("example", EXAMPLES, ids=NAMES)
def test_examples_are_as_their_schemas_say(example: Example) -> None:
    if example.body is not None:
        body = example.operation["requestBody"]["content"]["application/json"]["schema"]
        validator(body).validate(example.body)
    described = {parameter["name"]: parameter for parameter in example.operation.get("parameters", [])}
    for name, value in (example.query | example.in_path).items():
        validator(described[name]["schema"]).validate(value)
    given = example.query.keys() | example.in_path.keys()
    assert given >= {name for name, parameter in described.items() if parameter["required"]}


@pytest.mark.parametrize("example", EXAMPLES, ids=NAMES)
async def test_examples_are_answered_as_described(database: Database, example: Example) -> None:
    await fill_index(database)
    asking = Api(database, viewer=Viewer(ALICE, ReadableSpaces.public_only(), ALICE))
    token = await asking.send("POST", f"/xrpc/{NAMESPACE}createAccessToken", json={"name": "x"}, headers=SIGNED_IN)
    real = {EXAMPLE_TOKEN: token.json()["token"]["id"], EXAMPLE_VERSION: await find_version(asking)}
    real[EXAMPLE_DELEGATION] = real_delegation()
    api = await example_api(database, example)
    credentials = SIGNED_IN if {} not in (example.operation["security"] or [{}]) else {}
    response = await example.send(api, real=real, headers=credentials)
    assert response.status_code == 200, response.text
    check_answer(example.operation, response)
    found = response.json()
    if "explainUri" in (example.body or example.query):
        assert found["explanation"]
        return  # it asks why something was not found
    names = ("records", "data", "memories", "versions", "tokens", "grants")
    listed = [found[name] for name in names if name in found]
    assert all(listed), "an example finds nothing"


@pytest.mark.parametrize("example", EXAMPLES, ids=NAMES)
async def test_examples_of_answers_are_as_described(example: Example) -> None:
    for response in example.operation["responses"].values():
        for content in response.get("content", {}).values():
            if "example" in content:
                validator(content["schema"]).validate(content["example"])


@pytest.mark.parametrize("example", EXAMPLES, ids=NAMES)
async def test_credentials_that_do_not_hold_are_refused_as_described(database: Database, example: Example) -> None:
    response = await example.send(Api(database), headers=SIGNED_IN)
    assert response.status_code == (401 if example.operation["security"] else 200)
    check_answer(example.operation, response)


@pytest.mark.parametrize("example", EXAMPLES, ids=NAMES)
async def test_too_many_requests_are_refused_as_described(database: Database, example: Example) -> None:
    api = Api(database, rate_limit=1)
    for expected in (None, 429):
        transport = httpx.ASGITransport(app=api.app, client=("203.0.113.7", 4))
        async with httpx.AsyncClient(transport=transport, base_url="http://api.test") as client:
            response = await client.request(example.verb, example.path.format(**example.in_path))
        assert expected in (None, response.status_code)
    check_answer(example.operation, response)
    assert response.headers["ratelimit-remaining"] == "0"


async def test_access_token_cannot_ask_for_tokens_as_described(database: Database) -> None:
    api = Api(database, viewer=Viewer(ALICE, ReadableSpaces.public_only(), ALICE, "0123456789abcdef"))
    asked = [example for example in EXAMPLES if example.operation["security"] == [{"serviceAuth": []}]]
    assert len(asked) == 3
    for example in asked:
        response = await example.send(api, headers=SIGNED_IN)
        assert response.status_code == 403
        check_answer(example.operation, response)


async def test_service_auth_cannot_ask_for_grants_as_described(database: Database) -> None:
    api = Api(database, viewer=Viewer(ALICE, ReadableSpaces.public_only(), ALICE))
    [example] = [example for example in EXAMPLES if example.operation["security"] == OF_ACCESS_TOKENS]
    response = await example.send(api, headers=SIGNED_IN)
    assert response.status_code == 403
    check_answer(example.operation, response)


async def test_lines_are_described(database: Database) -> None:
    api = Api(database)
    [described] = {
        path: item["get"]["responses"]["200"]
        for path, item in DOCUMENT["paths"].items()
        if "application/x-ndjson" in item.get("get", {}).get("responses", {}).get("200", {}).get("content", {})
    }.items()
    response = await api.send("GET", described[0], headers={"accept": "application/x-ndjson"})
    assert response.headers["content-type"] == "application/x-ndjson"


async def test_what_is_known_is_not_sent_again_as_described(database: Database) -> None:
    await fill_index(database)
    api = Api(database)
    known = [example for example in EXAMPLES if example.verb == "get" and {} in example.operation["security"]]
    real = {EXAMPLE_VERSION: await find_version(api)}
    for example in known:
        tag = (await example.send(api, real=real)).headers["etag"]
        response = await example.send(api, real=real, headers={"if-none-match": tag})
        assert (response.status_code, response.content) == (304, b"")
        assert set(example.operation["responses"]["304"]) == {"description", "headers"}


async def test_every_credential_is_a_scheme(document: dict[str, Any]) -> None:
    schemes = set(document["components"]["securitySchemes"])
    named = {name for example in EXAMPLES for either in example.operation["security"] for name in either}
    assert named == schemes


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
    for target in re.findall(r'href="#([^"]+)"', page):
        assert f'id="{target}"' in page
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))


async def test_the_page_of_docs_shows_the_other_faces_too(database: Database, document: dict[str, Any]) -> None:
    page = (await Api(database).send("GET", "/docs")).text
    named = set(re.findall(r"<code>([^<]+)</code>", page))
    for path, item in document["paths"].items():
        if not path.startswith("/xrpc/"):
            [(verb, operation)] = item.items()
            assert f'id="{operation["operationId"]}"' in page
            assert f"{verb.upper()} {path}" in named
            assert {parameter["name"] for parameter in operation.get("parameters", ())} <= named
    for schema in (*stores_schemas().values(), *assistants_schemas().values()):
        assert set(cast("dict[str, Any]", schema)["properties"]) <= named
    assert {name for fields in load_fields(CATALOGUE).values() for field in fields for name in field.names} <= named
    for face in ("xrpc", "stores", "assistants"):
        assert f'href="#{face}"' in page
