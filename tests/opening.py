"""Noor's Space at a Space host on loopback, and Mara's apps, which open it at the API as clients do.

async with doors(database) as door:
    made = await door.open()                                     # as Mara, by service auth
    await door.open(token=made["accessToken"])                   # again, with that
    refused = await door.refuse(door.lukas)
    door.world.wait(timedelta(hours=2))
"""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from appview.access import Access
from appview.call import SpaceOpening
from appview.faces.xrpc import PREFIX
from appview.issuers import Issuers, LookUpBudget
from appview.rates import Rates
from appview.spaces.attestation import ClientAttestation
from appview.spaces.exchange import Exchange
from memory.database import Database
from memory.sealed import SealingKeys
from memory.space_authorities import SpaceAuthorities
from tests.api_client import NAMESPACE, Api, Refused, checked, refused
from tests.fakes.identities import World, world_at
from tests.fakes.space_host import SpaceHost, SpaceWorld, space_world
from tests.fakes.space_host_tokens import made_token
from tests.fakes.space_host_world import Account
from tests.service_tokens import ALGORITHMS, OWN_DID, claims


class Door:
    """Mara is a member of Noor's Space, and Lukas is not."""

    def __init__(self, world: World, database: Database, spaces: SpaceWorld, host: SpaceHost) -> None:
        self.world = world
        self.database = database
        self.spaces = spaces
        self.host = host
        self.noor, self.mara, self.lukas = (host.add(name) for name in ("noor", "mara", "lukas"))
        self.space = host.create_space(self.noor, "main", self.mara)
        self.draw = random.Random(5)
        self.keys = SealingKeys({"first": self.draw.randbytes(32)}, random_bytes=self.draw.randbytes)
        self.issuers = Issuers(world.resolver, LookUpBudget(lambda: 0.0))
        self.authorities = SpaceAuthorities(world.outbound, plc_url=world.fake.url, clock=world.clock)
        self.client: ClientAttestation | None = None
        self.configured = True
        self.viewers, self.of_authorities = Rates(limit=0, clock=world.clock), Rates(limit=0, clock=world.clock)

    @property
    def opening(self) -> SpaceOpening | None:
        if not self.configured:
            return None
        exchange = Exchange(
            self.world.outbound,
            self.authorities,
            client=self.client,
            clock=self.world.clock,
            random_bytes=self.draw.randbytes,
        )
        return SpaceOpening(self.issuers, exchange, self.keys, self.viewers, self.of_authorities)

    @property
    def api(self) -> Api:
        """The API as it is at this time."""
        access = Access(self.database, self.issuers, own_did=OWN_DID, clock=self.world.clock)
        return Api(self.database, now=self.world.clock(), access=access, opening=self.opening, client=self.client)

    def service_auth(self, method: str, account: Account | None = None, **changes: Any) -> str:
        account = account or self.mara
        said = claims(account.did, self.world.clock(), lxm=NAMESPACE + method, jti=self.spaces.jti())
        header = {"typ": "JWT", "alg": ALGORITHMS["k256"]}
        return made_token(account.key, header, said | changes)

    async def send(
        self, method: str, credential: str | None, body: dict[str, Any] | None = None, **query: str
    ) -> httpx.Response:
        """A POST if there is a body."""
        headers = {} if credential is None else {"authorization": f"Bearer {credential}"}
        more: dict[str, Any] = {"params": query} if body is None else {"json": body}
        verb = "GET" if body is None else "POST"
        return await self.api.send(verb, PREFIX + NAMESPACE + method, headers=headers, **more)

    async def ask_to_open(
        self, account: Account | None = None, *, token: str | None = None, space: object = None, **body: Any
    ) -> httpx.Response:
        """`openSpace`, as an app of that account's would ask; `body` may have another delegation token."""
        account, space = account or self.mara, space or self.space
        given = {"space": str(space), "delegationToken": account.delegation(space)} | body
        return await self.send("openSpace", token or self.service_auth("openSpace", account), given)

    async def open(self, account: Account | None = None, **asked: Any) -> dict[str, Any]:
        response = await self.ask_to_open(account, **asked)
        assert response.status_code == 200, response.text
        return checked("openSpace", response)

    async def refuse(self, account: Account | None = None, **asked: Any) -> Refused:
        return refused(await self.ask_to_open(account, **asked))

    async def token(self, account: Account | None = None, **asked: Any) -> str:
        """A new access token, which reads nothing private yet."""
        credential = self.service_auth("createAccessToken", account)
        return (await self.send("createAccessToken", credential, {"name": "x"} | asked)).json()["accessToken"]

    async def grants(self, token: str) -> list[tuple[str, str]]:
        """The Spaces that a token has, with how they are."""
        response = await self.send("listGrants", token)
        assert response.status_code == 200, response.text
        return [(grant["space"], grant["status"]) for grant in checked("listGrants", response)["grants"]]

    async def reads(self, token: str, space: object = None) -> str | None:
        """By what name it is refused to read the Space with a token; null: it is not."""
        response = await self.send("listRecords", token, space=str(space or self.space))
        return None if response.status_code == 200 else refused(response).error


@asynccontextmanager
async def doors(database: Database) -> AsyncGenerator[Door]:
    """A world with all of them."""
    async with world_at(database) as world, space_world(clock=world.clock, directory=world.fake) as spaces:
        yield Door(world, database, spaces, await spaces.host())
