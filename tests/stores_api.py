"""Asks the memory-store face in-process, and looks at the shape of every answer."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, cast

import httpx

from appview.access import Viewer
from appview.faces.stores.ids import Ids
from appview.faces.stores.openapi import stores_schemas
from appview.keys import Key
from appview.store.stores import StoreKey
from memory.database import Database
from memory.space import ReadableSpaces
from tests.api_client import Api

PREFIX = "/api/v1/cloud/"
ID_KEY = b"i" * 32
IDS = Ids(ID_KEY)
SCHEMAS = cast("dict[str, Any]", stores_schemas())
_SCHEMA_OF = {"memory_store": "MemoryStore", "memory": "StoreMemory", "memory_version": "StoreMemoryVersion"}
ENVELOPE = ["data", "first_id", "has_more", "last_id", "next_page"]


@dataclass(frozen=True, slots=True)
class StoresRefused:
    """An error answer."""

    status: int
    type: str
    message: str
    param: str | None


def store_id(did: str, space: str = "") -> str:
    """The id of a store."""
    return IDS.of_store(StoreKey(did, space))


def store_path(did: str, more: str = "", *, space: str = "") -> str:
    """The path of a store, or of something in it."""
    return f"memory_stores/{store_id(did, space)}{more}"


def memory_path(key: Key) -> str:
    """The path of a memory."""
    return store_path(key.repo, f"/memories/{IDS.of_memory(key)}", space=key.space)


class StoresApi:
    """The face on a database; `viewer`: whose credentials every request carries, and what it may read."""

    def __init__(
        self, database: Database, *, viewer: str | None = None, spaces: ReadableSpaces | None = None, **more: Any
    ) -> None:
        who = None if viewer is None else Viewer(viewer, spaces or ReadableSpaces.public_only(), did=viewer)
        self.api = Api(database, viewer=who, id_key=ID_KEY, **more)
        self._headers = {} if viewer is None else {"Authorization": "Bearer anything"}

    async def send(self, verb: str, path: str, **more: Any) -> httpx.Response:
        """One raw request."""
        return await self.api.send(verb, PREFIX + path, headers=self._headers, **more)

    async def get(self, path: str, **asked: Any) -> dict[str, Any]:
        """One object, or one page of them; all as the OpenAPI document has them."""
        response = await self.send("GET", path, params=in_query(asked))
        assert response.status_code == 200, response.text
        answer: dict[str, Any] = response.json()
        for each in answer.get("data", [answer]):
            assert fits(each, SCHEMAS[_SCHEMA_OF[each["type"]]]), each
        return answer

    async def page(self, path: str, **asked: Any) -> dict[str, Any]:
        """One page, its envelope checked."""
        page = await self.get(path, **asked)
        assert sorted(page) == ENVELOPE
        ids = [each["id"] for each in page["data"]]
        assert (page["first_id"], page["last_id"]) == ((ids[0], ids[-1]) if ids else (None, None))
        assert page["has_more"] is (page["next_page"] is not None)
        return page

    async def pages(self, path: str, **asked: Any) -> AsyncIterator[dict[str, Any]]:
        """One page after another, by `next_page`."""
        begin = {name: asked.pop(name) for name in ("after_id", "before_id") if name in asked}
        page = await self.page(path, **asked, **begin)
        yield page
        while page["has_more"]:
            page = await self.page(path, **asked, page=page["next_page"])
            yield page

    async def all(self, path: str, **asked: Any) -> list[dict[str, Any]]:
        """The objects on all pages."""
        return [each async for page in self.pages(path, **asked) for each in page["data"]]

    async def refuse(self, path: str, verb: str = "GET", **more: Any) -> StoresRefused:
        """An error answer, its shape checked."""
        return refused(await self.send(verb, path, **more))


def refused(response: httpx.Response) -> StoresRefused:
    """The decoded error answer."""
    body = response.json()
    assert sorted(body) == ["error", "request_id", "type"], body
    assert body["type"] == "error"
    assert body["request_id"] == response.headers["request-id"]
    assert set(body["error"]) - {"param"} == {"type", "message"}
    return StoresRefused(
        response.status_code, body["error"]["type"], body["error"]["message"], body["error"].get("param")
    )


def in_query(asked: dict[str, Any]) -> list[tuple[str, str]]:
    """Parameters as a URL has them; `created_at__gte` stands for `created_at[gte]`."""
    named = {name.replace("__gte", "[gte]").replace("__lte", "[lte]"): value for name, value in asked.items()}
    return [(name, str(value).lower() if isinstance(value, bool) else str(value)) for name, value in named.items()]


def fits(value: object, schema: dict[str, Any]) -> bool:
    """Whether a value is what a schema of this face says; only the words that it uses."""
    types = {"string": str, "integer": int, "boolean": bool, "object": dict, "array": list, "null": type(None)}
    wanted = schema.get("type", [])
    wanted = wanted if isinstance(wanted, list) else [wanted]
    if wanted and type(value) not in {types[name] for name in wanted}:
        return False
    if "const" in schema and value != schema["const"]:
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if "pattern" in schema and re.search(schema["pattern"], str(value)) is None:
        return False
    if isinstance(value, dict):
        items = cast("dict[str, object]", value)
        properties, rest = schema.get("properties", {}), schema.get("additionalProperties", {})
        if not set(schema.get("required", ())) <= set(items) or (rest is False and not set(items) <= set(properties)):
            return False
        return all(fits(item, properties.get(name, rest)) for name, item in items.items())
    return True
