from __future__ import annotations

import asyncio
import os
import signal
import stat
import subprocess
from pathlib import Path

import asyncpg
import pytest
from structlog.testing import capture_logs

from memory.cluster import locate_cluster, run_as
from memory.database import connect_database
from memory.embedded import Tuning, clear_cluster, hold_cluster
from memory.errors import Misconfigured, Unavailable
from memory.settings import DatabaseSettings
from tests.store.clusters import FAST, Holder, ask, is_running, server_pid, wait_until_stopped

# --- who starts it, who stops it


def test_first_starts_others_attach_and_the_last_one_out_stops(data_dir: Path):
    with hold_cluster(data_dir, FAST) as cluster:
        pid = server_pid(cluster)
        other = Holder(data_dir).wait_until_held()
        assert server_pid(cluster) == pid
        with hold_cluster(data_dir):
            assert ask(cluster, "select 1") == [1]
        assert is_running(cluster)
    assert is_running(cluster)
    other.leave()
    assert not is_running(cluster)


def test_all_starting_at_once_share_one_server(data_dir: Path):
    holders = [Holder(data_dir) for _ in range(4)]
    for holder in holders:
        holder.wait_until_held()
    cluster = locate_cluster(data_dir)
    assert ask(cluster, "select 1") == [1]
    for holder in holders:
        assert is_running(cluster)
        holder.leave()
    assert not is_running(cluster)


def test_killed_holder_is_not_counted(data_dir: Path):
    killed = Holder(data_dir).wait_until_held()
    with hold_cluster(data_dir, FAST) as cluster:
        killed.end(signal.SIGKILL)
        assert ask(cluster, "select 1") == [1]
    assert not is_running(cluster)


def test_server_stops_when_its_only_holder_is_killed(data_dir: Path):
    killed = Holder(data_dir).wait_until_held()
    cluster = locate_cluster(data_dir)
    assert is_running(cluster)
    killed.end(signal.SIGKILL)
    wait_until_stopped(cluster)
    assert "database system is shut down" in cluster.log.read_text().splitlines()[-1]


def test_newcomer_right_after_a_kill_finds_a_working_server(data_dir: Path):
    Holder(data_dir).wait_until_held().end(signal.SIGKILL)
    with hold_cluster(data_dir, FAST) as cluster:
        assert ask(cluster, "select 1") == [1]
    assert not is_running(cluster)


def test_interrupt_ends_the_holder_and_stops_the_server(data_dir: Path):
    holder = Holder(data_dir).wait_until_held()
    holder.end(signal.SIGINT)
    assert holder.process.returncode != 0
    assert not is_running(locate_cluster(data_dir))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_holder_that_ends_while_starting_leaves_nothing_running(data_dir: Path, number: signal.Signals):
    holder = Holder(data_dir)
    holder.end(number)
    with hold_cluster(data_dir, FAST) as cluster:
        assert ask(cluster, "select 1") == [1]
    assert not is_running(cluster)


async def test_service_without_a_url_gets_the_embedded_database_migrated(data_dir: Path):
    for _ in range(2):
        settings = DatabaseSettings(data_dir=data_dir)
        async with (
            connect_database(settings, application_name="tests", connections=1) as database,
            database.connection() as conn,
        ):
            assert await conn.fetchval("select count(*) from repos") == 0
    assert not is_running(locate_cluster(data_dir))


# --- what a crash leaves


def test_crashed_server_is_told_and_the_next_start_keeps_the_data(data_dir: Path):
    with capture_logs() as logs, hold_cluster(data_dir, FAST) as cluster:
        ask(cluster, "create table kept ()")
        os.kill(server_pid(cluster), signal.SIGKILL)
        wait_until_stopped(cluster)
    assert [(log["event"], log["path"]) for log in logs] == [("database_crashed", str(cluster.log))]
    with hold_cluster(data_dir, FAST):
        assert ask(cluster, "select count(*) from kept") == [0]
        ask(cluster, "drop table kept")


def test_stale_pid_file_that_names_another_program_is_forgotten(data_dir: Path):
    with hold_cluster(data_dir, FAST) as cluster:
        pid_file = (cluster.data / "postmaster.pid").read_text().splitlines(keepends=True)
    stranger = subprocess.Popen(["sleep", "1000"], user=cluster.owner.uid if cluster.owner.is_other else None)
    (cluster.data / "postmaster.pid").write_text("".join([f"{stranger.pid}\n", *pid_file[1:]]))
    try:
        with hold_cluster(data_dir, FAST):
            assert ask(cluster, "select 1") == [1]
    finally:
        stranger.kill()
        stranger.wait()


def test_half_made_cluster_is_made_again(data_dir: Path):
    clear_cluster(data_dir)
    cluster = locate_cluster(data_dir)
    (cluster.unfinished / "base").mkdir(parents=True)
    with hold_cluster(data_dir, FAST):
        assert ask(cluster, "select 1") == [1]
    assert not cluster.unfinished.exists()


def test_server_that_does_not_start_names_its_log(data_dir: Path):
    cluster = locate_cluster(data_dir)
    with pytest.raises(Unavailable, match=f"Its log says why: {cluster.log}"), hold_cluster(data_dir, Tuning("much")):
        pass
    assert "shared_buffers" in cluster.log.read_text()
    assert not is_running(cluster)


def test_cluster_of_another_version_is_refused(data_dir: Path):
    cluster = locate_cluster(data_dir)
    version = cluster.data / "PG_VERSION"
    ours = version.read_text()
    version.write_text("12\n")
    try:
        with pytest.raises(Misconfigured, match="was made by Postgres 12"), hold_cluster(data_dir, FAST):
            pass
    finally:
        version.write_text(ours)


# --- clearing


def test_clearing_deletes_the_data_and_keeps_the_folder(data_dir: Path):
    with hold_cluster(data_dir, FAST) as cluster:
        ask(cluster, "create table gone ()")
    clear_cluster(data_dir)
    assert not cluster.data.exists()
    assert not cluster.log.exists()
    with hold_cluster(data_dir, FAST):
        assert ask(cluster, "select to_regclass('gone')") == [None]


def test_clearing_what_another_holds_is_refused(data_dir: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("memory.embedded._CLEAR_TIMEOUT_S", 0)
    with hold_cluster(data_dir, FAST) as cluster:
        with pytest.raises(Misconfigured, match="Another command is using"):
            clear_cluster(data_dir)
        assert ask(cluster, "select 1") == [1]


# --- what it lets in and what it tells


def test_only_our_user_comes_in_and_only_by_the_socket(data_dir: Path):
    with hold_cluster(data_dir, FAST) as cluster:
        addresses, methods = ask(
            cluster,
            "select current_setting('listen_addresses')",
            "select string_agg(distinct type || ' ' || auth_method, ', ') from pg_hba_file_rules",
        )
        assert (addresses, methods) == ("", "local peer")
        assert stat.S_IMODE(cluster.socket_dir.stat().st_mode) == 0o700
        assert stat.S_IMODE(cluster.data.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs it as another user")
def test_even_the_servers_own_user_is_refused(data_dir: Path):
    with hold_cluster(data_dir, FAST) as cluster:
        refused = run_as(cluster.owner, [str(cluster.binaries / "psql"), cluster.url("postgres"), "-c", "select 1"])
    assert "Peer authentication failed" in refused.stderr


def test_log_holds_nothing_of_statements_and_data(data_dir: Path):
    async def fail(url: str) -> None:
        conn = await asyncpg.connect(url)
        await conn.execute("create temporary table t (name text unique)")
        for _ in range(2):
            try:
                await conn.execute("insert into t values ($1)", "Mandarin")
            except asyncpg.UniqueViolationError:
                await conn.execute("select 'Tangerine' where $1 = ''", "Mandarin")
        await conn.close()

    with hold_cluster(data_dir, FAST) as cluster:
        asyncio.run(fail(cluster.url("postgres")))
    log = cluster.log.read_text()
    assert "duplicate key value" in log
    assert "Mandarin" not in log
    assert "Tangerine" not in log


def test_identifiers_sort_by_bytes_and_text_is_unicode_everywhere(data_dir: Path):
    with hold_cluster(data_dir, FAST) as cluster:
        assert ask(
            cluster,
            "select datlocale || ' ' || pg_encoding_to_char(encoding) from pg_database where datname = 'template1'",
            "select array_agg(name order by name) from unnest(array['b', 'B', 'ä', 'a']) as name",
            "select lower('ÄΣ')",
        ) == ["C.UTF-8 UTF8", ["B", "a", "b", "ä"], "äσ"]
