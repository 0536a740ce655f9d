"""How often, and how many at a time, hosts are asked: so that none is overrun, and none holds up another.

A request waits first for its host (rate and slots), then for its site, then for a slot of all. Every queue is bounded;
who finds it full is told at once. A host that says 429, or fails several times on end, is left alone for a while.

A site is a domain with all hosts below it. Its share of the slots is limited because names cost nothing: one slow name
server can stand for any number of hosts. Hosts that the operator named have slots of their own, which nobody can fill.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from memory.errors import Rejected
from memory.outbound_errors import HostUnavailable

FAILURES_BEFORE_PAUSE: Final = 3
MIN_PAUSE_S: Final = 5.0  # doubles with each further failure
MAX_PAUSE_S: Final = 300.0
MAX_RETRY_AFTER_S: Final = 3600.0  # a host that asks for more is asked again all the same
MAX_HOSTS_KNOWN: Final = 10_000


@dataclass(frozen=True, slots=True)
class HostLimits:
    """What one host is asked at most."""

    requests_per_s: float = 5.0
    burst: int = 10  # requests at once, after a time of rest
    concurrent: int = 4
    waiting: int = 64


@dataclass(frozen=True, slots=True)
class Shares:
    """What all hosts that strangers named share."""

    concurrent: int = 64
    waiting: int = 256
    site_concurrent: int = 16
    site_waiting: int = 64


class Hosts:
    """Gives requests their turn. `named` are the operator's own hosts, by URL as `normalise_source` spells it."""

    def __init__(
        self,
        *,
        named: Mapping[str, HostLimits] | None = None,
        strangers: HostLimits | None = None,
        shares: Shares | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._strangers = strangers or HostLimits()
        self._shares = shares or Shares()
        self._monotonic = monotonic
        self._sleep = sleep
        self._named = {host: _Host.of(limits) for host, limits in (named or {}).items()}
        self._hosts: OrderedDict[str, _Host] = OrderedDict()
        self._sites: dict[str, _Slots] = {}
        self._all = _Slots(self._shares.concurrent, self._shares.waiting)

    @asynccontextmanager
    async def turn(self, host: str) -> AsyncGenerator[None]:
        """Waits until `host` (a URL) may be asked, and learns from how that ends.

        Raises HostUnavailable when too many wait already or the host is left alone.
        """
        named = self._named.get(host)
        known = named or self._stranger(host)
        self._refuse_while_paused(host, known)
        async with known.slots.hold(host):
            wait_s = known.reserve(self._monotonic())
            if wait_s > 0:
                await self._sleep(wait_s)
            if named is not None:
                async with self._learning(host, known):
                    yield
                return
            async with self._site_slot(host), self._all.hold(host), self._learning(host, known):
                yield

    @asynccontextmanager
    async def _learning(self, host: str, known: _Host) -> AsyncGenerator[None]:
        self._refuse_while_paused(host, known)  # others may have learnt of it while this one waited
        try:
            yield
        except HostUnavailable as failure:
            if failure.host == host:
                known.learn(failure, self._monotonic())
            raise
        except Rejected:
            known.failures = 0
            raise
        known.failures = 0

    @asynccontextmanager
    async def _site_slot(self, host: str) -> AsyncGenerator[None]:
        site = site_of(host)
        slots = self._sites.setdefault(site, _Slots(self._shares.site_concurrent, self._shares.site_waiting))
        try:
            async with slots.hold(host):
                yield
        finally:
            if slots.idle:
                self._sites.pop(site, None)

    def _refuse_while_paused(self, host: str, known: _Host) -> None:
        left_s = known.paused_until - self._monotonic()
        if left_s > 0:
            raise HostUnavailable(f"{host} is left alone for a while", host=host, retry_after_s=left_s)

    def _stranger(self, host: str) -> _Host:
        known = self._hosts.get(host)
        if known is None:
            known = self._hosts[host] = _Host.of(self._strangers)
            self._forget()
        self._hosts.move_to_end(host)
        return known

    def _forget(self) -> None:
        """Drop those that were asked longest ago; what is at work is bounded by the queues."""
        while len(self._hosts) > MAX_HOSTS_KNOWN:
            oldest = next((host for host, known in self._hosts.items() if known.slots.idle), None)
            if oldest is None:
                return
            del self._hosts[oldest]


def site_of(host: str) -> str:
    """The last two labels of a host's name; an address or a bare name stands for itself, with its port."""
    parts = urlsplit(host)
    name = parts.hostname or ""
    try:
        ip_address(name)
    except ValueError:
        labels = name.rsplit(".", 2)
        return parts.netloc if len(labels) == 1 else ".".join(labels[-2:])
    return parts.netloc


class _Slots:
    """So many at a time, in order of arrival, with a bounded queue before them."""

    def __init__(self, concurrent: int, waiting: int) -> None:
        self._free = asyncio.Semaphore(concurrent)
        self._limit = concurrent + waiting
        self._inside = 0

    @property
    def idle(self) -> bool:
        """Whether nobody holds a slot or waits for one."""
        return self._inside == 0

    @asynccontextmanager
    async def hold(self, host: str) -> AsyncGenerator[None]:
        """A slot for `host`; raises HostUnavailable when too many wait already."""
        if self._inside >= self._limit:
            raise HostUnavailable(f"too many requests wait to ask {host}", host=host)
        self._inside += 1
        try:
            async with self._free:
                yield
        finally:
            self._inside -= 1


@dataclass(slots=True)
class _Host:
    """What is known of one host. Times are of the monotonic clock."""

    slots: _Slots
    spacing_s: float
    burst_s: float  # how far ahead of an even pace requests may run
    due: float = 0.0  # when the next request would come at an even pace
    paused_until: float = field(default=float("-inf"))
    failures: int = 0  # on end

    @classmethod
    def of(cls, limits: HostLimits) -> _Host:
        """A host of which nothing is known yet."""
        spacing_s = 1 / limits.requests_per_s
        return cls(_Slots(limits.concurrent, limits.waiting), spacing_s, spacing_s * (limits.burst - 1))

    def reserve(self, now: float) -> float:
        """Book the next request; the seconds that it has to wait."""
        due = max(self.due, now)
        self.due = due + self.spacing_s
        return max(0.0, due - self.burst_s - now)

    def learn(self, failure: HostUnavailable, now: float) -> None:
        """Leave the host alone for as long as it asked, or longer with every failure."""
        if failure.retry_after_s is not None:
            pause_s = min(failure.retry_after_s, MAX_RETRY_AFTER_S)
        else:
            self.failures += 1
            if self.failures < FAILURES_BEFORE_PAUSE:
                return
            pause_s = min(MIN_PAUSE_S * 2 ** min(self.failures - FAILURES_BEFORE_PAUSE, 10), MAX_PAUSE_S)
        self.paused_until = max(self.paused_until, now + pause_s)
