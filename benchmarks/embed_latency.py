"""`embed_latency`: from when a commit's frame is handed to the socket to when search by meaning finds its memory.

A daemon with the process that embeds, an API and a relay, each a process of its own; 20 commits a second, one short
memory each, of 100 repos. One search at a time, by meaning alone and in the embedded model's vectors as in life, asks
for the oldest memory that is still to be found, among its author's. A memory counts as found when the answer that holds
it has arrived, so what is measured is never too small. `value` is the 95th percentile in milliseconds.
EMBED_LATENCY_SECONDS sets for how long commits are sent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.client import HTTPConnection
from time import perf_counter
from typing import Final
from urllib.parse import urlsplit

from benchmarks.embed_latency_network import COMMITS_PER_S, REPOS
from benchmarks.population import know, population
from benchmarks.processes import (
    Network,
    Service,
    api,
    daemon,
    ended_by_signals,
    network,
    percentile,
    seconds_of,
    sleep_until,
    until_first_written,
    workplace,
)
from benchmarks.result import Result
from memory.database import Database, open_database
from memory.identifiers import COLLECTION, NAMESPACE

SECONDS: Final = 60.0
ASK_EVERY_S: Final = 0.02
PATIENCE_S: Final = 60.0  # without anything found
FIRST_EMBEDDED_S: Final = 120.0
_SEARCH: Final = f"/xrpc/{NAMESPACE}searchRecords"

Search = Callable[[str, str], set[str]]
"""Asks one author's memories for what means the same as a wording; answers did/rkey of what is found."""


async def run() -> Result:
    """Milliseconds from sent to found by meaning."""
    seconds = seconds_of("EMBED_LATENCY_SECONDS", SECONDS)
    with ended_by_signals(), workplace() as place:
        url = place.database("embed_latency")
        async with (
            open_database(url, application_name="bench", connections=1) as database,
            network("benchmarks.embed_latency_network", str(seconds), folder=place.folder) as net,
        ):
            await know(database, population("embed", REPOS))
            async with daemon(url, net, place.folder) as indexer, api(url, place.folder) as service:
                await until_first_written(database, net, indexer)
                await indexer.child.until(lambda: _is_embedded(database), FIRST_EMBEDDED_S)
                net.go()
                measure = Measure(net, service, round(seconds * COMMITS_PER_S))
                await measure.run()
    delays_ms, searches_ms = sorted(measure.delays_ms), sorted(measure.searches_ms)
    p95_ms = percentile(delays_ms, 0.95)
    notes = (
        f"p50 {percentile(delays_ms, 0.5):.0f} ms, p95 {p95_ms:.0f} ms, max {delays_ms[-1]:.0f} ms",
        f"{len(delays_ms)} commits at {COMMITS_PER_S}/s, of {REPOS} repos",
        f"{len(searches_ms)} searches, p50 {percentile(searches_ms, 0.5):.1f} ms, max {searches_ms[-1]:.0f} ms",
    )
    return Result("embed_latency", round(p95_ms, 1), "ms", notes=notes)


async def _is_embedded(database: Database) -> bool:
    async with database.connection() as conn:
        return bool(
            await conn.fetchval(
                "select exists (select from embedding_models where calibrated_at is not null)"
                " and (select count(*) from embeddings) > 0 and not exists (select from embedding_requests)"
            )
        )


class Measure:
    """What is found of what is sent, and when."""

    def __init__(self, net: Network, service: Service, expected: int) -> None:
        self.delays_ms: list[float] = []
        self.searches_ms: list[float] = []
        self._net = net
        self._service = service
        self._expected = expected
        self._sent: dict[str, tuple[float, str]] = {}  # still to be found: did/rkey → (when it was sent, its word)

    async def run(self) -> None:
        """Returns once everything is found."""
        with searcher(self._service) as search:
            patient_until = perf_counter() + PATIENCE_S
            while len(self.delays_ms) < self._expected:
                self._service.child.require_running()
                self._net.child.require_running()
                await self._hear()
                began = perf_counter()
                assert began < patient_until, f"{len(self._sent)} commits are not found"
                name, (_, word) = next(iter(self._sent.items()))
                found = await asyncio.to_thread(search, f"It was noted as {word}.", name.partition("/")[0])
                now = perf_counter()
                self.searches_ms.append(1000 * (now - began))
                for each in self._sent.keys() & found:
                    self.delays_ms.append(1000 * (now - self._sent.pop(each)[0]))
                    patient_until = now + PATIENCE_S
                await sleep_until(began + ASK_EVERY_S)

    async def _hear(self) -> None:
        """Takes up what was sent meanwhile; waits while there is nothing to be found."""
        while not self._sent or not self._net.heard.empty():
            told = await self._net.heard.get()
            name, _, word = told["label"].partition(" ")
            self._sent[name] = told["at"], word


@contextmanager
def searcher(service: Service) -> Generator[Search]:
    """One connection to the API, for one thread at a time."""
    address = urlsplit(service.url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=30)

    def search(wording: str, author: str) -> set[str]:
        body = json.dumps({"q": wording, "mode": "semantic", "limit": 100, "repo": [author], "minScore": 0})
        connection.request("POST", _SEARCH, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, f"the search answered {answer.status}"
        told = json.loads(text)
        assert told["mode"] == "semantic", "the model is not to be had in time"
        return {record["uri"].removeprefix("at://").replace(f"/{COLLECTION}", "") for record in told["records"]}

    try:
        yield search
    finally:
        connection.close()
