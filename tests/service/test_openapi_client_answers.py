"""What /openapi.json shows as answers is what its requests are answered."""

from __future__ import annotations

from typing import Any

import pytest

from memory.database import Database
from tests.api_client import NAMESPACE, Api
from tests.described import (
    DOCUMENT,
    EXAMPLE_DELEGATION,
    EXAMPLE_TOKEN,
    SIGNED_IN,
    Example,
    example_api,
    examples,
    fill_index,
    real_delegation,
    validator,
)

RANDOM = ("accessToken", "id")
TUNED = ("score", "scores")  # what ranking makes of a hit may change; that there is a hit may not


def shown_of(example: Example) -> dict[str, Any]:
    """The answers that the document shows of an operation, by the request's name."""
    return example.operation["responses"]["200"]["content"]["application/json"].get("examples", {})


SHOWN = [
    pytest.param(example, name, id=f"{example.verb} {example.path.rpartition('/')[2]}: {name}")
    for example in examples()
    for name in shown_of(example)
    if example.name in (name, "nothing")
]


def without(names: tuple[str, ...], value: Any) -> Any:
    """A JSON value whose fields of these names say only of what type they are."""
    match value:
        case dict():
            return {key: type(item).__name__ if key in names else without(names, item) for key, item in value.items()}
        case list():
            return [without(names, item) for item in value]
        case _:
            return value


@pytest.mark.parametrize(("example", "name"), SHOWN)
async def test_the_answer_that_is_shown_is_the_one_that_comes(database: Database, example: Example, name: str) -> None:
    await fill_index(database)
    api = await example_api(database, example)
    laptop = {"name": "laptop", "expiresInDays": 30}
    real = {EXAMPLE_DELEGATION: real_delegation()}
    if "AccessToken" in example.path and "create" not in example.path:
        made = await api.send("POST", f"/xrpc/{NAMESPACE}createAccessToken", json=laptop, headers=SIGNED_IN)
        real[EXAMPLE_TOKEN] = made.json()["token"]["id"]
    credentials = SIGNED_IN if {} not in example.operation["security"] else {}
    response = await example.send(api, real=real, headers=credentials)
    assert response.status_code == 200
    value = shown_of(example)[name]["value"]
    validator(example.operation["responses"]["200"]["content"]["application/json"]["schema"]).validate(value)
    assert without(RANDOM + TUNED, value) == without(RANDOM + TUNED, response.json())


async def test_who_takes_pages_and_lines_alike_is_given_a_page(database: Database) -> None:
    """As clients do that name all that the document has."""
    for accepted in ("application/json, application/x-ndjson", "application/x-ndjson;q=0.9, Application/JSON"):
        response = await Api(database).send("GET", f"/xrpc/{NAMESPACE}listRecords", headers={"accept": accepted})
        assert response.headers["content-type"].partition(";")[0] == "application/json"


def test_every_operation_shows_an_answer() -> None:
    for path, item in DOCUMENT["paths"].items():
        for operation in item.values():
            content = operation["responses"]["200"]["content"]["application/json"]
            assert content.get("examples") or "example" in content, path


def test_every_answer_is_of_a_request_that_is_shown() -> None:
    asked = {(example.path, example.verb, example.name) for example in examples()}
    for example in examples():
        if example.name != "nothing":
            assert {(example.path, example.verb, name) for name in shown_of(example)} <= asked
