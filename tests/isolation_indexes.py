"""The indexes of tests of isolation: one that has everything, and one for each set of Spaces, which never had more.

async with indexes(cluster) as made:
    database, api = await made.make(seed, cast, None)          # everything
    _, twin = await made.make(seed, cast, readable)            # what one app may read
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import cast

import asyncpg

from appview.access import Access
from appview.issuers import Issuers
from appview.jwt import SignedToken
from appview.refusals import BadJwtSignature
from memory.cluster import Cluster
from memory.database import Database, open_database
from memory.signatures import parse_did_key
from tests.api_client import NOW, Api
from tests.conftest import TEMPLATE
from tests.embedding_double import Double
from tests.isolation import KEYS, SPACES, Cast, draw_rows, write_cast
from tests.meaning import embed_all, query_models
from tests.service_tokens import OWN_DID


class Known:
    """Issuers whose keys are known: nobody is looked up, so that nothing is learnt of them meanwhile."""

    async def require_signature(self, token: SignedToken, address: str) -> None:
        if not token.is_signed_by(parse_did_key(KEYS[token.issuer].did_key)):
            raise BadJwtSignature


@dataclass
class Indexes:
    """Databases of one test's own."""

    cluster: Cluster
    stack: AsyncExitStack
    names: list[str] = field(default_factory=list[str])

    async def make(self, seed: int, drawn: Cast, spaces: frozenset[str] | None) -> tuple[Database, Api]:
        """An index of everything, or of these Spaces and what is public."""
        name = f"test_{uuid.uuid4().hex}"
        await self.administer(f"create database {name} template {TEMPLATE} strategy file_copy")
        self.names.append(name)
        database = await self.stack.enter_async_context(
            open_database(self.cluster.url(name), application_name="tests", connections=2)
        )
        await draw_rows(seed, drawn, SPACES if spaces is None else spaces).write(database)
        await write_cast(database, drawn, spaces)
        double = Double()
        await embed_all(database, double, model=double.model)
        access = Access(database, cast("Issuers", Known()), own_did=OWN_DID, clock=lambda: NOW)
        return database, Api(database, access=access, query_models=query_models(double))

    async def administer(self, statement: str) -> None:
        admin = await asyncpg.connect(self.cluster.url("postgres"))
        await admin.execute(statement)
        await admin.close()


@asynccontextmanager
async def indexes(cluster: Cluster) -> AsyncGenerator[Indexes]:
    """Dropped at the end."""
    stack = AsyncExitStack()
    made = Indexes(cluster, stack)
    try:
        yield made
    finally:
        await stack.aclose()
        for name in made.names:
            await made.administer(f"drop database {name} with (force)")
