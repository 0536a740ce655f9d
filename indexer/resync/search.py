"""Looks through a list of repos: has those tracked that may hold memories, and fetched those that are not whole.

Each page is two transactions. The first tracks what it names. The second, once daemons can see that, asks for fetches,
which wait until every daemon does, and stores the position: killed at any point, the next search goes on from there,
and at most one page is read again.

Who lists repos can make up any. So only so many of one list, and of all, are taken in of which nothing was verified
yet; the list is read on when fetches have verified some of them.
"""

from __future__ import annotations

import asyncio
import random
from bisect import bisect_right
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from indexer.patience import patiently
from indexer.resync.discovery import OPERATOR, DiscoveryPage, Found
from indexer.resync.sweeps import CursorRefused
from indexer.resync.waits import next_wait_s
from indexer.store import fetches
from indexer.store.fetches import SharedClock, Sweep, database_clock
from memory.database import Database
from memory.did_documents import is_resolvable
from memory.errors import Rejected
from memory.outbound_errors import HostUnavailable

ATTEMPTS: Final = 6  # to read on where a server does not answer
LONGEST_WAIT_S: Final = 600.0  # that a server may ask for
LISTED_A_PAGE: Final = 1000
LOOK_FOR_ROOM_S: Final = 5.0
LOOKS_FOR_ROOM: Final = 120  # on end, with never less to be verified than at the first of them

Pages = Callable[[str | None], AsyncGenerator[DiscoveryPage]]
"""The pages of a list from a position on, as one of them gave it; null: from the beginning."""


class TooManyUnverified(Rejected):
    """Nothing could be verified yet of too many repos that are listed."""

    reason = "too_many_unverified"


@dataclass(frozen=True, slots=True)
class Room:
    """How many repos are taken in from lists before something of them is verified; a page more is no matter."""

    of_one: int = 200_000
    of_all: int = 1_000_000


@dataclass(slots=True)
class SearchProgress:
    """What one search has done so far."""

    listed: int = 0  # repos on the pages that were read
    found: int = 0  # of them, that may hold memories
    new: int = 0  # of those, that were not tracked
    whole: int = 0  # that need no fetch
    asked: int = 0  # whose fetch was not asked for yet
    continued_from: datetime | None = None  # when the sweep began that an earlier search left unfinished
    waits_s: float | None = None  # the server does not answer, and is asked again after that
    is_held_up: bool = False  # of too many that were found nothing is verified yet
    finished: bool = False


class Search:
    """One search through the list of `origin`, a URL or `OPERATOR`."""

    def __init__(
        self,
        database: Database,
        origin: str,
        pages: Pages,
        *,
        clock: Callable[[], datetime],
        randomness: random.Random,
        admits: Callable[[str], bool] = lambda _: True,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        room: Room | None = None,
        shared_clock: SharedClock = database_clock,
    ) -> None:
        """`admits`: which DIDs may be tracked. `room`: of other lists than an operator's own."""
        self.progress = SearchProgress()
        self._database = database
        self._origin = origin
        self._pages = pages
        self._clock = clock
        self._randomness = randomness
        self._admits = admits
        self._sleep = sleep
        self._shared_clock = shared_clock
        self._room = room or Room()
        self._room_left = 0  # at the least

    async def prepare(self) -> None:
        """Learns whether there is a sweep to be continued; `progress` says so."""
        sweep = await self._last_sweep()
        if sweep is not None and sweep.finished_at is None:
            self.progress.continued_from = sweep.started_at

    async def run(self) -> None:
        """To the end of the list. A server that does not answer is asked again a few times.

        Raises HostUnavailable where it still does not, TooManyUnverified, and Rejected as Discovery does. What was
        found until then is asked for, and the next search goes on from there.
        """
        sweep = await self._last_sweep()
        if sweep is None or sweep.finished_at is not None:
            sweep = Sweep(None, 0, self._clock())
        failures, begun_anew = 0, False
        while not self.progress.finished:
            try:
                async with aclosing(self._pages(sweep.page_cursor)) as pages:
                    async for page in pages:
                        sweep = await self._take(page, sweep)
                        failures = 0
            except HostUnavailable as failure:
                failures += 1
                wait_s = next_wait_s(failures, self._randomness, retry_after_s=failure.retry_after_s)
                if failures == ATTEMPTS or wait_s > LONGEST_WAIT_S:
                    raise
                self.progress.waits_s = wait_s
                await self._sleep(wait_s)
                self.progress.waits_s = None
            except CursorRefused:
                if begun_anew:
                    raise
                begun_anew, sweep = True, Sweep(None, 0, self._clock())

    async def _last_sweep(self) -> Sweep | None:
        async with self._database.connection() as conn:
            return await fetches.sweep(conn, self._origin)

    async def _take(self, page: DiscoveryPage, before: Sweep) -> Sweep:
        """Has the repos of a page tracked and asked for; how far the sweep is then."""
        now, progress = self._clock(), self.progress
        # Who lists them can make up any DIDs: one that nobody can resolve would be tried for ever.
        repos = [
            (found.did, found.host) for found in page.found if is_resolvable(found.did) and self._admits(found.did)
        ]
        sweep = replace(
            before,
            page_cursor=page.position,
            repos_found=before.repos_found + len(repos),
            finished_at=now if page.position is None else None,
        )
        if self._room_left <= 0 and self._origin != OPERATOR:
            await self._make_room(before)
        self._room_left -= len(repos)
        progress.new += await patiently(lambda: self._track(repos), "discovery", lambda: None)
        asked, whole = await patiently(
            lambda: self._ask([did for did, _ in repos], sweep, now), "discovery", lambda: None
        )
        progress.listed += page.listed
        progress.found += len(repos)
        progress.whole += whole
        progress.asked += asked
        progress.finished = page.position is None
        return sweep

    async def _make_room(self, sweep: Sweep) -> None:
        """Waits until more can be taken in. Raises TooManyUnverified where nothing is verified meanwhile."""
        looks, most = 0, None
        while True:
            of_one, of_all = await patiently(self._count_unverified, "discovery", lambda: None)
            self._room_left = min(self._room.of_one - of_one, self._room.of_all - of_all)
            self.progress.is_held_up = self._room_left <= 0
            if not self.progress.is_held_up:
                return
            if most is None:
                await patiently(lambda: self._hold_up(sweep), "discovery", lambda: None)
            looks, most = (1, self._room_left) if most is None or self._room_left > most else (looks + 1, most)
            if looks > LOOKS_FOR_ROOM:
                raise TooManyUnverified(
                    f"Nothing could be verified yet of {of_one:,} repos that {self._origin} lists, and of {of_all:,} "
                    "of all lists"
                )
            await self._sleep(LOOK_FOR_ROOM_S)

    async def _count_unverified(self) -> tuple[int, int]:
        async with self._database.connection() as conn:
            return await fetches.count_unverified(conn, self._origin, 2 * self._room.of_one, 2 * self._room.of_all)

    async def _hold_up(self, sweep: Sweep) -> None:
        async with self._database.connection() as conn:
            await fetches.hold_up_sweep(conn, self._origin, sweep, self._clock())

    async def _track(self, repos: Sequence[tuple[str, str | None]]) -> int:
        listed_by = None if self._origin == OPERATOR else self._origin
        async with self._database.transaction() as conn:
            return await fetches.track(conn, repos, self._shared_clock(), listed_by=listed_by)

    async def _ask(self, repos: Sequence[str], sweep: Sweep, now: datetime) -> tuple[int, int]:
        async with self._database.transaction() as conn:
            asked = await fetches.fetch_unfetched(conn, repos, self._shared_clock())
            whole = await fetches.count_whole(conn, repos)
            await fetches.store_sweep(conn, self._origin, sweep, now)
            return asked, whole


def pages_of(dids: Iterable[str], page_repos: int = LISTED_A_PAGE) -> Pages:
    """An operator's own list as pages; a position is the last DID that was read."""
    ordered = sorted(set(dids))

    async def pages(position: str | None) -> AsyncGenerator[DiscoveryPage]:
        start = 0 if position is None else bisect_right(ordered, position)
        while True:
            part = ordered[start : start + page_repos]
            start += page_repos
            last = start >= len(ordered)
            found = [Found(did, None, OPERATOR) for did in part]
            yield DiscoveryPage(found, None if last else part[-1], len(part))
            if last:
                return

    return pages
