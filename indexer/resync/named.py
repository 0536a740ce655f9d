"""Repos that an operator named: tracked, and ordered to be fetched also where they are whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Final

from indexer.patience import patiently
from indexer.repo_state import RepoState
from indexer.resync.discovery import Unresolved, resolve_subjects
from indexer.resync.watch import Settled
from indexer.resync.worker import CLAIM
from indexer.store import fetches
from indexer.store.fetches import SharedClock, database_clock
from memory.database import Database
from memory.errors import Rejected, Unavailable
from memory.handles import Handles
from memory.resolver import IdentityResolver
from memory.tasks import TaskGroup

ORDERED: Final = "ordered"  # the reason for the fetch
NOT_ADMITTED: Final = "not_admitted"
NOT_TRACKED: Final = "not_tracked"

NAMED_AT_ONCE: Final = 64
ORDERED_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a repo that was named."""

    subject: str  # as it was named
    did: str | None
    reason: str | None  # why it was not fetched; null: it was
    next_attempt: datetime | None = None  # null: it was fetched, or nobody will try


class Named:
    """Repos by their DIDs and handles."""

    def __init__(
        self,
        database: Database,
        handles: Handles,
        resolver: IdentityResolver,
        *,
        tell: Callable[[Outcome], None],
        admits: Callable[[str], bool] = lambda _: True,
        track: bool = True,
        shared_clock: SharedClock = database_clock,
    ) -> None:
        """`tell` hears of each as soon as it is known what becomes of it. `track`: whether unknown ones are tracked."""
        self.subjects: dict[str, str] = {}  # DIDs that were ordered → as they were named
        self.settled = 0  # of these
        self.outcomes: list[Outcome] = []
        self.new = 0  # that were not tracked before
        self._database = database
        self._handles = handles
        self._resolver = resolver
        self._shared_clock = shared_clock
        self._tell = tell
        self._admits = admits
        self._track = track

    async def order(self, subjects: Iterable[str]) -> None:
        """Tracks them, and then, once daemons can see that, orders the fetches."""
        waiting = iter(subjects)
        while chunk := list(islice(waiting, NAMED_AT_ONCE)):
            found = [each async for each in resolve_subjects(chunk, self._handles)]
            dids: dict[str, str] = {}
            for subject, each in zip(chunk, found, strict=True):
                if isinstance(each, Unresolved):
                    self._settle(Outcome(subject, None, each.reason))
                elif not self._admits(each.did):
                    self._settle(Outcome(subject, each.did, NOT_ADMITTED))
                else:
                    dids[each.did] = subject
            for did, reason in (await self._unknown(dids)).items():
                self._settle(Outcome(dids.pop(did), did, reason))
            await self._order(dids)

    def settle(self, settled: Settled) -> None:
        """Takes down what became of one that was ordered."""
        self.settled += 1
        subject = self.subjects[settled.repo]
        self._settle(Outcome(subject, settled.repo, settled.reason, settled.next_attempt))

    def _settle(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self._tell(outcome)

    async def _unknown(self, dids: Iterable[str]) -> dict[str, str]:
        """Those that are nobody's, with the reason: a slip of the pen must not be tracked for ever."""

        async def refusal(did: str) -> str | None:
            try:
                await self._resolver.resolve(did)
            except Rejected as refused:
                return str(refused.reason)
            except Unavailable:
                return None  # the fetch waits until it can be told
            return None

        async with TaskGroup() as tasks:
            refusals = {did: tasks.create_task(refusal(did)) for did in dids}
        return {did: reason for did, task in refusals.items() if (reason := task.result()) is not None}

    async def _order(self, dids: dict[str, str]) -> None:
        repos = list(dids)
        if self._track:
            self.new += await patiently(lambda: self._begin_to_track(repos), "order", lambda: None)
        ordered = await patiently(lambda: self._order_now(repos), "order", lambda: None)
        for did, subject in dids.items():
            if did in ordered:
                self.subjects[did] = subject
            else:
                self._settle(Outcome(subject, did, NOT_TRACKED))

    async def _begin_to_track(self, dids: Sequence[str]) -> int:
        async with self._database.transaction() as conn:
            return await fetches.track(conn, [(did, None) for did in dids], self._shared_clock())

    async def _order_now(self, dids: Sequence[str]) -> set[str]:
        async with self._database.transaction() as conn:
            return await fetches.order_fetches(conn, dids, ORDERED, CLAIM, self._shared_clock())


async def order_all(
    database: Database,
    state: RepoState | None,
    tell: Callable[[int], None],
    shared_clock: SharedClock = database_clock,
) -> int:
    """Orders fetches of all tracked repos of one state, or of all; how many. `tell` hears how many so far."""
    ordered, after = 0, ""
    while True:

        async def order_page(after: str = after) -> list[str]:
            async with database.transaction() as conn:
                page = await fetches.repos_after(conn, after, state, ORDERED_AT_ONCE)
                await fetches.order_fetches(conn, page, ORDERED, CLAIM, shared_clock())
                return page

        page = await patiently(order_page, "order", lambda: None)
        if not page:
            return ordered
        ordered, after = ordered + len(page), page[-1]
        tell(ordered)
