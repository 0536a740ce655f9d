"""Tells how far fetches are, whoever makes them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from time import monotonic
from typing import Final, TypeVar

from indexer.patience import patiently
from indexer.resync.hosts import RepoHosts
from indexer.store import fetches
from indexer.store.fetches import FetchOutcome, SharedClock, database_clock
from memory.database import Database
from memory.queries import Connection

# What cannot be fetched within that, for its host is left alone, is not waited for.
HOST_PATIENCE: Final = timedelta(minutes=5)
HOST_AWAY: Final = "host_away"
LOOK_S: Final = 0.5
LOOKING_SHARE: Final = 20  # a look takes at most a twentieth of the time, however much there is to look through

_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Settled:
    """How the fetch of one repo ended for now."""

    repo: str
    reason: str | None  # why it is not whole; null: it is
    next_attempt: datetime | None


class FetchWatch:
    """Looks at the database again and again."""

    def __init__(
        self,
        database: Database,
        hosts: RepoHosts,
        *,
        look_s: float = LOOK_S,
        shared_clock: SharedClock = database_clock,
    ) -> None:
        # When that was last looked at:
        self.left = 0  # fetches of which no attempt has ended
        self.failed: Counter[str] = Counter()  # reason → those that failed and wait for another attempt
        self._database = database
        self._hosts = hosts
        self._shared_clock = shared_clock
        self._look_s = look_s

    async def database_time(self) -> datetime:
        """Now, by the clock that all share."""
        return await self._look(fetches.database_time)

    async def count(self) -> None:
        """Keeps `left` and `failed` up to date for all that waits, until cancelled."""
        while True:
            began = monotonic()
            await self.count_once()
            await self.rest(began)

    async def count_once(self) -> None:
        """Brings `left` and `failed` up to date."""
        counted = await self._look(fetches.count_fetches)
        self.left = counted.pop(None, 0)
        self.failed = Counter({str(reason): repos for reason, repos in counted.items()})

    async def until_tried(self, asked_until: datetime) -> None:
        """Waits until everything that was asked for until then, by the database's clock, has been tried once.

        What the hosts keep waiting for long is not waited for.
        """

        async def is_due(conn: Connection) -> bool:
            return await fetches.fetch_is_due(
                conn, asked_until, HOST_PATIENCE, self._hosts_away(), self._shared_clock()
            )

        while True:
            began = monotonic()
            if not await self._look(is_due):
                return
            await self.rest(began)

    async def until_settled(self, repos: Iterable[str], tell: Callable[[Settled], None]) -> None:
        """Waits until each of these, ordered before, is fetched, or was tried in vain, and tells of each."""
        waiting = list(repos)

        async def ask(conn: Connection) -> list[FetchOutcome]:
            return await fetches.outcomes_of_fetches(conn, waiting, HOST_PATIENCE, self._shared_clock())

        while waiting:
            began = monotonic()
            outcomes = await self._look(ask)
            away = self._hosts_away()
            open_: list[str] = []
            for outcome in outcomes:
                settled = self._settled(outcome, away)
                if settled is None:
                    open_.append(outcome.repo)
                else:
                    tell(settled)
            waiting = open_
            if waiting:
                await self.rest(began)

    async def waiting(self, asked_from: datetime, asked_until: datetime) -> dict[str | None, int]:
        """See `fetches.waiting_fetches`."""
        return await self._look(lambda conn: fetches.waiting_fetches(conn, asked_from, asked_until))

    def _settled(self, outcome: FetchOutcome, hosts_away: Sequence[str]) -> Settled | None:
        """How it ended; null: it has not."""
        if not outcome.waits:
            whole = outcome.state == "active" and outcome.visible
            reason = outcome.status if not outcome.visible else outcome.reason
            return Settled(outcome.repo, None if whole else reason or outcome.state, None)
        if outcome.failure is not None:
            return Settled(outcome.repo, outcome.failure, outcome.not_before)
        if outcome.is_far or outcome.host in hosts_away:
            return Settled(outcome.repo, HOST_AWAY, outcome.not_before)
        return None

    def _hosts_away(self) -> list[str]:
        return list(self._hosts.unavailable(HOST_PATIENCE.total_seconds()))

    async def _look(self, ask: Callable[[Connection], Awaitable[_Result]]) -> _Result:
        async def look() -> _Result:
            async with self._database.connection() as conn:
                return await ask(conn)

        return await patiently(look, "look", lambda: None)

    async def rest(self, began: float) -> None:
        """Waits between two looks, the last of which began then by the monotonic clock."""
        await asyncio.sleep(max(self._look_s, LOOKING_SHARE * (monotonic() - began)))
