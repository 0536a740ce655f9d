from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import asyncpg
import pytest

from memory.cluster import Cluster
from memory.errors import Misconfigured
from memory.schema import (
    SCHEMA_DUMP,
    apply_migrations,
    dbmate_url,
    dump_schema,
    find_dbmate,
    known_migrations,
    pending_migrations,
)
from migrations.__main__ import main
from tests.conftest import TEMPLATE

ROOT = Path(__file__).parents[2]
FIRST = "20261130000000"


@pytest.fixture
async def empty_url(database_url: str) -> str:
    """The URL of a database that was never migrated."""
    conn = await asyncpg.connect(database_url)
    await conn.execute("drop schema public cascade; create schema public")
    await conn.close()
    return database_url


def test_schema_sql_shows_what_all_migrations_amount_to(cluster: Cluster):
    assert dump_schema(cluster, TEMPLATE) == SCHEMA_DUMP.read_text(encoding="utf-8"), "run `python -m migrations dump`"


def test_migrations_are_named_by_time_and_have_no_way_back():
    for file in known_migrations():
        assert file.stem[:14].isdigit()
        up, down = file.read_text(encoding="utf-8").split("-- migrate:down")
        assert up.startswith("-- migrate:up\n")
        assert not down.strip()


async def test_up_applies_what_is_pending_and_then_nothing(
    empty_url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("DATABASE_URL", empty_url)
    conn = await asyncpg.connect(empty_url)
    assert await pending_migrations(conn) == known_migrations()
    assert main(["status"]) == 0
    assert f"[ ] {FIRST}" in capfd.readouterr().out
    assert main(["up"]) == 0
    assert f"Applied: {FIRST}" in capfd.readouterr().out
    assert main(["up"]) == 0
    assert capfd.readouterr().out == ""
    assert main(["status"]) == 0
    assert f"[X] {FIRST}" in capfd.readouterr().out
    assert await pending_migrations(conn) == []
    await conn.close()


async def test_up_from_several_processes_applies_once(empty_url: str):
    command = (sys.executable, "-m", "migrations", "up")
    processes = [
        await asyncio.create_subprocess_exec(*command, cwd=ROOT, env={"DATABASE_URL": empty_url}) for _ in range(3)
    ]
    assert [await process.wait() for process in processes] == [0, 0, 0]
    conn = await asyncpg.connect(empty_url)
    assert await conn.fetchval("select count(*) from schema_migrations") == len(known_migrations())
    await conn.close()


async def test_migration_that_fails_leaves_nothing_behind(
    empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "20990101000000_broken.sql").write_text(
        "-- migrate:up\ncreate table half ();\nselect 1/0;\n-- migrate:down\n"
    )
    monkeypatch.setattr("memory.schema.MIGRATIONS", tmp_path)
    with pytest.raises(Misconfigured, match="division by zero"):
        apply_migrations(empty_url)
    conn = await asyncpg.connect(empty_url)
    assert await conn.fetchval("select to_regclass('half')") is None
    await conn.close()


async def test_database_from_newer_code_is_no_fault(database_url: str):
    conn = await asyncpg.connect(database_url)
    await conn.execute("insert into schema_migrations values ('29990101000000')")
    assert await pending_migrations(conn) == []
    await conn.close()


def test_new_migration_starts_from_the_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("memory.schema.MIGRATIONS", tmp_path)
    assert main(["new", "add_colours"]) == 0
    (file,) = tmp_path.iterdir()
    assert file.name.endswith("_add_colours.sql")


@pytest.mark.parametrize(
    ("url", "code", "told"),
    [
        ("postgresql://us:pass-word@127.0.0.1:1/db", 2, "connection refused"),
        ("mysql://us:pass-word@127.0.0.1/db", 2, "DATABASE_URL cannot be used"),
    ],
)
def test_url_that_cannot_be_used_is_told_without_its_password(
    url: str, code: int, told: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setenv("DATABASE_URL", url)
    assert main(["up"]) == code
    written = capfd.readouterr().err
    assert told in written
    assert "pass-word" not in written


def test_missing_dbmate_names_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("shutil.which", lambda *args, **kwargs: None)
    with pytest.raises(Misconfigured, match="make setup"):
        find_dbmate()


@pytest.mark.parametrize(
    ("url", "read"),
    [
        ("postgresql://a@h/db", "postgresql://a@h/db?sslmode=prefer"),
        ("postgresql://a:p%40@h:1/db?sslmode=verify-full", "postgresql://a:p%40@h:1/db?sslmode=verify-full"),
        ("postgres://a@/db?host=/var/run", "postgres://a@/db?sslmode=prefer&host=/var/run"),
    ],
)
def test_dbmate_uses_tls_as_the_driver_does(url: str, read: str):
    assert dbmate_url(url) == read
