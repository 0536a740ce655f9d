"""Every property that the lexicons declare for the methods on memories is met in some answer, and valid there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from appview.access import Viewer
from appview.faces.xrpc import PREFIX
from appview.keys import Key, uri_of
from appview.lexicon import ArrayType, ObjectType, RefType, Type
from memory.database import Database
from memory.space import ReadableSpaces
from tests.api_client import CATALOGUE, NAMESPACE, Api, Asked, checked, in_query
from tests.meaning import embed_one, embedded_model, query_models
from tests.memory_rows import ALICE, SPACE, MemoryRows, day, text

METHODS = ("searchRecords", "listRecords", "getRecord", "getHistory", "getStats")
KEPT, POPULAR, REVISED, PRIVATE, DELETED = (f"3kaaaaaaaaa2{letter}" for letter in "abcde")

Property = tuple[str, str]


def declared(name: str, schema: Type) -> Iterator[Property]:
    """All properties of a type, by the name of the definition or method that has them."""
    match schema:
        case RefType():
            yield from declared(schema.ref, CATALOGUE.definitions[schema.ref])
        case ArrayType():
            yield from declared(name, schema.items)
        case ObjectType():
            for own, item in schema.properties.items():
                yield name, own
                yield from declared(name, item)
        case _:
            return


def met(name: str, schema: Type, value: Any) -> Iterator[Property]:
    """Those of them that a value has."""
    match schema:
        case RefType():
            yield from met(schema.ref, CATALOGUE.definitions[schema.ref], value)
        case ArrayType():
            for item in value:
                yield from met(name, schema.items, item)
        case ObjectType():
            for own in value:
                yield name, own
                yield from met(name, schema.properties[own], value[own])
        case _:
            return


def shapely_rows() -> MemoryRows:
    """Memories that bring up all that can be said of one."""
    rows = MemoryRows()
    rows.frame_time = day(364)
    rows.repo(ALICE, handle="alice.test", state="desynchronized", reason="prevDataMismatch")
    rows.put(ALICE, "green tea", rkey=KEPT, days=1, scope="home", kind="fact", agent="codex")
    rows.put(ALICE, "green tea, hot", rkey=KEPT, days=1, indexed_days=2, scope="home", kind="fact", agent="codex")
    popular = rows.put(ALICE, "green tea for all", rkey=POPULAR, days=3)
    for number in range(101):
        rows.put(ALICE, f"instead of that, {number}", days=4, supersedes=[popular])
        old = rows.put(ALICE, f"green tea, first thought {number}", days=5)
        rows.put(ALICE, f"something else {number}", days=6, supersedes=[old])
    for _ in range(102):
        rows.put(ALICE, "said again and again: green tea", days=7)
    rows.put(ALICE, "revised", rkey=REVISED, days=8, updatedAt=text(day(20)))
    rows.put(ALICE, "green tea in private", rkey=PRIVATE, space=SPACE, days=9)
    rows.delete(rows.put(ALICE, "taken back", rkey=DELETED, days=10), days=11)
    return rows


def uri(rkey: str, space: str = "") -> str:
    return uri_of(Key(ALICE, space, rkey))


QUESTIONS: list[tuple[str, dict[str, Asked]]] = [
    ("getRecord", {"uri": uri(POPULAR)}),
    ("getRecord", {"uri": uri(PRIVATE, SPACE)}),
    ("listRecords", {"asOf": text(day(9))}),
    ("getHistory", {"uri": uri(KEPT)}),
    ("getHistory", {"uri": uri(DELETED)}),
    ("getHistory", {"uri": uri(POPULAR), "limit": 1}),
    ("getHistory", {"uri": uri(POPULAR), "limit": 3}),
    ("getStats", {"repo": ALICE}),
    ("searchRecords", {"q": "green tea", "limit": 3, "explain": True, "asOf": text(day(9))}),
    ("searchRecords", {"q": "green tea", "repo": [ALICE], "explainUri": uri(POPULAR)}),
    ("searchRecords", {"q": "green tea", "explainUri": uri(KEPT), "limit": 1}),
]


async def test_every_declared_property_is_met(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    await shapely_rows().write(database)
    alice = Viewer("alice", ReadableSpaces(frozenset({SPACE})), did=ALICE)
    api = Api(database, viewer=alice)

    async def ask(method: str, asked: Mapping[str, Asked]) -> set[Property]:
        path = PREFIX + NAMESPACE + method
        response = await api.send("GET", path, params=in_query(dict(asked)), headers={"authorization": "Bearer x"})
        assert response.status_code == 200, response.text
        return set(met(method, CATALOGUE.methods[NAMESPACE + method].output, checked(method, response)))

    seen: set[Property] = set()
    for method, asked in QUESTIONS:
        seen |= await ask(method, asked)
    async with embedded_model() as embedder:
        await embed_one(database, embedder, Key(ALICE, "", KEPT))
        by_words, api = api, Api(database, viewer=alice, query_models=query_models(embedder))
        seen |= await ask("searchRecords", {"q": "green tea", "explain": True})
        api = by_words
    # What is said only of more than anybody should have to write for a test.
    monkeypatch.setattr("appview.store.history.MAX_RELATED", 3)
    monkeypatch.setattr("appview.store.search.MAX_CANDIDATES_OF_ALL", 3)
    seen |= await ask("getHistory", {"uri": uri(POPULAR)})
    seen |= await ask("searchRecords", {"q": "green tea"})
    wanted = {each for name in METHODS for each in declared(name, CATALOGUE.methods[NAMESPACE + name].output)}
    assert sorted(wanted - seen) == []
