"""People with accounts at a real PDS, and all that they and their operators can do there."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from memory.identifiers import COLLECTION
from tests.e2e.servers import Pds

PASSWORD = "only for tests"


@dataclass
class Account:
    """One account, signed in at the PDS that hosts it."""

    pds: Pds
    did: str
    handle: str
    email: str
    token: str
    retired: list[Pds] = field(default_factory=list[Pds])  # that hosted it before

    # Records

    async def create(self, record: Mapping[str, Any], rkey: str | None = None, collection: str = COLLECTION) -> str:
        """Writes a new record; its rkey."""
        named = {} if rkey is None else {"rkey": rkey}
        body = {"repo": self.did, "collection": collection, "record": record, "validate": False, **named}
        return (await self._call("com.atproto.repo.createRecord", body))["uri"].rpartition("/")[2]

    async def put(self, rkey: str, record: Mapping[str, Any]) -> None:
        """Writes a record over the one that is there, or anew."""
        body = {"repo": self.did, "collection": COLLECTION, "rkey": rkey, "record": record, "validate": False}
        await self._call("com.atproto.repo.putRecord", body)

    async def delete(self, rkey: str) -> None:
        """Deletes a record."""
        await self._call("com.atproto.repo.deleteRecord", {"repo": self.did, "collection": COLLECTION, "rkey": rkey})

    async def apply(self, writes: Sequence[Mapping[str, Any]]) -> None:
        """Several writes in one commit, of `create_of`, `update_of` and `delete_of`."""
        await self._call("com.atproto.repo.applyWrites", {"repo": self.did, "validate": False, "writes": list(writes)})

    # The account

    async def sign_in(self) -> None:
        """A new session."""
        body = {"identifier": self.did, "password": PASSWORD}
        self.token = (await self._call("com.atproto.server.createSession", body, token=None))["accessJwt"]

    async def service_auth(self, audience: str, method: str | None) -> str:
        """A token by which its PDS says to a service that this account asks; without a method, for any."""
        parameters = {"aud": audience, "lxm": method or ""}
        return str((await self._ask("com.atproto.server.getServiceAuth", parameters)).json()["token"])

    async def deactivate(self) -> None:
        await self._call("com.atproto.server.deactivateAccount", {})

    async def activate(self) -> None:
        await self._call("com.atproto.server.activateAccount", None)

    async def rename(self, handle: str) -> None:
        """Another handle."""
        await self._call("com.atproto.identity.updateHandle", {"handle": handle})
        self.handle = handle

    async def move(self, to: Pds) -> None:
        """To another PDS, in the way that people move, which gives it another key and handle there."""
        old = Account(self.pds, self.did, self.handle, self.email, self.token)
        pass_over = await old.service_auth(_service_did(to), "com.atproto.server.createAccount")
        self.handle = f"{secrets.token_hex(6)}.{to.domain}"
        body = {"did": self.did, "handle": self.handle, "email": self.email, "password": PASSWORD}
        self.pds, self.retired = to, [*self.retired, old.pds]
        self.token = (await self._call("com.atproto.server.createAccount", body, token=pass_over))["accessJwt"]
        await self._send("com.atproto.repo.importRepo", await old.repo(), "application/vnd.ipld.car")
        wanted = (await self._ask("com.atproto.identity.getRecommendedDidCredentials", {})).json()
        await old._call("com.atproto.identity.requestPlcOperationSignature", None)
        signed = {"token": old.pds.mailed_token(self.did), **wanted}
        operation = await old._call("com.atproto.identity.signPlcOperation", signed)
        await self._call("com.atproto.identity.submitPlcOperation", operation)
        await self.activate()
        await old.deactivate()

    # What the PDS's operator does

    async def take_down(self) -> None:
        await self._set_taken_down(True)

    async def restore(self) -> None:
        await self._set_taken_down(False)
        await self.sign_in()

    async def delete_account(self) -> None:
        """For good."""
        await self._call("com.atproto.admin.deleteAccount", {"did": self.did}, as_operator=True)

    async def _set_taken_down(self, applied: bool) -> None:
        subject = {"$type": "com.atproto.admin.defs#repoRef", "did": self.did}
        body = {"subject": subject, "takedown": {"applied": applied}}
        await self._call("com.atproto.admin.updateSubjectStatus", body, as_operator=True)

    # What anyone can ask

    async def is_active(self) -> bool:
        """Whether its PDS serves it now."""
        async with httpx.AsyncClient(base_url=self.pds.inside) as client:
            answer = await client.get("/xrpc/com.atproto.sync.getRepoStatus", params={"did": self.did})
        return answer.is_success and answer.json()["active"]

    async def records(self) -> dict[str, tuple[str, Any]]:
        """Rkey → (CID, value) of the memories that its PDS holds."""
        held: dict[str, tuple[str, Any]] = {}
        page: dict[str, Any] = {"cursor": ""}
        while "cursor" in page:
            parameters = {"repo": self.did, "collection": COLLECTION, "limit": "100", "cursor": page["cursor"]}
            page = (await self._ask("com.atproto.repo.listRecords", parameters)).json()
            held |= {each["uri"].rpartition("/")[2]: (each["cid"], each["value"]) for each in page["records"]}
        return held

    async def repo(self) -> bytes:
        """The whole repo, as a CAR."""
        return (await self._ask("com.atproto.sync.getRepo", {"did": self.did})).content

    async def _ask(self, method: str, parameters: Mapping[str, str]) -> httpx.Response:
        async with self._client(self.token) as client:
            return _good(await client.get(f"/xrpc/{method}", params={k: v for k, v in parameters.items() if v}))

    async def _call(
        self, method: str, body: Mapping[str, Any] | None, *, token: str | None = "", as_operator: bool = False
    ) -> dict[str, Any]:
        async with self._client(self.token if token == "" else token) as client:
            if as_operator:
                operator = httpx.BasicAuth("admin", self.pds.admin_password)
                answer = await client.post(f"/xrpc/{method}", json=body, auth=operator)
            else:
                answer = await client.post(f"/xrpc/{method}", json=body)
        return _good(answer).json() if answer.content else {}

    async def _send(self, method: str, content: bytes, kind: str) -> None:
        async with self._client(self.token) as client:
            _good(await client.post(f"/xrpc/{method}", content=content, headers={"Content-Type": kind}))

    def _client(self, token: str | None) -> httpx.AsyncClient:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return httpx.AsyncClient(base_url=self.pds.inside, headers=headers, timeout=30)


async def new_account(pds: Pds) -> Account:
    """Someone new, with a handle that nobody had."""
    handle = f"{secrets.token_hex(6)}.{pds.domain}"
    account = Account(pds, "", handle, f"{handle}@example.test", "")
    body = {"handle": handle, "email": account.email, "password": PASSWORD}
    created = await account._call("com.atproto.server.createAccount", body, token=None)
    account.did, account.token = created["did"], created["accessJwt"]
    return account


def create_of(rkey: str, record: Mapping[str, Any], collection: str = COLLECTION) -> dict[str, Any]:
    return _write("create", rkey, collection) | {"value": record}


def update_of(rkey: str, record: Mapping[str, Any]) -> dict[str, Any]:
    return _write("update", rkey, COLLECTION) | {"value": record}


def delete_of(rkey: str) -> dict[str, Any]:
    return _write("delete", rkey, COLLECTION)


def _write(action: str, rkey: str, collection: str) -> dict[str, Any]:
    return {"$type": f"com.atproto.repo.applyWrites#{action}", "collection": collection, "rkey": rkey}


def _service_did(pds: Pds) -> str:
    return f"did:web:{pds.folder.name}.test"


def _good(answer: httpx.Response) -> httpx.Response:
    assert answer.is_success, f"{answer.request.url}: {answer.status_code} {answer.text}"
    return answer
