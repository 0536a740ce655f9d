"""Somebody who reads Spaces by hand, to see what a Space host of our tests does.

async with space_reader(clock) as mara:
    answer = await mara.exchange(home, space, bob.delegation(space))
    credential = await mara.credential(home, space, bob)
    answer = await mara.read(away, "getRepo", credential, space=space, repo=bob.did)
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import httpx
import libipld

from tests.fakes.space_bytes import Cid, commit_context, hash_of, signed_commit
from tests.fakes.space_host import SpaceHost
from tests.fakes.space_host_tokens import DpopKey, verifies
from tests.fakes.space_host_world import Account
from tests.space_replay import car_sections

NAMESPACE = "com.atproto.space."


@dataclass
class SpaceReader:
    """A DPoP key, and what is asked with it."""

    client: httpx.AsyncClient
    clock: Callable[[], datetime]
    key: DpopKey = field(default_factory=lambda: DpopKey("mara"))

    async def exchange(
        self, host: SpaceHost, space: object, delegation: str, *, attestation: str | None = None, **changes: Any
    ) -> httpx.Response:
        """Asks for a credential; `changes` are of the proof."""
        body = {"space": str(space)} | ({} if attestation is None else {"clientAttestation": attestation})
        return await self._post(host, "getSpaceCredential", f"Bearer {delegation}", None, body, **changes)

    async def credential(self, host: SpaceHost, space: object, user: Account) -> str:
        answer = await self.exchange(host, space, user.delegation(space))
        assert answer.status_code == 200, answer.text
        return answer.json()["credential"]

    async def read(self, host: SpaceHost, method: str, credential: str, **parameters: object) -> httpx.Response:
        """A read with a good proof."""
        given = {name: str(value) for name, value in parameters.items()}
        return await self.client.get(
            _url(host, method), params=given, headers=self.headers(host, "GET", method, credential)
        )

    async def write(self, host: SpaceHost, method: str, credential: str, **body: object) -> httpx.Response:
        """A procedure, with a good proof."""
        given = {name: str(value) for name, value in body.items()}
        return await self._post(host, method, f"DPoP {credential}", credential, given)

    def headers(self, host: SpaceHost, verb: str, method: str, credential: str, **changes: Any) -> dict[str, str]:
        proof = self.key.proof(verb, f"{host.url}/xrpc/{NAMESPACE}{method}", self.clock(), credential, **changes)
        return {"authorization": f"DPoP {credential}", "dpop": proof}

    async def _post(
        self, host: SpaceHost, method: str, authorization: str, credential: str | None, body: Any, **changes: Any
    ) -> httpx.Response:
        proof = self.key.proof("POST", f"{host.url}/xrpc/{NAMESPACE}{method}", self.clock(), credential, **changes)
        headers = {"authorization": authorization, "dpop": proof, "content-type": "application/json"}
        return await self.client.post(_url(host, method), content=json.dumps(body).encode(), headers=headers)


@dataclass(frozen=True, slots=True)
class ReadRepo:
    """A CAR of `getRepo` taken apart, believing nothing."""

    commit: dict[str, Any]
    index: dict[str, bytes]
    blocks: list[tuple[bytes, bytes]]

    @property
    def is_whole(self) -> bool:
        """Whether the index is what the commit says it is."""
        return hash_of(self.index) == self.commit["hash"]


def read_repo(data: bytes) -> ReadRepo:
    _, commit, index, *others = car_sections(data)
    listed = libipld.decode_dag_cbor(index[36:])
    return ReadRepo(
        libipld.decode_dag_cbor(commit[36:]),
        {path: Cid(cid) for path, cid in listed.items()},
        [(section[:36], section[36:]) for section in others],
    )


def is_signed(commit: dict[str, Any], space: object, author: Account) -> bool:
    """By the key that the author's document shows."""
    context = commit_context(str(space), author.did, commit["rev"], commit["ikm"])
    return verifies(author.keys["#atproto"], context, commit["sig"])


def has_true_mac(commit: dict[str, Any], space: object, author: Account) -> bool:
    again = signed_commit(author.key, str(space), author.did, commit["rev"], digest=commit["hash"], ikm=commit["ikm"])
    return again["mac"] == commit["mac"]


@asynccontextmanager
async def space_reader(clock: Callable[[], datetime]) -> AsyncGenerator[SpaceReader]:
    async with httpx.AsyncClient(trust_env=False) as client:
        yield SpaceReader(client, clock)


def _url(host: SpaceHost, method: str) -> str:
    return f"http://127.0.0.1:{host.port}/xrpc/{NAMESPACE}{method}"
