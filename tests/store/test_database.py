from __future__ import annotations

import asyncio
import re
from pathlib import Path

import asyncpg
import pytest
from pydantic import SecretStr

from memory.cluster import Cluster
from memory.database import Database, connect_database, open_database
from memory.errors import MemoryAppviewError, Misconfigured, Unavailable
from memory.queries import StatementFailed, load_queries, translate
from memory.settings import DatabaseSettings

SECRET = "the cat is called Mandarin"

QUERIES = """
-- name: insert_setting
-- Adds one.
insert into settings values (:name, :value);

-- name: count_settings
-- Counts.
select count(*) from settings where name not in ('page_cursor_key', 'id_key');

-- name: update_settings
-- Overwrites.
update settings set value = :value where name = any(:names::text[]) or name = :value;
"""


@pytest.fixture
def queries(tmp_path: Path):
    path = tmp_path / "queries.sql"
    path.write_text(QUERIES)
    return load_queries(path)


async def test_parameters_go_by_name_and_each_only_once(database: Database, queries):
    assert queries.update_settings.parameters == ("value", "names")
    assert queries.update_settings.purpose == "Overwrites."
    async with database.connection() as conn:
        assert await queries.insert_setting.execute(conn, value="1", name="a") == 1
        assert await queries.insert_setting.execute(conn, value="1", name="b") == 1
        assert await queries.update_settings.execute(conn, names=["a", "b", "c"], value="2") == 2
        assert await queries.count_settings.fetchval(conn) == 2
        assert [tuple(row) for row in await queries.count_settings.fetch(conn)] == [(2,)]
        row = await queries.count_settings.fetchrow(conn)
        assert row is not None
        assert row["count"] == 2


@pytest.mark.parametrize("given", [{}, {"name": "a"}, {"name": "a", "worth": 1}, {"name": "a", "value": "b", "c": 1}])
async def test_missing_and_unknown_parameters_are_told(database: Database, queries, given: dict[str, object]):
    async with database.connection() as conn:
        with pytest.raises(TypeError, match="insert_setting takes name, value"):
            await queries.insert_setting.execute(conn, **given)


def test_unknown_statement_is_told(queries):
    with pytest.raises(AttributeError, match="no statement is called insert_settings"):
        _ = queries.insert_settings


def test_two_statements_of_one_name_are_refused(tmp_path: Path):
    for file in ("a.sql", "b.sql"):
        (tmp_path / file).write_text(QUERIES)
    with pytest.raises(ValueError, match="two statements are called insert_setting"):
        load_queries(tmp_path)


def test_slice_that_reads_as_a_parameter_is_refused(tmp_path: Path):
    (tmp_path / "a.sql").write_text("-- name: pick\n-- Picks.\nselect (:items::int[])[1:2];\n")
    with pytest.raises(ValueError, match="slice"):
        load_queries(tmp_path)


async def test_refused_statement_tells_its_sqlstate_and_nothing_of_the_data(database: Database, queries):
    async with database.connection() as conn:
        await queries.insert_setting.execute(conn, name=SECRET, value=SECRET)
        with pytest.raises(StatementFailed) as caught:
            await queries.insert_setting.execute(conn, name=SECRET, value=SECRET)
    assert caught.value.sqlstate == "23505"
    assert str(caught.value) == "The database refused statement insert_setting (SQLSTATE 23505)."
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


async def test_what_the_driver_cannot_encode_tells_nothing_of_the_data(database: Database, queries):
    async with database.connection() as conn:
        with pytest.raises(StatementFailed) as caught:
            await queries.update_settings.execute(conn, names=SECRET.encode(), value=SECRET)
    assert caught.value.sqlstate == "22000"
    assert "Mandarin" not in str(caught.value)


async def test_driver_error_outside_a_statement_is_translated_too(database: Database):
    with pytest.raises(StatementFailed) as caught:
        async with database.transaction() as conn:
            await conn.execute("select 1/0")
    assert caught.value.sqlstate == "22012"


async def test_lost_connection_is_unavailable(database: Database, database_url: str, queries):
    async with database.connection() as conn:
        pid = await conn.fetchval("select pg_backend_pid()")
        other = await asyncpg.connect(database_url)
        await other.execute("select pg_terminate_backend($1)", pid)
        await other.close()
        for _ in range(2):  # as it breaks, and once it is known to be broken
            with pytest.raises(Unavailable):
                await queries.count_settings.fetchval(conn)
    async with database.connection() as conn:
        assert await queries.count_settings.fetchval(conn) == 0


async def test_connection_lost_in_a_transaction_keeps_the_first_error(database: Database, database_url: str):
    with pytest.raises(ZeroDivisionError):
        async with database.transaction() as conn:
            pid = await conn.fetchval("select pg_backend_pid()")
            other = await asyncpg.connect(database_url)
            await other.execute("select pg_terminate_backend($1)", pid)
            await other.close()
            raise ZeroDivisionError


@pytest.mark.parametrize("sqlstate", ["08006", "40001", "40P01", "53300", "57P01", "57014", "58030", "25006"])
def test_failures_that_may_pass_are_unavailable(sqlstate: str):
    failure = asyncpg.PostgresError.new({"C": sqlstate, "M": SECRET, "D": SECRET})
    assert type(translate(failure)) is Unavailable
    assert "Mandarin" not in str(translate(failure))


async def test_transaction_rolls_back_what_raises_and_commits_what_does_not(database: Database, queries):
    with pytest.raises(ZeroDivisionError):
        async with database.transaction() as conn:
            await queries.insert_setting.execute(conn, name="a", value="1")
            raise ZeroDivisionError
    async with database.transaction(isolation="repeatable_read") as conn:
        assert await queries.count_settings.fetchval(conn) == 0
        await queries.insert_setting.execute(conn, name="b", value="1")
    async with database.transaction(readonly=True) as conn:
        assert await queries.count_settings.fetchval(conn) == 1
        with pytest.raises(Unavailable):  # a write that meets a standby looks the same
            await queries.insert_setting.execute(conn, name="c", value="1")


async def test_cancelled_transaction_rolls_back(database: Database, queries):
    async def insert_and_wait(inserted: asyncio.Event) -> None:
        async with database.transaction() as conn:
            await queries.insert_setting.execute(conn, name="a", value="1")
            inserted.set()
            await asyncio.Event().wait()

    inserted = asyncio.Event()
    task = asyncio.create_task(insert_and_wait(inserted))
    await inserted.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with database.connection() as conn:
        assert await queries.count_settings.fetchval(conn) == 0


async def test_sessions_say_who_they_are_and_compile_nothing(database: Database):
    async with database.connection() as conn:
        row = await conn.fetchrow(
            "select current_setting('application_name'), current_setting('jit'), current_setting('timezone')"
        )
    assert row is not None
    assert tuple(row) == ("tests", "off", "UTC")


async def _connect(url: str) -> None:
    settings = DatabaseSettings(url=SecretStr(url))
    async with connect_database(settings, application_name="tests", connections=1):
        pass


@pytest.mark.parametrize(
    ("change", "fate", "told"),
    [
        (lambda url: re.sub(r"/test_\w+", "/none_such", url), Misconfigured, "SQLSTATE 3D000"),
        (lambda url: url.replace("postgres@", "nobody@"), Misconfigured, "SQLSTATE 28000"),
        (lambda url: url.replace("port=5432", "port=5433"), Unavailable, "does not answer"),
        (lambda url: url.replace("port=5432", "port=many"), Misconfigured, "DATABASE_URL is no URL"),
        (lambda url: url.replace("disable", "often"), Misconfigured, "DATABASE_URL is no URL"),
    ],
)
async def test_unusable_url_is_told_without_quoting_it(database_url: str, change, fate, told: str):
    with pytest.raises(fate, match=told) as caught:
        await _connect(change(database_url))
    assert "host=" not in str(caught.value)


async def test_migrated_database_is_taken_as_it_is(database_url: str):
    await _connect(database_url)


async def test_database_without_migrations_names_the_command(cluster: Cluster):
    with pytest.raises(Misconfigured, match=r"lacks migrations \(\d+_index.*\): run `python -m migrations up`"):
        await _connect(cluster.url("postgres"))


async def test_pool_that_cannot_close_in_time_is_torn_down(database_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("memory.database.CLOSE_TIMEOUT_S", 0)
    async with open_database(database_url, application_name="tests", connections=1) as database:
        lent = await database.pool.acquire()
    with pytest.raises(asyncpg.InterfaceError):
        await lent.fetchval("select 1")


def test_every_error_of_ours_is_in_one_tree():
    assert issubclass(StatementFailed, MemoryAppviewError)
