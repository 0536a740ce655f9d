"""Memories with random vectors, questions to them, and what is plainly computed of both."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import sqrt
from typing import Any

import pytest

from appview.filters import Filters
from appview.keys import Key
from appview.search.query import parse_query
from appview.search.semantic import Near
from appview.store import semantic
from appview.store.semantic import Sought, StoredModel, find_near, load_mean
from appview.store.service import plan_anew
from indexer.store import embedding_models
from memory.database import Database
from memory.embedding import vector_text
from memory.space import PUBLIC, ReadableSpaces
from tests.memory_rows import ALICE, BOB, CAROL, SPACE, MemoryRows

WIDTH = 8
MODEL = StoredModel("random-1", WIDTH, {})
OTHER_SPACE = SPACE.replace("family", "work")
DAVE = "did:plc:davedddddddddddddddddddd"
NOBODY = ReadableSpaces.public_only()
READERS = (NOBODY, ReadableSpaces(frozenset({SPACE})), ReadableSpaces(frozenset({SPACE, OTHER_SPACE})))
WORDS = ("tea", "wine", "dog", "river", "lisbon")
CLOSE = 1e-3  # of half-precision numbers

Vector = list[float]


def unit(numbers: Iterable[float]) -> Vector:
    some = list(numbers)
    length = sqrt(sum(number * number for number in some))
    return [number / length for number in some]


def half(vector: Vector) -> Vector:
    """As it is stored."""
    return list(struct.unpack(f"{WIDTH}e", struct.pack(f"{WIDTH}e", *vector)))


def dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


@dataclass
class Meaning:
    """Memories with random vectors, and what is plainly computed of them."""

    draw: random.Random
    rows: MemoryRows = field(default_factory=MemoryRows)
    vectors: dict[Key, list[Vector]] = field(default_factory=dict[Key, list[Vector]])

    def vector(self) -> Vector:
        return half(unit(self.draw.gauss() for _ in range(WIDTH)))

    def put(self, did: str, *, space: str = PUBLIC, passages: int | None = None, **properties: Any) -> Key:
        words = " ".join([*self.draw.sample(WORDS, 2), f"number{len(self.vectors)}"])  # no two are copies
        key = self.rows.put(did, words, space=space, **properties)
        count = self.draw.choice((0, 1, 1, 1, 2, 5)) if passages is None else passages
        self.vectors[key] = [self.vector() for _ in range(count)]
        return key

    def fill(self, did: str, count: int, *, space: str = PUBLIC) -> list[Key]:
        """Some memories with all that filters look at; some replace others."""
        keys: list[Key] = []
        for _ in range(count):
            replaced = self.draw.sample(keys, min(len(keys), self.draw.choice((0, 0, 0, 1, 2))))
            occurred = self.draw.choice((None, "2026-01-05T00:00:00Z", "2026-02-05T00:00:00Z"))
            optional: dict[str, Any] = {
                "kind": self.draw.choice((None, "fact", "preference")),
                "scope": self.draw.choice((None, "work", "home")),
                "agent": self.draw.choice((None, "codex", "zed")),
                "client": self.draw.choice((None, "app", "web")),
                "occurred": None if occurred is None else (occurred, "day"),
            }
            properties = {name: value for name, value in optional.items() if value is not None}
            days = self.draw.uniform(1, 30)
            later = days + self.draw.choice((0, 0, 5))
            keys.append(self.put(did, space=space, days=days, indexed_days=later, supersedes=replaced, **properties))
        return keys

    async def write(self, database: Database) -> None:
        await self.rows.write(database)
        async with database.transaction() as conn:
            await embedding_models.add_model(conn, MODEL.name, WIDTH)
            await conn.execute("delete from embeddings")
            many: Any = conn
            await many.executemany(
                "insert into embeddings values ($1, $2, $3, $4, $5, $6::text::halfvec)",
                [
                    (*(key.repo, key.space, MODEL.name, key.rkey), chunk, vector_text(vector))
                    for key, vectors in self.vectors.items()
                    for chunk, vector in enumerate(vectors)
                ],
            )

    def search(self) -> Sought:
        return Sought(MODEL, self.vector())


def go_by_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few there are. Where no index was made the statement is exact."""
    monkeypatch.setattr(semantic, "MAX_COMPARED", 0)
    monkeypatch.setattr(semantic, "MAX_COMPARED_ANYWAY", 0)


@dataclass(frozen=True)
class Asked:
    """One question to the arm."""

    sought: Sought
    words: str
    filters: Filters
    watermark: datetime | None
    spaces: ReadableSpaces


async def ask(database: Database, asked: Asked, kept: int | None = None) -> Near:
    async with database.transaction(isolation="repeatable_read", readonly=True) as conn:
        await plan_anew(conn)
        mean = await load_mean(conn, asked.sought.model, asked.filters, spaces=asked.spaces)
        return await find_near(
            conn,
            asked.sought,
            asked.sought.aim_at(mean),
            parse_query(asked.words),
            asked.filters,
            watermark=asked.watermark,
            spaces=asked.spaces,
            kept=kept,
        )


async def stored_rows(database: Database) -> dict[Key, Any]:
    async with database.connection() as conn:
        rows = await conn.fetch("select m.*, r.visible from memories m join repos r using (repo, space)")
    return {Key(row["repo"], row["space"], row["rkey"]): row for row in rows}


def passes(row: Any, asked: Asked) -> bool:
    """Whether a readable memory passes every filter."""
    filters = asked.filters
    words = set(row["content"].split())
    query = parse_query(asked.words)
    required = {word for word in WORDS if f'"{word}"' in asked.words and f'-"{word}"' not in asked.words}
    excluded = {word for word in WORDS if f'-"{word}"' in asked.words}
    assert bool(required or excluded) == bool(query.phrases or query.exclusions)
    wanted = {"kind": filters.kinds, "scope": filters.scopes, "agent": filters.agents, "client": filters.clients}
    return (
        required <= words
        and not excluded & words
        and all(values is None or (row[name] or "") in values for name, values in wanted.items())
        and (filters.as_of is None or row["effective_at"] <= filters.as_of)
        and (asked.watermark is None or row["indexed_at"] <= asked.watermark)
        and (filters.created_after is None or row["created_at"] >= filters.created_after)
        and (filters.created_before is None or row["created_at"] < filters.created_before)
        and (
            filters.occurred_after is None
            or (row["occurred_to"] is not None and row["occurred_to"] > filters.occurred_after)
        )
        and (
            filters.occurred_before is None
            or (row["occurred_from"] is not None and row["occurred_from"] < filters.occurred_before)
        )
    )


def is_masked(row: Any, filters: Filters) -> bool:
    if filters.superseded or row["masked_from"] is None:
        return False
    if filters.as_of is None:
        return True
    if row["masked_spans"] is None:
        return row["masked_from"] <= filters.as_of
    return any(filters.as_of in _Span(span) for span in row["masked_spans"])


class _Span:
    def __init__(self, span: Any) -> None:
        self.span = span

    def __contains__(self, moment: datetime) -> bool:
        return self.span.lower <= moment and (self.span.upper is None or moment < self.span.upper)


def expected(meaning: Meaning, rows: Mapping[Key, Any], asked: Asked) -> list[tuple[Key, float, bool]]:
    """The plain computation: which memories, nearest first, how near, and whether masked."""
    filters, reach = asked.filters, asked.filters.reach(asked.spaces)
    readable = {
        key: row
        for key, row in rows.items()
        if row["visible"]
        and (reach.public if key.space == PUBLIC else key.space in reach.spaces.spaces)
        and (filters.repos is None or key.repo in filters.repos)
    }
    mean = mean_for(meaning, readable, everywhere=filters.repos is None and reach.public)
    offset = 0.0 if mean is None else 0.5 * dot(mean, mean)
    query = list(asked.sought.vector)
    aim = query if mean is None else [mine - 0.5 * common for mine, common in zip(query, mean, strict=True)]
    found = [
        (key, max(dot(aim, vector) / sqrt(dot(vector, vector)) for vector in meaning.vectors[key]) + offset)
        for key, row in readable.items()
        if meaning.vectors[key] and passes(row, asked)
    ]
    found.sort(key=lambda each: (-each[1], each[0]))
    return [(key, like, is_masked(rows[key], filters)) for key, like in found]


def mean_for(meaning: Meaning, readable: Iterable[Key], *, everywhere: bool) -> Vector | None:
    if everywhere:
        return None
    sample = [meaning.vectors[key][0] for key in sorted(readable) if meaning.vectors[key]][: semantic.SAMPLE]
    return [sum(numbers) / len(sample) for numbers in zip(*sample, strict=True)] if sample else None


def assert_same(near: Near, wanted: list[tuple[Key, float, bool]]) -> None:
    assert {memory.key for memory in near.memories} == {key for key, _, _ in wanted}
    likeness = {key: like for key, like, _ in wanted}
    for memory, (_, at_this_place, _) in zip(near.memories, wanted, strict=True):
        assert near.likeness[memory.key] == pytest.approx(likeness[memory.key], abs=CLOSE)
        assert near.likeness[memory.key] == pytest.approx(at_this_place, abs=CLOSE)
    assert {memory.key: memory.masked for memory in near.memories} == {key: masked for key, _, masked in wanted}
    assert not near.capped


def assert_nearest(near: Near, wanted: list[tuple[Key, float, bool]], many: int) -> None:
    """That so many of the wanted came, the nearest first; which of two that are all but as near, is open."""
    likeness = {key: like for key, like, _ in wanted}
    assert near.likeness.keys() == {memory.key for memory in near.memories}
    assert len(near.likeness) == many
    for memory, (_, at_this_place, _) in zip(near.memories, wanted[:many], strict=True):
        assert near.likeness[memory.key] == pytest.approx(likeness[memory.key], abs=CLOSE)
        assert near.likeness[memory.key] == pytest.approx(at_this_place, abs=CLOSE)


def populated(draw: random.Random) -> Meaning:
    meaning = Meaning(draw)
    for did in (ALICE, BOB, DAVE):
        meaning.rows.repo(did, visible=did != DAVE)
        meaning.fill(did, 40)
    meaning.rows.repo(CAROL, space=SPACE)
    meaning.fill(CAROL, 25, space=SPACE)
    meaning.fill(ALICE, 25, space=SPACE)
    meaning.fill(ALICE, 20, space=OTHER_SPACE)
    meaning.rows.repo(BOB, space=OTHER_SPACE, visible=False)
    meaning.fill(BOB, 10, space=OTHER_SPACE)
    return meaning


def without_fair_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearest is nearest, whoever wrote it."""
    monkeypatch.setattr(semantic, "OF_ONE_AUTHOR", 10_000)
