"""The indexes of tests of isolation: one that has everything, and one for each set of Spaces, which never had more.

async with indexes(cluster, seed, cast) as made:
    whole = await made.whole(opening)                 # everything; `opening`: what opens Spaces
    twin = await made.twin(readable)                  # what one app may read, made at first use
    await twin.know(token)                            # as the cast knows it, and it reads all that is here
    await whole.send("GET", path, headers=headers)
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, cast

import asyncpg
import httpx

from appview.access import Access
from appview.call import SpaceOpening
from appview.issuers import Issuers
from appview.jwt import SignedToken
from appview.refusals import BadJwtSignature
from appview.tokens import AccessToken
from memory.cluster import Cluster
from memory.database import Database, open_database
from memory.signatures import parse_did_key
from tests.api_client import Api
from tests.conftest import TEMPLATE
from tests.embedding_double import Double
from tests.isolation import KEYS, SPACES, Cast, draw_rows, keep_token, write_cast, write_readable
from tests.meaning import embed_all, query_models
from tests.service_tokens import OWN_DID


class Known:
    """Issuers whose keys are known: nobody is looked up, so that nothing is learnt of them meanwhile."""

    async def require_signature(self, token: SignedToken, address: str) -> None:
        key = KEYS.get(token.issuer)
        if key is None or not token.is_signed_by(parse_did_key(key.did_key)):
            raise BadJwtSignature


KNOWN: Final = cast("Issuers", Known())


class Index:
    """A database, and the API on it, whose clock is the cast's."""

    def __init__(self, database: Database, drawn: Cast, double: Double, opening: SpaceOpening | None = None) -> None:
        self.database = database
        self._cast = drawn
        self._double = double
        self._opening = opening
        self._access = Access(database, KNOWN, own_did=OWN_DID, clock=lambda: drawn.now)
        self._known: dict[str, datetime] = {}
        self._client: httpx.AsyncClient | None = None
        self._now = drawn.now

    async def send(self, verb: str, path: str, **more: Any) -> httpx.Response:
        """One raw request."""
        if self._client is None or self._now != self._cast.now:  # the clock of an `Api` stands still
            self._now = self._cast.now
            api = Api(
                self.database,
                now=self._now,
                access=self._access,
                query_models=query_models(self._double),
                opening=self._opening,
            )
            self._client = httpx.AsyncClient(transport=httpx.ASGITransport(app=api.app), base_url="http://api.test")
        return await self._client.request(verb, path, **more)

    async def embed(self) -> None:
        """Gives vectors to what has none."""
        await embed_all(self.database, self._double, model=self._double.model)

    async def know(self, token: AccessToken, spaces: frozenset[str]) -> None:
        """A token as it is kept now, or is no more; all of `spaces` may be read with it."""
        ends = self._cast.tokens[token.id][1] if token.id in self._cast.tokens else None
        if self._known.get(token.id) == ends:
            return
        async with self.database.transaction() as conn:
            await conn.execute("delete from access_tokens where id = $1", token.id)
            if ends is None:
                del self._known[token.id]
                return
            self._known[token.id] = ends
            await keep_token(conn, token, self._now, ends)
            await conn.execute(
                "insert into grants select $1, $2, s.space, $4, 'infinity' from unnest($3::text[]) s (space)"
                " on conflict do nothing",
                *(token.did, token.id, sorted(spaces), self._now),
            )


@dataclass
class Indexes:
    """Databases of one test's own."""

    cluster: Cluster
    seed: int
    cast: Cast
    stack: AsyncExitStack
    names: list[str] = field(default_factory=list[str])
    twins: dict[frozenset[str], Index] = field(default_factory=dict[frozenset[str], Index])
    double: Double = field(default_factory=Double)

    async def whole(self, opening: SpaceOpening) -> Index:
        """An index of everything."""
        database = await self._database()
        await draw_rows(self.seed, self.cast, SPACES).write(database)
        await write_cast(database, self.cast)
        index = Index(database, self.cast, self.double, opening)
        await index.embed()
        return index

    async def twin(self, spaces: frozenset[str]) -> Index:
        """An index of these Spaces and what is public."""
        if spaces not in self.twins:
            database = await self._database()
            await draw_rows(self.seed, self.cast, spaces).write(database)
            await write_readable(database, self.cast, spaces)
            self.twins[spaces] = Index(database, self.cast, self.double)
            await self.twins[spaces].embed()
        return self.twins[spaces]

    async def _database(self) -> Database:
        name = f"test_{uuid.uuid4().hex}"
        await self.administer(f"create database {name} template {TEMPLATE} strategy file_copy")
        self.names.append(name)
        return await self.stack.enter_async_context(
            open_database(self.cluster.url(name), application_name="tests", connections=2)
        )

    async def administer(self, statement: str) -> None:
        admin = await asyncpg.connect(self.cluster.url("postgres"))
        await admin.execute(statement)
        await admin.close()


@asynccontextmanager
async def indexes(cluster: Cluster, seed: int, drawn: Cast) -> AsyncGenerator[Indexes]:
    """Dropped at the end."""
    stack = AsyncExitStack()
    made = Indexes(cluster, seed, drawn, stack)
    try:
        yield made
    finally:
        await stack.aclose()
        for name in made.names:
            await made.administer(f"drop database {name} with (force)")
