"""The memory-store face in the OpenAPI document says what its endpoints do."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest

from appview.faces.stores.endpoints import ENDPOINTS, PREFIX
from appview.faces.stores.openapi import (
    MEMORY_EXAMPLE,
    STORE_EXAMPLE,
    VERSION_EXAMPLE,
    stores_paths,
)
from tests.stores_api import SCHEMAS, fits

PATHS = cast("dict[str, Any]", stores_paths())


def test_every_endpoint_is_described_with_all_that_it_takes():
    assert list(PATHS) == [f"{PREFIX}{endpoint.path}" for endpoint in ENDPOINTS]
    for endpoint in ENDPOINTS:
        operation = PATHS[f"{PREFIX}{endpoint.path}"]["get"]
        names = [parameter["name"] for parameter in operation["parameters"]]
        assert names == re.findall(r"{(\w+)}", endpoint.path) + [each.name for each in endpoint.parameters]


def test_every_reference_leads_somewhere():
    found = set(re.findall(r"#/components/schemas/(\w+)", str(PATHS)))
    assert found == set(SCHEMAS)


@pytest.mark.parametrize(
    ("name", "example"),
    [("MemoryStore", STORE_EXAMPLE), ("StoreMemory", MEMORY_EXAMPLE), ("StoreMemoryVersion", VERSION_EXAMPLE)],
)
def test_examples_fit_their_schemas(name: str, example: dict[str, object]):
    assert fits(example, SCHEMAS[name])
    assert not fits({**example, "more": 1}, SCHEMAS[name])
    assert not fits({**example, "id": "mem"}, SCHEMAS[name])
    for missing in SCHEMAS[name]["required"]:
        assert not fits({key: value for key, value in example.items() if key != missing}, SCHEMAS[name])


def test_examples_of_errors_fit_theirs():
    for path in PATHS.values():
        for status, response in path["get"]["responses"].items():
            example = response["content"]["application/json"]["example"]
            assert status == "200" or fits(example, SCHEMAS["StoresError"])
