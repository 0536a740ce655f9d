"""Mara, whom a directory knows, and all that looking her up takes."""

from __future__ import annotations

import hashlib
from base64 import b32encode
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from memory.database import Database
from memory.errors import Rejected, Unavailable
from memory.identity import Identity
from memory.outbound import Outbound
from memory.resolver import IdentityResolver, Resolved
from memory.store.identities import load_identities, store_identity
from memory.tasks import TaskGroup
from tests.fakes.directory import Directory, directory, document
from tests.fakes.internet import plain_outbound

KEY = "did:key:zQ3shSVq7cGySsLLdzyRsqagmVrYvnKop69VsMo2znNBeHzuV"
NEW_KEY = "did:key:zDnaeTiq1PdzvZXUaMdezchcMJQpBdH2VN4pgrrEhMCCbmwSb"
PDS = "https://pds.example"
START = datetime(2026, 3, 1, 12, tzinfo=UTC)
INSTANT = timedelta(microseconds=1)


def did_of(name: str) -> str:
    return f"did:plc:{b32encode(hashlib.sha256(name.encode()).digest())[:24].decode().lower()}"


MARA, NOOR = did_of("mara"), did_of("noor")


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


class Owners:
    """Whose handles are, as a test says."""

    def __init__(self) -> None:
        self.dids: dict[str, str] = {"mara.example": MARA}
        self.down = False

    async def owner(self, handle: str) -> str | None:
        if self.down:
            raise Unavailable
        return self.dids.get(handle)


class World:
    """A directory that knows Mara, and what is looked up there."""

    def __init__(self, fake: Directory, database: Database, outbound: Outbound, tasks: TaskGroup) -> None:
        self.fake = fake
        self.database = database
        self.outbound = outbound
        self.tasks = tasks
        self.clock = Clock()
        self.owners = Owners()
        self.fake.documents[MARA] = mara_document()
        self.resolver = self.restarted()

    def restarted(
        self, *, plc_url: str | None = None, capacity: int = 1000, max_look_ups: int = 1000
    ) -> IdentityResolver:
        """A resolver that remembers nothing but what is in the database."""
        return IdentityResolver(
            self.outbound,
            self.owners,
            self.database,
            self.tasks,
            plc_url=plc_url or self.fake.url,
            clock=self.clock,
            capacity=capacity,
            max_look_ups=max_look_ups,
        )

    def wait(self, time: timedelta) -> None:
        self.clock.now += time

    async def stored(self, *dids: str) -> list[Identity]:
        async with self.database.connection() as conn:
            return await load_identities(conn, dids or (MARA,))

    async def store(self, identity: Identity) -> None:
        async with self.database.connection() as conn:
            await store_identity(conn, identity)


@asynccontextmanager
async def world_at(database: Database) -> AsyncGenerator[World]:
    async with directory() as fake, plain_outbound() as outbound, TaskGroup() as tasks:
        yield World(fake, database, outbound, tasks)
        fake.release.set()


def mara_document(**changes: str) -> dict[str, Any]:
    return document(MARA, **{"handle": "mara.example", "pds": PDS, "key": KEY} | changes)


def mara(resolved_at: datetime = START, **changes: Any) -> Identity:
    known = Identity(MARA, "mara.example", PDS, KEY, tombstoned=False, resolved_at=resolved_at)
    return replace(known, **changes)


async def failing(look_up: Awaitable[Resolved]) -> Rejected | Unavailable:
    with pytest.raises((Rejected, Unavailable)) as caught:
        await look_up
    assert isinstance(caught.value, Rejected | Unavailable)
    return caught.value
