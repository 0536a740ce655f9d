"""Of memories of many passages exactly the nearest come, however few are kept: also those that are just as near."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import pytest

from appview.filters import Filters
from appview.keys import Key
from appview.store import search, semantic, views
from appview.store.semantic import load_mean, measure
from appview.store.service import plan_anew
from indexer.store import embedding_models
from memory.database import Database
from memory.embedding import MAX_PASSAGES, vector_text
from memory.space import PUBLIC
from tests.memory_rows import ALICE, BOB, CAROL, SPACE, day
from tests.store.meanings import (
    DAVE,
    MODEL,
    NOBODY,
    OTHER_SPACE,
    READERS,
    Asked,
    Meaning,
    Vector,
    ask,
    assert_nearest,
    dot,
    expected,
    half,
    stored_rows,
    unit,
)

APART = 0.01  # of half-precision numbers, whose order is beyond doubt
DIRECTIONS = 9
WHERE = (
    Filters(repos=(ALICE,)),
    Filters(repos=(ALICE, BOB, CAROL, DAVE)),
    Filters(spaces=(SPACE,)),
    Filters(spaces=(SPACE, OTHER_SPACE)),
    Filters(repos=(BOB,), spaces=(PUBLIC, SPACE)),
)
SIEVES: tuple[dict[str, Any], ...] = (
    {},
    {"superseded": True},
    {"kinds": ("fact",)},
    {"scopes": ("", "work")},
    {"as_of": day(16)},
    {"agents": ("codex",), "superseded": True},
    {"created_after": day(8), "created_before": day(25)},
    {"occurred_before": day(90)},
)


@dataclass
class Alike(Meaning):
    """Memories of up to as many passages as there can be, in a few directions only: many are as near as others."""

    directions: tuple[Vector, ...] = ()

    def vector(self) -> Vector:
        return self.draw.choice(self.directions)

    def put(self, did: str, *, space: str = PUBLIC, passages: int | None = None, **properties: Any) -> Key:
        if passages is None:
            passages = self.draw.choice((0, 1, 1, 2, 5, MAX_PASSAGES))
        return super().put(did, space=space, passages=passages, **properties)


def alike(draw: random.Random) -> Alike:
    directions = tuple(Meaning(draw).vector() for _ in range(DIRECTIONS))
    meaning = Alike(draw, directions=directions)
    meaning.rows.repo(DAVE, visible=False)
    meaning.rows.repo(BOB, space=OTHER_SPACE, visible=False)
    for did, count in ((DAVE, 10), (BOB, 20), (ALICE, 30)):  # whose keys come first are not whose names do
        meaning.fill(did, count)
    for did, space, count in ((CAROL, OTHER_SPACE, 10), (BOB, OTHER_SPACE, 5), (BOB, SPACE, 15), (ALICE, SPACE, 15)):
        meaning.fill(did, count, space=space)
    return meaning


def is_beyond_doubt(wanted: list[tuple[Key, float, bool]]) -> bool:
    """Whether what differs at all differs by more than numbers of half precision do."""
    return all(one == other or one - other > APART for (_, one, _), (_, other, _) in pairwise(wanted))


async def test_however_few_are_kept_they_are_the_nearest_in_the_order_of_a_plain_model(
    database: Database, seed: int
) -> None:
    draw = random.Random(seed)
    meaning = alike(draw)
    await meaning.write(database)
    rows = await stored_rows(database)
    ties = compared = 0
    for _ in range(600):
        unfiltered = draw.random() < 0.5  # only then is not every passage gone through
        asked = Asked(
            meaning.search(),
            "tea" if unfiltered else draw.choice(("tea", '"dog" river', 'river -"wine"')),
            replace(draw.choice(WHERE), **draw.choice(SIEVES[:2] if unfiltered else SIEVES)),
            None if unfiltered else draw.choice((None, day(20))),
            draw.choice(READERS),
        )
        asked = replace(asked, sought=replace(asked.sought, vector=unit(draw.gauss() for _ in asked.sought.vector)))
        wanted = expected(meaning, rows, asked)
        if not is_beyond_doubt(wanted):
            continue
        many = draw.choice((1, 2, 3, 7, len(wanted) or 1, len(wanted) + 1))
        near = await ask(database, asked, many)
        assert [(memory.key, memory.masked) for memory in near.memories] == [
            (key, masked) for key, _, masked in wanted[:many]
        ]
        assert near.capped is (len(wanted) > many)
        assert_nearest(near, wanted, min(many, len(wanted)))
        compared += 1
        ties += many < len(wanted) and wanted[many - 1][1] == wanted[many][1]
    assert compared > 100
    assert ties > 10


@pytest.mark.parametrize("filters", [Filters(), Filters(kinds=("",))], ids=["none", "kind"])
async def test_a_repo_of_long_memories_gives_as_many_as_are_wanted(
    database: Database, filters: Filters, seed: int
) -> None:
    """The nearest passages are all of a few memories: more and more of them are asked for."""
    meaning = Meaning(random.Random(seed))
    sought = meaning.search()
    for _ in range(semantic.MAX_NEAR // 2):
        key = meaning.put(ALICE, passages=0)
        meaning.vectors[key] = [
            half(unit(number + meaning.draw.gauss(0, 0.2) for number in sought.vector)) for _ in range(MAX_PASSAGES)
        ]
    for _ in range(semantic.MAX_NEAR):
        meaning.put(ALICE, passages=1)
    await meaning.write(database)
    rows = await stored_rows(database)
    asked = Asked(sought, "tea", replace(filters, repos=(ALICE,)), None, NOBODY)
    near = await ask(database, asked, None)
    assert_nearest(near, expected(meaning, rows, asked), semantic.MAX_NEAR)
    assert near.capped


async def test_vectors_of_another_model_and_width_are_not_among_the_compared(database: Database, seed: int) -> None:
    meaning = alike(random.Random(seed))
    await meaning.write(database)
    rows = await stored_rows(database)
    asked = [Asked(meaning.search(), "tea", filters, None, READERS[2]) for filters in WHERE]
    before = [await ask(database, each, 5) for each in asked]
    async with database.transaction() as conn:
        await embedding_models.add_model(conn, "other-1", 3)
        many: Any = conn
        await many.executemany(
            "insert into embeddings values ($1, $2, 'other-1', $3, 0, $4::text::halfvec)",
            [(*key, vector_text([1.0, 2.0, 3.0])) for key in rows],
        )
    assert [await ask(database, each, 5) for each in asked] == before


async def test_what_a_plan_for_any_values_measures_is_what_was_compared(database: Database, seed: int) -> None:
    """The best by words are measured in a transaction that plans as ever, after many of the same session."""
    meaning = alike(random.Random(seed))
    await meaning.write(database)
    rows = await stored_rows(database)
    asked = Asked(meaning.search(), "tea", Filters(repos=(ALICE, BOB, CAROL), superseded=True), None, READERS[2])
    near = await ask(database, asked, None)
    assert len(near.likeness) > 50
    async with database.connection() as conn:
        aim = asked.sought.aim_at(await load_mean(conn, MODEL, asked.filters, spaces=asked.spaces))
        for mode in ("force_generic_plan", "force_custom_plan", "auto"):
            await conn.execute(f"set plan_cache_mode = {mode}")
            assert await measure(conn, asked.sought, aim, list(rows), spaces=asked.spaces) == near.likeness
        await conn.execute("reset plan_cache_mode")
    assert dot(asked.sought.vector, asked.sought.vector) == pytest.approx(1, abs=0.01)


REPOS = f"""
with keys as (
    select
        'did:plc:author' || lpad((n % 20000)::text, 18, '0') as repo,
        case when n % 7 = 0 then '{SPACE}' else '' end as space,
        lpad(n::text, 13, '0') as rkey, '2026-01-01'::timestamptz + make_interval(mins => n) as t
    from generate_series(1, 100000) n
),
repos_of as (
    insert into repos (repo, space, state, tracked_at, changed_at, memory_count)
    select repo, space, 'active', min(t), min(t), count(*) from keys group by repo, space
),
named as (
    insert into identities (repo, handle, resolved_at)
    select repo, right(repo, 18) || '.test', min(t) from keys group by repo
)
insert into memories (
    repo, space, rkey, cid, rev, record, content, created_at, first_indexed_at, indexed_at, effective_at, version,
    content_bytes, terms, term_count
)
select repo, space, rkey, '', '', '', 'word', t, t, t, t, 1, 4, 'word:1', 1 from keys
"""


async def test_among_twenty_thousand_repos_what_was_chosen_before_is_gone_to_by_its_key(database: Database) -> None:
    """Whatever values it is planned for, and before any are known."""
    asked = {
        "distances_by_key": (semantic._QUERIES, "embeddings_pkey"),
        "contents_by_key": (search._QUERIES, "memories_pkey"),
        "memories_by_key": (views._QUERIES, "memories_pkey"),
    }
    async with database.connection() as conn:
        await conn.execute(REPOS)
        await embedding_models.add_model(conn, MODEL.name, MODEL.dimensions)
        vector = vector_text([float(number) for number in range(MODEL.dimensions)])
        await conn.execute(
            f"insert into embeddings select repo, space, '{MODEL.name}', rkey, 0, '{vector}'::halfvec from memories"
        )
        await conn.execute("vacuum analyze")
        keys = await conn.fetch("select repo, space, rkey from memories order by md5(rkey) limit 150")
        repos, spaces_of, rkeys = (f"array[{', '.join(map(repr, column))}]" for column in zip(*keys, strict=True))
        chosen = {
            "repos": repos,
            "spaces_of": spaces_of,
            "rkeys": rkeys,
            "spaces": f"array['{SPACE}']",
            "query": f"'{vector}'",
            "model": f"'{MODEL.name}'",
            "max_bytes": "4000000",
            "max_replacers": "201",
        }
        for name, (queries, index) in asked.items():
            statement = getattr(queries, name)
            arguments = ", ".join(chosen.get(parameter, "null") for parameter in statement.parameters)
            await conn.execute(f"prepare chosen as {statement.sql}")
            for mode in ("force_generic_plan", "force_custom_plan"):
                await conn.execute(f"set plan_cache_mode = {mode}")
                rows = await conn.fetch(f"explain (analyze, buffers off) execute chosen({arguments})")
                plan = "\n".join(row[0] for row in rows)
                assert re.search(rf"Index Scan using {index}\b.*loops=150\)", plan), plan
                assert re.search(r"Index Scan using repos_pkey", plan), plan
                assert not re.search(r"Seq Scan on (memories|embeddings|repos|identities)", plan), plan
            await conn.execute("deallocate chosen")
        await conn.execute("reset plan_cache_mode")


async def test_the_sample_of_a_mean_is_the_first_of_each_repo_however_it_is_read(database: Database, seed: int) -> None:
    """Of which memories there is a mean may depend on nothing but what may be read: plans depend on all there is."""
    draw = random.Random(seed)
    meaning = Meaning(draw)
    for did in (CAROL, BOB, ALICE):  # as they lie in the table, the last first
        for _ in range(semantic.SAMPLE * 3 // 4):
            meaning.put(did, passages=draw.choice((1, 1, 3)))
    await meaning.write(database)
    filters = Filters(repos=(CAROL, ALICE, BOB))
    first = sorted(meaning.vectors)[: semantic.SAMPLE]
    mean = [sum(numbers) / len(first) for numbers in zip(*(meaning.vectors[key][0] for key in first), strict=True)]
    for settings in (
        {},
        {"enable_nestloop": "off"},
        {"enable_nestloop": "off", "enable_hashjoin": "off"},
        {"enable_indexscan": "off", "enable_indexonlyscan": "off", "enable_bitmapscan": "off"},
        {"enable_incremental_sort": "off", "enable_indexscan": "off"},
    ):
        async with database.transaction(isolation="repeatable_read", readonly=True) as conn:
            for name, value in settings.items():
                await conn.execute(f"set local {name} = {value}")
            await plan_anew(conn)
            assert await load_mean(conn, MODEL, filters, spaces=NOBODY) == pytest.approx(mean, abs=1e-3), settings
