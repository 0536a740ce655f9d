"""`python -m indexer run` as a process of its own, that can be killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.deadline import DEADLINE_S
from tests.e2e.node import ROOT
from tests.processes import WITHOUT_MODEL

POLL_S = 0.05


class Late(Exception):
    """What was waited for did not come."""


async def until(condition: Callable[[], Awaitable[bool]], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Waits for a condition."""
    try:
        async with asyncio.timeout(deadline_s):
            while not await condition():  # noqa: ASYNC110  it is another process that changes what is
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise Late(f"not within {deadline_s} s: {what}") from None


class Daemon:
    """The indexer; what it is run with stays the same over its deaths."""

    def __init__(self, environment: Mapping[str, str], log: Path) -> None:
        self.health_port = _free_port()
        self.environment = {**os.environ, **WITHOUT_MODEL, **environment, "INDEXER_HEALTH_PORT": str(self.health_port)}
        self._log = log
        self._process: Process | None = None

    async def start(self) -> None:
        """Starts it; whoever needs it further waits for what it does."""
        assert self._process is None
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "indexer", "run", env=self.environment, cwd=ROOT, stdout=log, stderr=log
            )

    async def kill(self) -> None:
        """As by kill -9."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """As by an operator; it must go in peace."""
        assert await self._end(signal.SIGTERM) == 0, self.log()

    async def _end(self, number: signal.Signals) -> int:
        process = self._process
        if process is None:
            return 0
        self.assert_alive()
        process.send_signal(number)
        self._process = None
        return await process.wait()

    def assert_alive(self) -> None:
        """Nothing that a network does may end it."""
        assert self._process is None or self._process.returncode is None, f"it died by itself\n{self.log()}"

    async def connected(self, *sources: str) -> None:
        """Waits until these streams are open."""

        async def all_open() -> bool:
            said = await self._get("/metrics")
            return all(f'indexer_connected{{source="{source}"}} 1.0' in said for source in sources)

        await until(all_open, f"open streams of {', '.join(sources)}")

    async def ready(self) -> bool:
        """What it says of itself."""
        return await self._get("/ready") == "ready\n"

    async def _get(self, path: str) -> str:
        try:
            async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.health_port}") as client:
                return (await client.get(path)).text
        except httpx.TransportError:
            return ""

    async def command(self, *arguments: str) -> str:
        """What another command of the indexer says."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "indexer", *arguments, env=self.environment, cwd=ROOT, stdout=PIPE, stderr=PIPE
        )
        output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return output.decode()

    async def status(self) -> dict[str, Any]:
        """What `status` says for machines."""
        return json.loads(await self.command("status", "--json"))

    def log(self) -> str:
        """The end of what it said."""
        return self._log.read_text(errors="replace")[-6000:]


def environment(
    *, database_url: str, plc_url: str, pds_urls: Sequence[str], relay_urls: Sequence[str] = ()
) -> dict[str, str]:
    """The settings of a daemon on a network of this machine."""
    return {
        "DATABASE_URL": database_url,
        "INDEXER_PDS_URLS": ",".join(pds_urls),
        "INDEXER_RELAY_URLS": ",".join(relay_urls),
        "INDEXER_PLC_URL": plc_url,
        "INDEXER_HANDLE_RESOLVER": ",".join(pds_urls),
        "INDEXER_ALLOW_PRIVATE_ADDRESSES": "127.0.0.0/8,::1/128",
    }


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]
