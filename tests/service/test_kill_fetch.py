"""Kill -9 at any word to the database while repos are fetched loses nothing and doubles nothing."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from memory.database import Database
from tests.builders import RepoBuilder
from tests.builders import memory as memory_at
from tests.fakes.pds import Fault
from tests.feed import rkey
from tests.mending import Mending, mending, tables

POINTS = int(os.environ.get("TEST_KILL_POINTS", "20"))
LONG_SINCE = "2026-09-01T00:00:00.000Z"  # so that masks do not tell when it was indexed
TABLES = (
    "memories, memory_edges, memory_versions, invalid_records, repos, identities, account_status, requests, sources,"
    " rejections, parked_commits"
)


def memory(content: str) -> dict[str, Any]:
    return memory_at(content, LONG_SINCE)


class Play:
    """Four repos of which as much is known as can be, all to be fetched, and what comes live of them meanwhile."""

    def __init__(self, world: Mending) -> None:
        self._world = world
        self.people: list[RepoBuilder] = []
        self.live: list[list[bytes]] = []

    async def begin(self) -> None:
        """As it is before the fetches."""
        world = self._world
        async with world.database.connection() as conn:
            await conn.execute(f"truncate {TABLES}")
        world.pds.repos.clear()
        world.pds.asked.clear()
        world.pds.release.clear()
        world.pds.misbehave(Fault.STALLED, "getRepo")
        world.tracked.clear()
        self.people = [await self._known(known) for known in ("whole", "middle", "lost", "nothing")]
        await world.value("delete from requests")
        for person in self.people:
            for number in range(4, 12):
                person.create(rkey(number), memory(f"{number}"))
            person.delete(rkey(0))
            person.update(rkey(1), memory("changed"))
        await world.ask(*self.people)
        self.live = []

    async def _known(self, known: str) -> RepoBuilder:
        person = self._world.account(known)
        frames = person.genesis()
        frames += [person.create(rkey(number), memory(f"{number}")) for number in range(4)]
        match known:
            case "whole":
                await self._world.live(*frames)
            case "middle":
                await self._world.live(frames[-1])
            case "lost":
                await self._world.live(*frames[:-2], frames[-1])
            case _:
                pass
        return person

    async def meanwhile(self) -> None:
        """Once all are read: what comes live, in two batches; then the rest of them is sent."""
        pds = self._world.pds
        await pds.until_asked("getRepo", len(self.people))
        await self.send()
        pds.release.set()

    async def send(self) -> None:
        """All that is not sent yet."""
        if not self.live:
            self.live = [
                [person.create(rkey(number), memory(f"{number}")) for number in (20, 21, 22)] for person in self.people
            ]
        for frames in self.live:
            for frame in frames:
                await self._world.live(frame)

    async def end(self) -> None:
        """What was killed is taken over by another."""
        world = self._world
        world.pds.misbehave(None, "getRepo")
        world.pds.release.set()
        await self.send()
        world.clock.advance(minutes=3)
        world.start()
        await world.pass_time_until_answered(*self.people)
        await world.stop()

    async def held(self) -> list[dict[str, list[tuple[Any, ...]]]]:
        """Everything but what tells which commit brought it."""
        found = [await tables(self._world.database, person.did) for person in self.people]
        for each in found:
            each["memories"] = [row[:2] + row[3:] for row in each["memories"]]
        return found


async def run(url: str, kill_at: int, world: Mending, play: Play) -> tuple[int, str]:
    """The exit status of a worker that is killed at that word, and what it printed."""
    arguments = [url, str(kill_at), world.directory.url, world.clock.now.isoformat()]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.service.fetch_killed", *arguments, stdout=asyncio.subprocess.PIPE
    )
    meanwhile, ended = asyncio.create_task(play.meanwhile()), asyncio.create_task(process.communicate())
    await asyncio.wait([meanwhile, ended], return_when=asyncio.FIRST_COMPLETED)
    if not ended.done() and meanwhile.exception() is not None:  # it waits for what does not come
        process.kill()
    output, _ = await ended
    meanwhile.cancel()
    with suppress(asyncio.CancelledError):
        await meanwhile
    assert process.returncode is not None
    return process.returncode, output.decode().splitlines()[-1] if output else ""


async def test_killed_fetches_are_taken_over_without_loss_or_repetition(
    database: Database, database_url: str, seed: int
):
    async with mending(database) as world:
        play = Play(world)
        await play.begin()
        status, words = await run(database_url, 0, world, play)
        assert status == 0
        whole = await play.held()
        assert_whole(whole)
        draw, killed, lived, fewest = random.Random(seed), 0, 0, int(words)
        while killed < POINTS:
            kill_at = draw.randint(1, fewest)
            world.clock.advance(days=1)
            await play.begin()
            status, words = await run(database_url, kill_at, world, play)
            assert status in (-signal.SIGKILL, 0), f"word {kill_at}"
            if status == 0:  # a machine with more time asks for work less often: it took fewer words than the first run
                lived, fewest = lived + 1, int(words)
                assert fewest < kill_at
                assert lived <= POINTS
            killed += status != 0
            await play.end()
            assert await play.held() == whole, f"killed at word {kill_at}"


def assert_whole(held: Sequence[dict[str, list[tuple[Any, ...]]]]) -> None:
    """Everything was applied, also what waited."""
    for each in held:
        assert [row[3] for row in each["memories"]] == [
            "changed", "2", "3", *(f"{number}" for number in (*range(4, 12), 20, 21, 22))
        ]  # fmt: skip
        assert each["parked"] == []
        [repo] = each["repo"]
        assert repo[0] == "active"
