"""Alice's Space on one host, in which bob, of another, keeps three memories; and mara, who may read there."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import httpx

from tests.builders import START, memory
from tests.fakes.space_host import SpaceHost, SpaceWorld, space_world
from tests.fakes.space_host_spaces import Space
from tests.fakes.space_host_world import Account
from tests.fakes.space_subscriber import Subscriber
from tests.space_calls import SpaceReader, space_reader

SYNCER: Final = "did:web:syncer.example#atproto_space_syncer"
RKEYS: Final = [f"3kaaaaaaa{letter}a2a" for letter in "abcdefg"]


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@dataclass
class Scene:
    """What is there, and what mara asks of it."""

    clock: Clock
    world: SpaceWorld
    home: SpaceHost
    away: SpaceHost
    alice: Account
    bob: Account
    space: Space
    mara: SpaceReader

    async def credential(self) -> str:
        return await self.mara.credential(self.home, self.space, self.bob)

    async def read(self, method: str, credential: str | None = None, **parameters: object) -> httpx.Response:
        """Of bob's repo."""
        known = {"space": self.space, "repo": self.bob.did} | parameters
        return await self.mara.read(self.away, method, credential or await self.credential(), **known)

    async def listed(self) -> dict[str, dict[str, Any]]:
        answer = await self.mara.read(self.home, "listRepos", await self.credential(), space=self.space)
        return {each["did"]: each for each in answer.json()["repos"]}

    async def subscribe(self, syncer: Subscriber, service: str = SYNCER) -> None:
        self.world.services[service] = syncer.url
        given = {"space": self.space, "service": service}
        answer = await self.mara.write(self.home, "registerNotify", await self.credential(), **given)
        assert answer.status_code == 200, answer.text


@asynccontextmanager
async def scene_at() -> AsyncGenerator[Scene]:
    """The scene, until the end of the block."""
    clock = Clock()
    async with space_world(clock) as world, space_reader(clock) as mara:
        home, away = await world.host(), await world.host()
        alice, bob = home.add("alice"), away.add("bob")
        space = home.create_space(alice, "main", bob)
        for number, rkey in enumerate(RKEYS[:3]):
            bob.create(space, rkey, memory(f"Memory number {number} of what bob likes."))
        yield Scene(clock, world, home, away, alice, bob, space, mara)


def error_of(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]
