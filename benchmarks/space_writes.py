"""The writes of `space_sync`: from a Space's host's notification to when its reader's search finds the memory."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from itertools import islice
from time import perf_counter
from typing import Final
from urllib.parse import urlsplit

from benchmarks.processes import Service, sleep_until
from benchmarks.space_services import SpaceHosts
from memory.identifiers import NAMESPACE

WRITES_PER_S: Final = 10.0
ASK_EVERY_S: Final = 0.01
ASKED_AT_ONCE: Final = 10
REST_MAX_S: Final = 0.4  # more than twice what the sync waits between two looks
PATIENCE_S: Final = 60.0
_SEARCH: Final = f"/xrpc/{NAMESPACE}searchRecords"


class Measure:
    """What is found of what is written, and when; one search at a time, so that a delay is never too small."""

    def __init__(self, hosts: SpaceHosts, api: Service, audience: str, token: str) -> None:
        self._hosts = hosts
        self._api = api
        self._audience = audience
        self._token = token
        self._waiting: dict[str, tuple[float, str]] = {}  # word → when it was told of, and in which Space
        self._delays_ms: list[float] = []

    async def one_at_a_time(self, numbers: Iterable[int]) -> list[float]:
        """Milliseconds of each of these writes, told after the one before was found and some while more."""
        draw = random.Random(23)
        with self._searching() as connection:
            for number in numbers:
                await asyncio.sleep(draw.uniform(0.0, REST_MAX_S))
                await self._write(number)
                while self._waiting:
                    await self._look(connection)
        return self._taken()

    async def paced(self, numbers: Sequence[int]) -> list[float]:
        """Milliseconds of each, told at an even pace."""
        writing = asyncio.create_task(self._write_all(numbers))
        with self._searching() as connection:
            while self._waiting or not writing.done():
                await self._look(connection)
        await writing
        return self._taken()

    async def _write_all(self, numbers: Iterable[int]) -> None:
        began = perf_counter()
        for place, number in enumerate(numbers):
            await sleep_until(began + place / WRITES_PER_S)
            await self._write(number)

    async def _write(self, number: int) -> None:
        told = await self._hosts.tell(number=number, api=self._api.url, audience=self._audience)
        self._waiting[told["word"]] = told["at"], told["space"]

    async def _look(self, connection: HTTPConnection) -> None:
        """One search for what has waited longest; no sooner than a while after the one before."""
        self._hosts.child.require_running()
        self._api.child.require_running()
        began = perf_counter()
        if asked := dict(islice(self._waiting.items(), ASKED_AT_ONCE)):
            oldest = min(at for at, _ in asked.values())
            assert began - oldest < PATIENCE_S, f"{len(self._waiting)} writes are not found"
            contents = await asyncio.to_thread(
                self._search, connection, [*asked], [space for _, space in asked.values()]
            )
            now = perf_counter()
            for word in asked:
                if any(word in content for content in contents):
                    self._delays_ms.append(1000 * (now - self._waiting.pop(word)[0]))
        await sleep_until(began + ASK_EVERY_S)

    def _search(self, connection: HTTPConnection, words: Sequence[str], spaces: Sequence[str]) -> list[str]:
        body = {"q": " ".join(words), "mode": "lexical", "limit": ASKED_AT_ONCE, "space": [*dict.fromkeys(spaces)]}
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"}
        connection.request("POST", _SEARCH, json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, f"the search answered {answer.status}: {text[:300]!r}"
        return [record["value"]["content"] for record in json.loads(text)["records"]]

    @contextmanager
    def _searching(self) -> Generator[HTTPConnection]:
        address = urlsplit(self._api.url)
        connection = HTTPConnection(address.hostname or "", address.port, timeout=30)
        try:
            yield connection
        finally:
            connection.close()

    def _taken(self) -> list[float]:
        taken, self._delays_ms = self._delays_ms, []
        return taken
