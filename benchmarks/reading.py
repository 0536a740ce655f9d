"""`get_record`, `search_lexical`, `list_page`: one API process over 100,000 memories in 2,000 repos, asked from here.

Each is also told as a ratio to the bare framework, which answers a constant, asked in the same way in the same run.
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from time import perf_counter
from typing import Final
from urllib.parse import quote
from uuid import uuid4

import orjson

from appview.keys import Key, uri_of
from benchmarks.http_client import connected, seconds_each
from benchmarks.population import sentence
from benchmarks.processes import api, bare_framework, ended_by_signals, percentile, workplace
from benchmarks.result import Result
from benchmarks.workload import OBJECTS
from memory.database import open_database
from memory.identifiers import NAMESPACE
from tests.builders import RepoBuilder
from tests.memory_rows import MemoryRows

REPOS, MEMORIES_EACH = 2_000, 50
REQUESTS: Final = 20_000
SEARCHES: Final = 4_000
CONNECTIONS: Final = 8  # enough to keep one process busy, too few to queue for long
PAGE: Final = 100
ENDS: Final = 50  # pages at either end of a list that are compared
_XRPC: Final = f"/xrpc/{NAMESPACE}"


@dataclass(frozen=True, slots=True)
class Served:
    """The API, the bare framework, and what the index holds."""

    url: str
    bare_url: str
    keys: list[Key]


async def run_get_record() -> Result:
    """Records a second; `peer_value`: constants a second."""
    async with serving() as served:
        took, seconds = await seconds_each(served.url, _records(served), CONNECTIONS)
        bare, bare_seconds = await seconds_each(served.bare_url, _records(served), CONNECTIONS)
    rate, bare_rate = len(took) / seconds, len(bare) / bare_seconds
    beside = {"p50_ms": _ms(took, 0.5), "p99_ms": _ms(took, 0.99), "bare_p99_ms": _ms(bare, 0.99)}
    return Result("get_record", round(rate), "requests/s", round(bare_rate), round(rate / bare_rate, 3), beside=beside)


async def run_search_lexical() -> Result:
    """p95 of a search in one repo, one at a time; `peer_value`: of a constant."""
    return await _one_at_a_time("search_lexical", _searches)


async def run_list_page() -> Result:
    """p95 of a page of 100, from the first to the last of the list of all; `peer_value`: of a constant."""
    async with serving() as served:
        pages = [seconds async for seconds in _pages(served)]
        bare, _ = await seconds_each(served.bare_url, iter(["/"] * len(pages)), 1)
    took = sorted(pages)
    first, last = sorted(pages[:ENDS]), sorted(pages[-ENDS:])
    beside = {
        "pages": len(pages),
        "p50_ms": _ms(took, 0.5),
        "first_pages_p50_ms": _ms(first, 0.5),
        "last_pages_p50_ms": _ms(last, 0.5),
    }
    value, peer = _ms(took, 0.95), _ms(bare, 0.95)
    return Result("list_page", value, "p95 ms", peer, round(value / peer, 1), beside=beside)


async def _one_at_a_time(name: str, targets: Callable[[Served], Iterator[str]]) -> Result:
    async with serving() as served:
        took, _ = await seconds_each(served.url, targets(served), 1)
        bare, _ = await seconds_each(served.bare_url, targets(served), 1)
    value, peer = _ms(took, 0.95), _ms(bare, 0.95)
    beside = {"p50_ms": _ms(took, 0.5), "p99_ms": _ms(took, 0.99)}
    return Result(name, value, "p95 ms", peer, round(value / peer, 1), beside=beside)


@asynccontextmanager
async def serving() -> AsyncGenerator[Served]:
    """An API process over a filled index, warm, and the bare framework beside."""
    with ended_by_signals(), workplace() as place:
        url = place.database(uuid4().hex)
        async with open_database(url, application_name="benchmark", connections=2) as database:
            rows, keys = _rows()
            await rows.write(database)
            async with database.connection() as conn:
                await conn.execute("analyze")
        async with api(url, place.folder) as served, bare_framework(place.folder) as bare:
            ready = Served(served.url, bare.url, keys)
            for targets in (_records, _searches):
                await seconds_each(ready.url, islice(targets(ready), 500), CONNECTIONS)
                await seconds_each(ready.bare_url, islice(targets(ready), 500), CONNECTIONS)
            yield ready


def _rows() -> tuple[MemoryRows, list[Key]]:
    draw = random.Random(29)
    rows = MemoryRows()
    people = [RepoBuilder(f"reader{number}") for number in range(REPOS)]
    for person in people:
        rows.repo(person.did, handle=person.handle)
    keys = [
        rows.put(
            people[number % REPOS].did,
            sentence(draw),
            days=number / 1_000,
            kind=draw.choice(("fact", "preference")),
            scope=draw.choice(("work", "home")),
        )
        for number in range(REPOS * MEMORIES_EACH)
    ]
    return rows, keys


def _records(served: Served) -> Iterator[str]:
    draw = random.Random(31)
    for _ in range(REQUESTS):
        yield f"{_XRPC}getRecord?uri={quote(uri_of(draw.choice(served.keys)))}"


def _searches(served: Served) -> Iterator[str]:
    draw = random.Random(37)
    for _ in range(SEARCHES):
        repo = draw.choice(served.keys).repo
        yield f"{_XRPC}searchRecords?q={quote(draw.choice(OBJECTS))}&repo={repo}"


async def _pages(served: Served) -> AsyncGenerator[float]:
    cursor = ""
    async with connected(served.url) as connection:
        while cursor is not None:
            began = perf_counter()
            body = await connection.get(f"{_XRPC}listRecords?limit={PAGE}{cursor and '&cursor=' + cursor}")
            yield perf_counter() - began
            cursor = orjson.loads(body).get("cursor")


def _ms(sorted_seconds: list[float], share: float) -> float:
    return round(percentile(sorted_seconds, share) * 1000, 2)
