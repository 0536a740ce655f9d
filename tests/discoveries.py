"""Discoveries under way, and repos to be discovered."""

from __future__ import annotations

import random
from typing import Any

from indexer.resync.discovery import (
    Discovery,
    DiscoveryPage,
    Found,
)
from indexer.resync.hosts import RepoHosts
from tests.builders import RepoBuilder, Write, memory, tid
from tests.fakes.pds import Pds

NOISE = "app.bsky.feed.post"


class Sleeps:
    """A clock of the hosts that goes on where discovery sleeps."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def peopled(fake: Pds, holders: int, others: int = 0) -> set[str]:
    """Adds repos with memories, whose DIDs are given back, and repos with something else."""
    dids: set[str] = set()
    for number in range(holders + others):
        builder = fake.add(RepoBuilder(f"repo {len(fake.repos)}"))
        rkey = tid(builder.stream.time)
        if number < holders:
            builder.apply([Write("create", rkey, memory("x")), Write("create", rkey, {}, NOISE)])
            dids.add(builder.did)
        else:
            builder.create(rkey, {}, NOISE)
    return dids


class Reading:
    """A discovery, and what it brought so far."""

    def __init__(self, hosts: RepoHosts, fake: Pds, sleeps: Sleeps, **options: Any) -> None:
        self.discovery = Discovery(hosts, fake.url, randomness=random.Random(7), sleep=sleeps.sleep, **options)
        self.pages: list[DiscoveryPage] = []

    @property
    def found(self) -> list[Found]:
        return [found for page in self.pages for found in page.found]

    @property
    def dids(self) -> list[str]:
        return [found.did for found in self.found]

    @property
    def uncertain(self) -> set[str]:
        """Where repos are asked for their collections: those that could not be told."""
        return {found.did for found in self.found if found.host is None}

    async def read(self, position: str | None = None, pages: int | None = None) -> None:
        """To the end, or so many pages."""
        reading = self.discovery.pages(position)
        async for page in reading:
            self.pages.append(page)
            if len(self.pages) == pages:
                break
        await reading.aclose()
