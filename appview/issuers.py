"""Whether an account signed a token: its key is looked up, as seldom and as boundedly as can be.

Anybody can make up issuers, and each may have to be asked for. So new look-ups are counted by where the requests come
from, and in all. Who is known already is not hindered by that: what is known of an account answers, and what another
process learnt of it in the meantime, which the database tells.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import ceil
from typing import Final

from appview.jwt import SignedToken
from appview.refusals import BadJwtIss, BadJwtSignature, NotEnoughResources, RateLimited, Refusal
from memory.errors import Rejected
from memory.identity import Identity
from memory.resolver import IdentityResolver, IdentityUnavailable, Resolved
from memory.signatures import parse_did_key


@dataclass(frozen=True, slots=True)
class Pace:
    """So many at once, and that many a second in the long run."""

    burst: int
    per_s: float


ADDRESS_PACE: Final = Pace(burst=30, per_s=1.0)  # a PDS asks for all of its accounts
PACE_IN_ALL: Final = Pace(burst=100, per_s=10.0)
MAX_ADDRESSES: Final = 10_000


class LookUpBudget:
    """How many look-ups requests may still bring about.

    Of more than `max_addresses`, the addresses that asked longest ago are forgotten, and begin anew: what all may do
    together stays bounded.
    """

    def __init__(
        self,
        monotonic: Callable[[], float],
        *,
        address_pace: Pace = ADDRESS_PACE,
        pace_in_all: Pace = PACE_IN_ALL,
        max_addresses: int = MAX_ADDRESSES,
    ) -> None:
        self._monotonic = monotonic
        self._address_pace = address_pace
        self._max_addresses = max_addresses
        self._addresses: OrderedDict[str, _Bucket] = OrderedDict()
        self._all = _Bucket(pace_in_all, monotonic())

    def take(self, address: str) -> Refusal | None:
        """Take one look-up for a request from there, or say why there is none."""
        now = self._monotonic()
        own = self._bucket(address, now)
        wait_s = own.wait_s(now)
        if wait_s > 0:
            return RateLimited(ceil(wait_s))
        if self._all.wait_s(now) > 0:
            return NotEnoughResources()
        own.level -= 1
        self._all.level -= 1
        return None

    def _bucket(self, address: str, now: float) -> _Bucket:
        bucket = self._addresses.get(address)
        if bucket is None:
            bucket = self._addresses[address] = _Bucket(self._address_pace, now)
            if len(self._addresses) > self._max_addresses:
                self._addresses.popitem(last=False)
        self._addresses.move_to_end(address)
        return bucket


class _Bucket:
    """What is left of a pace."""

    __slots__ = ("_at", "_pace", "level")

    def __init__(self, pace: Pace, now: float) -> None:
        self._pace = pace
        self._at = now
        self.level = float(pace.burst)

    def wait_s(self, now: float) -> float:
        """How long until there is one; 0: there is."""
        self.level = min(float(self._pace.burst), self.level + max(0.0, now - self._at) * self._pace.per_s)
        self._at = now
        return max(0.0, (1 - self.level) / self._pace.per_s)


class Issuers:
    """The accounts that sign tokens."""

    def __init__(self, resolver: IdentityResolver, budget: LookUpBudget) -> None:
        self._resolver = resolver
        self._budget = budget

    async def require_signature(self, token: SignedToken, address: str) -> None:
        """Raise unless the issuer's account key signed the token; `address` is where the request comes from.

        Raises BadJwtIss, BadJwtSignature; RateLimited and NotEnoughResources where the issuer is not known and cannot
        be asked for now; Unavailable without a database.
        """
        await self._resolver.reload([token.issuer])
        asking = _Asking(self._budget, address)
        known = await _identity(self._resolver.resolve(token.issuer, admit=asking.admit), asking)
        if _is_signed(token, known):
            return
        if asking.begun:  # it is as new as can be
            raise _unsigned(known)
        # The key may have changed since. Who forges tokens makes us ask once in ten minutes, and is told the same.
        fresh = await _identity(self._resolver.refresh(token.issuer, admit=asking.admit), asking)
        if fresh.signing_key == known.signing_key or not _is_signed(token, fresh):
            raise _unsigned(fresh)


class _Asking:
    """Lets look-ups begin for one request, for as long as there is a budget."""

    def __init__(self, budget: LookUpBudget, address: str) -> None:
        self._budget = budget
        self._address = address
        self.begun = False
        self.refusal: Refusal | None = None

    def admit(self) -> bool:
        """Whether one may begin."""
        self.refusal = self._budget.take(self._address)
        self.begun = self.begun or self.refusal is None
        return self.refusal is None


async def _identity(look_up: Awaitable[Resolved], asking: _Asking) -> Identity:
    try:
        return (await look_up).identity
    except Rejected:
        raise BadJwtIss("The JWT's iss cannot be resolved.") from None
    except IdentityUnavailable:
        raise asking.refusal or NotEnoughResources("The JWT's iss cannot be resolved now; try again.") from None


def _is_signed(token: SignedToken, by: Identity) -> bool:
    return by.signing_key is not None and token.is_signed_by(parse_did_key(by.signing_key))


def _unsigned(by: Identity) -> Refusal:
    return BadJwtIss("The JWT's iss has no key that could sign.") if by.signing_key is None else BadJwtSignature()
