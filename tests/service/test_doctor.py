"""`doctor` on real databases, and on all of a machine at once."""

from __future__ import annotations

import re
import shutil
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest
from websockets.asyncio.server import ServerConnection, serve

from indexer.doctor.database import Place, check_database
from indexer.doctor.examination import Subject, examine
from indexer.doctor.machine import Port
from indexer.doctor.network import Limits, Network, look_up
from indexer.doctor.report import Check, State
from indexer.doctor.spaces import SpaceFiles
from indexer.resync.disk import DiskBudget
from memory.cluster import Cluster, run_as
from tests.architecture.sources import ROOT
from tests.conftest import shared_memory
from tests.doctor_servers import NAME, NETWORK, OK, answering, fix_of, free_port
from tests.store.clusters import folder_in


def clock() -> datetime:
    return datetime.now(UTC)


# --- the database


@asynccontextmanager
async def admin(url: str) -> AsyncGenerator[asyncpg.Connection]:
    conn = await asyncpg.connect(url)
    try:
        yield conn
    finally:
        await conn.close()


def run_roles(cluster: Cluster, url: str) -> None:
    psql = [str(cluster.binaries / "psql"), "--no-psqlrc", "--set=ON_ERROR_STOP=1", f"--dbname={url}"]
    done = run_as(None, [*psql, f"--file={ROOT / 'deploy' / 'roles.sql'}"])
    assert done.returncode == 0, done.stderr


@pytest.fixture
def indexer_url(cluster: Cluster, database_url: str) -> str:
    """As the indexer connects where everything was set up as it should be."""
    run_roles(cluster, database_url)
    return f"{database_url}&role=memory_indexer"


async def look(url: str) -> dict[str, Check]:
    findings = await check_database(Place(url, embedded=False), clock)
    assert findings.ahead_s is None or abs(findings.ahead_s) < 30
    return {check.name: check for check in findings.checks}


async def test_database_that_was_set_up_passes(indexer_url: str):
    checks = await look(indexer_url)
    assert {name: check.state for name, check in checks.items()} == dict.fromkeys(
        ["database", "migrations", "rights", "database log", "erasure"], State.OK
    )
    assert re.fullmatch(r"Postgres 1\d\.\d+, as memory_indexer", checks["database"].what)


async def test_connecting_as_the_api_fails(indexer_url: str):
    checks = await look(indexer_url.replace("memory_indexer", "memory_appview"))
    assert "memory_appview may not read and write" in checks["rights"].what
    assert fix_of(checks["rights"]).endswith("and connect as memory_indexer.")


async def test_connecting_as_a_superuser_is_warned_of(cluster: Cluster, database_url: str):
    run_roles(cluster, database_url)
    assert (await look(database_url))["rights"].what == "postgres is a superuser"


async def test_right_too_many_of_the_api_is_warned_of(database_url: str, indexer_url: str):
    async with admin(database_url) as conn:
        await conn.execute("grant delete on memories to memory_appview")
    assert (await look(indexer_url))["rights"].what == "memory_appview may change memories"


async def test_right_that_the_api_lacks_fails(database_url: str, indexer_url: str):
    async with admin(database_url) as conn:
        await conn.execute("revoke update on identities from memory_appview")
    assert (await look(indexer_url))["rights"].what == "memory_appview may not write identities"
    async with admin(database_url) as conn:
        await conn.execute("revoke select on repos from memory_appview")
    assert (await look(indexer_url))["rights"].what == "memory_appview may not read repos"


async def test_database_without_migrations_fails(database_url: str):
    async with admin(database_url) as conn:
        await conn.execute("drop schema public cascade; create schema public")
    checks = await look(database_url)
    assert checks["database"].state is State.OK
    assert fix_of(checks["migrations"]) == "Run `python -m migrations up`."


async def test_migrations_that_may_not_be_read_fail(database_url: str, indexer_url: str):
    async with admin(database_url) as conn:
        await conn.execute("revoke all on schema_migrations from memory_indexer")
    checks = await look(indexer_url)
    assert checks["migrations"].what == "we may not read which are applied"
    assert "deploy/roles.sql" in fix_of(checks["migrations"])


async def test_files_that_are_not_rid_of_what_was_deleted_are_warned_of(database_url: str, indexer_url: str):
    async with admin(database_url) as conn:
        await conn.execute("insert into settings (name, value) values ('erasure', '2026-01-01T00:00:00+00:00 7 1.5')")
    check = (await look(indexer_url))["erasure"]
    assert check.state is State.WARNING
    assert check.what == "the files hold what was deleted: rid of it last at 2026-01-01 00:00 UTC, not within a day"
    assert "`python -m indexer run`" in fix_of(check)


async def test_talkative_log_is_warned_of(database_url: str, indexer_url: str):
    async with admin(database_url) as conn:
        name = await conn.fetchval("select current_database()")
        await conn.execute(f"alter database {name} set log_error_verbosity = 'default'")
    check = (await look(indexer_url))["database log"]
    assert check.state is State.WARNING
    assert "Set log_error_verbosity = terse in" in fix_of(check)


async def test_encoding_that_cannot_hold_every_text_fails(cluster: Cluster):
    async with admin(cluster.url("postgres")) as conn:
        await conn.execute("create database latin encoding 'LATIN1' locale_provider libc locale 'C' template template0")
        try:
            check = (await look(cluster.url("latin")))["database"]
        finally:
            await conn.execute("drop database latin with (force)")
    assert (check.state, check.what) == (State.FAILED, "its encoding is LATIN1, which cannot hold every text")


async def test_database_that_is_not_there_fails_alone(cluster: Cluster):
    closed_port = free_port()
    for url, fix in (
        (f"postgresql://us:pass-word@127.0.0.1:{closed_port}/memory", "Start Postgres, and let this machine reach it"),
        (cluster.url("none_such"), "Correct DATABASE_URL"),
        ("postgresql://us:pass-word@127.0.0.1:many/memory", "Correct DATABASE_URL"),
    ):
        checks = await look(url)
        assert list(checks) == ["database"]
        assert fix_of(checks["database"]).startswith(fix)
        assert "pass-word" not in str(checks)


async def test_silent_database_fails_after_its_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("indexer.doctor.database.TIMEOUT_S", 0.05)
    async with answering(b"") as port:
        checks = await look(f"postgresql://us@127.0.0.1:{port}/memory?sslmode=disable")
    assert checks["database"].what == "It does not answer within 0.05 s."


# --- all of it


def subject(url: str | None, *, data_dir: Path = Path("none"), relay: int, directory: int, api: int) -> Subject:
    return Subject(
        database_url=url,
        data_dir=data_dir,
        relays=(f"http://{NAME}:{relay}",),
        pdses=(),
        directory=f"http://{NAME}:{directory}",
        ports=(Port("127.0.0.1", api, "/xrpc/_health", "APPVIEW_"),),
        spool=DiskBudget(in_all_bytes=0, kept_free_bytes=0),
    )


async def test_machine_on_which_all_is_well_passes(indexer_url: str):
    async def stream(connection: ServerConnection) -> None:
        await connection.wait_closed()

    async with serve(stream, "127.0.0.1", 0) as server, answering(OK) as directory:
        port = next(iter(server.sockets)).getsockname()[1]
        asked = subject(indexer_url, relay=port, directory=directory, api=free_port())
        report = await examine(asked, network=NETWORK, clock=clock)
    assert [check for check in report.checks if check.state is not State.OK] == []
    assert not report.failed
    assert [check.name.partition(" ")[0] for check in report.checks] == (
        [
            "database",
            "migrations",
            "rights",
            "database",
            "erasure",
            "clock",
            "dns",
            "directory",
            "source",
            "port",
            "service",
            "space",
            "spool",
        ]
    )
    assert report.to_text().endswith("All is well.")


async def test_machine_on_which_nothing_is_well_is_told_all_of_it():
    closed_port = free_port()
    async with answering(b"no HTTP\r\n\r\n") as taken:
        url = f"postgresql://us:pass-word@127.0.0.1:{closed_port}/memory"
        asked = replace(
            subject(url, relay=closed_port, directory=taken, api=taken),
            spool=DiskBudget(Path("/none/such")),
            service="https://memory.test",
            spaces=SpaceFiles(Path("/none/such"), Path("/none/such")),
        )
        network = Network(look_up, limits=Limits(name_s=0))
        report = await examine(asked, network=network, clock=clock)
    assert report.failed
    assert {check.name.partition(" ")[0]: check.state for check in report.checks} == {
        "database": State.FAILED,
        "clock": State.WARNING,
        "dns": State.FAILED,
        "directory": State.FAILED,
        "source": State.FAILED,
        "port": State.FAILED,
        "service": State.FAILED,
        "space": State.FAILED,
        "spool": State.FAILED,
    }
    assert all(fix_of(check) for check in report.checks)
    assert "pass-word" not in report.to_json() + repr(asked)


async def test_without_a_source_there_is_nothing_to_follow(indexer_url: str):
    async with answering(OK) as directory:
        asked = replace(subject(indexer_url, relay=1, directory=directory, api=free_port()), relays=())
        report = await examine(asked, network=NETWORK, clock=clock)
    assert "source" in {check.name for check in report.checks if check.state is State.FAILED}


@pytest.fixture
def folder() -> Generator[Path]:
    made = folder_in(shared_memory(), 0o711)
    yield made
    shutil.rmtree(made)


async def test_embedded_database_is_started_for_it(folder: Path):
    async with answering(OK) as directory:
        asked = subject(None, data_dir=folder / "postgres", relay=1, directory=directory, api=free_port())
        report = await examine(asked, network=NETWORK, clock=clock)
    states = {check.name: check.state for check in report.checks}
    assert (states["database"], states["migrations"], states["clock"]) == (State.OK, State.OK, State.OK)
    assert not {"rights", "database log"} & states.keys()
    assert "disk" in states


async def test_embedded_database_that_cannot_live_there_fails(folder: Path):
    file = folder / "file"
    file.touch()
    async with answering(OK) as directory:
        asked = subject(None, data_dir=file, relay=1, directory=directory, api=free_port())
        report = await examine(asked, network=NETWORK, clock=clock)
    check = report.checks[0]
    assert (check.name, check.state) == ("database", State.FAILED)
    assert "name another folder by DATABASE_DATA_DIR" in fix_of(check)
