"""Lists and searches by random combinations of filters give what a plain filter over the same records gives."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

import orjson

from appview.access import Viewer
from appview.call import Answer, Call, Resources, Turns
from appview.keys import Key
from appview.page_cursor import PageCursors
from appview.parameters import Parameters, decode_query
from appview.refusals import SpaceNotReadable
from appview.routes.records import list_records
from appview.routes.search import search_records
from appview.store.stats import RecentTotals
from memory.database import Database
from memory.space import ReadableSpaces
from memory.tasks import TaskGroup
from tests.api_client import CATALOGUE, NAMESPACE, NOW, in_query
from tests.builders import tid
from tests.filter_model import A_MICROSECOND, COLLECTION, FilterModel, ModelRecord, list_key
from tests.memory_rows import ALICE, BOB, CAROL, MemoryRows, day, text

CASES = int(os.environ.get("TEST_FILTER_CASES", "10000"))
AT_ONCE = 4

DAVE = "did:plc:daveddddddddddddddddddd"
FAMILY = "at://did:plc:spaceaaaaaaaaaaaaaaaaaa/space/com.example.group/family"
WORK = "at://did:plc:spaceaaaaaaaaaaaaaaaaaa/space/com.example.group/work"
OTHERS = "at://did:plc:otheraaaaaaaaaaaaaaaaaa/space/com.example.group/family"
HIDDEN = {(DAVE, ""), (DAVE, FAMILY)}
HANDLES = {"alice.test": ALICE, "bob.test": BOB, "dave.test": DAVE}
VIEWERS = [Viewer("", ReadableSpaces.public_only())] + [
    Viewer(f"viewer {number}", ReadableSpaces(frozenset(spaces)))
    for number, spaces in enumerate(({FAMILY}, {WORK}, {FAMILY, WORK}))
]

WORDS = ["zorb", "zorbxt", "quimda", "quolp", "fadux", "brathik", "galvo", "mipso"]
BEGINNINGS = ["zo", "qu", "zorb", "bra", "mipso"]
LABELS = {
    "scope": ["home", "work", "Work"],
    "kind": ["fact", "preference", "something-new"],
    "agent": ["codex", "claude-code"],
    "client": ["https://app.test/client.json", "https://other.test/"],
}
SPANS = [
    {"from": "2019-05-17T00:00:00Z", "precision": "year"},
    {"from": "2019-12-31T23:30:00-05:00", "precision": "year"},
    {"from": "2020-02-29T12:00:00Z", "precision": "month"},
    {"from": "2020-02-29T12:00:00+09:00", "precision": "day"},
    {"from": "2020-03-01T00:00:00Z", "precision": "instant"},
    {"from": "2020-03-01T00:00:00.000001Z"},
    {"from": "2019-06-01T00:00:00Z", "to": "2020-02-01T00:00:00Z", "precision": "month"},
    {"from": "2020-06-01T00:00:00Z", "to": "2020-01-01T00:00:00Z", "precision": "day"},
]


@dataclass
class Story:
    """Random records, as rows and as the model has them."""

    draw: random.Random
    rows: MemoryRows = field(default_factory=MemoryRows)
    records: dict[Key, ModelRecord] = field(default_factory=dict[Key, ModelRecord])

    def tell(self) -> FilterModel:
        for handle, did in HANDLES.items():
            self.rows.repo(did, handle=handle, visible=(did, "") not in HIDDEN)
        self.rows.repo(DAVE, space=FAMILY, visible=False)
        for space in ("", FAMILY, WORK, OTHERS):
            for did in (ALICE, BOB, CAROL, DAVE):
                self.tell_of(did, space)
        return FilterModel(list(self.records.values()), HIDDEN, HANDLES)

    def tell_of(self, did: str, space: str) -> None:
        """Half a dozen records; equal rkeys in all repos, and entries that may point at any of them."""
        keys = [Key(did, space, tid(day(number))) for number in range(self.draw.choice((3, 6, 9)))]
        for key in keys:
            seen_at = self.moment()
            for _ in range(self.draw.choice((1, 1, 1, 2))):
                record = self.record(key, keys)
                self.rows.put_record(key, record, seen_at)
                self.records[key] = ModelRecord(*key, record, self.rows.stored[key].first_indexed_at)
                seen_at += timedelta(days=1)

    def record(self, key: Key, keys: list[Key]) -> dict[str, Any]:
        draw = self.draw
        words = draw.choices(WORDS, k=draw.choice((1, 2, 2, 3, 5)))
        record: dict[str, Any] = {"$type": COLLECTION, "content": " ".join(words), "createdAt": text(self.moment())}
        provenance: dict[str, Any] = {}
        for name, values in LABELS.items():
            if draw.random() < 0.6:
                (provenance if name in ("agent", "client") else record)[name] = draw.choice(values)
        record |= {"provenance": provenance} if provenance else {}
        if draw.random() < 0.6:
            record["occurredAt"] = draw.choice(SPANS)
        if draw.random() < 0.2:
            record["updatedAt"] = text(self.moment())
        if draw.random() < 0.45:
            pointed = draw.choices([*keys, key._replace(space=""), key._replace(space=FAMILY)], k=draw.choice((1, 2)))
            record["supersedes"] = [ModelRecord(*target, {}, NOW).uri for target in pointed]
        return record

    def moment(self) -> datetime:
        return day(self.draw.randrange(20) / 2)


@dataclass
class Asker:
    """Makes random questions, many of which some records answer."""

    draw: random.Random
    model: FilterModel

    def ask(self, viewer: Viewer) -> dict[str, Any]:
        draw = self.draw
        asked: dict[str, Any] = {}
        if draw.random() < 0.5:
            names = [ALICE, BOB, CAROL, DAVE, *HANDLES, "Alice.Test", "nobody.test", "did:plc:unknown"]
            asked["repo"] = draw.sample(names, draw.choice((1, 2, 4)))
        if viewer.spaces.spaces and draw.random() < 0.35:
            asked["space"] = draw.sample(viewer.spaces.as_list(), draw.randint(1, len(viewer.spaces.spaces)))
        if draw.random() < 0.02:
            asked["space"] = draw.sample([FAMILY, WORK, OTHERS, "at://nowhere"], 2)
        if draw.random() < 0.15:
            asked["publicOnly"] = draw.random() < 0.8
        for name, values in LABELS.items():
            if draw.random() < 0.2:
                asked[name] = draw.sample([*values, "", "unknown"], draw.choice((1, 2, 3)))
        for name, values in (("created", self.created()), ("occurred", self.spans())):
            if draw.random() < 0.2:
                asked[f"{name}After"] = self.around(values)
            if draw.random() < 0.2:
                asked[f"{name}Before"] = self.around(values)
        if draw.random() < 0.35:
            asked["asOf"] = self.around([record.effective_at for record in self.model.records])
        if draw.random() < 0.4:
            asked["includeSuperseded"] = draw.random() < 0.8
        asked["limit"] = draw.choices((1, 3, 10, 100), weights=(1, 3, 6, 30))[0]
        return asked

    def list(self, viewer: Viewer) -> dict[str, Any]:
        asked = self.ask(viewer)
        if self.draw.random() < 0.8:
            asked["order"] = self.draw.choice(("newest", "oldest", "occurred"))
        return asked

    def search(self, viewer: Viewer) -> dict[str, Any]:
        draw = self.draw
        asked = self.ask(viewer)
        pieces = draw.choices(WORDS, k=draw.choice((1, 1, 2, 3)))
        if draw.random() < 0.2:
            pieces.append(draw.choice(("", "-")) + '"' + " ".join(draw.choices(WORDS, k=draw.choice((1, 2)))) + '"')
        if draw.random() < 0.2:
            pieces.append("-" + draw.choice(WORDS))
        draw.shuffle(pieces)
        if draw.random() < 0.3:
            asked["prefix"] = True
            pieces.append(draw.choice(BEGINNINGS))
        asked["q"] = " ".join(pieces)
        if draw.random() < 0.3:
            asked["explainUri"] = draw.choice(self.model.served(viewer.spaces.spaces)).uri
        return asked

    def created(self) -> list[datetime]:
        return [record.created_at for record in self.model.records]

    def spans(self) -> list[datetime]:
        return [moment for record in self.model.records for moment in record.occurred() or ()]

    def around(self, moments: list[datetime]) -> str:
        """One of them, or as close to it as can be told."""
        return text(self.draw.choice(moments) + self.draw.choice((-1, 0, 0, 1)) * A_MICROSECOND)


@dataclass
class Client:
    """Asks a method of the API for all pages."""

    method: str
    answer: Answer
    resources: Resources

    async def pages(self, viewer: Viewer, asked: Mapping[str, Any]) -> list[dict[str, Any]]:
        decoded = decode_query(CATALOGUE.methods[NAMESPACE + self.method], urlencode(in_query(dict(asked))).encode())
        call = Call(NAMESPACE + self.method, viewer, decoded, self.resources)
        pages = [orjson.loads(await self.answer(call))]
        while (cursor := pages[-1].get("cursor")) is not None:
            following = replace(call, parameters=Parameters({**decoded.values, "cursor": cursor}))
            pages.append(orjson.loads(await self.answer(following)))
        return pages


def check_list(pages: list[dict[str, Any]], asked: dict[str, Any], expected: list[ModelRecord]) -> None:
    """Every page of a list: what is expected, in order, in full pages."""
    order = asked.get("order", "newest")
    expected = sorted(expected, key=list_key(order), reverse=order != "oldest")
    assert [record["uri"] for page in pages for record in page["records"]] == [record.uri for record in expected]
    assert all(len(page["records"]) == asked["limit"] for page in pages[:-1])


def check_search(pages: list[dict[str, Any]], asked: dict[str, Any], expected: list[ModelRecord]) -> None:
    """Every page of a search: what is expected, each as a hit or as a duplicate of one, once."""
    hits = [record for page in pages for record in page["records"]]
    shown = [uri for hit in hits for uri in (hit["uri"], *hit.get("duplicates", ()))]
    assert len(shown) == len(set(shown))
    assert set(shown) == {record.uri for record in expected}
    scores = [hit["score"] for hit in hits]
    assert scores == sorted(scores, reverse=True)
    of = {record.uri: (record.repo, record.space, record.value["content"]) for record in expected}
    assert len(hits) == len({of[hit["uri"]] for hit in hits})
    assert all(of[hit["uri"]] == of[uri] for hit in hits for uri in hit.get("duplicates", ()))


def check_suppressed(pages: list[dict[str, Any]], masked: int) -> None:
    """Suppressed is what passes every filter but being in effect, and of that, what would outrank the last hit."""
    told = [page["suppressed"] for page in pages]
    assert told == sorted(told)
    assert told[-1] <= masked
    assert told[-1] == masked or pages[-1]["records"]


def check_explanation(
    pages: list[dict[str, Any]], asked: dict[str, Any], explained: ModelRecord, model: FilterModel
) -> None:
    """The first filter that left a record out, or none."""
    hits = {hit["uri"] for page in pages for hit in page["records"]}
    for page in pages:
        explanation = page["explanation"]
        failed = model.failed(explained, asked)
        if failed is None and explained.uri not in hits:
            failed = "duplicate"
        assert explanation.get("failedFilter") == failed
        assert explanation["recalled"] is (failed is None)


def questions(seed: int, model: FilterModel) -> Iterator[tuple[str, Viewer, dict[str, Any]]]:
    """Each by a generator of its own: a case that fails can be asked alone."""
    for number in range(CASES):
        asker = Asker(random.Random(f"{seed}-{number}"), model)
        viewer = asker.draw.choice(VIEWERS)
        if number % 2:
            yield "searchRecords", viewer, asker.search(viewer)
        else:
            yield "listRecords", viewer, asker.list(viewer)


async def test_random_combinations_of_filters_give_what_a_plain_filter_gives(database: Database, seed: int) -> None:
    story = Story(random.Random(seed))
    model = story.tell()
    await story.rows.write(database)
    by_uri = {record.uri: record for record in model.records}
    searches = Turns(at_once=AT_ONCE, waiting=AT_ONCE)
    resources = Resources(database, PageCursors(b"k" * 32), lambda: NOW, searches, RecentTotals(database, lambda: 0.0))
    clients = {
        "listRecords": Client("listRecords", list_records, resources),
        "searchRecords": Client("searchRecords", search_records, resources),
    }
    counts = {"refused": 0, "some": 0, "explained": 0, "masked": 0}

    async def check(method: str, viewer: Viewer, asked: dict[str, Any]) -> None:
        readable = viewer.spaces.as_list()
        if not set(asked.get("space", ())) <= set(readable):
            counts["refused"] += 1
            try:
                await clients[method].pages(viewer, asked)
            except SpaceNotReadable:
                return
            raise AssertionError
        pages = await clients[method].pages(viewer, asked)
        expected = model.passing(asked, readable)
        counts["some"] += bool(expected)
        if method == "listRecords":
            check_list(pages, asked, expected)
            return
        check_search(pages, asked, expected)
        masked = len(model.passing({**asked, "includeSuperseded": True}, readable)) - len(expected)
        counts["masked"] += bool(masked)
        check_suppressed(pages, masked)
        if "explainUri" in asked:
            counts["explained"] += 1
            check_explanation(pages, asked, by_uri[asked["explainUri"]], model)

    left = questions(seed, model)

    async def check_all() -> None:
        for method, viewer, asked in left:
            try:
                await check(method, viewer, asked)
            except Exception as failure:
                failure.add_note(f"{method} {sorted(viewer.spaces.spaces)} {asked}")
                raise

    async with TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(check_all())
    # The questions are worth asking: many have an answer, and each kind of them comes.
    assert counts["some"] > CASES / 4, counts
    assert min(counts.values()) > CASES / 200, counts
