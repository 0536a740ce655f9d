"""`python -m indexer backfill`: what it takes, what it shows meanwhile, and what it says at the end."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from indexer.progress import Pace, ProgressLine, bar, duration
from indexer.repair import OpenRepair
from indexer.resync.backfill import Backfill, Progress, Report
from indexer.resync.crew import Crew
from indexer.resync.discovery import OPERATOR, Discovery, parse_subject, read_subjects
from indexer.resync.named import NOT_ADMITTED, NOT_TRACKED, Named, Outcome
from indexer.resync.search import Search, SearchProgress, pages_of
from indexer.resync.watch import HOST_AWAY, FetchWatch
from memory.database import Database
from memory.errors import Misconfigured
from memory.identifiers import normalise_source

MOST_AT_ONCE: Final = 64
MOST_PROCESSES: Final = 16

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

_WORDS: Final = {
    "unknown_handle": "no such handle",
    "unknown_did": "no such DID",
    "unavailable": "cannot be looked up at the moment",
    "host_unavailable": "its host does not answer",
    "denied": "taken down here; `python -m indexer restore` lifts that",
    HOST_AWAY: "its host cannot be asked at the moment",
    NOT_ADMITTED: "not among those that INDEXER_REPOS admits",
    NOT_TRACKED: "not tracked; `python -m indexer backfill` takes it in",
}


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


def add_worker_arguments(parser: argparse.ArgumentParser) -> None:
    """What a command takes that fetches."""
    parser.add_argument(
        "--concurrency", type=_concurrency, metavar="N", help="repos at a time (default: INDEXER_FETCHES_AT_ONCE)"
    )
    parser.add_argument(
        "--processes", type=_processes, metavar="N", help="processes that share the work (default: one a core, "
        "where there are many repos, and each has four or more at a time)",
    )  # fmt: skip
    parser.add_argument(
        "--host-rate", type=_rate, metavar="R", help="requests a second to one host (default: INDEXER_HOST_RATE)"
    )


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


def parse_subjects(given: Sequence[str]) -> list[str]:
    """DIDs and handles out of a command line; raises Misconfigured, and names all that are neither."""
    subjects: list[str] = []
    nonsense: list[str] = []
    for text in given:
        try:
            subjects.append(parse_subject(text))
        except ValueError:
            nonsense.append(text)
    if nonsense:
        raise Misconfigured(f"Neither a DID nor a handle: {', '.join(nonsense)}.")
    return subjects


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
    named = Named(database, repair.handles, repair.resolver, clock=clock, tell=tell, admits=admits)
    watch = FetchWatch(database, repair.hosts, clock=clock)
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
    return f"{where}{plan.because}: continuing the sweep begun at {_time(progress.continued_from)}"


def render(progress: Progress, search: SearchProgress | None, pace: Pace, *, interactive: bool) -> str:
    """How far it is, in one line."""
    done = progress.asked - progress.left
    rate = pace.rate(done)
    parts = [f"{done:,} of {progress.asked:,} repos"]
    if interactive:
        parts[0] = f"{bar(done, progress.asked)} {parts[0]}"
    if rate > 0:
        parts.append(f"{rate:.1f}/s")
    if search is not None and not search.finished:
        parts.append(f"reading the list: {search.listed:,} seen, {search.found:,} found")
        if search.waits_s is not None:
            parts.append(f"it does not answer, asked again in {duration(search.waits_s)}")
    elif rate > 0 and progress.left:
        parts.append(f"{duration(progress.left / rate)} to go")
    if progress.failed:
        parts.append(f"{progress.failed.total():,} failed ({_by_reason(progress.failed)})")
    return ", ".join(parts)


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


def remaining(failed: Mapping[str, int], waiting: int) -> list[str]:
    """What is left to be done: by reason what failed, and how many could not even be tried."""
    lines: list[str] = []
    if failed:
        reasons = _by_reason(Counter(failed))
        lines.append(f"Failed: {sum(failed.values()):,} ({reasons}); `python -m indexer run` tries again.")
    if waiting:
        lines.append(f"Not tried yet: {waiting:,}, whose hosts cannot be asked now; `python -m indexer run` will.")
    return lines


def to_json(report: Report) -> str:
    """What was done, in one line."""
    failures = Counter(report.failed) + Counter(str(outcome.reason) for outcome in report.hopeless)
    not_fetched = [asdict(outcome) for outcome in report.named if outcome.reason is not None]
    told = asdict(report) | {"failed": failures.total(), "failures": failures, "named": not_fetched}
    return json.dumps(told, default=datetime.isoformat)


def describe(outcome: Outcome) -> str:
    """Why one that was named was not fetched."""
    reason = outcome.reason or ""
    words = _WORDS.get(reason, f"not fetched: {reason}")
    who = outcome.subject if outcome.did in (None, outcome.subject) else f"{outcome.subject} ({outcome.did})"
    again = "" if outcome.next_attempt is None else f"; tried again from {_time(outcome.next_attempt)} on"
    return f"{who}: {words}{again}"


def _by_reason(failed: Counter[str]) -> str:
    return ", ".join(f"{reason} {repos:,}" for reason, repos in failed.most_common())


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"


# What is taken


def _concurrency(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_AT_ONCE:
        raise argparse.ArgumentTypeError(f"it must be a whole number from 1 to {MOST_AT_ONCE}")
    return int(text)


def _processes(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MOST_PROCESSES:
        raise argparse.ArgumentTypeError(f"it must be a whole number from 1 to {MOST_PROCESSES}")
    return int(text)


def _rate(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1000:
        raise argparse.ArgumentTypeError("it must be a number greater than 0, and at most 1000")
    return number
