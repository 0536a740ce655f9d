"""The demo's memories on a real server: what recipes and clients are tried on.

    with served_demo(cluster) as url: …      # http://127.0.0.1:…, until the end of the block

The database is one of its own, with vectors as in the demo. The server is `python -m appview serve`, as its users start
it.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import asyncpg
import httpx

from indexer.recording import read_frames
from memory.cluster import Cluster
from memory.database import open_database
from memory.identity import PlcExport
from tests.deadline import DEADLINE_S
from tests.doctor_servers import free_port
from tests.meaning import embed_all, embedded_model
from tests.recorded import replay

ROOT = Path(__file__).parents[1]
DEMO = ROOT / "tests" / "recordings" / "demo"


@contextmanager
def served_demo(cluster: Cluster, template: str) -> Generator[str]:
    """The URL of a server on a copy of the template with the demo's memories in it."""
    name = f"demo_{uuid.uuid4().hex}"
    # Of its own thread, so that it may be used within any event loop and without one.
    with ThreadPoolExecutor(max_workers=1) as thread:
        thread.submit(asyncio.run, _fill(cluster, name, template)).result()
        try:
            with served(cluster.url(name)) as url:
                yield url
        finally:
            thread.submit(asyncio.run, _drop(cluster, name)).result()


async def _fill(cluster: Cluster, name: str, template: str) -> None:
    admin = await asyncpg.connect(cluster.url("postgres"))
    try:
        await admin.execute(f"create database {name} template {template} strategy file_copy")
    finally:
        await admin.close()
    async with open_database(cluster.url(name), application_name="tests", connections=2) as database:
        await replay(database, read_frames(DEMO / "firehose.bin"), plc=PlcExport.read(DEMO / "identities.jsonl"))
        async with embedded_model() as embedder:
            await embed_all(database, embedder)


async def _drop(cluster: Cluster, name: str) -> None:
    admin = await asyncpg.connect(cluster.url("postgres"))
    try:
        await admin.execute(f"drop database {name} with (force)")
    finally:
        await admin.close()


@contextmanager
def served(database_url: str) -> Generator[str]:
    """The URL of a server on that database."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "appview", "serve", "--port", str(port)],
        cwd=ROOT,
        env=inherited | {"DATABASE_URL": database_url},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        _until_healthy(process, url)
        yield url
    finally:
        process.terminate()
        process.wait()


def _until_healthy(process: subprocess.Popen[bytes], url: str) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        assert process.poll() is None, "the server ended by itself"
        try:
            httpx.get(f"{url}/xrpc/_health", timeout=DEADLINE_S)
            return
        except httpx.TransportError:
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.05)
