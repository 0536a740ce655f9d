"""What `backfill` and `resync` have in common: what they take, and how they say how far they are."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from indexer.progress import Pace, bar, duration
from indexer.resync.backfill import Progress
from indexer.resync.discovery import parse_subject
from indexer.resync.named import NOT_ADMITTED, NOT_TRACKED, Outcome
from indexer.resync.search import SearchProgress
from indexer.resync.watch import HOST_AWAY
from memory.errors import Misconfigured

MOST_AT_ONCE: Final = 64
MOST_PROCESSES: Final = 16

_WORDS: Final = {
    "unknown_handle": "no such handle",
    "unknown_did": "no such DID",
    "unavailable": "cannot be looked up at the moment",
    "host_unavailable": "its host does not answer",
    "disk_unavailable": "no room on the disk of INDEXER_SPOOL_DIR; `python -m indexer doctor` tells",
    "denied": "taken down here; `python -m indexer restore` lifts that",
    HOST_AWAY: "its host cannot be asked at the moment",
    NOT_ADMITTED: "not among those that INDEXER_REPOS admits",
    NOT_TRACKED: "not tracked; `python -m indexer backfill` takes it in",
}


# What is taken


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


# What is said


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
        if search.is_held_up:
            parts.append("it is read on when more of them are verified")
    elif rate > 0 and progress.left:
        parts.append(f"{duration(progress.left / rate)} to go")
    if progress.failed:
        parts.append(f"{progress.failed.total():,} failed ({count_by_reason(progress.failed)})")
    return ", ".join(parts)


def remaining(failed: Mapping[str, int], waiting: int) -> list[str]:
    """What is left to be done: by reason what failed, and how many could not even be tried."""
    lines: list[str] = []
    if failed:
        reasons = count_by_reason(Counter(failed))
        lines.append(f"Failed: {sum(failed.values()):,} ({reasons}); `python -m indexer run` tries again.")
    if waiting:
        lines.append(f"Not tried yet: {waiting:,}, whose hosts cannot be asked now; `python -m indexer run` will.")
    return lines


def describe(outcome: Outcome) -> str:
    """Why one that was named was not fetched."""
    reason = outcome.reason or ""
    words = _WORDS.get(reason, f"not fetched: {reason}")
    who = outcome.subject if outcome.did in (None, outcome.subject) else f"{outcome.subject} ({outcome.did})"
    again = "" if outcome.next_attempt is None else f"; tried again from {time_text(outcome.next_attempt)} on"
    return f"{who}: {words}{again}"


def count_by_reason(failed: Counter[str]) -> str:
    """The most frequent first."""
    return ", ".join(f"{reason} {repos:,}" for reason, repos in failed.most_common())


def time_text(at: datetime) -> str:
    """To the second, in UTC."""
    return f"{at:%Y-%m-%d %H:%M:%S} UTC"
