"""Every statement of the API: prepared against the schema, guarded by Spaces, filtered alike, on its index."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Generator, Sequence
from pathlib import Path

import pytest

import appview.store
from appview.keys import Key
from memory.cluster import Cluster
from memory.database import Database, open_database
from memory.queries import Statement, load_queries
from tests.conftest import TEMPLATE
from tests.memory_rows import ALICE, BOB, SPACE, MemoryRows

FOLDER = Path(appview.store.__file__).parent / "sql"
STATEMENTS = list(load_queries(FOLDER))
NAMES = [statement.name for statement in STATEMENTS]

# What holds nothing of anybody's records.
WITHOUT_RECORDS = {
    *(
        "repos_by_handle",
        "indexed_through",
        "page_cursor_key",
        "id_key",
        "plan_anew",
        "plan_as_ever",
        "export_snapshot",
    ),
    *("serving_model", "named_model", "scan_far", "read_scattered"),
    *("access_token", "access_tokens_of", "use_service_token"),
    *("lock_access_tokens", "add_access_token", "delete_access_token"),
    *("readable_spaces", "grants_of", "is_held", "is_authority", "hold_access_token", "add_grant", "put_credential"),
    *("delete_grant", "delete_credential", "delete_grants_of_space", "delete_credentials_of_space"),
    *("delete_grants_of_token", "delete_credentials_of_token", "put_opened", "put_written", "put_deleted"),
}
# Public memories only, by an index that holds no others; the public repo.
PUBLIC_ONLY = {
    *("list_newest", "list_oldest", "list_occurred", "repo_sync", "repo_rev"),
    *("public_stores_after", "public_stores_before", "nearest_among_few", "nearest_by_index", "count_public"),
}


@pytest.mark.parametrize("statement", STATEMENTS, ids=NAMES)
async def test_every_statement_fits_the_schema(database: Database, statement: Statement) -> None:
    async with database.connection() as conn:
        await conn.execute(f"prepare checked as {statement.sql}")


@pytest.mark.parametrize("statement", STATEMENTS, ids=NAMES)
def test_every_statement_says_what_it_is_for(statement: Statement) -> None:
    assert statement.purpose.endswith(".") or len(statement.purpose) > 40


@pytest.mark.parametrize("statement", STATEMENTS, ids=NAMES)
def test_every_statement_that_reads_records_is_told_whose_spaces(statement: Statement) -> None:
    if statement.name in WITHOUT_RECORDS:
        assert "memor" not in statement.sql
        assert "spaces" not in statement.parameters
    elif statement.name in PUBLIC_ONLY:
        assert re.search(r"\b(?:[mr]\.)?space = ''(?! or)", statement.sql)
        assert "spaces" not in statement.parameters
    else:
        assert "spaces" in statement.parameters


@pytest.mark.parametrize("statement", STATEMENTS, ids=NAMES)
def test_every_statement_that_reads_records_reads_visible_repos(statement: Statement) -> None:
    if statement.name not in WITHOUT_RECORDS:
        assert "visible" in statement.sql


def test_every_list_filters_by_the_same_words() -> None:
    """The filters stand in each statement, for an index serves one order only: they must not drift apart."""
    blocks = {name: _filter_blocks((FOLDER / name).read_text()) for name in ("lists.sql", "search.sql")}
    assert {name: len(copies) for name, copies in blocks.items()} == {"lists.sql": 8, "search.sql": 3}
    assert len({copy for copies in blocks.values() for copy in copies}) == 1, blocks
    conditions = _conditions(blocks["search.sql"][0])
    [explained] = (statement for statement in STATEMENTS if statement.name == "explain_memory")
    assert len(conditions) == 8
    assert conditions <= _conditions(_loosely(explained.sql, explained.parameters))


def _filter_blocks(sql: str) -> list[str]:
    pattern = re.compile(r"\(:kinds::text\[\] is null.*?m\.occurred_from < :occurred_before\)", re.DOTALL)
    return [re.sub(r"\s+", " ", block) for block in pattern.findall(sql) if "passes_" not in block]


def _conditions(sql: str) -> set[str]:
    """The filters of some SQL: what holds without a value, or with one."""
    return set(
        re.findall(r":\w+::[a-z\[\]]+ is null or (?:coalesce\([^)]*\)|m\.\w+) (?:[<>]=? :\w+|= any\(:\w+\))", sql)
    )


def _loosely(sql: str, parameters: Sequence[str]) -> str:
    """A statement with the names of its parameters."""
    return re.sub(r"\$(\d+)", lambda number: f":{parameters[int(number[1]) - 1]}", sql)


@pytest.fixture(scope="module")
def seeded_url(cluster: Cluster) -> Generator[str]:
    """A database with enough memories for an index to be worth it, and statistics of them; for the whole module."""
    name = "test_appview_plans"

    async def administer(statement: str) -> None:
        admin = open_database(cluster.url("postgres"), application_name="tests", connections=1)
        async with admin as database, database.connection() as conn:
            await conn.execute(statement)

    async def seed() -> None:
        async with open_database(cluster.url(name), application_name="tests", connections=1) as database:
            await seed_rows().write(database)
            async with database.connection() as conn:
                await conn.execute("analyze")

    asyncio.run(administer(f"create database {name} template {TEMPLATE}"))
    asyncio.run(seed())
    yield cluster.url(name)
    asyncio.run(administer(f"drop database {name} with (force)"))


def seed_rows() -> MemoryRows:
    """Two authors with many memories, and many with a few."""
    rows = MemoryRows()
    keys: list[Key] = []
    for number in range(1_000):
        keys.append(rows.put(ALICE, f"tea number {number} of alice", days=number / 10, supersedes=keys[-2:]))
        rows.put(BOB, f"something of bob, number {number}", days=number / 10)
    for author in range(2_500):
        did = f"did:plc:author{author:018}"
        rows.repo(did, handle=f"author{author}.test")
        first = rows.put(did, f"author {author} drinks water", days=author / 40)
        rows.put(did, f"author {author} drinks wine and rests", days=author / 40, supersedes=[first])
        for number in range(6):
            words = f"note {number} about matter {author * number} by somebody, as long as such notes are by and large"
            rows.put(did, words, days=author / 50 + number)
    return rows


@pytest.fixture
async def seeded(seeded_url: str) -> AsyncGenerator[Database]:
    """A pool on that database."""
    async with open_database(seeded_url, application_name="tests", connections=1) as database:
        yield database


async def plan_of(database: Database, name: str, *, generic: bool, **values: str) -> str:
    """The plan of a statement, made for these values (the others null) or for any."""
    statement = next(statement for statement in STATEMENTS if statement.name == name)
    arguments = ", ".join(values.get(parameter, "null") for parameter in statement.parameters)
    async with database.transaction() as conn:
        await conn.execute(f"set local plan_cache_mode = force_{'generic' if generic else 'custom'}_plan")
        await conn.execute(f"prepare planned as {statement.sql}")
        rows = await conn.fetch(f"explain execute planned({arguments})")
        await conn.execute("deallocate planned")
    return "\n".join(row[0] for row in rows)


PLACE = {"sort_at": "'2026-02-01'", "at_repo": "'~'", "at_rkey": "''", "at_space": "''"}
LISTED = {**PLACE, "include_superseded": "false", "limit": "26", "dated": "true"}
OF = {"repos": f"array['{ALICE}', '{BOB}']", "spaces": "'{}'", "public": "true"}
KEYS = {"repos": f"array['{ALICE}']", "spaces_of": "array['']", "rkeys": "array['3kaaaaaaaaa2a']", "spaces": "'{}'"}
KEY = {"repo": f"'{ALICE}'", "space": "''", "rkey": "'3kaaaaaaaaa2a'", "spaces": "'{}'"}
STORES = {**PLACE, "oldest": "'2000-01-01'", "newest": "'2100-01-01'", "include_archived": "false", "limit": "26"}
ID = {"hash": "sha256('')", "public_hash": "sha256('')", "space_hash": "sha256('')"}
IN_STORE = {**KEY, **PLACE, "include_superseded": "false", "limit": "26", "at_number": "9"}
SEARCHED = {
    "include_superseded": "false",
    "any": "$$'77'$$",
    "lexemes": "array['tea']",
    "prefixes": "'{}'",
    "prefix_patterns": "'{}'",
    "max_candidates": "5001",
    "max_counted": "20000",
    "max_sampled": "1000",
    "alternatives": "array['tea']",
    "queries": "array['''77''']",
}


@pytest.mark.parametrize("generic", [True, False])
@pytest.mark.parametrize(
    ("name", "values", "indexes"),
    [
        ("list_newest", LISTED, {"memories_public_by_time"}),
        ("list_oldest", LISTED, {"memories_public_by_time"}),
        ("list_newest_of", LISTED | OF, {"memories_by_time", "repos_pkey"}),
        ("list_oldest_of", LISTED | OF, {"memories_by_time", "repos_pkey"}),
        ("list_occurred_of", LISTED | OF, {"memories_by_time", "repos_pkey"}),
        (
            "memories_by_key",
            KEYS | {"max_bytes": "4000000", "max_replacers": "201"},
            {"memories_pkey", "repos_pkey", "identities_pkey", "memory_edges_by_target", "memory_edges_pkey"},
        ),
        (
            "component_members",
            KEYS | {"components": "array['3kaaaaaaaaa2a']", "as_of": "now()"},
            {"memories_components"},
        ),
        ("observed_versions", KEY | {"before": "100", "limit": "26"}, {"memory_versions_pkey"}),
        ("repo_sync", KEY, {"repos_pkey"}),
        ("contents_by_key", KEYS, {"memories_pkey", "repos_pkey"}),
        ("repos_by_handle", {"handles": "array['author7.test']"}, {"identities_by_handle"}),
        ("explain_memory", KEY | SEARCHED, {"memories_pkey"}),
        ("public_stores_after", STORES, {"repos_public_by_age"}),
        ("public_stores_before", STORES, {"repos_public_by_age"}),
        ("store_place_by_id", ID | {"spaces": f"array['{SPACE}']"}, {"repos_by_id", "repos_in_space_by_id"}),
        ("stores_by_key", KEYS, {"repos_pkey", "identities_pkey", "memory_versions_by_time"}),
        ("entries_after", IN_STORE, {"memories_by_time"}),
        ("entries_before", IN_STORE, {"memories_by_time"}),
        ("memory_place_by_id", KEY | ID, {"memory_versions_by_memory_id", "memories_pkey"}),
        (
            "entries_by_key",
            KEY | {"rkeys": "array['3kaaaaaaaaa2a']", "with_record": "false", "max_bytes": "4000000"},
            {"memories_pkey", "memory_versions_pkey"},
        ),
        ("versions_after", IN_STORE, {"memory_versions_by_time"}),
        ("versions_before", IN_STORE, {"memory_versions_by_time"}),
        ("memory_versions_after", IN_STORE, {"memory_versions_pkey"}),
        ("memory_versions_before", IN_STORE, {"memory_versions_pkey"}),
        ("version_place_by_id", KEY | ID, {"memory_versions_by_id"}),
        (
            "versions_by_key",
            KEY | {"rkeys": "array['3kaaaaaaaaa2a']", "numbers": "array[1]", "with_record": "true", "is_owner": "true"},
            {"memory_versions_pkey", "memories_pkey"},
        ),
        (
            "repos_by_name",
            {"name_prefix": "'author7'", "name_end": "'author8'", "limit": "1001", "spaces": "'{}'"},
            {"identities_by_handle", "repos_by_lower_did"},
        ),
    ],
)
async def test_hot_statements_keep_their_index(
    seeded: Database, name: str, values: dict[str, str], indexes: set[str], generic: bool
) -> None:
    plan = await plan_of(seeded, name, generic=generic, **values)
    used = set(re.findall(r"(?:using|on) (\w+_(?:pkey|by_\w+|components|terms))", plan))
    assert indexes <= used, plan
    assert not re.search(r"Seq Scan on (memories|memory_\w+)", plan), plan


@pytest.mark.parametrize(
    ("name", "values", "index"),
    [
        ("replaced_memories", KEY | PLACE | {"max_walked": "1002", "limit": "26"}, "memory_edges_pkey"),
        ("replacing_memories", KEY | PLACE | {"max_walked": "1002", "limit": "26"}, "memory_edges_by_target"),
        ("search_of", SEARCHED | OF, "memories"),
        ("search_all_sample", SEARCHED | {"spaces": "'{}'"}, "memories_public_by_time"),
        ("search_all_counts", SEARCHED | {"spaces": "'{}'"}, "memories_public_terms"),
        ("search_all", SEARCHED | {"spaces": "'{}'"}, "memories_public_terms"),
        ("search_all", SEARCHED | {"spaces": f"array['{SPACE}']"}, "memories_public_terms"),
        ("tallies_of", KEY | {"max_values": "50", "max_characters": "512"}, "memories"),
    ],
)
async def test_statements_that_are_planned_anew_keep_their_index(
    seeded: Database, name: str, values: dict[str, str], index: str
) -> None:
    plan = await plan_of(seeded, name, generic=False, **values)
    assert re.search(rf"Index (Only )?Scan (Backward )?(using|on) {index}", plan), plan
    assert not re.search(r"Seq Scan on (memories|memory_\w+)", plan), plan
