"""Mara's apps and Noor's Spaces, with an API and an indexer as processes; and every secret that they made by now.

async with flow_at(database, database_url, folder) as flow, flow.process("appview", "serve"):
    await flow.open(space, token)                  # a Space, by a new delegation token
    assert flow.sought.found(data) == set()        # tests/secret_forms.py

What is within processes is learnt by opening what they sealed, and by what hosts were sent.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from appview.faces.xrpc import PREFIX
from memory.database import Database
from memory.es256 import Es256Key
from memory.sealed import SealingKeys
from memory.space_credential import open_credential
from tests.api_client import NAMESPACE
from tests.deadline import DEADLINE_S, until
from tests.doctor_servers import free_port
from tests.fakes.directory import directory
from tests.fakes.space_host import SpaceHost, space_world
from tests.fakes.space_host_faults import Answer, Call, Fault
from tests.fakes.space_host_spaces import Space
from tests.fakes.space_host_tokens import read_token, service_token
from tests.fakes.space_host_world import Account
from tests.processes import ROOT, WITHOUT_MODEL
from tests.secret_forms import Sought
from tests.service_tokens import OWN_DID

PUBLIC_URL: Final = "https://memory.example"  # whose did:web is OWN_DID
SYNCER: Final = f"{OWN_DID}#atproto_space_syncer"


def now() -> datetime:
    return datetime.now(UTC)


@dataclass
class Flow:
    """Mara's apps, the Spaces of Noor on their host, and every secret that there was so far."""

    database: Database
    host: SpaceHost
    folder: Path
    environment: dict[str, str]
    url: str
    metrics_port: int = 0
    sought: Sought = field(default_factory=Sought)
    rings: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])
    answers: list[bytes] = field(default_factory=list[bytes])
    told: list[bytes] = field(default_factory=list[bytes])  # metrics

    def __post_init__(self) -> None:
        self.noor, self.mara, self.lukas = (self.host.add(name) for name in ("noor", "mara", "lukas"))
        self._hear_host()

    def _hear_host(self) -> None:
        """Everything that processes of ours send to it, and that it sends to them, is a secret."""
        answer, post, sign = self.host.answer, self.host.bell.post, self.host.governed.sign_credential

        def heard(call: Call, fault: Fault | None = None) -> Answer:
            for name in ("authorization", "dpop"):
                token = call.headers.get(name, "").rpartition(" ")[2]
                if token.count(".") == 2:
                    self.sought.jwt(f"{name} of {call.method}", token)
                    self.private_jti(f"jti of {name} of {call.method}", token)
            if b'"clientAttestation"' in call.body:
                self.sought.jwt(
                    "client attestation", call.body.partition(b'"clientAttestation":"')[2].split(b'"')[0].decode()
                )
            return answer(call, fault)

        async def rung(service: str, method: str, body: dict[str, Any], token: str) -> int | None:
            self.sought.jwt("service auth of the authority", token)
            return await post(service, method, body, token)

        def signed(space: Space, jkt: str) -> str:
            self.sought.jwt("credential", credential := sign(space, jkt))
            return credential

        self.host.answer, self.host.bell.post = heard, rung
        self.host.governed.sign_credential = signed

    def private_jti(self, name: str, token: str) -> None:
        if jti := read_token(token).says("jti"):
            self.sought.text(name, jti)

    def auth(self, method: str, account: Account | None = None) -> str:
        account = account or self.mara
        token = service_token(account.key, account.did, OWN_DID, NAMESPACE + method, now(), secrets.token_hex(16))
        self.sought.jwt("service auth", token)
        self.private_jti("jti of service auth", token)
        return token

    def delegation(self, space: Space, account: Account | None = None, **changes: Any) -> str:
        token = (account or self.mara).delegation(space, jti=secrets.token_hex(16), **changes)
        self.sought.jwt("delegation token", token)
        self.private_jti("jti of delegation token", token)
        return token

    async def post(self, method: str, credential: str, **body: Any) -> httpx.Response:
        async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE_S) as client:
            response = await client.post(
                f"{self.url}{PREFIX}{NAMESPACE}{method}", json=body, headers={"authorization": f"Bearer {credential}"}
            )
        if token := response.json().get("accessToken"):
            self.sought.access_token("access token", token)
        else:
            self.answers.append(response.content)
        return response

    async def get(self, method: str, credential: str, **query: str) -> httpx.Response:
        async with httpx.AsyncClient(trust_env=False, timeout=DEADLINE_S) as client:
            response = await client.get(
                f"{self.url}{PREFIX}{NAMESPACE}{method}",
                params=query,
                headers={"authorization": f"Bearer {credential}"},
            )
        self.answers.append(response.content)
        return response

    async def open(self, space: Space, credential: str) -> dict[str, Any]:
        response = await self.post("openSpace", credential, space=str(space), delegationToken=self.delegation(space))
        assert response.status_code == 200, response.text
        await self.learn_sealed()
        return response.json()

    async def refused(self, space: Space, credential: str, delegation: str) -> str:
        response = await self.post("openSpace", credential, space=str(space), delegationToken=delegation)
        assert response.status_code >= 400
        return response.json()["error"]

    async def learn_sealed(self) -> None:
        """What the processes keep for themselves: credentials, and the keys that they are bound to."""
        keys = SealingKeys(dict(self.rings), random_bytes=os.urandom)
        async with self.database.connection() as conn:
            rows = await conn.fetch("select repo, space, sealed from credentials")
        assert rows
        for row in rows:
            opened = open_credential(keys, row["sealed"], space=row["space"], viewer=row["repo"])
            self.sought.jwt("credential", opened.text)
            self.sought.key("DPoP key", opened.key.to_bytes())

    async def until_found(self, token: str, space: Space, content: str) -> None:
        async def contents() -> list[str]:
            response = await self.get("listRecords", token, space=str(space))
            found = response.json().get("records", [])
            return [record["value"]["content"] for record in found]

        await until(contents, lambda found: content in found)

    def write_ring(self, *key_ids: str) -> None:
        """The file of keys that seal: new ones come first."""
        known = dict(self.rings)
        for key_id in key_ids:
            if key_id not in known:
                self.rings.append((key_id, secrets.token_bytes(32)))
                self.sought.key("key that seals", self.rings[-1][1])
        known = dict(self.rings)
        write_secret(self.folder / "ring", "".join(f"{key_id} {known[key_id].hex()}\n" for key_id in key_ids))

    async def run(self, *words: str) -> int:
        """The exit status of a command."""
        async with self.process(*words) as running:
            async with asyncio.timeout(DEADLINE_S):
                return await running.wait()

    def process(self, *words: str) -> AbstractAsyncContextManager[Process]:
        """A command, for as long as the block is open."""
        return _process(self.folder, self.environment, words)

    async def healthy(self) -> bool:
        with suppress(httpx.TransportError):
            async with httpx.AsyncClient(trust_env=False) as client:
                return (await client.get(f"{self.url}/xrpc/_health")).status_code == 200
        return False

    async def scrape(self) -> None:
        async with httpx.AsyncClient(trust_env=False) as client:
            self.told.append((await client.get(f"http://127.0.0.1:{self.metrics_port}/metrics")).content)


def write_secret(file: Path, text: str) -> None:
    file.write_text(text)
    file.chmod(0o600)


@asynccontextmanager
async def _process(folder: Path, environment: dict[str, str], words: Sequence[str]) -> AsyncGenerator[Process]:
    """A process of ours; all that it says is appended to one log."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    with (folder / "log").open("ab") as log:
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *words),
            cwd=ROOT,
            env=inherited | WITHOUT_MODEL | environment,
            stdin=DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield running
    finally:
        with suppress(ProcessLookupError):
            running.terminate()
        await running.wait()


@asynccontextmanager
async def flow_at(database: Database, database_url: str, folder: Path) -> AsyncGenerator[Flow]:
    """The processes are not started yet."""
    port, metrics_port = free_port(), free_port()
    async with directory() as plc, space_world(now, directory=plc, seed=secrets.randbits(64)) as world:
        environment = {
            "DATABASE_URL": database_url,
            "SPACES_KEY_FILE": str(folder / "ring"),
            "SPACES_CLIENT_KEY_FILE": str(folder / "client.pem"),
            "APPVIEW_PUBLIC_URL": PUBLIC_URL,
            "APPVIEW_PORT": str(port),
            "APPVIEW_METRICS_PORT": str(metrics_port),
            "INDEXER_PLC_URL": plc.url,
            "INDEXER_HANDLE_RESOLVER": plc.url,
            "INDEXER_ALLOW_PRIVATE_ADDRESSES": "127.0.0.0/8",
        }
        flow = Flow(database, await world.host(), folder, environment, f"http://127.0.0.1:{port}")
        client_key = ec.generate_private_key(ec.SECP256R1())
        flow.sought.key("client key", client_key.private_numbers().private_value.to_bytes(32))
        pem = client_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_secret(folder / "client.pem", pem.decode())
        shown = Es256Key(client_key)
        world.clients[f"{PUBLIC_URL}/client-metadata.json"] = {shown.thumbprint: dict(shown.jwk)}
        world.services[SYNCER] = flow.url
        flow.write_ring("first")
        flow.metrics_port = metrics_port
        yield flow
        plc.release.set()
