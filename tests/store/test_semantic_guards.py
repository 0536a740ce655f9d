"""What nobody here may read, or came later, changes nothing of what the semantic arm finds."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from appview.filters import Filters
from appview.search.query import parse_query
from appview.search.semantic import Near
from appview.store import semantic
from appview.store.search import load_contents
from appview.store.semantic import Sought, find_near, load_mean, measure
from appview.store.service import plan_anew
from memory.database import Database
from memory.embedding import vector_text
from memory.space import PUBLIC
from tests.memory_rows import ALICE, BOB, CAROL, SPACE, day
from tests.store.meanings import (
    DAVE,
    MODEL,
    NOBODY,
    READERS,
    Asked,
    Meaning,
    ask,
    half,
    populated,
    stored_rows,
    unit,
    without_fair_shares,
)


@pytest.fixture(autouse=True)
def _nearest_is_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    without_fair_shares(monkeypatch)


def shown(near: Near) -> list[tuple[Any, ...]]:
    return [(memory, near.likeness[memory.key]) for memory in near.memories] + [(near.capped,)]


async def add_unreadable(database: Database, meaning: Meaning, sought: Sought, count: int) -> None:
    """Rows nearer than any other: of a repo that is not served, and in a Space that nobody here may read."""
    text = vector_text(half(unit(sought.vector)))
    hidden_space = SPACE.replace("family", "hidden")
    async with database.transaction() as conn:
        for repo, space, visible in ((DAVE, PUBLIC, False), (ALICE, hidden_space, True), (BOB, hidden_space, True)):
            await conn.execute(
                "insert into repos (repo, space, state, visible, tracked_at, changed_at) "
                "values ($1, $2, 'active', $3, now(), now()) on conflict (repo, space) do update set visible = $3",
                *(repo, space, visible),
            )
            await conn.execute(
                """
                insert into memories (
                    repo, space, rkey, cid, rev, record, content, created_at, first_indexed_at, indexed_at,
                    effective_at, version, content_bytes, terms, term_count
                )
                select $1, $2, 'unread' || n, '', '', '', 'tea dog', t, t, t, t, 1, 7, 'tea:1 dog:2', 2
                from generate_series(1, $3::int) n, (values ('2026-01-02'::timestamptz)) as v (t)
                """,
                *(repo, space, count // 3),
            )
            await conn.execute(
                "insert into embeddings select $1, $2, $3, 'unread' || n, 0, $4::text::halfvec "
                "from generate_series(1, $5::int) n",
                *(repo, space, MODEL.name, text, count // 3),
            )


@pytest.mark.parametrize("most", [20_000, 150, 0], ids=["compared", "as_few_as_may_be_compared", "by_index"])
async def test_ten_thousand_unreadable_memories_change_no_byte(
    database: Database, seed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    meaning = populated(random.Random(seed))
    await meaning.write(database)
    monkeypatch.setattr(semantic, "MAX_COMPARED", most)
    monkeypatch.setattr(semantic, "MAX_COMPARED_ANYWAY", most)
    monkeypatch.setattr(semantic, "MAX_NEAR_OF_ALL", 1_000)
    asked = [
        Asked(meaning.search(), words, filters, None, spaces)
        for words in ("tea", '"tea"', '-"dog" tea')
        for filters in (
            *(Filters(), Filters(kinds=("fact", "")), Filters(repos=(ALICE, BOB, DAVE)), Filters(repos=(ALICE,))),
            *(Filters(spaces=(SPACE,)), Filters(as_of=day(15)), Filters(occurred_before=day(90))),
        )
        for spaces in READERS
    ]
    before = [shown(await ask(database, each)) for each in asked]
    # Nearest to the first question; the others are searched again, too.
    await add_unreadable(database, meaning, asked[0].sought, 10_200)
    assert [shown(await ask(database, each)) for each in asked] == before


async def test_a_watermark_holds_while_memories_come(
    database: Database, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(semantic, "MAX_NEAR_OF_ALL", 1_000)
    meaning = populated(random.Random(seed))
    await meaning.write(database)
    where = (Filters(), Filters(kinds=("fact", "")), Filters(superseded=True), Filters(as_of=day(60)))
    asked = [Asked(meaning.search(), "tea", filters, day(50), READERS[2]) for filters in where]
    before = [shown(await ask(database, each)) for each in asked]
    for did, space in ((ALICE, PUBLIC), (CAROL, SPACE), (BOB, PUBLIC)):
        for _ in range(5):
            meaning.put(did, space=space, passages=1, days=51)
    await meaning.write(database)
    assert [shown(await ask(database, each)) for each in asked] == before
    later = [shown(await ask(database, replace(each, watermark=day(52)))) for each in asked]
    assert all(len(after) == len(earlier) + 15 for after, earlier in zip(later, before, strict=True))


async def test_what_a_search_measures_is_guarded_like_what_it_finds(
    database: Database, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(semantic, "MAX_NEAR_OF_ALL", 1_000)
    meaning = populated(random.Random(seed))
    await meaning.write(database)
    rows = await stored_rows(database)
    asked = Asked(meaning.search(), "tea", Filters(superseded=True), None, NOBODY)
    keys = list(rows)
    for spaces in READERS:
        async with database.transaction(isolation="repeatable_read", readonly=True) as conn:
            await plan_anew(conn)
            mean = await load_mean(conn, asked.sought.model, asked.filters, spaces=spaces)
            aim = asked.sought.aim_at(mean)
            near = await find_near(
                conn, asked.sought, aim, parse_query("tea"), asked.filters, watermark=None, spaces=spaces
            )
            likeness = await measure(conn, asked.sought, aim, keys, spaces=spaces)
            readable = await load_contents(conn, keys, spaces=spaces)
        assert likeness.keys() == {key for key in readable if meaning.vectors[key]}
        assert likeness == pytest.approx(dict(near.likeness), abs=1e-6)
