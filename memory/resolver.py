"""Identities looked up while the daemon lives, each as rarely as can be, and remembered.

What is held answers as long as it is young enough. Else the DID's document is asked for, once for all who wait, and at
most once in ten minutes; a bad signature may force one look-up more in that time, for keys do change. Whatever goes
wrong, what was known stands, and is marked as stale. What could not be resolved is remembered too, so that a flood of
forged DIDs costs each of them one look-up.

A handle whose own side cannot be asked keeps no document waiting: the database says when it is to be asked for again.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from memory.database import Database
from memory.did_documents import (
    IdentityUnavailable,
    ask_directory,
    fetch_document,
    is_in_directory,
    require_known_method,
)
from memory.errors import Misconfigured, Rejected, Unavailable
from memory.handles import Handles
from memory.identity import BadIdentity, Identity, PlcExport, identity_of_document
from memory.outbound import Limits, Outbound
from memory.outbound_hosts import HostLimits
from memory.store.identities import UnsettledHandle, held_handle, load_identities, store_identity
from memory.tasks import TaskGroup
from memory.telemetry import get_logger

MAX_AGE: Final = timedelta(hours=24)
LOOK_UP_INTERVAL: Final = timedelta(minutes=10)
RETRY_INTERVAL: Final = timedelta(minutes=1)  # where a look-up was not answered at all
HANDLE_RETRY_FIRST: Final = LOOK_UP_INTERVAL  # where all but the handle was; doubles with each look-up that misses it
HANDLE_RETRY_MAX: Final = timedelta(days=1)
HANDLE_RETRY_JITTER: Final = 1.25  # at most so many times that
PLC_LIMITS: Final = HostLimits(requests_per_s=10.0, burst=1, concurrent=8, waiting=300)

_AUDIT_LOG_LIMITS: Final = Limits(max_bytes=4 * 1024 * 1024, total_s=30.0)
_MISSES_COUNTED: Final = 8  # by then the wait is as long as it gets


@dataclass(frozen=True, slots=True)
class Resolved:
    """An identity that may be older than was asked for."""

    identity: Identity
    stale: bool  # it is: the look-up failed, or the last one is too short a while ago


class IdentityResolver:
    """Looks identities up and remembers them: the last `capacity` in memory, all in the database.

    `tasks` runs the look-ups: one goes on when who waited for it is cancelled, for others may wait too.
    """

    def __init__(
        self,
        outbound: Outbound,
        handles: Handles,
        database: Database,
        tasks: TaskGroup,
        *,
        plc_url: str,
        clock: Callable[[], datetime],
        capacity: int = 50_000,
        max_look_ups: int = 1_000,
    ) -> None:
        self._outbound = outbound
        self._handles = handles
        self._database = database
        self._tasks = tasks
        self._plc_url = plc_url
        self._clock = clock
        self._max_look_ups = max_look_ups
        self._known = _Recent(capacity)
        self._unknown = _Recent(capacity)  # apart, so that no flood of forged DIDs drives out the known ones
        self._under_way: dict[str, asyncio.Task[_Held]] = {}

    @property
    def look_ups(self) -> int:
        """How many are under way."""
        return len(self._under_way)

    def cached(self, did: str) -> Identity | None:
        """The identity that `resolve` would give at once, or could not renew when it was last asked; None: ask."""
        held = self._known.get(did)
        if held is None:
            return None
        now = self._clock()
        stands = held.holds(now - MAX_AGE) or held.rests(now) or held.failure is not None
        return held.identity if stands else None

    async def reload(self, dids: Iterable[str]) -> None:
        """Brings in what other processes looked up since, in one query."""
        wanted = list(dids)
        if not wanted:
            return
        async with self._database.connection() as conn:
            found = await load_identities(conn, wanted)
        for identity in found:
            held = self._known.get(identity.did)
            if held is None or held.identity is None or held.identity.resolved_at < identity.resolved_at:
                self._keep(identity.did, _Held(identity, asked_at=identity.resolved_at))

    async def load(self, dids: Iterable[str]) -> None:
        """Brings what the database knows of `dids` into memory, in one query."""
        missing = [did for did in dids if did not in self._known]
        if not missing:
            return
        async with self._database.connection() as conn:
            found = await load_identities(conn, missing)
        for identity in found:
            if identity.did not in self._known:  # else a look-up was faster
                self._keep(identity.did, _Held(identity, asked_at=identity.resolved_at))

    async def resolve(
        self, did: str, *, max_age: timedelta = MAX_AGE, admit: Callable[[], bool] | None = None
    ) -> Resolved:
        """The identity as it is now, or was at most `max_age` ago, or else the last that is known.

        `admit` is asked once if a look-up has to begin, which it does not if that says no.

        Raises BadIdentity, or another Rejected of the DID's own host, where it has none that can be used, and
        Unavailable where that cannot be told now; both only of a DID of which nothing is known.
        """
        now = self._clock()
        held = await self._recall(did)
        if not held.holds(now - max_age) and not held.rests(now):
            held = await self._look_up(did, held, forced=False, admit=admit)
        return held.resolved(did, now - max_age)

    async def refresh(self, did: str, *, admit: Callable[[], bool] | None = None) -> Resolved:
        """The identity looked up anew, after a bad signature; once in ten minutes, else what is held.

        `admit` as for `resolve`.
        """
        now = self._clock()
        held = await self._recall(did)
        if not held.was_forced(now):
            held = await self._look_up(did, held, forced=True, admit=admit)
        return held.resolved(did, now)

    async def keys_valid_at(self, did: str, time: datetime) -> frozenset[str]:
        """The did:keys whose signatures held at `time`, by the directory's audit log; raises what `resolve` raises.

        did:web keeps no history: its present key stands for all times.
        """
        require_known_method(did)
        if is_in_directory(did):
            log = await ask_directory(self._outbound, self._plc_url, did, "/log/audit", _AUDIT_LOG_LIMITS)
            return PlcExport.of_audit_log(did, log).keys_valid_at(did, time)
        key = (await self.resolve(did)).identity.signing_key
        return frozenset() if key is None else frozenset({key})

    async def _recall(self, did: str) -> _Held:
        require_known_method(did)
        held = self._remembered(did)
        if held is None and did not in self._under_way:
            await self.load([did])
            held = self._remembered(did)
        return held or _Held()

    def _remembered(self, did: str) -> _Held | None:
        return self._known.get(did) or self._unknown.get(did)

    def _keep(self, did: str, held: _Held) -> None:
        if held.identity is None:
            self._unknown.put(did, held)
        else:
            self._unknown.drop(did)
            self._known.put(did, held)

    async def _look_up(self, did: str, held: _Held, *, forced: bool, admit: Callable[[], bool] | None) -> _Held:
        task = self._under_way.get(did)
        if task is None:
            if len(self._under_way) >= self._max_look_ups or (admit is not None and not admit()):
                return replace(held, failure=_Failure("too many identities are being looked up"))
            task = self._tasks.create_task(self._ask(did, held, forced=forced))
            self._under_way[did] = task
            task.add_done_callback(lambda _: self._under_way.pop(did, None))
        return await asyncio.shield(task)

    async def _ask(self, did: str, held: _Held, *, forced: bool) -> _Held:
        now = self._clock()
        asked = replace(held, asked_at=now, forced_at=now if forced else held.forced_at, failure=None)
        try:
            claimed = await self._claimed(did, now)
            identity, unsettled = await self._verify_handle(claimed)
            async with self._database.connection() as conn:
                await store_identity(conn, identity, unsettled)
            asked = replace(asked, identity=identity)
        except Rejected as failure:
            asked = replace(asked, failure=_Failure(failure.message, failure.reason))
        except Unavailable as failure:
            asked = replace(asked, failure=_Failure(failure.message))
        except Misconfigured:
            raise
        except Exception as bug:  # noqa: BLE001  the edge: one look-up must not take the others along
            get_logger().error("look_up_failed", did=did, exc_info=bug)
            asked = replace(asked, failure=_Failure("the look-up went wrong"))
        self._keep(did, asked)
        return asked

    async def _claimed(self, did: str, now: datetime) -> Identity:
        """What the DID's document says, its handle not verified yet."""
        document = await fetch_document(self._outbound, self._plc_url, did)
        if document is None:
            return Identity(did, None, None, None, tombstoned=True, resolved_at=now)
        return identity_of_document(document, now)

    async def _verify_handle(self, claimed: Identity) -> tuple[Identity, UnsettledHandle | None]:
        """The identity with its handle only if that points back; where that cannot be told, when to ask again."""
        if claimed.handle is None:
            return claimed, None
        try:
            verified = await self._handles.owner(claimed.handle) == claimed.did
        except Unavailable:
            return await self._unverified(claimed)
        return (claimed if verified else replace(claimed, handle=None)), None

    async def _unverified(self, claimed: Identity) -> tuple[Identity, UnsettledHandle]:
        """The identity with its handle only if that was verified before, by whichever process."""
        async with self._database.connection() as conn:
            held = await held_handle(conn, claimed.did)
        wait = min(HANDLE_RETRY_FIRST * 2**held.misses, HANDLE_RETRY_MAX)
        retry_at = self._clock() + wait * random.uniform(1.0, HANDLE_RETRY_JITTER)  # noqa: S311
        identity = claimed if held.handle == claimed.handle else replace(claimed, handle=None)
        return identity, UnsettledHandle(retry_at, min(held.misses + 1, _MISSES_COUNTED))


@dataclass(frozen=True, slots=True)
class _Failure:
    """How a look-up ended. Kept instead of the exception, which would keep its whole stack."""

    message: str
    reason: str | None = None  # of a Rejected; null: Unavailable

    def error(self, did: str) -> Rejected | Unavailable:
        """As it is raised to whoever asks."""
        if self.reason is None:
            return IdentityUnavailable(self.message, did=did)
        return BadIdentity(self.message, reason=self.reason, did=did)


@dataclass(frozen=True, slots=True)
class _Held:
    """What is known of one DID."""

    identity: Identity | None = None
    asked_at: datetime | None = None  # when the last look-up began; null: none that we know of
    forced_at: datetime | None = None  # the last that was forced
    failure: _Failure | None = None  # of the last look-up

    def holds(self, since: datetime) -> bool:
        """Whether there is an identity as young as that."""
        return self.identity is not None and self.identity.resolved_at >= since

    def rests(self, now: datetime) -> bool:
        """Whether the last look-up is so short a while ago that it stands."""
        answered = self.failure is None or self.failure.reason is not None
        return self.asked_at is not None and now - self.asked_at < (LOOK_UP_INTERVAL if answered else RETRY_INTERVAL)

    def was_forced(self, now: datetime) -> bool:
        """Whether a look-up was forced so short a while ago."""
        return self.forced_at is not None and now - self.forced_at < LOOK_UP_INTERVAL

    def resolved(self, did: str, since: datetime) -> Resolved:
        """As it is given to whoever asked for one as young as that; raises where there is none at all."""
        if self.identity is not None:
            return Resolved(self.identity, stale=self.identity.resolved_at < since)
        raise (self.failure or _Failure("it was never looked up")).error(did)


class _Recent:
    """The entries that were used last."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[str, _Held] = OrderedDict()

    def __contains__(self, did: str) -> bool:
        return did in self._entries

    def get(self, did: str) -> _Held | None:
        held = self._entries.get(did)
        if held is not None:
            self._entries.move_to_end(did)
        return held

    def put(self, did: str, held: _Held) -> None:
        self._entries[did] = held
        self._entries.move_to_end(did)
        if len(self._entries) > self._capacity:
            self._entries.popitem(last=False)

    def drop(self, did: str) -> None:
        self._entries.pop(did, None)
