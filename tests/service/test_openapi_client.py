"""A generic OpenAPI client reads /openapi.json as it is served, and calls every operation with the examples in it."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest
from jsonschema_rs import ValidationError

from appview.faces.stores.openapi import MEMORY_EXAMPLE, STORE_EXAMPLE
from memory.database import Database
from tests.api_client import NAMESPACE
from tests.demo_server import served
from tests.described import EXAMPLE_VERSION, Example, examples, fill_index
from tests.e2e.node import OutOfReach, installed_network
from tests.openapi_client import Answered, Asked, OpenApiClient
from tests.proof import not_proven

EXAMPLES = list(examples())


@pytest.fixture(scope="session")
def client_installed() -> None:
    """Skips, loudly, where its packages cannot be had, but for CI."""
    try:
        installed_network()
    except OutOfReach as failure:
        reason = f"NOT PROVEN WITH AN OPENAPI CLIENT: npm is out of reach, and its packages are not here\n{failure}"
        not_proven(reason)


@pytest.fixture
async def filled_url(database: Database, database_url: str) -> str:
    """Of a database that has what the examples ask for."""
    await fill_index(database)
    return database_url


@pytest.fixture
def client(client_installed: None, filled_url: str) -> Generator[OpenApiClient]:
    """The client of a server of that database, which runs as its users start it."""
    with served(filled_url) as url:
        yield OpenApiClient(url)


def find_version(client: OpenApiClient) -> str:
    """The one id that the examples cannot know: each index has a key of its own for those of versions."""
    of_store = {"memory_store_id": STORE_EXAMPLE["id"], "memory_id": MEMORY_EXAMPLE["id"]}
    [answer] = client.ask([Asked("/api/v1/cloud/memory_stores/{memory_store_id}/memory_versions", "get", of_store)])
    return answer.body["data"][0]["id"]


def asked_of(example: Example, version_id: str) -> Asked:
    parameters = example.query | example.in_path
    mended = {name: version_id if value == EXAMPLE_VERSION else value for name, value in parameters.items()}
    return Asked(example.path, example.verb, mended, example.body)


def spoilt(example: Example) -> Asked:
    """An example that cannot be answered: a path that leads nowhere, a body without all, or a value out of range."""
    parameters: dict[str, Any] = {}
    if example.in_path:
        parameters = dict.fromkeys(example.in_path, "nothing")
    elif example.body is None and (described := example.operation.get("parameters")):
        names = [parameter["name"] for parameter in described]
        parameters = {**example.query, "limit" if "limit" in names else names[0]: "-1"}
    return Asked(example.path, example.verb, parameters, None if example.body is None else {"query": 1})


def listed(answer: Answered) -> list[Any] | None:
    names = ("records", "data", "memories", "versions")
    return next((answer.body[name] for name in names if name in answer.body), None)


def test_every_example_of_every_operation_is_answered(client: OpenApiClient) -> None:
    version_id = find_version(client)
    asked = [asked_of(example, version_id) for example in EXAMPLES]
    every = {(path, verb) for path, item in client.document["paths"].items() for verb in item}
    assert {(each.path, each.method) for each in asked} == every
    for example, answer in zip(EXAMPLES, client.ask(asked), strict=True):
        needs_credentials = example.operation["security"] and {} not in example.operation["security"]
        assert answer.status == (401 if needs_credentials else 200), (example, answer)
        if answer.status == 200 and "explainUri" not in (example.body or example.query):
            assert listed(answer) != [], example


def test_every_refusal_is_as_described(client: OpenApiClient) -> None:
    """Of `_health` nothing can be wrong; it takes nothing, and looks at nobody."""
    wrong = {(each.path, each.verb): each for each in EXAMPLES if not each.path.endswith("_health")}
    for example, answer in zip(wrong.values(), client.ask([spoilt(each) for each in wrong.values()]), strict=True):
        assert answer.status in (400, 401, 404), (example, answer)


def test_credentials_go_where_the_document_says(client: OpenApiClient) -> None:
    path = f"/xrpc/{NAMESPACE}listRecords"
    calls = [Asked(path, "get", credentials={scheme: "of nobody"}) for scheme in ("serviceAuth", "accessToken")]
    assert [answer.status for answer in client.ask(calls)] == [401, 401]


def test_an_answer_that_the_document_does_not_have_is_noticed(client: OpenApiClient) -> None:
    [path] = [path for path in client.document["paths"] if path.endswith("_health")]
    responses = client.document["paths"][path]["get"]["responses"]
    responses["200"]["content"]["application/json"]["schema"] = {"type": "array"}
    with pytest.raises(ValidationError):
        client.ask([Asked(path, "get")])
    del responses["200"]
    with pytest.raises(KeyError):
        client.ask([Asked(path, "get")])
