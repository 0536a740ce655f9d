"""Pages while others write: whatever comes, changes and goes, an unchanged record is neither lost nor repeated."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from appview.keys import Key, uri_of
from memory.database import Database
from tests.api_client import Api
from tests.builders import tid
from tests.memory_rows import ALICE, BOB, CAROL, MemoryRows, day

ROUNDS = int(os.environ.get("TEST_PAGING_ROUNDS", "25"))
WORDS = ["zorb", "quimda", "fadux", "galvo"]
SPANS = [None, ("2019-05-17T00:00:00Z", "year"), ("2020-02-29T12:00:00Z", "day"), ("2021-01-01T00:00:00Z", "instant")]

Visible = Callable[[MemoryRows, Key], bool]


@dataclass
class Writes:
    """Random records of three authors, and random changes to them."""

    draw: random.Random
    rows: MemoryRows = field(default_factory=MemoryRows)
    now: float = 20.0

    def __post_init__(self) -> None:
        for did in (ALICE, BOB, CAROL):
            self.rows.repo(did)
            for _ in range(self.draw.randint(5, 12)):
                self.put(Key(did, "", self.rkey()), indexed_days=self.draw.uniform(0, 10))

    def rkey(self) -> str:
        return tid(day(self.draw.uniform(0, 1000)))

    def put(self, key: Key, *, indexed_days: float) -> None:
        """A record there, which may replace others of its author."""
        draw = self.draw
        own = [other for other in self.rows.stored if other.repo == key.repo and other != key]
        self.rows.put(
            key.repo,
            " ".join(draw.choices(WORDS, k=draw.randint(1, 6))),
            rkey=key.rkey,
            days=draw.choice((draw.randrange(8), draw.uniform(0, 10), self.now + 5)),
            indexed_days=indexed_days,
            occurred=draw.choice(SPANS),
            supersedes=draw.sample(own, min(len(own), 1)) if draw.random() < 0.2 else (),
        )

    def happen(self) -> None:
        """A few writes of any kind, all of them later than all before."""
        for _ in range(self.draw.randint(0, 5)):
            self.now += self.draw.choice((0.0, 0.25))
            current = [key for key, stored in self.rows.stored.items() if stored.block is not None]
            match self.draw.choice(("create", "update", "update", "delete", "hide")):
                case "create":
                    self.put(Key(self.draw.choice((ALICE, BOB, CAROL)), "", self.rkey()), indexed_days=self.now)
                case "update":
                    self.put(self.draw.choice(current), indexed_days=self.now)
                case "delete":
                    self.rows.delete(self.draw.choice(current), days=self.now)
                case _:
                    self.rows.repo(self.draw.choice((ALICE, BOB, CAROL)), visible=self.draw.random() < 0.7)

    def states(self) -> dict[str, int]:
        """The version of each record that can be seen now."""
        return {
            uri_of(key): len(stored.versions)
            for key, stored in self.rows.stored.items()
            if stored.block is not None and self.rows.repos[key.repo, ""]["visible"]
        }


@dataclass
class Reading:
    """What was shown on the pages so far, and the records that were the same, and in effect, whenever one was read."""

    shown: list[str] = field(default_factory=list[str])
    covered: set[str] = field(default_factory=set[str])
    first: dict[str, int] = field(default_factory=dict[str, int])
    unchanged: dict[str, int] = field(default_factory=dict[str, int])

    def see(self, states: dict[str, int]) -> None:
        if not self.first:
            self.first = self.unchanged = states
        self.unchanged = {uri: version for uri, version in self.unchanged.items() if states.get(uri) == version}

    def read(self, page: dict[str, Any]) -> None:
        for record in page["records"]:
            self.shown.append(record["uri"])
            self.covered |= {record["uri"], *record.get("duplicates", ())}


async def in_effect(api: Api, states: dict[str, int]) -> dict[str, int]:
    """Those of them that nothing replaces now."""
    records = [record async for page in api.pages("listRecords", limit=100) for record in page["records"]]
    return {record["uri"]: states[record["uri"]] for record in records}


async def read_while_written(database: Database, draw: random.Random, method: str, **asked: Any) -> Reading:
    """All pages, with writes before each but the first."""
    api, writes, reading = Api(database), Writes(draw), Reading()
    cursor: dict[str, str] = {}
    while True:
        await writes.rows.write(database)
        states = writes.states()
        reading.see(states if asked.get("includeSuperseded") else await in_effect(api, states))
        page = await api.get(method, limit=draw.choice((1, 2, 3, 5, 8)), **asked, **cursor)
        reading.read(page)
        if "cursor" not in page:
            return reading
        cursor = {"cursor": page["cursor"]}
        writes.happen()


@pytest.mark.parametrize("where", [{}, {"repo": [ALICE, BOB]}], ids=["everywhere", "of two"])
@pytest.mark.parametrize("order", ["newest", "oldest", "occurred"])
async def test_a_list_neither_loses_nor_repeats_what_does_not_change(
    database: Database, seed: int, order: str, where: dict[str, Any]
) -> None:
    readings: list[Reading] = []
    for number in range(ROUNDS):
        draw = random.Random(f"{seed}-{number}")
        everything = draw.random() < 0.5
        reading = await read_while_written(
            database, draw, "listRecords", order=order, includeSuperseded=everything, **where
        )
        # What changes may come twice, where it stood before and where it stands then; what does not, once.
        repeated = {uri for uri in reading.shown if reading.shown.count(uri) > 1}
        assert not repeated & reading.unchanged.keys(), f"round {number}"
        readings.append(reading)
    check(readings, where)


@pytest.mark.parametrize("where", [{}, {"repo": [ALICE, BOB]}], ids=["everywhere", "of two"])
async def test_a_search_neither_loses_nor_repeats_what_does_not_change(
    database: Database, seed: int, where: dict[str, Any]
) -> None:
    readings: list[Reading] = []
    for number in range(2 * ROUNDS):
        draw = random.Random(f"{seed}-{number}")
        everything = draw.random() < 0.5
        # Every record has one of the words.
        reading = await read_while_written(
            database, draw, "searchRecords", q=" ".join(WORDS), includeSuperseded=everything, **where
        )
        assert len(reading.shown) == len(set(reading.shown)), (
            f"round {number}"
        )  # what changes does not come twice either
        readings.append(reading)
    check(readings, where)


def check(readings: list[Reading], where: dict[str, Any]) -> None:
    """All that did not change was shown; and while the pages were read, much changed and much did not."""
    unchanged = changed = 0
    for number, reading in enumerate(readings):
        first, last = (
            {uri for uri in states if "repo" not in where or any(f"/{repo}/" in uri for repo in where["repo"])}
            for states in (reading.first, reading.unchanged)
        )
        assert last <= reading.covered, f"round {number}"
        unchanged += len(last)
        changed += len(first - last)
    assert unchanged > len(readings)
    assert changed > len(readings)
