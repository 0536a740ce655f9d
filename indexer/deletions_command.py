"""`python -m indexer deletions` carries the list of deletions past a restore of the database; `takedown`, `restore`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

from indexer.arrivals import OPERATOR, Arrival, Batch, FetchOrdered, Place, RestoreOrdered, TakedownOrdered
from indexer.ledger import Ledger
from indexer.record_state import NOTHING_HELD
from indexer.store import deletions
from indexer.store.deletions import Deletion, Denial
from indexer.writer import Writer
from memory.database import Database
from memory.errors import Misconfigured
from memory.identifiers import is_did
from memory.space import PUBLIC

HELP: Final = """\
A backup holds what was deleted after it was made. The database keeps a list of what was deleted, as hashes, for
INDEXER_DELETION_DAYS; keep a copy of it elsewhere, and after a restore delete all of that again before you start
anything on it:

  python -m indexer deletions export --out deletions.jsonl      # every hour, to where backups are
  python -m indexer deletions apply deletions.jsonl             # after a restore, before the daemon and the API start
"""
EXPORT_HELP: Final = """\
Writes the list as one JSON object a line: first each deletion with its repo, the SHA-256 of what was deleted (the
at-uri of a record, or the DID) and the time; then each takedown that stands. A file is put in place when it is whole.

  python -m indexer deletions export --out deletions.jsonl
  python -m indexer deletions export --since 2026-11-01 >> deletions.jsonl
"""
APPLY_HELP: Final = """\
Deletes what a restored backup brought back: whatever was indexed before the list says that it was deleted, in tables,
versions and parked commits. What was indexed later was written again, and stays. Takedowns are taken over. Repos of
which something went are fetched when the daemon runs. All access tokens end, for some of them may have been revoked
since the backup was made: their owners make new ones. It may be broken off and run again, but later, when there are new
tokens, those end too; lines that are there twice count once. The last line on stdout is JSON.

  python -m indexer deletions apply deletions.jsonl
"""

LINES_AT_ONCE: Final = 500
REPOS_AT_ONCE: Final = 20
ORDERS_AT_ONCE: Final = 100
MAX_LINE_CHARACTERS: Final = 4096

Entry: TypeAlias = Deletion | Denial


@dataclass(slots=True)
class Applied:
    """What came of a list, as the last line on stdout tells."""

    deletions: int = 0  # lines
    takedowns: int = 0
    repos_deleted: int = 0  # that were held
    records_deleted: int = 0
    repos_to_fetch: int = 0  # of which parked commits went
    access_tokens_deleted: int = 0  # all that there were


def add_arguments(parser: argparse.ArgumentParser, do: Callable[[str], Callable[..., Any]]) -> None:
    """The command line; `do(action)` is what runs."""
    actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
    text = argparse.RawDescriptionHelpFormatter
    export = actions.add_parser(
        "export", help="write down what was deleted", description=EXPORT_HELP, formatter_class=text
    )
    export.add_argument("--since", metavar="TIME", help="what was deleted then or later, like 2026-11-01T12:00:00Z")
    export.add_argument("--out", type=Path, metavar="FILE", help="where to; else to stdout")
    export.set_defaults(command=do("export"))
    apply = actions.add_parser(
        "apply", help="delete it again in a restored database", description=APPLY_HELP, formatter_class=text
    )
    apply.add_argument("file", type=Path, metavar="FILE", help="what `export` wrote")
    apply.set_defaults(command=do("apply"))


def read_since(text: str | None) -> datetime | None:
    """The time of `--since`, in UTC unless it says otherwise; raises Misconfigured."""
    if text is None:
        return None
    try:
        return _read_time(text)
    except (ValueError, OverflowError):
        raise Misconfigured("--since is no time: write it like 2026-11-01T12:00:00Z.") from None


def _read_time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


# Out


async def export(database: Database, since: datetime | None, out: Path | None) -> int:
    """Writes the list; how many lines."""
    lines = 0
    unfinished = None if out is None else out.with_name(f"{out.name}.{os.getpid()}")
    try:
        with _opened(unfinished) as file:
            async for entry in deletions.read_deletions(database, since):
                file.write(_line(entry))
                lines += 1
            if unfinished is not None:
                file.flush()
                os.fsync(file.fileno())
        if unfinished is not None and out is not None:
            unfinished.replace(out)
    except OSError as failure:
        if isinstance(failure, BrokenPipeError):
            raise
        raise Misconfigured(f"{out} cannot be written: {failure.strerror}.") from None
    finally:
        if unfinished is not None:
            unfinished.unlink(missing_ok=True)
    return lines


def _opened(path: Path | None) -> AbstractContextManager[IO[str]]:
    return nullcontext(sys.stdout) if path is None else path.open("w", encoding="utf-8")


def _line(entry: Entry) -> str:
    match entry:
        case Deletion():
            told = {"repo": entry.repo, "deleted_at": entry.deleted_at.isoformat()}
        case Denial():
            told = {"denied_at": entry.denied_at.isoformat()}
    return json.dumps({"subject_sha256": entry.subject_sha256.hex(), **told}) + "\n"


# Back


async def apply(database: Database, writer: Writer, path: Path, now: datetime) -> Applied:
    """Deletes again what the list in that file names; raises Misconfigured before anything of a bad file is done."""
    for _ in read(path):
        pass
    applied = Applied(access_tokens_deleted=await deletions.delete_access_tokens(database))
    chunk: list[Entry] = []
    for entry in read(path):
        chunk.append(entry)
        if len(chunk) == LINES_AT_ONCE:
            await _apply_chunk(database, writer, chunk, applied, now)
            chunk.clear()
    await _apply_chunk(database, writer, chunk, applied, now)
    return applied


def read(path: Path) -> Iterator[Entry]:
    """The lines of a list; raises Misconfigured, which names the line and nothing of it."""
    try:
        with path.open(encoding="utf-8") as file:
            number = 0
            while line := file.readline(MAX_LINE_CHARACTERS):
                number += 1
                if line.strip():
                    yield _read_line(line, f"{path}, line {number}")
            if not number:
                raise Misconfigured(f"{path} is empty: what was deleted is not known.")
    except (OSError, UnicodeDecodeError):
        raise Misconfigured(f"{path} cannot be read.") from None


def _read_line(line: str, place: str) -> Entry:
    try:
        told = json.loads(line)
        subject = bytes.fromhex(told["subject_sha256"])
        if len(subject) != sha256().digest_size:
            raise ValueError
        if "denied_at" in told:
            return Denial(subject, _read_time(told["denied_at"]))
        repo = told["repo"]
        if not isinstance(repo, str) or not is_did(repo):
            raise ValueError
        return Deletion(repo, subject, _read_time(told["deleted_at"]))
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise Misconfigured(f"{place} is no line of a list of deletions.") from None


async def _apply_chunk(
    database: Database, writer: Writer, chunk: Sequence[Entry], applied: Applied, now: datetime
) -> None:
    gone = sorted((each for each in chunk if isinstance(each, Deletion)), key=lambda each: each.repo)
    applied.deletions += len(gone)
    by_repo = [list(group) for _, group in groupby(gone, key=lambda each: each.repo)]
    for start in range(0, len(by_repo), REPOS_AT_ONCE):
        some = by_repo[start : start + REPOS_AT_ONCE]
        await _delete(database, writer, [each for group in some for each in group], applied, now)
    denied = [each for each in chunk if isinstance(each, Denial)]
    applied.takedowns += len(denied)
    if denied:
        async with database.transaction() as conn:
            await deletions.remember_denials(conn, denied)


async def _delete(
    database: Database, writer: Writer, gone: Sequence[Deletion], applied: Applied, now: datetime
) -> None:
    """A takedown that is lifted at once: what is held goes, nothing is kept away, and the repo is fetched."""
    async with writer.transaction(now) as taking:
        held = await deletions.held_though_deleted(taking.conn, gone)
        unparked = await deletions.drop_parked_before(taking.conn, gone)
        await taking.take([FetchOrdered(Place(OPERATOR, 0, now), repo, "restored") for repo in unparked])
    whole = {each.repo for each in held if each.rkey is None}
    held = [each for each in held if each.rkey is None or each.repo not in whole]
    orders: list[list[Arrival]] = []
    for each in held:
        place = Place(OPERATOR, 0, each.deleted_at)
        orders.append([TakedownOrdered(place, each.repo, each.rkey), RestoreOrdered(place, each.repo, each.rkey)])
    for start in range(0, len(orders), ORDERS_AT_ONCE):
        await writer.apply(Batch([order for pair in orders[start : start + ORDERS_AT_ONCE] for order in pair]), now)
    async with database.transaction() as conn:
        await deletions.remember(conn, gone)
    applied.repos_deleted += len(whole)
    applied.records_deleted += len(held) - len(whole)
    applied.repos_to_fetch += len(unparked)


async def carry_out(writer: Writer, order: TakedownOrdered | RestoreOrdered, now: datetime) -> str:
    """Takes something down, or lifts that; a line on what became of it."""
    found: list[int | None] = []
    async with writer.transaction(now) as taking:
        await taking.take([order], lambda ledger: found.append(_held_of(order, ledger)))
    [held] = found
    if isinstance(order, RestoreOrdered):
        rest = "; its repo was never seen here" if held is None else ", and its repo will be fetched"
        return f"restored: its takedown is lifted, if there was one{rest}"
    if order.rkey is not None:
        return f"taken down: the memory is {'erased' if held else 'not held'} here, and kept away"
    memories = "1 public memory is" if held == 1 else f"{held or 0:,} public memories are"
    return f"taken down: {memories} erased here, and what there was in Spaces; the repo is kept away"


def _held_of(order: TakedownOrdered | RestoreOrdered, ledger: Ledger) -> int | None:
    """How many public memories of what it names; null: the repo was never seen."""
    row = ledger.rows.get((order.repo, PUBLIC))
    if row is None or order.rkey is None:
        return row and row.memory_count
    return int(ledger.held.get((order.repo, PUBLIC, order.rkey), NOTHING_HELD).cid is not None)
