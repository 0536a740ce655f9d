"""Kill -9 at any word to the database while Spaces are kept in step loses nothing, doubles nothing, and leaves nothing
of a Space that was deleted.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections.abc import Sequence
from typing import Any

from memory.database import Database
from tests.builders import memory as memory_at
from tests.fakes.space_host import SpaceHost
from tests.fakes.space_host_spaces import Space
from tests.fakes.space_host_world import Account
from tests.feed import rkey
from tests.mending import tables
from tests.spaces_world import CONTENT_TABLES, SPACE_TABLES, SpacesWorld, spaces_world

POINTS = int(os.environ.get("TEST_KILL_POINTS", "20"))
LONG_SINCE = "2026-09-01T00:00:00.000Z"  # so that masks do not tell when it was indexed
HELD = "select repo, hash, rev, set_state, hidden, in_step, whole, listed_rev from space_repos order by repo, space"


def memory(content: str) -> dict[str, Any]:
    return memory_at(content, LONG_SINCE)


class Play:
    """Two Spaces of three authors, one known, one whose oplog is compacted, one new; and a Space that is deleted."""

    def __init__(self, world: SpacesWorld, home: SpaceHost, away: SpaceHost) -> None:
        self._world, self._home, self._away = world, home, away
        self.alice = home.add("alice")
        self.authors = [away.add(name) for name in ("known", "compacted", "new")]
        self.spaces: list[Space] = []

    async def begin(self, round_: int) -> None:
        """As it is before the worker that is killed."""
        world = self._world
        async with world.database.connection() as conn:
            await conn.execute(f"truncate {', '.join({*CONTENT_TABLES, *SPACE_TABLES})}")
        for author in self.authors:
            author.repos.clear()
        self.spaces = [self._home.create_space(self.alice, f"{name}{round_}", *self.authors) for name in "ab"]
        gone = self._home.create_space(self.alice, f"gone{round_}", *self.authors)
        known, compacted, new = self.authors
        for space in (*self.spaces, gone):
            for author in (known, compacted):
                for number in range(8):
                    author.create(space, rkey(number), memory(f"{number}"))
            await world.open(space, known)
        world.start(world.new_worker())
        await world.until_idle(*self.spaces, gone)
        await world.stop()
        for space in self.spaces:
            for author in (known, compacted):
                author.delete(space, rkey(0))
                author.update(space, rkey(1), memory("changed"))
                author.create(space, rkey(9), memory("9"))
                await world.note_write(space, author)
            compacted.compact(space)
            for number in range(8):
                new.create(space, rkey(number), memory(f"{number}"))
        gone.delete()
        world.clock.advance(minutes=5)
        await world.note(gone, "deleted")

    async def end(self) -> None:
        """What was killed is taken over by another."""
        world = self._world
        world.start(world.new_worker())
        await world.pass_time_until(self._is_settled, True, seconds=20)
        await world.stop()

    async def _is_settled(self) -> bool:
        """Whether nothing is to be done now, nor later: what waits because a host was busy is not done yet."""
        return await self._world.idle() and not await self._world.value(
            "select count(*) from space_repos where not in_step"
        )

    async def held(self) -> list[Any]:
        """All that is held, but for what a Space is called, and the revs that tell of its time."""
        found: list[Any] = []
        for author in self.authors:
            each = await tables(self._world.database, author.did)
            each["memories"] = [row[:2] + row[3:] for row in each["memories"]]
            each["repo"] = []
            found.append(each)
        rows = await self._world.rows(HELD)
        found.append([(row["repo"], row["hash"], row["set_state"], *tuple(row)[4:7]) for row in rows])
        states = (
            "select repo, state, visible, memory_count, entry_count, over_quota_count from repos order by repo, space"
        )
        found.append([tuple(row) for row in await self._world.rows(states)])
        found.append(
            [tuple(row) for row in await self._world.rows("select state, attempts from spaces order by space")]
        )
        return found


async def run(url: str, kill_at: int, world: SpacesWorld) -> tuple[int, str]:
    """The exit status of a worker that is killed at that word, and what it printed."""
    arguments = [url, str(kill_at), world.directory.url, world.clock.now.isoformat()]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.service.spaces_killed", *arguments, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode().splitlines()[-1] if output else ""


async def test_killed_workers_are_taken_over_without_loss_or_repetition(
    database: Database, database_url: str, seed: int
):
    async with spaces_world(database, slice_ops=3) as world:
        play = Play(world, await world.host(), await world.host())
        await play.begin(0)
        status, words = await run(database_url, 0, world)
        assert status == 0
        whole = await play.held()
        assert_whole(play.authors, whole)
        draw, killed, lived, fewest = random.Random(seed), 0, 0, int(words)
        round_ = 0
        while killed < POINTS:
            kill_at, round_ = draw.randint(1, fewest), round_ + 1
            world.clock.advance(days=1)
            await play.begin(round_)
            status, words = await run(database_url, kill_at, world)
            assert status in (-signal.SIGKILL, 0), f"word {kill_at}"
            if status == 0:  # a machine with more time asks for work less often: it took fewer words than the first run
                lived, fewest = lived + 1, int(words)
                assert lived <= POINTS
            killed += status != 0
            await play.end()
            assert await play.held() == whole, f"killed at word {kill_at}"


def assert_whole(authors: Sequence[Account], held: list[Any]) -> None:
    """Everything was pulled, and nothing is left of the Space that was deleted."""
    known, compacted, new = (held[number]["memories"] for number in range(len(authors)))
    changed = ["changed", "2", "3", "4", "5", "6", "7", "9"]
    assert sorted(row[3] for row in known) == sorted(row[3] for row in compacted) == sorted(changed * 2)
    assert sorted(row[3] for row in new) == sorted([f"{number}" for number in range(8)] * 2)
    assert [row[0] for row in held[-1]] == ["ready", "ready"]
