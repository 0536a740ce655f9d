"""`freshness`: from when a commit's frame is handed to the socket to when search finds it through the API.

A daemon, an API and a relay, each a process of its own; 200 commits a second, one memory each, of 500 repos that
are known and hold 10,000 memories already. Each memory has a word of its own. One search at a time, at most one
every 20 ms, asks for the words of what is still to be found, among its authors' memories. A memory counts as found
when the answer that holds it has arrived, so what is measured is never too small, and too large by up to 20 ms and
one search. `value` is the 99th percentile in milliseconds. Once a second somebody else asks for one word over all
authors; how long that takes is noted. FRESHNESS_SECONDS sets for how long commits are sent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import islice
from time import perf_counter
from typing import Final
from urllib.parse import urlsplit

from benchmarks.freshness_network import COMMITS_PER_S, FIRST_MEMORIES, REPOS
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
from memory.database import open_database
from memory.identifiers import COLLECTION, NAMESPACE

SECONDS: Final = 30.0
ASK_EVERY_S: Final = 0.02
ASK_ALL_EVERY_S: Final = 1.0
ASKED_AT_ONCE: Final = 10
PATIENCE_S: Final = 60.0  # without anything found
_SEARCH: Final = f"/xrpc/{NAMESPACE}searchRecords"

Search = Callable[[Sequence[str], Sequence[str]], list[str]]
"""Asks for any of some words, among some DIDs' memories or all; answers did/rkey of what is found."""


async def run() -> Result:
    """Milliseconds from sent to found."""
    seconds = seconds_of("FRESHNESS_SECONDS", SECONDS)
    with ended_by_signals(), workplace() as place:
        url = place.database("freshness")
        async with (
            open_database(url, application_name="bench", connections=1) as database,
            network("benchmarks.freshness_network", str(seconds), folder=place.folder) as net,
        ):
            await know(database, population("fresh", REPOS))
            async with daemon(url, net, place.folder) as indexer, api(url, place.folder) as service:
                await until_first_written(database, net, indexer)
                net.go()
                measure = Measure(net, service, round(seconds * COMMITS_PER_S))
                await measure.run()
                metrics = await indexer.metrics()
    delays_ms, searches_ms, all_ms = map(sorted, (measure.delays_ms, measure.searches_ms, measure.searches_of_all_ms))
    batches, batch_s = metrics["indexer_batch_seconds_count"], metrics["indexer_batch_seconds_sum"]
    p99_ms = percentile(delays_ms, 0.99)
    notes = (
        f"p50 {percentile(delays_ms, 0.5):.0f} ms, p99 {p99_ms:.0f} ms, max {delays_ms[-1]:.0f} ms",
        f"{len(delays_ms)} commits at {COMMITS_PER_S}/s, of {REPOS} repos that held {FIRST_MEMORIES} memories each",
        f"{len(searches_ms)} searches, p50 {percentile(searches_ms, 0.5):.1f} ms, max {searches_ms[-1]:.0f} ms",
        f"{len(all_ms)} searches over all authors, p50 {percentile(all_ms, 0.5):.0f} ms, max {all_ms[-1]:.0f} ms",
        f"{batches:.0f} batches, {1000 * batch_s / batches:.1f} ms each on average",
    )
    return Result("freshness", round(p99_ms, 1), "ms", notes=notes)


class Measure:
    """What is found of what is sent, and when."""

    def __init__(self, net: Network, service: Service, expected: int) -> None:
        self.delays_ms: list[float] = []
        self.searches_ms: list[float] = []
        self.searches_of_all_ms: list[float] = []
        self._net = net
        self._service = service
        self._expected = expected
        self._sent: dict[str, tuple[float, str]] = {}  # still to be found: did/rkey → (when it was sent, its word)
        self._found_word = "nothing"  # the last that was found

    async def run(self) -> None:
        """Returns once everything is found."""
        asking_all = asyncio.create_task(self._ask_all())
        try:
            await self._ask()
        finally:
            asking_all.cancel()

    async def _ask(self) -> None:
        with searcher(self._service) as search:
            patient_until = perf_counter() + PATIENCE_S
            while len(self.delays_ms) < self._expected:
                self._service.child.require_running()
                self._net.child.require_running()
                await self._hear()
                began = perf_counter()
                assert began < patient_until, f"{len(self._sent)} commits are not found"
                asked = list(islice(self._sent.items(), ASKED_AT_ONCE))
                words, authors = [word for _, (_, word) in asked], [name.partition("/")[0] for name, _ in asked]
                found = await asyncio.to_thread(search, words, authors)
                now = perf_counter()
                self.searches_ms.append(1000 * (now - began))
                for name in self._sent.keys() & found:
                    sent_at, self._found_word = self._sent.pop(name)
                    self.delays_ms.append(1000 * (now - sent_at))
                    patient_until = now + PATIENCE_S
                await sleep_until(began + ASK_EVERY_S)

    async def _hear(self) -> None:
        """Takes up what was sent meanwhile; waits while there is nothing to be found."""
        while not self._sent or not self._net.heard.empty():
            told = await self._net.heard.get()
            name, _, word = told["label"].partition(" ")
            self._sent[name] = told["at"], word

    async def _ask_all(self) -> None:
        with searcher(self._service) as search:
            while True:
                began = perf_counter()
                await asyncio.to_thread(search, [self._found_word], [])
                self.searches_of_all_ms.append(1000 * (perf_counter() - began))
                await sleep_until(began + ASK_ALL_EVERY_S)


@contextmanager
def searcher(service: Service) -> Generator[Search]:
    """One connection to the API, for one thread at a time."""
    address = urlsplit(service.url)
    connection = HTTPConnection(address.hostname or "", address.port, timeout=30)

    def search(words: Sequence[str], authors: Sequence[str]) -> list[str]:
        among = {"repo": [*dict.fromkeys(authors)]} if authors else {}
        body = json.dumps({"q": " ".join(words), "limit": ASKED_AT_ONCE, **among})
        connection.request("POST", _SEARCH, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, f"the search answered {answer.status}"
        uris = [record["uri"] for record in json.loads(text)["records"]]
        return [uri.removeprefix("at://").replace(f"/{COLLECTION}", "") for uri in uris]

    try:
        yield search
    finally:
        connection.close()
