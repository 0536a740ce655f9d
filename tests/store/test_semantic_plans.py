"""How the semantic arm's statements are planned: by keys where all are compared, else in the order of the index."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import pytest

import appview.store
from indexer.store import embedding_models
from memory.cluster import Cluster
from memory.database import Database, open_database
from memory.queries import load_queries
from tests.conftest import TEMPLATE
from tests.memory_rows import ALICE, BOB, SPACE

STATEMENTS = load_queries(Path(appview.store.__file__).parent / "sql" / "semantic.sql")
MODEL, WIDTH = "random-1", 384
NEAREST = "embeddings_nearest_"

ROWS = """
with keys as (
    select
        case when n % 30 = 3 then '{alice}' when n % 30 = 10 then '{bob}' else 'did:plc:author' || n % 500 end as repo,
        case when n % 10 = 0 then '{space}' else '' end as space, lpad(n::text, 13, '0') as rkey, n,
        '2026-01-01'::timestamptz + make_interval(mins => n) as t
    from generate_series(1, 30000) n
),
repos_of as (
    insert into repos (repo, space, state, tracked_at, changed_at, memory_count)
    select repo, space, 'active', min(t), min(t), count(*) from keys group by repo, space
)
insert into memories (
    repo, space, rkey, cid, rev, record, content, kind, created_at, first_indexed_at, indexed_at, effective_at,
    occurred_from, occurred_to, version, content_bytes, terms, term_count
)
select
    repo, space, rkey, '', '', '', 'word ' || n % 1000, case when n % 1000 = 1 then 'rare' else 'fact' end, t, t, t, t,
    case when n % 5 = 0 then t end, case when n % 5 = 0 then t + interval '1 day' end,
    1, 9, array_to_tsvector(array['word', 'w' || n % 1000]), 2
from keys
"""

VECTORS = f"""
insert into embeddings
select repo, space, '{MODEL}', rkey, 0,
    ('[' || rkey::int % 97 + 1 || ',' || rkey::int % 89 + 1 || repeat(',0', {WIDTH - 2}) || ']')::halfvec
from memories
"""


@pytest.fixture(scope="module")
def filled_url(cluster: Cluster) -> Generator[str]:
    """A database with enough vectors for the index to be worth it, and statistics; for the whole module."""
    name = "test_semantic_plans"

    async def administer(statement: str) -> None:
        admin = open_database(cluster.url("postgres"), application_name="tests", connections=1)
        async with admin as database, database.connection() as conn:
            await conn.execute(statement)

    async def fill() -> None:
        opened = open_database(cluster.url(name), application_name="tests", connections=1)
        async with opened as database, database.connection() as conn:
            await conn.execute(ROWS.format(alice=ALICE, bob=BOB, space=SPACE))
            await embedding_models.add_model(conn, MODEL, WIDTH)
            # What vectors hold does not matter to plans.
            await conn.execute(VECTORS)
            await embedding_models.build_index(conn, MODEL, WIDTH)
            await conn.execute("vacuum analyze")

    asyncio.run(administer(f"create database {name} template {TEMPLATE}"))
    asyncio.run(fill())
    yield cluster.url(name)
    asyncio.run(administer(f"drop database {name} with (force)"))


@pytest.fixture
async def filled(filled_url: str) -> AsyncGenerator[Database]:
    """A pool on that database."""
    async with open_database(filled_url, application_name="tests", connections=1) as database:
        yield database


QUERY = f"'[1{',1' * (WIDTH - 1)}]'"
NEAR = {"query": QUERY, "model": f"'{MODEL}'", "include_superseded": "false", "max_candidates": "101", "sample": "200"}
PUBLIC_OF = {"repos": f"array['{ALICE}']", "spaces": "'{}'", "public": "true"}
MANY_OF = {"repos": f"array['{ALICE}', '{BOB}', 'did:plc:author7']", "spaces": f"array['{SPACE}']", "public": "true"}
SPACE_OF = {"repos": f"array['{ALICE}', '{BOB}']", "spaces": f"array['{SPACE}']", "public": "false"}
KEYS = {"repos": f"array['{ALICE}']", "spaces_of": "array['']", "rkeys": "array['0000000000003']", "spaces": "'{}'"}
FEW = {"max_compared": "20000"}
RARE = {"kinds": "array['rare']", "labelled": "$$'krare'$$"}
FEW_WORDS = {"required": "$$'w77'$$"}
FIRST_DAY = {"created_before": "'2026-01-01 02:00'"}
LAST_DAY = {"created_after": "'2026-01-21 18:00'"}
THEN = {"occurred_after": "'2026-01-22 18:00'"}
BEFORE = {"occurred_before": "'2026-01-01 02:00'"}
AS_OF = {"as_of": "'2026-01-01 02:00'"}


async def plan_of(database: Database, name: str, values: dict[str, str], *, warmed: bool = False) -> str:
    """The plan of a statement as the arm runs it. `warmed`: it ran often before, with plans for any values."""
    statement = next(statement for statement in STATEMENTS if statement.name == name)
    arguments = ", ".join(values.get(parameter, "null") for parameter in statement.parameters)
    async with database.transaction() as conn:
        await conn.execute(f"prepare planned as {statement.sql}")
        if warmed:
            await conn.execute("set local plan_cache_mode = force_generic_plan")
            await conn.fetch(f"explain execute planned({arguments})")
        await conn.execute("set local plan_cache_mode = force_custom_plan")
        if name == "nearest_by_index":
            for setting in ("scan_far", "read_scattered"):
                settings = next(statement for statement in STATEMENTS if statement.name == setting)
                await conn.fetch(
                    settings.sql, *[{"ef_search": "800", "max_scanned": "20000"}[each] for each in settings.parameters]
                )
        rows = await conn.fetch(f"explain execute planned({arguments})")
        await conn.execute("deallocate planned")
    return "\n".join(row[0] for row in rows)


@pytest.mark.parametrize("warmed", [False, True])
@pytest.mark.parametrize("filters", [{}, RARE, FEW_WORDS, AS_OF], ids=["none", "kind", "phrase", "as_of"])
@pytest.mark.parametrize("where", [PUBLIC_OF, MANY_OF, SPACE_OF], ids=["repo", "repos", "space"])
async def test_what_some_authors_have_is_compared_whole(
    filled: Database, where: dict[str, str], filters: dict[str, str], warmed: bool
) -> None:
    plan = await plan_of(filled, "nearest_of", NEAR | where | filters, warmed=warmed)
    assert NEAREST not in plan, plan
    assert re.search(r"(using|on) embeddings_pkey", plan), plan
    assert "Seq Scan on embeddings" not in plan, plan
    if not filters:  # with some, and so few memories as here, all may be read
        assert re.search(r"Index Scan using memories_(pkey|by_time)", plan), plan


@pytest.mark.parametrize("where", [PUBLIC_OF, MANY_OF, SPACE_OF], ids=["repo", "repos", "space"])
async def test_a_sample_is_read_by_key(filled: Database, where: dict[str, str]) -> None:
    plan = await plan_of(filled, "mean_of", NEAR | where)
    assert re.search(r"(using|on) embeddings_pkey", plan), plan
    assert not re.search(r"Seq Scan on embeddings", plan), plan


async def test_what_was_found_by_words_is_measured_by_key(filled: Database) -> None:
    plan = await plan_of(filled, "distances_by_key", NEAR | KEYS)
    assert re.search(r"Index Scan using embeddings_pkey", plan), plan


@pytest.mark.parametrize("warmed", [False, True])
@pytest.mark.parametrize(
    ("filters", "index"),
    [
        (RARE, "memories_public_labels"),
        (FEW_WORDS, "memories_public_terms"),
        (FIRST_DAY, "memories_public_by_creation"),
        (LAST_DAY, "memories_public_by_creation"),
        (THEN, "memories_public_by_occurrence_end"),
        (BEFORE, "memories_public_by_occurrence"),
        (AS_OF, "memories_public_by_time"),
    ],
    ids=["kind", "phrase", "created_before", "created_after", "occurred_after", "occurred_before", "as_of"],
)
async def test_few_are_found_by_an_index_of_their_filter_and_compared(
    filled: Database, filters: dict[str, str], index: str, warmed: bool
) -> None:
    plan = await plan_of(filled, "nearest_among_few", NEAR | FEW | filters, warmed=warmed)
    assert NEAREST not in plan, plan
    assert re.search(rf"Scan (Backward )?(using|on) {index}\b", plan), plan
    assert re.search(r"Index Scan using embeddings_pkey", plan), plan
    assert not re.search(r"Seq Scan on (memories|embeddings)", plan), plan


@pytest.mark.parametrize("warmed", [False, True])
@pytest.mark.parametrize(
    "filters",
    [{}, {"kinds": "array['fact']"}, RARE, FEW_WORDS, FIRST_DAY | THEN, AS_OF | RARE | {"scopes": "array['']"}],
    ids=["none", "common", "rare", "phrase", "times", "several"],
)
async def test_many_are_gone_through_in_the_order_of_the_index(
    filled: Database, filters: dict[str, str], warmed: bool
) -> None:
    """Whatever the filters: a plan that begins with what passes them would have to sort, and read all of it."""
    plan = await plan_of(filled, "nearest_by_index", NEAR | filters, warmed=warmed)
    assert re.search(rf"Index Scan using {NEAREST}", plan), plan
    assert re.search(r"Index Scan using memories_(pkey|by_time)", plan), plan
    assert "Sort" not in plan, plan
    assert "Seq Scan" not in plan, plan


async def test_how_many_there_are_is_told_by_no_more_repos_than_it_takes(filled: Database) -> None:
    plan = await plan_of(filled, "count_public", {"max_counted": "20001"})
    assert re.search(r"Index Only Scan using memories_(pkey|by_time)", plan), plan
    assert not re.search(r"Seq Scan on memories", plan), plan


async def test_no_memory_of_a_space_is_in_the_index_over_all_authors(filled: Database) -> None:
    async with filled.connection() as conn:
        definition = await conn.fetchval(f"select indexdef from pg_indexes where indexname like '{NEAREST}%'")
        held = await conn.fetchval(f"select reltuples from pg_class where relname like '{NEAREST}%'")
        public = await conn.fetchval("select count(*) from embeddings where space = ''")
    assert "WHERE ((space = ''::text) AND (model" in definition
    assert held == public
