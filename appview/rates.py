"""How often one client may ask: so many requests in each window of time, counted by this process.

Who is signed in is counted by DID, others by the network that they ask from: an IPv4 address, or 64 bits of an IPv6
address, of which anybody has more than can be counted one by one. Anybody can have many DIDs too, so all who are signed
in and ask from one network are also counted together, with a larger limit: a PDS asks for all of its accounts. Whoever
asks from this very machine is not counted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv6Address, ip_address
from math import ceil
from typing import Final

from starlette.types import Scope

from appview.refusals import RateLimited
from appview.representation import Headers

WINDOW_S: Final = 300
MAX_COUNTED: Final = 100_000
"""Clients that are counted at a time; of more, those that came first are forgotten, and begin anew."""

MAX_AT_ONCE: Final = 100
"""Requests of one client that are under way at a time: connections, which all share, are ten times as many."""

NETWORK_TIMES: Final = 10
"""All who are signed in and ask from one network may ask so many times as often as one of them."""

NETWORK_AT_ONCE_TIMES: Final = 5
"""So many times as many of their requests are under way at a time: half of all connections."""

_NETWORK_BITS: Final = 64
_ANY_HOST: Final = "unknown"
_OF_PROXIES: Final = frozenset({b"x-forwarded-for", b"forwarded", b"x-real-ip", b"x-forwarded-proto", b"via"})
"""Headers that a proxy adds, by which one on this machine is told from a caller on it."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a client has: `limit` requests in a window, of which `remaining` are left until `resets_at` (Unix time)."""

    limit: int
    remaining: int
    resets_at: int

    def headers(self) -> Headers:
        """It as the protocol's servers tell it."""
        return (
            (b"ratelimit-limit", str(self.limit).encode()),
            (b"ratelimit-remaining", str(self.remaining).encode()),
            (b"ratelimit-reset", str(self.resets_at).encode()),
            (b"ratelimit-policy", f"{self.limit};w={WINDOW_S}".encode()),
        )


class Rates:
    """Counts requests; a client without a name (None) is not counted."""

    def __init__(self, *, limit: int, clock: Callable[[], datetime], at_once_times: int = 1) -> None:
        """`limit` requests a window, of which `at_once_times` MAX_AT_ONCE are under way; 0 counts nothing."""
        self._limit = limit
        self._clock = clock
        self._at_once_times = at_once_times
        self._counted: OrderedDict[str, _Window] = OrderedDict()
        self._under_way: dict[str, int] = {}

    def apart(self, *, times: int = 1, at_once_times: int = 1) -> Rates:
        """That many times the limit for something else, of which no flood drives out what is counted here."""
        return Rates(limit=self._limit * times, clock=self._clock, at_once_times=at_once_times)

    def take(self, client: str | None, *, weight: int = 1) -> Allowance | None:
        """One request of a client, which counts as `weight` of them. Raise RateLimited beyond its limit."""
        if client is None or not self._limit:
            return None
        now = self._clock().timestamp()
        window = self._counted.get(client)
        if window is None or now >= window.ends_at:
            window = self._begin(client, now)
        if window.taken >= self._limit:
            raise self._limited(window, now)
        window.taken = min(window.taken + weight, self._limit)
        return Allowance(self._limit, self._limit - window.taken, ceil(window.ends_at))

    def require(self, client: str | None) -> None:
        """Raise RateLimited if a client is beyond its limit; counts nothing."""
        window = None if client is None else self._counted.get(client)
        if window is None or not self._limit:
            return
        now = self._clock().timestamp()
        if window.taken >= self._limit and window.ends_at > now:
            raise self._limited(window, now)

    def begin(self, client: str | None) -> str | None:
        """A request is under way until `end` is called for what this returns. Raise RateLimited if too many are."""
        if client is None or not self._limit:
            return None
        under_way = self._under_way.get(client, 0)
        if under_way >= MAX_AT_ONCE * self._at_once_times:
            raise RateLimited(1)
        self._under_way[client] = under_way + 1
        return client

    def end(self, client: str | None) -> None:
        """A request that began has been answered."""
        if client is None:
            return
        self._under_way[client] -= 1
        if not self._under_way[client]:
            del self._under_way[client]

    def _limited(self, window: _Window, now: float) -> RateLimited:
        allowance = Allowance(self._limit, 0, ceil(window.ends_at))
        return RateLimited(max(1, ceil(window.ends_at - now)), allowance.headers())

    def _begin(self, client: str, now: float) -> _Window:
        self._counted.pop(client, None)
        window = self._counted[client] = _Window(now + WINDOW_S)
        if len(self._counted) > MAX_COUNTED:
            self._counted.popitem(last=False)
        return window


class Limits:
    """All that is counted of who asks, each apart."""

    def __init__(self, clients: Rates) -> None:
        """`clients`: requests of the signed-in by DID, and of others by network."""
        self.clients = clients
        self.networks = clients.apart(times=NETWORK_TIMES, at_once_times=NETWORK_AT_ONCE_TIMES)
        """Requests of all the signed-in of one network."""
        self.refusals = clients.apart()
        """Credentials that did not hold, by network, and by network and DID."""


@dataclass(slots=True)
class _Window:
    ends_at: float
    taken: int = 0


def tightest(*allowances: Allowance | None) -> Allowance | None:
    """The one of which the least is left; None if there is none."""
    return min((each for each in allowances if each is not None), key=lambda each: each.remaining, default=None)


def address_of(scope: Scope) -> str | None:
    """The network that a request comes from; None for this very machine, unless it hands on what came to a proxy."""
    client: tuple[str, int] | None = scope.get("client")
    try:
        address = ip_address("" if client is None else client[0])
    except ValueError:
        return _ANY_HOST  # a Unix socket, or a proxy that forwards nonsense: all of them together
    if isinstance(address, IPv6Address):
        address = address.ipv4_mapped or address
    if address.is_loopback and not any(name in _OF_PROXIES for name, _ in scope["headers"]):
        return None
    if isinstance(address, IPv6Address):
        return str(IPv6Address(int(address) >> _NETWORK_BITS << _NETWORK_BITS))
    return str(address)
