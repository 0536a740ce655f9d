"""Hosts that are asked in turns, by a clock that goes on only where somebody sleeps."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import asynccontextmanager

import pytest

from memory.errors import Rejected
from memory.outbound_errors import HostUnavailable
from memory.outbound_hosts import HostLimits, Hosts
from memory.tasks import TaskGroup

A, B = "https://a.example", "https://b.example"
PLC = "https://plc.directory"
FAST = HostLimits(requests_per_s=1e6, burst=1000, concurrent=2, waiting=1)


class Time:
    """A monotonic clock that goes on while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def hosts(time: Time | None = None, **changes: object) -> Hosts:
    time = time or Time()
    return Hosts(**{"strangers": FAST, "monotonic": time, "sleep": time.sleep} | changes)  # pyright: ignore[reportArgumentType]


async def ask(hosts: Hosts, host: str, error: Exception | None = None) -> None:
    async with hosts.turn(host):
        if error is not None:
            raise error


class Asking:
    """Requests that are under way until they are let go."""

    def __init__(self, hosts: Hosts) -> None:
        self.hosts = hosts
        self.inside: list[str] = []
        self.done = asyncio.Event()

    async def __call__(self, host: str) -> None:
        async with self.hosts.turn(host):
            self.inside.append(host)
            await self.done.wait()


@asynccontextmanager
async def under_way(asking: Asking, *hosts: str) -> AsyncGenerator[None]:
    async with TaskGroup() as tasks:
        for host in hosts:
            tasks.create_task(asking(host))
        await settled()
        yield
        asking.done.set()


async def settled() -> None:
    """Lets every task run until it waits."""
    for _ in range(20):
        await asyncio.sleep(0)


def down(host: str, retry_after_s: float | None = None) -> HostUnavailable:
    return HostUnavailable("down", host=host, retry_after_s=retry_after_s)


async def fail(turn: Awaitable[None]) -> None:
    with pytest.raises((HostUnavailable, Rejected)):
        await turn
