"""How often, and how many at a time, hosts are asked: so that none is overrun, and none holds up another.

A request waits first for its host (rate and slots), then for its site, then for a slot of all. Every queue is bounded;
who finds it full is told at once. A host that says 429, or fails several times on end, is left alone for a while.

A site is a domain with all hosts below it. Its share of the slots is limited because names cost nothing: one slow name
server can stand for any number of hosts. Hosts that the operator named have slots of their own, which nobody can fill.

Large answers and small ones have slots apart, and one pace: `Hosts(paced_with=…)`. What a host said to one kind of
request holds for the other.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from memory.errors import Rejected
from memory.outbound_errors import HostNotAsked, HostUnavailable

FAILURES_BEFORE_PAUSE: Final = 3
MIN_PAUSE_S: Final = 5.0  # doubles with each further failure
MAX_PAUSE_S: Final = 300.0
MAX_RETRY_AFTER_S: Final = 3600.0  # a host that asks for more is asked again all the same
MAX_HOSTS_KNOWN: Final = 10_000
LOOK_AGAIN_S: Final = 1.0  # at a host whose slots are all taken: nobody knows for how long


@dataclass(frozen=True, slots=True)
class HostLimits:
    """What one host is asked at most."""

    requests_per_s: float = 5.0
    burst: int = 10  # requests at once, after a time of rest
    concurrent: int = 4
    waiting: int = 64
    longest_pause_s: float = MAX_PAUSE_S  # while it fails on end


@dataclass(frozen=True, slots=True)
class Shares:
    """What all hosts that strangers named share."""

    concurrent: int = 64
    waiting: int = 256
    site_concurrent: int = 16
    site_waiting: int = 64


class Hosts:
    """Gives requests their turn. `named` are the operator's own hosts, by URL as `normalise_source` spells it.

    `paced_with`: who keeps the pace and the pauses of each host; what `HostLimits` here say of them does not count.
    """

    def __init__(
        self,
        *,
        named: Mapping[str, HostLimits] | None = None,
        strangers: HostLimits | None = None,
        shares: Shares | None = None,
        paced_with: Hosts | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._strangers = strangers or HostLimits()
        self._shares = shares or Shares()
        self._monotonic = monotonic
        self._sleep = sleep
        self._paced_with = paced_with
        self._named = {host: self._new(host, limits) for host, limits in (named or {}).items()}
        self._hosts: OrderedDict[str, _Host] = OrderedDict()
        self._sites: dict[str, _Slots] = {}
        self._all = _Slots(self._shares.concurrent, self._shares.waiting)

    @asynccontextmanager
    async def turn(self, host: str) -> AsyncGenerator[None]:
        """Waits until `host` (a URL) may be asked, and learns from how that ends.

        Raises HostNotAsked when too many wait already or the host is left alone.
        """
        known = self._known(host)
        self._refuse_while_paused(host, known.pace)
        async with known.slots.hold(host):
            wait_s = known.pace.reserve(self._monotonic())
            if wait_s > 0:
                await self._sleep(wait_s)
            if host in self._named:
                async with self._learning(host, known.pace):
                    yield
                return
            async with self._site_slot(host), self._all.hold(host), self._learning(host, known.pace):
                yield

    def available_in_s(self, host: str) -> float:
        """How long until `host` (a URL) can be asked at once, as far as that can be told; 0: now. Asks nobody."""
        wait_s = 0.0
        pace = self._peek(host)
        if pace is not None:
            wait_s = pace.wait_s(self._monotonic())
        return max(wait_s, LOOK_AGAIN_S) if self._full(host) else wait_s

    def unavailable(self, beyond_s: float = 0.0) -> dict[str, float]:
        """The hosts that cannot be asked at once, nor within `beyond_s`, each with its `available_in_s`."""
        waits = {host: self.available_in_s(host) for host in self._all_known()}
        return {host: wait_s for host, wait_s in waits.items() if wait_s > beyond_s}

    @asynccontextmanager
    async def _learning(self, host: str, pace: _Pace) -> AsyncGenerator[None]:
        self._refuse_while_paused(host, pace)  # others may have learnt of it while this one waited
        began = self._monotonic()
        try:
            yield
        except HostNotAsked:  # of a request inside this one
            raise
        except HostUnavailable as failure:
            if failure.host == host:
                pace.learn(failure, began, self._monotonic())
            raise
        except Rejected:
            pace.failures = 0
            raise
        pace.failures = 0

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

    def _refuse_while_paused(self, host: str, pace: _Pace) -> None:
        left_s = pace.paused_until - self._monotonic()
        if left_s > 0:
            raise HostNotAsked(f"{host} is left alone for a while", host=host, retry_after_s=left_s)

    def _known(self, host: str) -> _Host:
        named = self._named.get(host)
        if named is not None:
            return named
        known = self._hosts.get(host)
        if known is None:
            known = self._hosts[host] = self._new(host, self._strangers)
            self._forget()
        self._hosts.move_to_end(host)
        return known

    def _new(self, host: str, limits: HostLimits) -> _Host:
        pace = _Pace.of(limits) if self._paced_with is None else self._paced_with._known(host).pace  # noqa: SLF001
        return _Host(_Slots(limits.concurrent, limits.waiting), pace)

    def _peek(self, host: str) -> _Pace | None:
        known = self._named.get(host) or self._hosts.get(host)
        if known is not None:
            return known.pace
        return None if self._paced_with is None else self._paced_with._peek(host)  # noqa: SLF001

    def _full(self, host: str) -> bool:
        if host in self._named:
            return self._named[host].slots.full
        known, site = self._hosts.get(host), self._sites.get(site_of(host))
        return self._all.full or (known is not None and known.slots.full) or (site is not None and site.full)

    def _all_known(self) -> set[str]:
        own = self._named.keys() | self._hosts.keys()
        return own if self._paced_with is None else own | self._paced_with._all_known()  # noqa: SLF001

    def _forget(self) -> None:
        """Drop those that were asked longest ago; what is at work is bounded by the queues."""
        while len(self._hosts) > MAX_HOSTS_KNOWN:
            oldest = next((host for host, known in self._hosts.items() if known.slots.idle), None)
            if oldest is None:
                return
            del self._hosts[oldest]


@lru_cache(MAX_HOSTS_KNOWN)
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
        self._concurrent = concurrent
        self._limit = concurrent + waiting
        self._inside = 0

    @property
    def idle(self) -> bool:
        """Whether nobody holds a slot or waits for one."""
        return self._inside == 0

    @property
    def full(self) -> bool:
        """Whether who comes now has to wait."""
        return self._inside >= self._concurrent

    @asynccontextmanager
    async def hold(self, host: str) -> AsyncGenerator[None]:
        """A slot for `host`; raises HostNotAsked when too many wait already."""
        if self._inside >= self._limit:
            raise HostNotAsked(f"too many requests wait to ask {host}", host=host)
        self._inside += 1
        try:
            async with self._free:
                yield
        finally:
            self._inside -= 1


@dataclass(frozen=True, slots=True)
class _Host:
    """What is at work at one host, and how it is to be treated."""

    slots: _Slots
    pace: _Pace


@dataclass(slots=True)
class _Pace:
    """When one host may be asked. Times are of the monotonic clock."""

    spacing_s: float
    burst_s: float  # how far ahead of an even pace requests may run
    longest_pause_s: float
    due: float = 0.0  # when the next request would come at an even pace
    paused_at: float = field(default=float("-inf"))
    paused_until: float = field(default=float("-inf"))
    failures: int = 0  # on end

    @classmethod
    def of(cls, limits: HostLimits) -> _Pace:
        """That of a host of which nothing is known yet."""
        spacing_s = 1 / limits.requests_per_s
        return cls(spacing_s, spacing_s * (limits.burst - 1), limits.longest_pause_s)

    def reserve(self, now: float) -> float:
        """Book the next request; the seconds that it has to wait."""
        due = max(self.due, now)
        self.due = due + self.spacing_s
        return max(0.0, due - self.burst_s - now)

    def wait_s(self, now: float) -> float:
        """The seconds that a request would have to wait, if it came now."""
        return max(0.0, self.due - self.burst_s - now, self.paused_until - now)

    def learn(self, failure: HostUnavailable, began: float, now: float) -> None:
        """Leave the host alone for as long as it asked, or longer with every failure of a request that began then."""
        if failure.retry_after_s is not None:
            pause_s = min(failure.retry_after_s, MAX_RETRY_AFTER_S)
        elif began < self.paused_at:
            return  # it was under way when another failed of the same cause
        else:
            self.failures += 1
            if self.failures < FAILURES_BEFORE_PAUSE:
                return
            pause_s = min(MIN_PAUSE_S * 2 ** min(self.failures - FAILURES_BEFORE_PAUSE, 30), self.longest_pause_s)
        self.paused_at = now
        self.paused_until = max(self.paused_until, now + pause_s)
