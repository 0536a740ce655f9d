"""`python -m indexer run` as a process of its own: what it says, what its health port says, and how it ends."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx

from tests.deadline import until
from tests.doctor_servers import free_port

ROOT = Path(__file__).parents[1]
# As long as the systemd unit waits; `make up` waits half as long, on a machine that mostly has nothing else to do.
STOP_S = 30.0
# Daemons of tests embed nothing, unless a test is about that: the model takes a core.
WITHOUT_MODEL = {"EMBEDDING_BACKEND": "none"}


class DaemonProcess:
    """A daemon that runs, or has ended."""

    def __init__(self, process: Process, port: int) -> None:
        self._process = process
        self._port = port
        self._said: list[dict[str, Any]] = []
        self._reading = asyncio.create_task(self._read())

    async def until_said(self, event: str, times: int = 1, **fields: object) -> None:
        """Waits until it has logged such an event so often."""

        async def count() -> int:
            self.assert_alive()
            return sum(each.get("event") == event and fields.items() <= each.items() for each in self._said)

        await until(count, lambda met: met >= times)

    async def until_ready(self, *, is_: bool) -> None:
        """Waits for what `/ready` says."""
        expected = (200, "ready\n") if is_ else (503, "the database does not answer\n")

        async def ask() -> object:
            self.assert_alive()
            return await self.ask("/ready")

        await until(ask, lambda answer: answer == expected)

    async def ask(self, path: str) -> tuple[int, str] | None:
        """An answer of the health port; None: it is not served yet."""
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self._port}", timeout=30) as client:
            with suppress(httpx.TransportError):
                answer = await client.get(path)
                return answer.status_code, answer.text
        return None

    async def terminate(self) -> int:
        """Its exit status after a SIGTERM. TimeoutError: it goes on."""
        self.assert_alive()
        self._process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(STOP_S):
            return await self._process.wait()

    def assert_alive(self) -> None:
        assert self._process.returncode is None, f"it ended by itself: {self._said[-3:]}"

    async def end(self) -> None:
        """Leaves nothing of it."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading

    async def _read(self) -> None:
        assert self._process.stderr is not None
        async for line in self._process.stderr:
            try:
                self._said.append(json.loads(line))
            except ValueError:
                self._said.append({"line": line.decode()})


@asynccontextmanager
async def daemon_process(**environment: str) -> AsyncGenerator[DaemonProcess]:
    """A daemon with these variables, and none of ours beside them; killed at the end, if it is still there."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "indexer", "run"),
        cwd=ROOT,
        env=inherited | WITHOUT_MODEL | environment | {"INDEXER_HEALTH_PORT": str(port)},
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
    )
    running = DaemonProcess(process, port)
    try:
        yield running
    finally:
        await running.end()
