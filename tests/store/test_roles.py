"""The two database roles of `deploy/roles.sql`: what each may do, in whichever order they and the tables come."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from urllib.parse import quote
from uuid import uuid4

import asyncpg
import pytest

from appview.store import grants
from appview.store.grants import SealedCredential, ToldWrite
from indexer.store import space_counts, spaces
from indexer.store.space_counts import Work
from indexer.store.spaces import NoteKind
from memory.cluster import Cluster, run_as
from memory.database import open_database
from memory.queries import Statement, load_queries
from memory.schema import apply_migrations
from memory.space import parse_space_uri
from tests.architecture.sources import ROOT
from tests.memory_rows import BOB, SPACE

ROLES = ROOT / "deploy" / "roles.sql"
PASSWORDS = ROOT / "deploy" / "passwords.sql"
WRITTEN_BY_APPVIEW = {"identities", "access_tokens", "seen_tokens", "grants", "credentials", "space_inbox"}
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def run_psql(cluster: Cluster, url: str, *files: object) -> str:
    """What psql says about those files, as an operator runs them."""
    command = [str(cluster.binaries / "psql"), "--no-psqlrc", "--set=ON_ERROR_STOP=1", f"--dbname={url}"]
    done = run_as(None, [*command, *(f"--file={file}" for file in files)])
    assert done.returncode == 0, done.stderr
    return done.stderr


def as_role(url: str, role: str) -> str:
    """The URL of a session that has become that role, for every driver but libpq."""
    return f"{url}&role={role}"


@asynccontextmanager
async def session(url: str, role: str | None = None) -> AsyncGenerator[asyncpg.Connection]:
    conn = await asyncpg.connect(url)
    try:
        if role is not None:
            await conn.execute(f"set session authorization {role}")
        yield conn
    finally:
        await conn.close()


async def emptied(url: str) -> None:
    async with session(url) as conn:
        await conn.execute("drop schema public cascade; create schema public authorization pg_database_owner")


def statements(package: str) -> Sequence[Statement]:
    return list(load_queries(ROOT / package / "store" / "sql"))


async def refusals(conn: asyncpg.Connection, asked: Sequence[Statement]) -> dict[str, str]:
    """The statements that may not be run. Planning one generically judges its rights, and runs nothing."""
    refused: dict[str, str] = {}
    for statement in asked:
        warnings: list[str] = []
        listener = _listener(warnings)
        conn.add_log_listener(listener)
        # What cannot be planned has no parameters, and leaves out with a warning what it may not do.
        unplanned = statement.sql.startswith(("analyze ", "vacuum ", "reindex ", "drop index ", "do "))
        plan = "" if unplanned else "explain (generic_plan) "
        try:
            await conn.execute(plan + statement.sql)
        except asyncpg.InsufficientPrivilegeError as error:
            warnings.append(str(error))
        conn.remove_log_listener(listener)
        if warnings:
            refused[statement.name] = warnings[0]
    return refused


def _listener(heard: list[str]) -> Callable[[object, asyncpg.PostgresLogMessage], None]:
    def listen(_: object, message: asyncpg.PostgresLogMessage) -> None:
        if "does not exist, skipping" not in str(message):  # `if exists` is no refusal
            heard.append(str(message))

    return listen


@pytest.fixture
def url(cluster: Cluster, database_url: str) -> str:
    """The URL, for a superuser, of a migrated database on which `roles.sql` was run."""
    run_psql(cluster, database_url, ROLES)
    return database_url


async def test_appview_may_prepare_and_run_all_its_statements(url: str) -> None:
    async with session(url, "memory_appview") as conn:
        for statement in statements("appview"):
            prepared = await conn.prepare(statement.sql)
            with suppress(asyncpg.NotNullViolationError):  # past the rights, stopped by the columns
                await prepared.fetch(*[None] * len(statement.parameters))
        assert await refusals(conn, statements("appview")) == {}


async def test_indexer_may_run_all_its_statements(url: str) -> None:
    async with session(url, "memory_indexer") as conn:
        assert await refusals(conn, statements("indexer")) == {}


async def test_rights_that_are_missing_would_be_seen(url: str) -> None:
    async with session(url, "memory_appview") as conn:
        refused = await refusals(conn, statements("indexer"))
    assert "permission denied for table memory_versions" in refused["insert_versions"]
    assert "permission denied to analyze" in refused["analyze"]


async def test_both_may_run_what_they_share(url: str) -> None:
    for role in ("memory_indexer", "memory_appview"):
        async with session(url, role) as conn:
            assert await refusals(conn, statements("memory")) == {}


async def test_appview_writes_no_table_but_those_of_its_callers(url: str) -> None:
    writes = ("insert into {} default values", "update {} set {column} = {column}", "delete from {}", "truncate {}")
    async with session(url) as conn:
        tables = await conn.fetch(
            "select tablename, (select attname from pg_attribute where attnum = 1 and attrelid = tablename::regclass) "
            "from pg_tables where schemaname = 'public'"
        )
    assert {"memories", "repos", "settings", "schema_migrations"} <= {table for table, _ in tables}
    async with session(url, "memory_appview") as conn:
        for table, column in tables:
            for write in writes:
                allowed = table in WRITTEN_BY_APPVIEW and not write.startswith("truncate")
                try:
                    await conn.execute(write.format(table, column=column))
                except asyncpg.InsufficientPrivilegeError:
                    assert not allowed, (table, write)
                except asyncpg.NotNullViolationError:  # past the rights, stopped by the columns
                    assert allowed, (table, write)
                else:
                    assert allowed, (table, write)


async def test_appview_may_make_and_change_no_table(url: str) -> None:
    async with session(url, "memory_appview") as conn:
        for change in ("create table mine ()", "alter table memories add mine int", "create index on memories (cid)"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await conn.execute(change)


async def test_indexer_runs_migrations_on_an_empty_database(cluster: Cluster, url: str) -> None:
    await emptied(url)
    run_psql(cluster, url, ROLES)
    apply_migrations(as_role(url, "memory_indexer"))
    async with session(url, "memory_appview") as conn:  # by default privileges, without another run
        assert await refusals(conn, statements("appview")) == {}
        assert await conn.fetch("select * from schema_migrations") != []
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await conn.execute("delete from memories")


async def test_tables_of_a_later_migration_are_readable_only(url: str) -> None:
    async with session(url, "memory_indexer") as conn:
        await conn.execute("create table later (repo text)")
    async with session(url, "memory_appview") as conn:
        assert await conn.fetch("select * from later") == []
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await conn.execute("insert into later values ('')")


async def test_tables_that_callers_write_come_with_the_next_run(cluster: Cluster, url: str) -> None:
    async with session(url, "memory_indexer") as conn:
        await conn.execute("drop table grants; create table grants (repo text)")
    run_psql(cluster, url, ROLES)
    async with session(url, "memory_appview") as conn:
        await conn.execute("insert into grants values ('')")


async def test_indexer_owns_what_others_made(cluster: Cluster, url: str) -> None:
    async with session(url) as conn:
        await conn.execute("create table by_admin (repo text)")
    run_psql(cluster, url, ROLES)
    async with session(url, "memory_indexer") as conn:
        await conn.execute("alter table by_admin add column space text")
    async with session(url, "memory_appview") as conn:
        assert await conn.fetch("select * from by_admin") == []


async def test_more_than_the_appview_may_have_is_taken_away(cluster: Cluster, url: str) -> None:
    async with session(url) as conn:
        await conn.execute("grant all on memories to memory_appview")
    run_psql(cluster, url, ROLES)
    async with session(url, "memory_appview") as conn:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await conn.execute("delete from memories")
        assert await conn.fetch("select * from memories") == []


async def test_second_run_changes_nothing(cluster: Cluster, url: str) -> None:
    rights = "select relname, relowner::regrole::text, relacl::text from pg_class where relname !~ '^pg_'"
    async with session(url) as conn:
        before = await conn.fetch(rights)
        run_psql(cluster, url, ROLES)
        assert set(await conn.fetch(rights)) == set(before)


async def test_roles_quote_nothing_in_the_log(url: str) -> None:
    async with session(url) as conn:
        for role in ("memory_indexer", "memory_appview"):
            configured = await conn.fetch("select unnest(rolconfig) from pg_roles where rolname = $1", role)
            assert {row["unnest"] for row in configured} == {
                "log_error_verbosity=terse",
                "log_parameter_max_length=0",
                "log_parameter_max_length_on_error=0",
            }


async def test_owner_of_the_database_who_is_no_superuser_may_run_it(cluster: Cluster, database_url: str) -> None:
    """As on a hosted Postgres, where nobody is one."""
    await emptied(database_url)
    drop = "".join(f"drop owned by {role}; drop role {role};" for role in ("memory_appview", "memory_indexer"))
    run_psql(cluster, database_url, ROLES)
    async with session(database_url) as conn:
        name = await conn.fetchval("select current_database()")
        others = await conn.fetch("select datname from pg_database where datname like 'test_%' and datname <> $1", name)
        assert others == []
        await conn.execute(drop)
        await conn.execute(f"create role landlord createrole; alter database {name} owner to landlord")
        await conn.execute("create extension if not exists vector")  # as the host of the server does
        try:
            said = run_psql(cluster, f"{database_url}&options={quote('-crole=landlord')}", ROLES)
            assert "set log_error_verbosity = terse" in said
            apply_migrations(as_role(database_url, "landlord"))
            run_psql(cluster, f"{database_url}&options={quote('-crole=landlord')}", ROLES)
            async with session(database_url, "memory_indexer") as indexer:
                refused = await refusals(indexer, statements("indexer"))
            # The planner's samples are a superuser's to give away, or the owner's to vacuum.
            assert set(refused) == {"vacuum_samples", "rewrite_samples"}
        finally:
            await conn.execute(f"alter database {name} owner to postgres")
            await conn.execute(drop)
            await conn.execute("drop owned by landlord; drop role landlord")


async def test_api_opens_spaces_and_the_indexer_keeps_them(url: str) -> None:
    """What one role hands over the other works off, and neither does the other's part."""
    space, credential = parse_space_uri(SPACE), SealedCredential(b"sealed", "k", NOW + HOUR)
    assert space is not None
    api = open_database(as_role(url, "memory_appview"), application_name="tests", connections=1)
    indexer = open_database(as_role(url, "memory_indexer"), application_name="tests", connections=1)
    async with api as asking, indexer as keeping:
        async with asking.transaction() as conn:
            assert await grants.add_grant(conn, BOB, "t", space, credential, granted_at=NOW, expires_at=NOW + HOUR)
        async with keeping.connection() as conn:
            await spaces.open_spaces(conn)
            [claim] = await spaces.claim(conn, uuid4(), HOUR, at_most=2, now=NOW)
            notes = await spaces.load_notes(conn, claim)
            assert [note.kind for note in notes] == [NoteKind.OPENED]
            await spaces.drop_notes(conn, claim, notes)
            assert len(await spaces.live_credentials(conn, SPACE, NOW)) == 1
            await space_counts.add_tallies(conn, {(Work.LISTING, "done"): 1}, NOW)
            assert (await space_counts.count_spaces(conn, NOW)).spaces == {"syncing": 1}
        async with asking.connection() as conn:
            assert await grants.is_authority(conn, space.authority)
            await grants.put_write(conn, space, ToldWrite(BOB, "3kaaaaaaaaa2a", bytes(32)))
            await grants.put_deletion(conn, space)
            for table in ("spaces", "space_repos", "space_tallies"):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await conn.execute(f"delete from {table}")
        async with keeping.connection() as conn:
            assert [note.kind for note in await spaces.load_notes(conn, claim)] == [NoteKind.DELETED, NoteKind.WRITTEN]


async def test_roles_work_through_our_own_pool(url: str) -> None:
    async with (
        open_database(as_role(url, "memory_appview"), application_name="tests", connections=1) as database,
        database.connection() as conn,
    ):
        assert await conn.fetchval("select current_user") == "memory_appview"


async def test_passwords_come_from_the_environment(cluster: Cluster, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hostile = 'it\'s \\ "quoted"'
    command = [str(cluster.binaries / "psql"), "--no-psqlrc", "--set=ON_ERROR_STOP=1", f"--dbname={url}"]
    given = ["env", f"MEMORY_INDEXER_PASSWORD={hostile}", "MEMORY_APPVIEW_PASSWORD=b"]
    assert run_as(None, [*given, *command, f"--file={PASSWORDS}"]).returncode == 0
    async with session(url) as conn:
        kept = await conn.fetch(
            "select rolpassword from pg_authid where rolname in ('memory_indexer', 'memory_appview')"
        )
        assert [bool(re.match("SCRAM-SHA-256", row["rolpassword"])) for row in kept] == [True, True]
    assert run_as(None, [*command, f"--file={PASSWORDS}"]).returncode != 0


def test_no_password_stands_in_the_file() -> None:
    assert not re.search(r"^\s*(create|alter) role .*password", ROLES.read_text(encoding="utf-8"), re.MULTILINE)
