"""Has repos that were named, or are found by a search, fetched until each has been tried once.

Other processes may fetch them too: what is told comes from the database, which all share. What failed, and what belongs
to hosts that cannot be asked for a while, is left to whoever fetches next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic

from indexer.resync.crew import Crew
from indexer.resync.named import Named, Outcome
from indexer.resync.search import Search
from indexer.resync.watch import FetchWatch
from indexer.resync.worker import HostWorker
from memory.errors import Rejected
from memory.outbound_errors import HostUnavailable
from memory.tasks import TaskGroup


@dataclass(slots=True)
class Report:
    """What a run did, and what it left."""

    found: int  # that may hold memories, or were named
    new: int  # of them, that were not tracked before
    whole: int  # that needed no fetch
    fetched: int  # by this command
    records: int  # of all collections, verified in those
    failed: dict[str, int]  # reason → repos that wait for another attempt
    waiting: int  # repos whose hosts cannot be asked for a while
    continued_from: datetime | None  # when the sweep began that an earlier run left unfinished
    broken_off: str | None  # why the search did not come to its end; null: it did
    named: list[Outcome] = field(default_factory=list[Outcome])
    seconds: float = 0.0

    @property
    def hopeless(self) -> list[Outcome]:
        """What was named, and nobody will try to fetch."""
        return [outcome for outcome in self.named if outcome.reason is not None and outcome.next_attempt is None]

    @property
    def succeeded(self) -> bool:
        """Whether all that was named was fetched, and the search came to its end."""
        return self.broken_off is None and all(outcome.reason is None for outcome in self.named)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is."""

    asked: int  # repos to be fetched, as far as they are known
    left: int  # of them, those that have not been tried yet
    failed: Counter[str]  # by reason


class Backfill:
    """One run."""

    def __init__(
        self,
        worker: HostWorker,
        watch: FetchWatch,
        *,
        search: Search | None,
        named: Named,
        crew: Crew | None = None,
    ) -> None:
        """`crew` fetches along; null: the worker is alone."""
        self._crew = crew or Crew(())
        self._worker = worker
        self._watch = watch
        self._search = search
        self._named = named
        self._left_at_first = 0
        self._failed_at_first: Counter[str] = Counter()
        self._asked_when_counted = 0
        self._fetched_before = self._records_before = 0

    @property
    def progress(self) -> Progress:
        """As it was when that was last looked at."""
        asked = self._asked
        if self._search is None:
            failed = Counter(outcome.reason for outcome in self._named.outcomes if outcome.reason is not None)
            return Progress(asked, asked - self._named.settled, failed)
        left = self._watch.left + asked - self._asked_when_counted
        total = max(self._left_at_first + asked, left)
        return Progress(total, left, self._watch.failed - self._failed_at_first)

    @property
    def _asked(self) -> int:
        """How many repos this run has asked for."""
        found = 0 if self._search is None else self._search.progress.asked
        return found + len(self._named.subjects)

    async def run(self, subjects: Sequence[str]) -> Report:
        """Fetches what was named by `subjects`, and what the search finds, together with what waited before.

        Raises HostUnavailable and Rejected where the search does, and nothing was found.
        """
        began, began_at = monotonic(), await self._watch.database_time()
        self._fetched_before, self._records_before = self._worker.fetched, self._worker.records
        broken_off: str | None = None
        async with TaskGroup() as tasks:
            working = [
                tasks.create_task(self._worker.run()),
                tasks.create_task(self._crew.run()),
            ]
            if self._search is not None:
                await self._watch.count_once()
                self._left_at_first, self._failed_at_first = self._watch.left, self._watch.failed
                working.append(tasks.create_task(self._keep_counting()))
            await self._named.order(subjects)
            if self._search is not None:
                broken_off = await _to_its_end(self._search)
            asked_until = await self._watch.database_time()
            if self._search is not None:
                await self._watch.until_tried(asked_until)
            await self._watch.until_settled(self._named.subjects, self._named.settle)
            for task in working:
                task.cancel()
        report = await self._report(began_at, asked_until, broken_off)
        report.seconds = round(monotonic() - began, 3)
        return report

    async def _keep_counting(self) -> None:
        while True:
            began, asked = monotonic(), self._asked
            await self._watch.count_once()
            self._asked_when_counted = asked
            await self._watch.rest(began)

    async def _report(self, began_at: datetime, asked_until: datetime, broken_off: str | None) -> Report:
        named = self._named.outcomes
        failed: dict[str, int] = {}
        found, new, whole, waiting, continued_from = len(named), self._named.new, 0, 0, None
        if self._search is None:
            failed = Counter(
                outcome.reason for outcome in named if outcome.reason is not None and outcome.next_attempt is not None
            )
        else:
            progress = self._search.progress
            found, new, whole = found + progress.found, new + progress.new, progress.whole
            continued_from = progress.continued_from
            by_reason = await self._watch.waiting(continued_from or began_at, asked_until)
            waiting = by_reason.get(None, 0)
            failed = {reason: repos for reason, repos in by_reason.items() if reason is not None}
        return Report(
            found=found,
            new=new,
            whole=whole,
            fetched=self._worker.fetched - self._fetched_before + self._crew.fetched,
            records=self._worker.records - self._records_before + self._crew.records,
            failed=failed,
            waiting=waiting,
            continued_from=continued_from,
            broken_off=broken_off,
            named=named,
        )


async def _to_its_end(search: Search) -> str | None:
    """Runs a search; why it broke off although it had found something, or null."""
    try:
        await search.run()
    except (HostUnavailable, Rejected) as failure:
        if not search.progress.listed and search.progress.continued_from is None:
            raise
        return failure.message
    return None
