"""Asks the API in-process, and holds every answer against its lexicon."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import httpx
from starlette.types import ASGIApp

from appview.access import Access, Credential, Viewer
from appview.call import QueryModels, Resources, SpaceOpening, Turns
from appview.faces.stores.ids import Ids
from appview.faces.xrpc import PREFIX
from appview.http import Action
from appview.lexicon import load_catalogue, problems
from appview.page_cursor import PageCursors
from appview.rates import Rates
from appview.refusals import AuthenticationRequired
from appview.service import build_app, finder
from appview.spaces.attestation import ClientAttestation
from appview.store.stats import RecentTotals
from memory.database import Database
from memory.identifiers import NAMESPACE
from tests.memory_rows import day

NOW = day(365)
CATALOGUE = load_catalogue()

Asked = str | int | bool | Sequence[str]


@dataclass(frozen=True, slots=True)
class Refused:
    """An error answer."""

    status: int
    error: str
    message: str


class Api:
    """The API on a database, with a clock that stands still."""

    def __init__(
        self,
        database: Database,
        *,
        now: datetime = NOW,
        monotonic: Callable[[], float] = lambda: 0.0,
        key: bytes = b"k" * 32,
        searches: Turns | None = None,
        viewer: Viewer | None = None,
        access: Access | None = None,
        rate_limit: int = 0,
        known_at: str = "https://memory.test",
        id_key: bytes = b"i" * 32,
        query_models: QueryModels | None = None,
        opening: SpaceOpening | None = None,
        client: ClientAttestation | None = None,
    ) -> None:
        """`viewer`: who asks where a request has any `Authorization`; null: `access` tells, or no credentials hold."""

        async def find_viewer(credential: Credential, address: str, action: Action) -> Viewer:
            if access is not None:
                return await finder(access)(credential, address, action)
            if viewer is None:
                raise AuthenticationRequired
            return viewer

        searches = searches or Turns(at_once=4, waiting=8)
        totals = RecentTotals(database, monotonic)
        resources = Resources(
            database,
            PageCursors(key),
            lambda: now,
            searches,
            totals,
            query_models=query_models,
            opening=opening,
        )
        rates = Rates(limit=rate_limit, clock=lambda: now)
        ids = Ids(id_key)
        self.app: ASGIApp = build_app(
            resources, url=None, known_at=known_at, find_viewer=find_viewer, rates=rates, ids=ids, client=client
        )

    async def send(self, verb: str, path: str, **more: Any) -> httpx.Response:
        """One raw request."""
        transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=True)
        async with httpx.AsyncClient(transport=transport, base_url="http://api.test") as client:
            return await client.request(verb, path, **more)

    async def get(self, method: str, **asked: Asked) -> dict[str, Any]:
        """The answer of a method, which must be one of its lexicon."""
        response = await self.send("GET", PREFIX + NAMESPACE + method, params=in_query(asked))
        assert response.status_code == 200, response.text
        return checked(method, response)

    async def post(self, method: str, **asked: Any) -> dict[str, Any]:
        """The same by POST."""
        response = await self.send("POST", PREFIX + NAMESPACE + method, json=asked)
        assert response.status_code == 200, response.text
        return checked(method, response)

    async def refuse(self, method: str, **asked: Asked) -> Refused:
        """The error that a method answers."""
        return refused(await self.send("GET", PREFIX + NAMESPACE + method, params=in_query(asked)))

    async def pages(self, method: str, **asked: Asked) -> AsyncIterator[dict[str, Any]]:
        """All pages of a method."""
        cursor: dict[str, str] = {}
        while True:
            answer = await self.get(method, **asked, **cursor)
            yield answer
            if "cursor" not in answer:
                return
            cursor = {"cursor": answer["cursor"]}

    async def contents(self, method: str, **asked: Asked) -> list[str]:
        """The contents of the records on all pages, in order."""
        return [record["value"]["content"] async for page in self.pages(method, **asked) for record in page["records"]]


def in_query(asked: dict[str, Asked]) -> list[tuple[str, str]]:
    """Parameters as a URL has them."""
    pairs: list[tuple[str, str]] = []
    for name, value in asked.items():
        match value:
            case bool():
                pairs.append((name, str(value).lower()))
            case str() | int():
                pairs.append((name, str(value)))
            case _:
                pairs += [(name, item) for item in value]
    return pairs


def checked(method: str, response: httpx.Response) -> dict[str, Any]:
    """The decoded answer; AssertionError names what its lexicon does not allow."""
    answer = response.json()
    found = list(problems(CATALOGUE, CATALOGUE.methods[NAMESPACE + method].output, answer))
    assert not found, found
    return answer


def refused(response: httpx.Response) -> Refused:
    """The decoded error answer."""
    body = response.json()
    assert sorted(body) == ["error", "message"], body
    return Refused(response.status_code, body["error"], body["message"])
