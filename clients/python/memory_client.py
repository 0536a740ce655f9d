"""A typed client of the read API on httpx, to be copied or imported with the files beside it. Python 3.11 or newer.

    with MemoryClient("http://127.0.0.1:8600") as memories:
        for record in memories.iter_hits("where does Mara live", repo="mara.test"):
            print(record["value"]["content"])

`AsyncMemoryClient` has the same methods, to be awaited (`async for` through pages). Answers are the API's dictionaries;
parameters have its names in Python's spelling (`created_after`). Without an access token it asks as nobody. What keeps
permissioned Spaces open is in `memory_spaces.py`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, Self, TypedDict, Unpack

import httpx

from memory_answers import (
    ArmScore,
    ByteSlice,
    Count,
    Explanation,
    Grant,
    HistoryPage,
    MemoryApiError,
    OpenedSpace,
    Record,
    RecordPage,
    RepoSync,
    Scores,
    SearchPage,
    Stats,
    Supersession,
    Tally,
    Version,
    read_answer,
)

__all__ = [
    "ArmScore",
    "AsyncMemoryClient",
    "ByteSlice",
    "Count",
    "Explanation",
    "Filters",
    "Grant",
    "HistoryPage",
    "ListOptions",
    "MemoryApiError",
    "MemoryClient",
    "OpenedSpace",
    "Record",
    "RecordPage",
    "RepoSync",
    "Scores",
    "SearchOptions",
    "SearchPage",
    "Stats",
    "Supersession",
    "Tally",
    "Version",
]

_ARRAYS: Final = frozenset({"repo", "space", "scope", "kind", "agent", "client"})
Several = str | Sequence[str]  # any of these will do; "" stands for memories without one
Time = str | datetime  # aware, or as the API takes it


class Filters(TypedDict, total=False):
    """Which memories are asked about."""

    repo: Several  # DIDs or handles
    space: Several
    public_only: bool
    scope: Several
    kind: Several
    agent: Several
    client: Several
    created_after: Time  # inclusive
    created_before: Time  # exclusive
    occurred_after: Time
    occurred_before: Time
    as_of: Time
    include_superseded: bool


class SearchOptions(Filters, total=False):
    """What a search takes beside its words."""

    mode: Literal["hybrid", "lexical", "semantic"]
    min_score: int  # 0 to 1000
    prefix: bool
    explain: bool
    explain_uri: str
    limit: int  # of a page, 1 to 100


class ListOptions(Filters, total=False):
    """What a list takes."""

    order: Literal["newest", "oldest", "occurred"]
    limit: int


def _set_up(url: str, access_token: str | None) -> dict[str, Any]:
    headers = {} if access_token is None else {"Authorization": f"Bearer {access_token}"}
    return {"base_url": url, "headers": headers, "timeout": 30}


def _body(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters as the API takes them: its names, arrays where it has arrays, times as text; None is left out."""
    given = [(name, value) for name, value in asked.items() if value is not None]
    return {re.sub("_(.)", lambda after: after[1].upper(), name): _json_value(name, value) for name, value in given}


def _json_value(name: str, value: Any) -> Any:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ValueError(f"{name} needs a time zone, such as datetime.UTC.")
        return value.isoformat()
    if name in _ARRAYS:
        return [value] if isinstance(value, str) else list(value)
    return value


def _request(method: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """What httpx is to send. A search is posted, so that its words stay out of the logs of what lies between."""
    url = f"/xrpc/dev.bastienrobert.memory.{method}"
    match method:
        case "openSpace" | "closeSpace":
            return {"method": "POST", "url": url, "json": asked}
        case "searchRecords":
            return {"method": "POST", "url": url, "json": _body(asked)}
        case _:
            return {"method": "GET", "url": url, "params": _body(asked)}


class MemoryClient:
    """Asks the API, one request after the other. Close it, or use it with `with`."""

    def __init__(
        self, url: str, *, access_token: str | None = None, transport: httpx.BaseTransport | None = None
    ) -> None:
        """`url` is the service's, without a path; `transport` is httpx's, for proxies and tests."""
        self._http = httpx.Client(**_set_up(url, access_token), transport=transport)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def search_records(self, q: str, *, cursor: str | None = None, **options: Unpack[SearchOptions]) -> SearchPage:
        """What is remembered about something, best first; `q` takes words, "phrases" and -exclusions."""
        return self._ask("searchRecords", {"q": q, "cursor": cursor, **options})

    def list_records(self, *, cursor: str | None = None, **options: Unpack[ListOptions]) -> RecordPage:
        """Memories by time."""
        return self._ask("listRecords", {"cursor": cursor, **options})

    def get_record(self, uri: str) -> Record:
        """One memory, in effect or replaced."""
        return self._ask("getRecord", {"uri": uri})

    def get_history(self, uri: str, *, limit: int | None = None, cursor: str | None = None) -> HistoryPage:
        """What became of one memory: its observed states, what it replaced, what replaced it."""
        return self._ask("getHistory", {"uri": uri, "limit": limit, "cursor": cursor})

    def get_stats(self, repo: str | None = None) -> Stats:
        """How much there is, of everybody or of one author."""
        return self._ask("getStats", {"repo": repo})

    def open_space(self, space: str, delegation_token: str) -> OpenedSpace:
        """Let the access token read a Space, by what the viewer's PDS gives for it; asked again, for longer."""
        return self._ask("openSpace", {"space": space, "delegationToken": delegation_token})

    def close_space(self, space: str) -> None:
        """Let the access token read a Space no more; nothing is said of whether it could."""
        self._ask("closeSpace", {"space": space})

    def list_grants(self) -> list[Grant]:
        """The Spaces that the access token may read, and until when."""
        return self._ask("listGrants", {})["grants"]

    def iter_hits(self, q: str, **options: Unpack[SearchOptions]) -> Iterator[Record]:
        """All hits, page after page. A search ends after 1,000 with the error `ResultWindowExceeded`."""
        cursor: str | None = None
        while True:
            page = self.search_records(q, cursor=cursor, **options)
            yield from page["records"]
            if (cursor := page.get("cursor")) is None:
                return

    def iter_records(self, **options: Unpack[ListOptions]) -> Iterator[Record]:
        """All memories of a list, page after page, each once."""
        cursor: str | None = None
        while True:
            page = self.list_records(cursor=cursor, **options)
            yield from page["records"]
            if (cursor := page.get("cursor")) is None:
                return

    def iter_history_pages(self, uri: str, *, limit: int | None = None) -> Iterator[HistoryPage]:
        """All pages of a history."""
        cursor: str | None = None
        while True:
            page = self.get_history(uri, limit=limit, cursor=cursor)
            yield page
            if (cursor := page.get("cursor")) is None:
                return

    def _ask(self, method: str, asked: Mapping[str, Any]) -> Any:
        return read_answer(self._http.request(**_request(method, asked)))


class AsyncMemoryClient:
    """The same for asyncio; any number of requests at a time. Close it, or use it with `async with`."""

    def __init__(
        self, url: str, *, access_token: str | None = None, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._http = httpx.AsyncClient(**_set_up(url, access_token), transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def search_records(
        self, q: str, *, cursor: str | None = None, **options: Unpack[SearchOptions]
    ) -> SearchPage:
        """What is remembered about something, best first; `q` takes words, "phrases" and -exclusions."""
        return await self._ask("searchRecords", {"q": q, "cursor": cursor, **options})

    async def list_records(self, *, cursor: str | None = None, **options: Unpack[ListOptions]) -> RecordPage:
        return await self._ask("listRecords", {"cursor": cursor, **options})

    async def get_record(self, uri: str) -> Record:
        return await self._ask("getRecord", {"uri": uri})

    async def get_history(self, uri: str, *, limit: int | None = None, cursor: str | None = None) -> HistoryPage:
        return await self._ask("getHistory", {"uri": uri, "limit": limit, "cursor": cursor})

    async def get_stats(self, repo: str | None = None) -> Stats:
        return await self._ask("getStats", {"repo": repo})

    async def open_space(self, space: str, delegation_token: str) -> OpenedSpace:
        return await self._ask("openSpace", {"space": space, "delegationToken": delegation_token})

    async def close_space(self, space: str) -> None:
        await self._ask("closeSpace", {"space": space})

    async def list_grants(self) -> list[Grant]:
        return (await self._ask("listGrants", {}))["grants"]

    async def iter_hits(self, q: str, **options: Unpack[SearchOptions]) -> AsyncIterator[Record]:
        """All hits, page after page. A search ends after 1,000 with the error `ResultWindowExceeded`."""
        cursor: str | None = None
        while True:
            page = await self.search_records(q, cursor=cursor, **options)
            for record in page["records"]:
                yield record
            if (cursor := page.get("cursor")) is None:
                return

    async def iter_records(self, **options: Unpack[ListOptions]) -> AsyncIterator[Record]:
        """All memories of a list, page after page, each once."""
        cursor: str | None = None
        while True:
            page = await self.list_records(cursor=cursor, **options)
            for record in page["records"]:
                yield record
            if (cursor := page.get("cursor")) is None:
                return

    async def iter_history_pages(self, uri: str, *, limit: int | None = None) -> AsyncIterator[HistoryPage]:
        """All pages of a history."""
        cursor: str | None = None
        while True:
            page = await self.get_history(uri, limit=limit, cursor=cursor)
            yield page
            if (cursor := page.get("cursor")) is None:
                return

    async def _ask(self, method: str, asked: Mapping[str, Any]) -> Any:
        return read_answer(await self._http.request(**_request(method, asked)))
