"""Whatever hosts do wrong meanwhile, and whenever workers are killed: in the end what is held is what hosts have."""

from __future__ import annotations

import os
import random
from itertools import count

import pytest

from memory.database import Database
from memory.identifiers import COLLECTION, cid_text
from tests.builders import memory
from tests.fakes.space_host import SpaceHost
from tests.fakes.space_host_faults import Fault
from tests.fakes.space_host_spaces import Space
from tests.fakes.space_host_world import Account
from tests.feed import rkey
from tests.spaces_world import SpacesWorld, spaces_world

ROUNDS = int(os.environ.get("TEST_SPACE_ROUNDS", "60"))
# Of those that never answer there are tests of their own: each takes as long as a host is waited for.
FAULTS = [
    *(Fault.TORN, Fault.WRONG_HASH, Fault.WRONG_SIGNATURE, Fault.WRONG_MAC, Fault.WRONG_RECORDS, Fault.UNORDERED),
    *(Fault.MISSING_PAGE, Fault.SAME_CURSOR, Fault.CUT, Fault.TRUNCATED, Fault.BUSY, Fault.OVERLOADED, Fault.BROKEN),
    *(Fault.MOVED, Fault.REFUSING, Fault.GIBBERISH, Fault.BOMB, Fault.BOASTING),
]
METHODS = ("listRepos", "listRepoOps", "getRepo", None)


class Play:
    """Writes, faults, notifications, kills and time, drawn at random."""

    def __init__(self, world: SpacesWorld, hosts: list[SpaceHost], draw: random.Random) -> None:
        self.world, self.hosts, self.draw = world, hosts, draw
        self.alice = hosts[0].add("alice")
        self.authors = [host.add(f"author {number}") for number, host in enumerate([*hosts, *hosts])]
        self.spaces = [hosts[0].create_space(self.alice, f"space{number}", *self.authors) for number in range(3)]
        self.numbers = count()

    async def step(self) -> None:
        draw = self.draw
        match draw.randrange(8):
            case 0:
                draw.choice(self.hosts).misbehave(draw.choice(FAULTS), draw.choice(METHODS), times=draw.randint(1, 4))
            case 1:
                self.world.clock.advance(seconds=draw.choice([1, 20, 300]))
            case 2:
                await self.world.stop()
                self.world.start(self.world.new_worker())
            case 3:
                self._compact()
            case _:
                space, author = draw.choice(self.spaces), draw.choice(self.authors)
                for _ in range(draw.randint(1, 6)):
                    self._write(space, author)
                if draw.random() < 0.7:
                    await self.world.note_write(space, author)

    def _compact(self) -> None:
        space, author = self.draw.choice(self.spaces), self.draw.choice(self.authors)
        if str(space) in author.repos:
            author.compact(space, self.draw.randint(0, 2))

    def _write(self, space: Space, author: Account) -> None:
        held = [path.partition("/")[2] for path in author.cids(space) if path.startswith(COLLECTION)]
        key = self.draw.choice(held) if held and self.draw.random() < 0.6 else ""
        if not key:
            author.create(space, rkey(next(self.numbers)), self._record(space, author, held))
        elif self.draw.random() < 0.5:
            author.update(space, key, self._record(space, author, held))
        else:
            author.delete(space, key)

    def _record(self, space: Space, author: Account, held: list[str]) -> dict[str, object]:
        if self.draw.random() < 0.1:
            return {"$type": COLLECTION, "number": next(self.numbers)}
        replaced = [f"{space}/{author.did}/{COLLECTION}/{key}" for key in held if self.draw.random() < 0.2]
        return memory(f"{next(self.numbers)}", supersedes=replaced[:20])

    async def differing(self) -> list[str]:
        """Authors of whom something else is held or shown than their host has."""
        wrong: list[str] = []
        for space in self.spaces:
            for author in self.authors:
                there = {
                    path.partition("/")[2]: cid_text(cid)
                    for path, cid in author.cids(space).items()
                    if path.startswith(COLLECTION)
                }
                shown = await self.world.value(
                    "select coalesce(bool_or(visible), false) from repos where repo = $1 and space = $2",
                    *(author.did, str(space)),
                )
                wrote = author.repo(space).rev is not None
                if await self.world.cids(space, author) != there or shown != wrote:
                    wrong.append(author.handle)
        return wrong


@pytest.mark.timeout(900)
async def test_random_faults_end_in_what_hosts_have(database: Database, seed: int):
    draw = random.Random(seed)
    async with spaces_world(database, slice_ops=4) as world:
        hosts = [await world.host() for _ in range(3)]
        play = Play(world, hosts, draw)
        for space in play.spaces:
            await world.open(space, play.authors[0])
        world.start(world.new_worker())
        for number in range(ROUNDS):
            await play.step()
            if draw.random() < 0.4:
                await world.pass_time_until(world.idle, True)
            if number % 20 == 10:
                for space in play.spaces:
                    await world.open(space, play.authors[0])
        for host in hosts:
            host.faults.ordered.clear()
        for space in play.spaces:
            await world.open(space, play.authors[0])
        await world.pass_time_until(play.differing, [], seconds=20)
        for space in play.spaces:
            await world.pass_time_until(lambda space=space: world.is_served(space), True, seconds=20)
