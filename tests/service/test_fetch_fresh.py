"""A repo of which nothing was ever held is written without looking anything up, and comes out as any other."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from indexer.arrivals import Arrival, ContentsFetched
from indexer.quota import QuotaLimits
from indexer.writer import Writer
from memory.database import Database
from memory.identifiers import COLLECTION
from tests.builders import RepoBuilder
from tests.builders import memory as memory_at
from tests.feed import LIMITS, forget, rkey
from tests.mending import Mending, mending, tables

RECORDS = 24
LONG_SINCE = "2026-09-01T00:00:00.000Z"  # so that masks do not tell when it was indexed
LITTLE = QuotaLimits(max_memories=9, max_bytes=10**9, max_edges=10**6)


def memory(content: str, **fields: Any) -> dict[str, Any]:
    return memory_at(content, LONG_SINCE, **fields)


def uri(person: RepoBuilder, number: int) -> str:
    return f"at://{person.did}/{COLLECTION}/{rkey(number)}"


def write(person: RepoBuilder, draw: random.Random) -> None:
    """Memories that replace earlier and later ones, some of them in circles, and records that are none."""
    for number in range(RECORDS):
        targets = [uri(person, draw.randrange(RECORDS)) for _ in range(draw.choice((0, 0, 1, 2)))]
        fields = {"supersedes": targets} if targets else {}
        if draw.random() < 0.3:
            fields |= {"scope": "work", "kind": "fact", "updatedAt": "2026-10-01T00:00:00.000Z"}
        record = memory(f"{number}", **fields) if draw.random() < 0.9 else {"$type": COLLECTION, "of": number}
        person.create(rkey(number), record)


async def fetched(database: Database, write_to: Callable[[RepoBuilder], None], **options: Any) -> dict[str, Any]:
    async with mending(database, **options) as world:
        world.start()
        write_to(alice := world.account("alice"))
        await world.ask(alice)
        await world.until_answered(alice)
        held = await tables(database, alice.did)
        await forget(database, alice.did)
        return held


@pytest.mark.parametrize("limits", [LIMITS, LITTLE], ids=["enough", "little"])
async def test_fresh_repo_is_what_it_is_where_everything_is_looked_up(
    database: Database, seed: int, limits: QuotaLimits, monkeypatch: pytest.MonkeyPatch
):
    def write_to(person: RepoBuilder) -> None:
        write(person, random.Random(seed))

    in_any_slices = [await fetched(database, write_to, limits=limits, slice_ops=ops) for ops in (1, 2, 7, RECORDS)]
    monkeypatch.setattr("indexer.store.fetches.held_cids", _nothing_is_fresh)
    looked_up = await fetched(database, write_to, limits=limits)
    assert in_any_slices == [looked_up] * len(in_any_slices)


async def _nothing_is_fresh(*_: object) -> dict[str, str]:
    return {}


@pytest.fixture
def told_fresh(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each slice that is written, whether it was said to be fresh."""
    told: list[bool] = []
    take = Writer.take

    async def telling(writer: Writer, conn: Any, arrivals: list[Arrival], *rest: Any) -> Any:
        told.extend(arrival.fresh for arrival in arrivals if isinstance(arrival, ContentsFetched))
        return await take(writer, conn, arrivals, *rest)

    monkeypatch.setattr(Writer, "take", telling)
    return told


async def test_slices_are_fresh_until_one_points_to_what_may_follow(database: Database, told_fresh: list[bool]):
    def write_to(person: RepoBuilder) -> None:
        for number in range(8):
            targets = {"supersedes": [uri(person, 7)]} if number == 3 else {}
            person.create(rkey(number), memory(f"{number}", **targets))

    await fetched(database, write_to, slice_ops=2)
    assert told_fresh == [True, True, False, False]


@pytest.fixture
async def world(database: Database) -> Any:
    async with mending(database) as opened:
        opened.start()
        yield opened


async def test_repo_that_held_a_memory_once_is_not_fresh(world: Mending, told_fresh: list[bool]):
    """Its versions go on being counted."""
    frames = (alice := world.account("alice")).genesis()
    await world.live(*frames, alice.create(rkey(1), memory("one")), alice.delete(rkey(1)))
    alice.create(rkey(1), memory("one again"))
    await world.ask(alice)
    await world.until_answered(alice)
    versions = await world.rows("select number, operation from memory_versions order by number")
    assert [tuple(row) for row in versions] == [(1, "created"), (2, "deleted"), (3, "created")]
    assert told_fresh == [False]


async def test_repo_that_holds_nothing_but_what_is_invalid_is_not_fresh(world: Mending, told_fresh: list[bool]):
    frames = (alice := world.account("alice")).genesis()
    await world.live(*frames, alice.create(rkey(1), {"$type": COLLECTION}))
    alice.update(rkey(1), memory("one"))
    await world.ask(alice)
    await world.until_answered(alice)
    assert await world.contents(alice) == ["one"]
    assert await world.rows("select from invalid_records") == []
    assert told_fresh == [False]
