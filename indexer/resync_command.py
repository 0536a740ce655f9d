"""`python -m indexer resync`: has tracked repos fetched anew, whatever is known of them."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from indexer.fetch_command import add_worker_arguments, describe, parse_subjects, remaining, render
from indexer.progress import Pace, ProgressLine
from indexer.repair import OpenRepair
from indexer.repo_state import RepoState
from indexer.resync.backfill import Progress
from indexer.resync.crew import Crew
from indexer.resync.named import Named, Outcome, order_all
from indexer.resync.watch import FetchWatch
from memory.database import Database
from memory.errors import Misconfigured
from memory.tasks import TaskGroup

HELP: Final = """\
Has tracked repos fetched anew from their own PDSes and compared with what is held, also those that count as whole. The
orders are written down; `python -m indexer run` carries them out, or this command itself with --wait.

  python -m indexer resync alice.example.com did:plc:…
  python -m indexer resync --state error --wait
  python -m indexer resync --all
"""

STATES: Final = (RepoState.ERROR, RepoState.PENDING, RepoState.DESYNCHRONIZED)


@dataclass(frozen=True, slots=True)
class Plan:
    """What one call is to do."""

    subjects: Sequence[str]  # DIDs and handles; none: all of `state`
    state: RepoState | None  # null: of any
    wait: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument("repos", nargs="*", metavar="DID|HANDLE", help="these")
    parser.add_argument("--all", action="store_true", help="all that are tracked")
    parser.add_argument("--state", choices=[str(state) for state in STATES], help="all in this state")
    parser.add_argument("--wait", action="store_true", help="fetch them here, and wait until each has been tried")
    add_worker_arguments(parser)


def plan(options: argparse.Namespace) -> Plan:
    """What to do by the command line; raises Misconfigured."""
    if bool(options.repos) + options.all + (options.state is not None) != 1:
        raise Misconfigured("One of these is needed: DIDs or handles, --all, or --state.")
    state = None if options.state is None else RepoState(options.state)
    return Plan(list(dict.fromkeys(parse_subjects(options.repos))), state, options.wait)


async def run(plan: Plan, database: Database, repair: OpenRepair, crew: Crew) -> int:
    """Does it. 0: done; 1: one that was named is not tracked, or was not fetched."""
    line = ProgressLine(sys.stderr)

    def tell(outcome: Outcome) -> None:
        if outcome.reason is not None:
            line.say(describe(outcome))

    named = Named(database, repair.handles, repair.resolver, tell=tell, track=False)
    try:
        if plan.subjects:
            await named.order(plan.subjects)
            ordered = len(named.subjects)
        else:
            ordered = await _order_all(plan.state, database, line)
        if not ordered:
            sys.stdout.write("There is nothing to fetch.\n")
        elif plan.wait:
            await _Waiting(FetchWatch(database, repair.hosts), repair, crew, named, line).run(ordered)
        else:
            sys.stdout.write(f"Ordered {ordered:,} fetches: `python -m indexer run` makes them, or `repair`.\n")
    except asyncio.CancelledError:
        line.say("Interrupted: what was ordered by then stays ordered.")
        raise
    finally:
        line.clear()
    return 1 if any(outcome.reason is not None for outcome in named.outcomes) else 0


async def _order_all(state: RepoState | None, database: Database, line: ProgressLine) -> int:
    so_far = [0]
    showing = asyncio.create_task(line.keep(lambda: f"{so_far[-1]:,} ordered"))
    try:
        return await order_all(database, state, so_far.append)
    finally:
        showing.cancel()
        line.clear()


class _Waiting:
    """Fetches what was ordered, until each has been tried."""

    def __init__(self, watch: FetchWatch, repair: OpenRepair, crew: Crew, named: Named, line: ProgressLine) -> None:
        self._watch = watch
        self._crew = crew
        self._worker = repair.worker
        self._named = named
        self._line = line
        self._pace = Pace()

    async def run(self, ordered: int) -> None:
        """To the end, and says how it went."""
        asked_until = await self._watch.database_time()
        async with TaskGroup() as tasks:
            beside = [
                tasks.create_task(self._worker.run()),
                tasks.create_task(self._crew.run()),
                tasks.create_task(self._watch.count()),
                tasks.create_task(self._line.keep(lambda: self._render(ordered))),
            ]
            if self._named.subjects:
                await self._watch.until_settled(self._named.subjects, self._named.settle)
            else:
                await self._watch.until_tried(asked_until)
            for task in beside:
                task.cancel()
        self._line.clear()
        fetched, records = self._worker.fetched + self._crew.fetched, self._worker.records + self._crew.records
        sys.stdout.write(f"Fetched {fetched:,} with {records:,} records, all verified.\n")
        if not self._named.subjects:  # else each was told
            by_reason = await self._watch.waiting(datetime.min.replace(tzinfo=UTC), asked_until)
            failed = {reason: repos for reason, repos in by_reason.items() if reason is not None}
            sys.stdout.writelines(f"{said}\n" for said in remaining(failed, by_reason.get(None, 0)))

    def _render(self, ordered: int) -> str:
        if self._named.subjects:
            left = ordered - self._named.settled
            failed = Counter(outcome.reason for outcome in self._named.outcomes if outcome.reason is not None)
        else:
            left, ordered = self._watch.left, max(ordered, self._watch.left)
            failed = self._watch.failed
        return render(Progress(ordered, left, failed), None, self._pace, interactive=self._line.interactive)
