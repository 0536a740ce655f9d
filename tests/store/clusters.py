"""Embedded clusters for tests: folders to keep them in, other processes that hold them, questions to them."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import asyncpg

from memory.cluster import HOLDERS_LOCK, SERVER_LOCK, Cluster, open_lock, try_lock
from memory.embedded import Tuning

ROOT = Path(__file__).parents[2]
FAST = Tuning(fsync=False, shared_buffers="16MB")

HOLDER = """
import sys
from pathlib import Path
from memory.database import connect_database
from memory.embedded import Tuning, hold_cluster

with hold_cluster(Path(sys.argv[1]), Tuning(fsync=False, shared_buffers="16MB")):
    print("held", flush=True)
    sys.stdin.readline()
"""


class Holder:
    """Another process that holds the cluster."""

    def __init__(self, data_dir: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(data_dir)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait_until_held(self) -> Holder:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"held\n"
        return self

    def leave(self) -> None:
        self.process.communicate(b"\n")
        assert self.process.returncode == 0

    def end(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)
        self.process.communicate()


def folder_in(parent: Path | None, mode: int) -> Path:
    folder = Path(tempfile.mkdtemp(prefix="memory-appview-tests-", dir=parent))
    folder.chmod(mode)
    return folder


def is_running(cluster: Cluster) -> bool:
    """Whether a process of the server is left."""
    if _is_free(cluster):
        return False
    if (cluster.data / "postmaster.pid").exists():
        return True
    # A keeper that sees to the end of a server has the lock for as long as it looks: it has finished after this.
    with open_lock(cluster.home / HOLDERS_LOCK) as holders:
        fcntl.flock(holders, fcntl.LOCK_SH)
        return not _is_free(cluster)


def _is_free(cluster: Cluster) -> bool:
    with open_lock(cluster.home / SERVER_LOCK) as server:
        return try_lock(server)


def wait_until_stopped(cluster: Cluster) -> None:
    with open_lock(cluster.home / SERVER_LOCK) as server:
        fcntl.flock(server, fcntl.LOCK_EX)


def server_pid(cluster: Cluster) -> int:
    return int((cluster.data / "postmaster.pid").read_text().splitlines()[0])


def ask(cluster: Cluster, *statements: str) -> list[object]:
    async def fetch() -> list[object]:
        conn = await asyncpg.connect(cluster.url("postgres"))
        try:
            return [await conn.fetchval(statement) for statement in statements]
        finally:
            await conn.close()

    return asyncio.run(fetch())
