"""`python -m appview serve` as a process of its own, on the database that a daemon fills."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.doctor_servers import free_port
from tests.e2e.accounts import PASSWORD, Account
from tests.e2e.daemon import until
from tests.e2e.node import NODE, ROOT, installed_network

LEXICONS = ROOT / "appview" / "lexicons"


@dataclass(frozen=True, slots=True)
class Service:
    """An API that runs, as clients know it."""

    url: str
    did: str
    settings: Mapping[str, str]

    def client(self, token: str | None = None) -> httpx.AsyncClient:
        """Any HTTP client, with a credential or without."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return httpx.AsyncClient(base_url=self.url, headers=headers, timeout=30)


@asynccontextmanager
async def serving(settings: Mapping[str, str], folder: Path) -> AsyncGenerator[Service]:
    """An API with the settings of a daemon; ended as an operator does, in peace."""
    port = free_port()
    url = f"http://localhost:{port}"
    own = {**settings, "APPVIEW_PORT": str(port), "APPVIEW_PUBLIC_URL": url}
    service = Service(url, f"did:web:localhost%3A{port}", own)
    log = folder / "api.log"
    with log.open("ab") as said:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "appview", "serve"),
            env={**os.environ, **own},
            cwd=ROOT,
            stdout=said,
            stderr=said,
        )

    async def answers() -> bool:
        assert process.returncode is None, log.read_text()
        async with service.client() as client:
            try:
                return (await client.get("/xrpc/_health")).is_success
            except httpx.TransportError:
                return False

    try:
        await until(answers, "an API that answers")
        yield service
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0, log.read_text()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def ask_as_app(account: Account, service: Service, *calls: Sequence[Any]) -> list[dict[str, Any]]:
    """What an app on `@atproto/api` is told through the PDS of its user; see `network/client.mjs`."""
    return await _run_app("client.mjs", account, service, calls, {})


async def ask_by_oauth(
    account: Account, plc_url: str, scope: str, service: Service, *calls: Sequence[Any]
) -> list[dict[str, Any]]:
    """What an app on `@atproto/oauth-client-node` was granted, then what it is told; see `network/oauth.mjs`."""
    return await _run_app("oauth.mjs", account, service, calls, {"did": account.did, "plc": plc_url, "scope": scope})


async def _run_app(
    script: str, account: Account, service: Service, calls: Sequence[Sequence[Any]], more: Mapping[str, str]
) -> list[dict[str, Any]]:
    plan = {
        "pds": account.pds.url,
        "identifier": account.handle,
        "password": PASSWORD,
        "lexicons": [json.loads(file.read_bytes()) for file in sorted(LEXICONS.rglob("*.json"))],
        "service": ["memory_appview", service.did],
        "calls": calls,
        **more,
    }
    command = (NODE, installed_network() / script)
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    output, errors = await process.communicate(json.dumps(plan).encode())
    assert process.returncode == 0, errors.decode()
    return [json.loads(line) for line in output.splitlines()]
