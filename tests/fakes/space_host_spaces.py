"""Spaces as their host governs them: members, apps, the writers that it lists, and who is told of what is written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import urlsplit

from tests.fakes.space_bytes import to_json
from tests.fakes.space_host_tokens import (
    CREDENTIAL,
    CREDENTIAL_S,
    Refused,
    algorithm,
    judge_attestation,
    lasting,
    made_token,
    service_token,
)
from tests.fakes.space_host_world import Account, World

SUBSCRIBED_FOR: Final = timedelta(hours=24)
WRITE: Final = "com.atproto.space.notifyWrite"
DELETED: Final = "com.atproto.space.notifySpaceDeleted"

Admits = Callable[[str], bool]


@dataclass
class Space:
    """One Space. `members` may read and write, and so may its authority; `admits` instead says it of anybody."""

    uri: str
    authority: Account
    host: Governed = field(repr=False)
    members: set[str] = field(default_factory=set[str])
    admits: Admits | None = None
    apps: set[str] | None = None  # client ids; null: any app
    listing: dict[str, tuple[str, bytes]] = field(default_factory=dict[str, tuple[str, bytes]])  # DID → rev, hash
    subscribers: dict[str, datetime] = field(default_factory=dict[str, datetime])  # service → until when

    def __str__(self) -> str:
        return self.uri

    def admit(self, *members: Account) -> Space:
        self.members |= {member.did for member in members}
        return self

    def remove(self, member: Account) -> None:
        """No credential from now on, and no advance in the listing; what is listed stays, and stays readable."""
        self.members.discard(member.did)

    def is_open_to(self, did: str) -> bool:
        if self.admits is not None:
            return self.admits(did)
        return did == self.authority.did or did in self.members

    def say(self, author: Account, rev: str, digest: bytes) -> None:
        """Lists that and tells it to who subscribed, true or not: a false `notifyWrite`."""
        self.listing[author.did] = rev, digest
        self.tell(WRITE, {"space": self.uri, "repo": author.did, "rev": rev, "hash": to_json(digest)})

    def tell(self, method: str, body: dict[str, Any]) -> None:
        """One after another, once each, whatever they answer."""
        now = self.authority.world.clock()
        for service, until in self.subscribers.items():
            if until > now:
                self.host.bell.queue.put_nowait((self.authority, service, method, body))

    def delete(self) -> None:
        """Gone for good, with what the authority itself wrote in it; one of the same name is another Space."""
        self.host.spaces.pop(self.uri)
        self.host.deleted.add(self.uri)
        self.authority.repos.pop(self.uri, None)
        self.tell(DELETED, {"space": self.uri})


@dataclass(frozen=True, slots=True)
class Delivery:
    """One call to who subscribed. No status: no answer in time, or nobody there."""

    service: str
    method: str
    status: int | None


@dataclass
class Bell:
    """Calls those who subscribed, in the order of what happened. `ringing` is cleared to hold everything back."""

    world: World = field(repr=False)
    patience_s: float = 10.0
    queue: asyncio.Queue[tuple[Account, str, str, dict[str, Any]]] = field(default_factory=asyncio.Queue)
    ringing: asyncio.Event = field(default_factory=asyncio.Event)
    deliveries: list[Delivery] = field(default_factory=list[Delivery])

    def __post_init__(self) -> None:
        self.ringing.set()

    async def ring(self) -> None:
        """Until it is cancelled."""
        while True:
            authority, service, method, body = await self.queue.get()
            await self.ringing.wait()
            token = service_token(authority.key, authority.did, service, method, self.world.clock(), self.world.jti())
            status = await self.post(service, method, body, token)
            self.deliveries.append(Delivery(service, method, status))
            self.queue.task_done()

    async def post(self, service: str, method: str, body: dict[str, Any], token: str) -> int | None:
        """One call, with whatever token: also a forged one. The status that was answered."""
        url = urlsplit(self.world.services.get(service, ""))
        data = json.dumps(body, separators=(",", ":")).encode()
        head = [
            f"POST {url.path}/xrpc/{method} HTTP/1.1",
            f"host: {url.netloc}",
            "connection: close",
            f"authorization: Bearer {token}",
            "content-type: application/json",
            "accept: */*",
            f"content-length: {len(data)}",
        ]
        try:
            async with asyncio.timeout(self.patience_s):
                reader, writer = await asyncio.open_connection(url.hostname, url.port)
                try:
                    writer.write("\r\n".join([*head, "", ""]).encode() + data)
                    return int((await reader.readline()).split()[1])
                finally:
                    writer.close()
        except (OSError, IndexError, ValueError, TimeoutError):
            return None


@dataclass
class Governed:
    """The Spaces that a host governs, and its word on who may read them."""

    world: World = field(repr=False)
    bell: Bell
    spaces: dict[str, Space] = field(default_factory=dict[str, Space])
    deleted: set[str] = field(default_factory=set[str])
    burnt: set[str] = field(default_factory=set[str])  # `jti` of delegation tokens and attestations
    credential_header: dict[str, Any] = field(default_factory=dict[str, Any])  # changes to every credential
    credential_claims: dict[str, Any] = field(default_factory=dict[str, Any])
    credential_signer: Account | None = None

    def create(
        self,
        authority: Account,
        skey: str,
        space_type: str,
        *,
        members: Iterable[Account] = (),
        admits: Admits | None = None,
        apps: Iterable[str] | None = None,
    ) -> Space:
        uri = f"at://{authority.did}/space/{space_type}/{skey}"
        assert uri not in self.spaces, "it is there already"
        self.deleted.discard(uri)
        space = Space(uri, authority, self, admits=admits, apps=None if apps is None else set(apps))
        self.spaces[uri] = space.admit(*members)
        self.world.authorities[authority.did] = self
        return space

    def find(self, uri: str) -> Space:
        if uri not in self.spaces:
            raise Refused(400, "SpaceNotFound", "Space not found")
        return self.spaces[uri]

    def hear(self, space: str, author: str, rev: str, digest: bytes) -> bool:
        governed = self.spaces.get(space)
        if governed is None:
            if space.removeprefix("at://").partition("/")[0] == author:
                self.deleted.discard(space)  # as recorded: what the authority writes there wipes out the memory of it
            return False
        if not governed.is_open_to(author):
            return False
        governed.say(self.world.accounts[author], rev, digest)
        return True

    def credential(self, uri: str, user: str, attestation: str | None, jkt: str) -> str:
        """A credential for a user whose delegation token was burnt already."""
        if uri in self.deleted:
            raise Refused(400, "SpaceDeleted", "Space has been deleted")
        space = self.find(uri)
        app = None if attestation is None else self._attested(attestation, space.authority.did)
        if not space.is_open_to(user):
            raise Refused(400, "UserNotAuthorized", "User not authorized for this space")
        if space.apps is not None and app not in space.apps:
            raise Refused(400, "AppNotAuthorized", "Application not authorized for this space")
        return self.sign_credential(space, jkt)

    def sign_credential(self, space: Space, jkt: str) -> str:
        """A credential for whoever holds that key, with what is to be changed in every one."""
        by = self.credential_signer or space.authority
        signer = by.space_key or by.key
        kid = "#atproto" if by.space_key is None else "#atproto_space"
        claims = {"iss": space.authority.did, "sub": space.uri, "cnf": {"jkt": jkt}}
        claims |= lasting(self.world.clock(), CREDENTIAL_S) | {"jti": self.world.jti()}
        header = {"alg": algorithm(signer.did_key), "typ": CREDENTIAL, "kid": kid}
        return made_token(signer, header | self.credential_header, claims | self.credential_claims)

    def _attested(self, attestation: str, authority: str) -> str:
        token = judge_attestation(attestation, self.world.clients, authority, self.world.clock())
        client, jti = token.says("iss"), f"attestation {token.says('jti')}"
        if jti in self.burnt:
            message = f'Client attestation for "{client}" has already been used'
            raise Refused(400, "InvalidClientAttestation", message)
        self.burnt.add(jti)
        return client
