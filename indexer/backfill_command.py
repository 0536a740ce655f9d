"""`python -m indexer backfill`: what it takes, what it shows meanwhile, and what it says at the end."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from indexer.fetch_command import (
    add_worker_arguments,
    describe,
    parse_subjects,
    remaining,
    render,
    time_text,
)
from indexer.progress import Pace, ProgressLine, duration
from indexer.repair import OpenRepair
from indexer.resync.backfill import Backfill, Report
from indexer.resync.crew import Crew
from indexer.resync.discovery import OPERATOR, Discovery, read_subjects
from indexer.resync.named import Named, Outcome
from indexer.resync.search import Search, SearchProgress, pages_of
from indexer.resync.watch import FetchWatch
from memory.database import Database
from memory.errors import Misconfigured
from memory.identifiers import normalise_source

HELP: Final = """\
Brings in memories that were written before the daemon ran. A relay, a collection directory or a PDS says who has any;
each repo that is not whole is fetched from its own PDS, verified, and compared with what is held.

  python -m indexer backfill                                     # everybody that the first relay knows
  python -m indexer backfill --discover https://pds.example.com  # everybody on one PDS
  python -m indexer backfill alice.example.com did:plc:…         # these, anew
  python -m indexer backfill --file repos.txt                    # one DID or handle a line, # starts a comment

It may be stopped at any moment, and goes on at the next call from where it was. It may run beside daemons and beside
others of its kind, on any number of machines: no two fetch one repo. What fails is left to `python -m indexer run`,
which tries again.
"""


@dataclass(frozen=True, slots=True)
class Plan:
    """What one call is to do."""

    subjects: Sequence[str]  # DIDs and handles that were named
    origin: str | None  # the server whose list is read, or `OPERATOR`; null: none
    because: str  # why that one
    listed: Collection[str]  # the list where it is the operator's own
    as_json: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line."""
    parser.add_argument("repos", nargs="*", metavar="DID|HANDLE", help="fetch these, also where they are whole")
    parser.add_argument(
        "--discover", metavar="URL", help="who lists repos: a relay, collection directory or PDS (default: the first "
        "of INDEXER_RELAY_URLS, else of INDEXER_PDS_URLS, if nobody is named)",
    )  # fmt: skip
    parser.add_argument("--file", type=Path, metavar="LIST", help="fetch those in this file, one DID or handle a line")
    add_worker_arguments(parser)
    parser.add_argument("--json", action="store_true", help="end with one line of JSON on stdout")


def plan(
    options: argparse.Namespace, *, relays: Sequence[str], pdses: Sequence[str], listed: Collection[str] | None
) -> Plan:
    """What to do by the command line, and by the settings where that leaves it open; `listed`: only those are admitted.

    Raises Misconfigured.
    """
    subjects = parse_subjects(options.repos)
    if options.file is not None:
        subjects += read_subjects(options.file)
        if not subjects:
            raise Misconfigured(f"{options.file} names nobody.")
    origin, because = None, ""
    if options.discover is not None:
        try:
            origin = normalise_source(options.discover)
        except ValueError as error:
            raise Misconfigured(f"--discover {options.discover}: {error}.", setting="--discover") from error
    elif not subjects and listed is not None:
        origin, because = OPERATOR, " (INDEXER_REPOS)"
    elif not subjects:
        origin, because = _first_of(relays, pdses)
    return Plan(list(dict.fromkeys(subjects)), origin, because, listed or (), options.json)


def _first_of(relays: Sequence[str], pdses: Sequence[str]) -> tuple[str, str]:
    if relays:
        return relays[0], " (the first of INDEXER_RELAY_URLS)"
    if pdses:
        return pdses[0], " (the first of INDEXER_PDS_URLS)"
    raise Misconfigured(
        "Nobody to fetch: name DIDs or handles, give a list by --file, say by --discover who lists repos, or name a "
        "relay in INDEXER_RELAY_URLS.",
        setting="INDEXER_RELAY_URLS",
    )


async def run(
    plan: Plan,
    database: Database,
    repair: OpenRepair,
    crew: Crew,
    *,
    clock: Callable[[], datetime],
    admits: Callable[[str], bool],
) -> int:
    """Does it. 0: done; 1: one that was named was not fetched, or the list could not be read to its end."""
    line = ProgressLine(sys.stderr)

    def tell(outcome: Outcome) -> None:
        if outcome.reason is not None:
            line.say(describe(outcome))

    search = None
    if plan.origin is not None:
        search = _search(plan, plan.origin, database, repair, clock, admits)
        await search.prepare()
        line.say(_beginning(plan, search.progress))
    named = Named(database, repair.handles, repair.resolver, tell=tell, admits=admits)
    watch = FetchWatch(database, repair.hosts)
    backfill = Backfill(repair.worker, watch, search=search, named=named, crew=crew)
    pace = Pace()
    showing = asyncio.create_task(
        line.keep(lambda: render(backfill.progress, search and search.progress, pace, interactive=line.interactive))
    )
    try:
        report = await backfill.run(plan.subjects)
    except asyncio.CancelledError:
        line.say("Interrupted: the next call goes on from where this one was.")
        raise
    finally:
        showing.cancel()
        line.clear()
    sys.stdout.write((to_json(report) if plan.as_json else summary(report)) + "\n")
    return 0 if report.succeeded else 1


def _search(
    plan: Plan,
    origin: str,
    database: Database,
    repair: OpenRepair,
    clock: Callable[[], datetime],
    admits: Callable[[str], bool],
) -> Search:
    randomness = random.Random()  # noqa: S311  spreads attempts, hides nothing

    async def host_of(did: str) -> str | None:
        return (await repair.resolver.resolve(did)).identity.host

    if origin == OPERATOR:
        pages = pages_of(plan.listed)
    else:
        pages = Discovery(repair.hosts, origin, randomness=randomness, host_of=host_of).pages
    return Search(database, origin, pages, clock=clock, randomness=randomness, admits=admits)


# What is said


def _beginning(plan: Plan, progress: SearchProgress) -> str:
    where = "Going through the list of repos" if plan.origin == OPERATOR else f"Discovering repos at {plan.origin}"
    if progress.continued_from is None:
        return f"{where}{plan.because}"
    return f"{where}{plan.because}: continuing the sweep begun at {time_text(progress.continued_from)}"


def summary(report: Report) -> str:
    """What was done, for people."""
    lines = [
        f"Found {report.found:,} repos: {report.new:,} new, {report.whole:,} already whole.",
        f"Fetched {report.fetched:,} with {report.records:,} records, all verified, in {duration(report.seconds)}.",
        *remaining(report.failed, report.waiting),
    ]
    if report.broken_off is not None:
        why = report.broken_off.rstrip(".")
        lines.append(f"The list was not read to its end: {why}. The next call goes on from there.")
    return "\n".join(lines)


def to_json(report: Report) -> str:
    """What was done, in one line."""
    failures = Counter(report.failed) + Counter(str(outcome.reason) for outcome in report.hopeless)
    not_fetched = [asdict(outcome) for outcome in report.named if outcome.reason is not None]
    told = asdict(report) | {"failed": failures.total(), "failures": failures, "named": not_fetched}
    return json.dumps(told, default=datetime.isoformat)
