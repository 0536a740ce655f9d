"""The semantic arm answers what a plain computation does: masks, filters, Spaces, memories of many passages."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest

from appview.filters import Filters
from appview.store import semantic
from indexer.store import embedding_models
from memory.database import Database
from memory.space import PUBLIC
from tests.memory_rows import ALICE, BOB, CAROL, SPACE, day
from tests.store.meanings import (
    DAVE,
    MODEL,
    NOBODY,
    OTHER_SPACE,
    READERS,
    WIDTH,
    Asked,
    Meaning,
    ask,
    assert_nearest,
    assert_same,
    expected,
    go_by_index,
    half,
    populated,
    stored_rows,
    unit,
    without_fair_shares,
)


@pytest.fixture(autouse=True)
def _nearest_is_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    without_fair_shares(monkeypatch)


def any_filters(draw: random.Random) -> Filters:
    def maybe(value: Any, share: float = 0.2) -> Any:
        return value if draw.random() < share else None

    moment = day(draw.uniform(0, 40))
    return Filters(
        repos=draw.choice((None, None, (ALICE,), (ALICE, BOB, CAROL, DAVE), (CAROL,))),
        spaces=draw.choice((None, None, (SPACE,), (PUBLIC,), (PUBLIC, OTHER_SPACE))),
        public_only=draw.random() < 0.1,
        scopes=maybe(("work", "")),
        kinds=maybe(("fact",)),
        agents=maybe(("codex",)),
        clients=maybe(("app", "web")),
        created_after=maybe(moment),
        created_before=maybe(moment + timedelta(days=10)),
        occurred_after=maybe(day(10)),
        occurred_before=maybe(day(draw.choice((3, 20, 90)))),
        as_of=maybe(day(draw.uniform(5, 40)), 0.4),
        superseded=draw.random() < 0.3,
    )


@pytest.mark.parametrize("few", [True, False], ids=["compared", "by_index"])
async def test_any_search_finds_what_a_plain_computation_finds(
    database: Database, seed: int, few: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(seed)
    meaning = populated(draw)
    await meaning.write(database)
    rows = await stored_rows(database)
    monkeypatch.setattr(semantic, "MAX_NEAR_OF_ALL", 1_000)
    if not few:
        go_by_index(monkeypatch)
    answered = 0
    for _ in range(150):
        words = draw.choice(("tea", "tea", 'river "dog"', 'river -"wine"', '"tea" -"dog"'))
        asked = Asked(
            meaning.search(), words, any_filters(draw), draw.choice((None, None, day(20))), draw.choice(READERS)
        )
        near = await ask(database, asked)
        assert_same(near, expected(meaning, rows, asked))
        answered += len(near.memories)
    assert answered > 1_000


async def test_a_memory_is_as_near_as_its_nearest_passage(database: Database, seed: int) -> None:
    meaning = Meaning(random.Random(seed))
    for _ in range(20):
        meaning.put(ALICE, passages=20)
    await meaning.write(database)
    rows = await stored_rows(database)
    for filters in (Filters(), Filters(repos=(ALICE,))):
        asked = Asked(meaning.search(), "tea", filters, None, NOBODY)
        near = await ask(database, asked)
        assert len(near.memories) == 20
        assert_same(near, expected(meaning, rows, asked))


async def test_passages_take_no_place_of_other_memories(
    database: Database, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many memories as are wanted come back, though the nearest passages are all of a few."""
    meaning = Meaning(random.Random(seed))
    asked = Asked(meaning.search(), "tea", Filters(), None, NOBODY)
    near_ones = [half(unit(number + meaning.draw.gauss(0, 0.1) for number in asked.sought.vector)) for _ in range(60)]
    for number in range(3):
        meaning.vectors[meaning.put(ALICE, passages=0)] = near_ones[number::3]
    for _ in range(30):
        meaning.put(BOB, passages=1)
    await meaning.write(database)
    async with database.connection() as conn:
        await embedding_models.build_index(conn, MODEL.name, WIDTH)
    monkeypatch.setattr(semantic, "MAX_NEAR_OF_ALL", 10)
    for by_index in (False, True):
        if by_index:
            go_by_index(monkeypatch)
        near = await ask(database, asked)
        assert len(near.memories) == 10
        assert near.capped
        assert {memory.key.repo for memory in near.memories[:3]} == {ALICE}


@pytest.mark.parametrize("limit", ["MAX_NEAR", "MAX_NEAR_OF_ALL"])
async def test_of_more_than_are_brought_the_nearest_are(
    database: Database, seed: int, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    meaning = Meaning(random.Random(seed))
    meaning.fill(ALICE, 40)
    await meaning.write(database)
    rows = await stored_rows(database)
    filters = Filters(repos=(ALICE,) if limit == "MAX_NEAR" else None)
    asked = Asked(meaning.search(), "tea", filters, None, NOBODY)
    wanted = expected(meaning, rows, asked)
    for many in (len(wanted) - 1, 7):
        monkeypatch.setattr(semantic, limit, many)
        near = await ask(database, asked)
        assert_nearest(near, wanted, many)
        assert near.capped
    monkeypatch.setattr(semantic, limit, len(wanted))
    assert not (await ask(database, asked)).capped
