"""Whatever is written, masked and purged, and wherever workers die: in the end every memory has the vectors of its
content, and nothing is left of what is gone.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, cast

from indexer.arrivals import IdentityResolved, RestoreOrdered, TakedownOrdered
from indexer.embed import ModelCare, OpenedModels
from indexer.store import embedding_models
from memory.database import Database
from memory.embedding import Absent
from memory.identifiers import COLLECTION
from memory.queries import Connection, Isolation
from tests.builders import RepoBuilder, memory
from tests.embedding_double import Double, add, assert_embedded, lapse_leases, work_off, worker_of
from tests.feed import Feed, rkey

HISTORIES = int(os.environ.get("TEST_EMBEDDING_HISTORIES", "12"))
ROUNDS = 25
RKEYS = [rkey(number) for number in range(6)]
CONTENTS = ["tea", "coffee", "jazz", "日本語のメモ", "Nothing in particular, and that at length. " * 40]


class Killed(Exception):
    """The worker died."""


class MortalConnection:
    """A connection whose user dies at some word."""

    def __init__(self, conn: Any, mortal: Mortal) -> None:
        self._conn = conn
        self._mortal = mortal

    def __getattr__(self, name: str) -> Any:
        self._mortal.word()
        return getattr(self._conn, name)


class Mortal(Database):
    """A database whose user dies at the nth word: a statement, a begin, a commit, and after each."""

    words_left = 0

    def word(self) -> None:
        Mortal.words_left -= 1
        if Mortal.words_left == 0:
            raise Killed

    @asynccontextmanager
    async def connection(self) -> AsyncGenerator[Connection]:
        async with Database(self.pool).connection() as conn:
            yield cast("Connection", MortalConnection(conn, self))
        self.word()

    @asynccontextmanager
    async def transaction(
        self, *, isolation: Isolation | None = None, readonly: bool = False
    ) -> AsyncGenerator[Connection]:
        async with Database(self.pool).transaction(isolation=isolation, readonly=readonly) as conn:
            yield cast("Connection", MortalConnection(conn, self))
            self.word()
        self.word()


class History:
    """Some people who write, and workers who die, on one database."""

    def __init__(self, database: Database, draw: random.Random, name: str) -> None:
        self.database = database
        self.draw = draw
        self.feed = Feed(database)
        self.people = [self.feed.account(f"{name} {number}") for number in range(3)]
        self.models = {"a": Double(f"{name} a"), "b": Double(f"{name} b", gives=5)}
        for double in self.models.values():
            double.meanwhile = self.meanwhile

    async def meanwhile(self) -> None:
        """While a worker embeds: nothing, a write, or its death."""
        if self.draw.random() < 0.3:
            await self.write()
        if self.draw.random() < 0.1:
            raise Killed

    async def write(self) -> None:
        """A batch of somebody's."""
        person = self.draw.choice(self.people)
        frames: list[bytes] = []
        for chosen in self.draw.sample(RKEYS, self.draw.choice((1, 2, 4))):
            if f"{COLLECTION}/{chosen}" not in person.records:
                frames.append(person.create(chosen, self.record(person)))
            elif self.draw.random() < 0.4:
                frames.append(person.delete(chosen))
            else:
                frames.append(person.update(chosen, self.record(person)))
        await self.feed.send(*frames, cut=self.draw.choice((1, 4)))

    def record(self, person: RepoBuilder) -> dict[str, Any]:
        more: dict[str, Any] = {}
        if self.draw.random() < 0.4:
            more["supersedes"] = [f"at://{person.did}/{COLLECTION}/{self.draw.choice(RKEYS)}"]
        if self.draw.random() < 0.1:
            more["kind"] = 7  # invalid
        return memory(f"{self.draw.choice(CONTENTS)} {self.draw.randrange(3)}", **more)

    async def purge(self) -> None:
        """A takedown of a record or of a repo, lifted or not; a deleted account is another's place."""
        person, feed = self.draw.choice(self.people), self.feed
        match self.draw.randrange(4):
            case 0:
                await feed.write(TakedownOrdered(feed.place(), person.did, self.draw.choice(RKEYS)))
            case 1:
                await feed.write(TakedownOrdered(feed.place(), person.did, None))
                await feed.write(RestoreOrdered(feed.place(), person.did, None))
            case 2:
                buried = feed.directory.bury(person, feed.clock + timedelta(seconds=1))
                await feed.write(IdentityResolved(feed.place(), buried))
                self.people.remove(person)
                self.people.append(feed.account(f"{person.did} {len(feed.directory.identities)}"))
            case _:
                await lapse_leases(self.database)

    async def change_models(self) -> None:
        """One is added, dropped, or has to serve."""
        chosen = self.draw.choice(list(self.models.values()))
        match self.draw.randrange(3):
            case 0:
                await add(self.database, chosen)
            case 1:
                async with self.database.connection() as conn:
                    await embedding_models.leave_model(conn, chosen.model)
            case _:
                async with self.database.transaction() as conn:
                    await embedding_models.serve_model(conn, chosen.model)

    async def work(self) -> None:
        """A worker lives for some words."""
        worker = worker_of(Mortal(self.database.pool), *self.models.values())
        Mortal.words_left = self.draw.randrange(1, 60)
        try:
            for _ in range(self.draw.randrange(1, 8)):
                await worker.step()
        except Killed:
            pass
        Mortal.words_left = 0

    async def play(self) -> None:
        """All of it, in any order, and some at once."""
        for _ in range(ROUNDS):
            for act in self.draw.sample([self.write, self.work, self.purge, self.work, self.change_models], 3):
                if act == self.write and self.draw.random() < 0.5:
                    await asyncio.gather(self.write(), self.work())
                else:
                    await act()

    async def end(self) -> None:
        """What is left to be done, by a worker who lives."""
        for double in self.models.values():
            double.meanwhile = rest
        there = {double.model: double for double in self.models.values()}

        async def opened(model: str | None) -> Double | Absent:
            return there.get(model or "") or Absent("it is another's")

        care = ModelCare(self.database, OpenedModels(opened))
        await lapse_leases(self.database)
        worker = worker_of(self.database, *self.models.values())
        async with self.database.connection() as conn:
            kept = await embedding_models.load_models(conn)
        if not kept:
            await add(self.database, self.models["a"])
        await care.keep_indexes(kept)
        await work_off(self.database, worker, 2000)
        async with self.database.connection() as conn:
            kept = [each.model for each in await embedding_models.load_models(conn)]
        await assert_embedded(self.database, *(double for double in self.models.values() if double.model in kept))


async def rest() -> None:
    await asyncio.sleep(0)


async def test_in_the_end_every_memory_has_its_vectors_and_nothing_else_has_any(database: Database, seed: int):
    for number in range(HISTORIES):
        history = History(database, random.Random(f"{seed} {number}"), f"{number}")
        async with database.connection() as conn:
            for table in ("embedding_models", "embeddings", "embedding_requests"):
                await conn.execute(f"delete from {table}")
        await add(database, history.models["a"])
        await history.play()
        await history.end()
