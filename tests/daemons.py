"""Whole daemons in this process, impatient ones, and what they leave in the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from indexer import live
from indexer.arrivals import Source
from indexer.follower import Patience
from indexer.live import Daemon
from indexer.metrics import IndexerMetrics
from indexer.socket import Liveness
from memory.database import Database
from memory.identity import Identity
from memory.queries import Row
from memory.store.identities import store_identity
from tests.builders import START, RepoBuilder
from tests.deadline import until
from tests.fakes.directory import Directory, document
from tests.fakes.internet import LOOPBACK
from tests.feed import LIMITS

IMPATIENT = Patience(
    lease_renewal_s=0.1,
    back_off_first_s=0.01,
    back_off_max_s=0.05,
    stopped_poll_s=0.02,
    liveness=Liveness(ping_interval_s=0.1),  # and no connection is lost while the machine has something else to do
)
NOWHERE = "http://127.0.0.1:1"


class Clock:
    """The time of day as a test sets it."""

    def __init__(self) -> None:
        self.now = START + timedelta(hours=1)

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Running:
    """A daemon that runs."""

    database: Database
    metrics: IndexerMetrics
    clock: Clock
    task: asyncio.Task[None]

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0

    async def until(self, query: str, *arguments: object, is_: Any) -> None:
        """Waits until a query's first value is that; a daemon that dies meanwhile raises what it died of."""

        async def ask() -> Any:
            if self.task.done():
                self.task.result()
            async with self.database.connection() as conn:
                return await conn.fetchval(query, *arguments)

        await until(ask, lambda value: value == is_)

    async def until_true(self, condition: Callable[[], bool]) -> None:
        async def ask() -> bool:
            if self.task.done():
                self.task.result()
            return condition()

        await until(ask)

    async def until_memories(self, builder: RepoBuilder, *contents: str) -> None:
        """Waits until these are the builder's memories, in the order of their rkeys."""
        query = "select coalesce(array_agg(content order by rkey), '{}') from memories where repo = $1"
        await self.until(query, builder.did, is_=list(contents))

    async def until_cursor(self, source: Source, seq: int) -> None:
        await self.until("select seq from sources where source = $1", source.url, is_=seq)

    async def rows(self, query: str, *arguments: object) -> list[Row]:
        async with self.database.connection() as conn:
            return await conn.fetch(query, *arguments)

    async def value(self, query: str, *arguments: object) -> Any:
        async with self.database.connection() as conn:
            return await conn.fetchval(query, *arguments)

    async def repo(self, builder: RepoBuilder) -> Row:
        [row] = await self.rows("select * from repos where repo = $1", builder.did)
        return row


@asynccontextmanager
async def daemon(
    database: Database,
    *sources: Source,
    plc_url: str = NOWHERE,
    handles_url: str | None = None,
    clock: Clock | None = None,
    patience: Patience = IMPATIENT,
    health: tuple[str, int] | None = None,
    batch_events: int = 500,
) -> AsyncGenerator[Running]:
    """A daemon that follows `sources` until the end of the block, and then is stopped regularly."""
    clock = clock or Clock()
    metrics = IndexerMetrics()
    what = Daemon(
        sources=sources,
        plc_url=plc_url,
        handle_resolvers=(handles_url or plc_url,),
        private_networks=LOOPBACK,
        admits=lambda _: True,
        limits=LIMITS,
        batch_events=batch_events,
        version_content=timedelta(days=30),
        deletions_kept=timedelta(days=90),
        health=health,
        clock=clock,
        patience=patience,
    )
    task = asyncio.create_task(live.run(what, lambda: nullcontext(database), metrics))
    try:
        yield Running(database, metrics, clock, task)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def know(database: Database, *builders: RepoBuilder, at: datetime = START) -> None:
    """Their identities were looked up at that time."""
    async with database.connection() as conn:
        for builder in builders:
            await store_identity(conn, identity_of(builder, at))


def identity_of(builder: RepoBuilder, at: datetime = START) -> Identity:
    return Identity(builder.did, builder.handle, builder.host, builder.did_key, tombstoned=False, resolved_at=at)


def register(fake: Directory, *builders: RepoBuilder) -> None:
    """The directory knows them, as they are now."""
    for builder in builders:
        fake.documents[builder.did] = document(
            builder.did, handle=builder.handle, pds=builder.host, key=builder.did_key
        )
        fake.handles[builder.handle] = builder.did
