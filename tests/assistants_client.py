"""Asks the assistants' face in-process, and holds every answer against its schema."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import httpx

from appview.access import Viewer
from appview.faces.assistants.face import PREFIX
from appview.faces.assistants.fields import GET, LIST, SEARCH
from memory.database import Database
from memory.datetimes import parse_datetime
from memory.identifiers import COLLECTION
from memory.space import ReadableSpaces
from tests.api_client import Api
from tests.memory_rows import ALICE

URI = f"at://{ALICE}/{COLLECTION}/3kaaaaaaaaa2a"
VALID: dict[str, dict[str, Any]] = {
    GET: {"id": URI},
    LIST: {"userId": ALICE},
    SEARCH: {"userId": ALICE, "query": "tea"},
}
"""A body that each method takes."""

FIELDS: Mapping[str, type] = {
    "id": str,
    "memory": str,
    "userId": str,
    "agentId": str,
    "appId": str,
    "runId": str,
    "metadata": dict,
    "score": float,
    "createdAt": str,
    "updatedAt": str,
}


@dataclass(frozen=True, slots=True)
class Refused:
    """An error answer."""

    status: int
    code: str
    message: str


class Assistant:
    """A client of the face: nobody, or one who is signed in as `did` and may read `spaces`."""

    def __init__(self, database: Database, *, did: str | None = None, spaces: frozenset[str] = frozenset()) -> None:
        viewer = None if did is None else Viewer(did, ReadableSpaces(spaces), did)
        self.api = Api(database, viewer=viewer)
        self._headers = {} if did is None else {"authorization": "Bearer whatever"}

    async def send(self, method: str, body: object) -> httpx.Response:
        """One request with a JSON body."""
        return await self.api.send("POST", PREFIX + method, json=body, headers=self._headers)

    async def send_text(self, method: str, body: bytes | str, content_type: str = "application/json") -> httpx.Response:
        """One request with a body as it is."""
        headers = self._headers | {"content-type": content_type}
        return await self.api.send("POST", PREFIX + method, content=body, headers=headers)

    async def ask(self, method: str, **body: Any) -> dict[str, Any]:
        """The answer of a method, checked."""
        response = await self.send(method, body)
        assert response.status_code == 200, response.text
        answer = response.json()
        for memory in [answer["memory"]] if "memory" in answer else answer["memories"]:
            check_memory(memory)
        return answer

    async def get(self, memory_id: str) -> dict[str, Any]:
        """One memory."""
        return (await self.ask("get-memory", id=memory_id))["memory"]

    async def list(self, **body: Any) -> list[dict[str, Any]]:
        """The memories of one page of a list."""
        return (await self.ask("list-memories", **body))["memories"]

    async def search(self, query: str, **body: Any) -> list[dict[str, Any]]:
        """The memories of one page of a search."""
        return (await self.ask("search-memories", query=query, **body))["memories"]

    async def pages(self, method: str, **body: Any) -> AsyncIterator[list[dict[str, Any]]]:
        """All pages."""
        token: dict[str, str] = {}
        while True:
            answer = await self.ask(method, **body, **token)
            yield answer["memories"]
            if "nextPageToken" not in answer:
                return
            token = {"pageToken": answer["nextPageToken"]}

    async def refuse(self, method: str, body: object) -> Refused:
        """The error that a method answers."""
        return refused(await self.send(method, body))


def refused(response: httpx.Response) -> Refused:
    """The decoded error answer."""
    body = response.json()
    assert sorted(body) == ["code", "message"], body
    return Refused(response.status_code, body["code"], body["message"])


def check_memory(memory: Mapping[str, Any]) -> None:
    """AssertionError names what the schema does not allow, null among it."""
    for name, value in memory.items():
        assert name in FIELDS, name
        assert isinstance(value, FIELDS[name]), (name, value)
    for name, value in memory["metadata"].items():
        assert isinstance(value, str), (name, value)
    for name in ("createdAt", "updatedAt"):
        assert name not in memory or parse_datetime(memory[name]), name
    assert 0 <= memory.get("score", 0) <= 1
