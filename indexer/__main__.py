"""`python -m indexer`: the commands that write the index, and say how it is."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import uvloop

from indexer import (
    backfill_command,
    calibrate_command,
    deletions_command,
    record,
    reembed_command,
    resync_command,
    rotate_command,
    service,
)
from indexer.arrivals import OPERATOR, Place, RestoreOrdered, Source, SourceKind, TakedownOrdered
from indexer.companion import WITH_PARENT
from indexer.frames import MAX_SEQ
from indexer.status_text import problems, render
from memory.at_uri import parse_record_uri
from memory.errors import MemoryAppviewError, Misconfigured
from memory.identifiers import COLLECTION, is_did, normalise_source
from memory.settings import load
from memory.telemetry import set_up_logging

_RUN_HELP = """\
Follows the relays of INDEXER_RELAY_URLS and the PDSes of INDEXER_PDS_URLS: verifies every commit, and keeps the index
true. Starts `repair` and `embed` beside itself, and `spaces` where SPACES_KEY_FILE is set: they fetch what no stream
shows, give memories their vectors, and keep private Spaces in step. Several may run on one database: each source is
followed by one of them. INDEXER_HEALTH_PORT serves /live, /ready and /metrics.

  INDEXER_RELAY_URLS=wss://relay.example.com python -m indexer run
"""
_REPAIR_HELP = """\
Works off what the index has to ask of repos' hosts: whole repos, where they stand, whom they serve. `run` starts one of
these beside itself. More of them, on any number of machines with the same database, share the work.

  python -m indexer repair
"""
_EMBED_HELP = """\
Gives every memory a vector, for search by meaning: what came live first, then the rest, of each repo in turn the
newest. `run` starts one of these beside itself. More of them, on any number of machines with the same database, share
the work. EMBEDDING_BACKEND says which model; the one that comes along needs neither network nor GPU.

  python -m indexer embed
"""
_SPACES_HELP = """\
Keeps what is held of private Spaces in step with their authors' hosts: of every Space that somebody opened through the
API, with the credential that let them. `run` starts one of these beside itself where SPACES_KEY_FILE is set. More of
them, on any number of machines with the same database, share the work.

  SPACES_KEY_FILE=/etc/memory/space-keys python -m indexer spaces
"""
_REPLAY_HELP = """\
Replays recorded frames through the path that live data takes: every commit is verified, memories are interpreted,
masked and stored, and the cursor moves with them. Progress goes to stderr; the last line on stdout is JSON.

  python -m indexer replay frames.bin --host pds.example.com --identities export.jsonl
  python -m indexer replay a.bin b.bin --relay relay.example.com --identities export.jsonl --no-cursor
"""
_STATUS_HELP = """\
Says how the index is: first whether all is well, and if not, why. The exit status is 0 either way; `--json` has
`problems`.
"""
_SET_CURSOR_HELP = """\
Lets a source go on after SEQ, also one that was stopped. Stop the daemon first.

  python -m indexer cursor set relay.example.com 0
"""

CREW: Final = "crew"  # started by `backfill` and `resync`


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. 0: done; 2: something given cannot be used, and stderr says what; 1: it failed."""
    given = sys.argv[1:] if arguments is None else arguments
    options = _parser(internal=given[:1] == [CREW]).parse_args(given)
    set_up_logging(level=options.log_level)
    try:
        with asyncio.Runner(loop_factory=options.loop) as runner:
            return runner.run(options.command(options))
    except Misconfigured as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 2
    except MemoryAppviewError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # who read our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser(*, internal: bool = False) -> argparse.ArgumentParser:
    """`internal`: with what only our own processes call, which neither help nor errors show."""
    parser = argparse.ArgumentParser(prog="python -m indexer", description=__doc__)
    parser.set_defaults(log_level=logging.INFO, loop=None)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run",
        help="follow relays and PDSes, for as long as it is left running",
        description=_RUN_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.set_defaults(command=_run)

    for name, words, description, command in (
        ("repair", "fetch repos and ask hosts what waits to be asked", _REPAIR_HELP, _repair),
        ("embed", "give memories their vectors", _EMBED_HELP, _embed),
        ("spaces", "keep private Spaces in step", _SPACES_HELP, _spaces),
    ):
        companion = commands.add_parser(
            name,
            help=f"{words} (`run` starts one of these by itself)",
            description=description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        companion.add_argument(WITH_PARENT, action="store_true", help=argparse.SUPPRESS)
        # What asks thousands of hosts small questions is on its sockets most of the time.
        companion.set_defaults(command=command, loop=uvloop.new_event_loop if name == "spaces" else None)

    rotating = commands.add_parser(
        "rotate-key",
        help="seal credentials of Spaces by a new key",
        description=rotate_command.HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    rotating.set_defaults(command=_rotate_key, log_level=logging.WARNING)

    reembed = commands.add_parser(
        "reembed",
        help="change the model that search by meaning goes by",
        description=reembed_command.HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    reembed_command.add_arguments(reembed)
    reembed.set_defaults(command=_reembed, log_level=logging.WARNING)

    calibrate = commands.add_parser(
        "calibrate",
        help="measure what the likenesses of a model mean",
        description=calibrate_command.HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    calibrate.add_argument("--model", metavar="NAME", help="which one (default: the one that serves)")
    calibrate.set_defaults(command=_calibrate, log_level=logging.WARNING)

    if internal:
        crew = commands.add_parser(CREW)
        crew.add_argument("processes", type=int)
        crew.add_argument(WITH_PARENT, action="store_true", required=True)
        crew.set_defaults(command=_crew, log_level=logging.WARNING)

    replay = commands.add_parser(
        "replay",
        help="replay recorded frames",
        description=_REPLAY_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    replay.add_argument("files", nargs="+", type=Path, metavar="FILE", help="recordings of one stream, merged by seq")
    origin = replay.add_mutually_exclusive_group(required=True)
    origin.add_argument("--host", metavar="PDS", help="the PDS that sent them, as DID documents name it")
    origin.add_argument("--relay", metavar="HOST", help="the relay that sent them")
    replay.add_argument(
        "--identities", required=True, type=Path, metavar="FILE", help="a PLC export, read as it stood at each frame"
    )
    replay.add_argument(
        "--no-cursor", action="store_true", help="replay every frame, and leave the source's cursor where it is"
    )
    replay.set_defaults(command=_replay)

    recorder = commands.add_parser(
        "record",
        help="record a firehose",
        description=record.HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    record.add_arguments(recorder)
    recorder.set_defaults(command=_record)

    backfill = commands.add_parser(
        "backfill",
        help="fetch repos with memories from before the daemon ran",
        description=backfill_command.HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    backfill_command.add_arguments(backfill)
    backfill.set_defaults(command=_backfill, log_level=logging.WARNING)

    resync = commands.add_parser(
        "resync",
        help="fetch tracked repos anew",
        description=resync_command.HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    resync_command.add_arguments(resync)
    resync.set_defaults(command=_resync, log_level=logging.WARNING)

    status = commands.add_parser("status", help="say how the index is", description=_STATUS_HELP)
    status.add_argument("--json", action="store_true", help="for machines")
    status.set_defaults(command=_status)

    cursor = commands.add_parser(
        "cursor", help="show or set where sources go on", description="Shows or sets where sources go on."
    )
    actions = cursor.add_subparsers(title="actions", required=True, metavar="ACTION")
    actions.add_parser("show", help="every source with its cursor").set_defaults(command=_show_cursors)
    setting = actions.add_parser(
        "set",
        help="let a source go on after SEQ, also one that was stopped; stop the daemon first",
        description=_SET_CURSOR_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    setting.add_argument("source", metavar="SOURCE", help="the relay or PDS")
    setting.add_argument("seq", type=int, metavar="SEQ", help="0: from the oldest frame that it keeps")
    setting.set_defaults(command=_set_cursor)

    for name, order, words in (
        ("takedown", TakedownOrdered, "erase a repo or a record here, and keep it away whatever arrives"),
        ("restore", RestoreOrdered, "lift a takedown, and ask for the repo to be fetched"),
    ):
        ordering = commands.add_parser(name, help=words, description=f"{words[0].upper()}{words[1:]}.")
        subject = "a DID, or the at-uri of a public memory; of Spaces only a whole author can be taken down"
        ordering.add_argument("subject", metavar="DID|URI", help=subject)
        ordering.set_defaults(command=_order, order=order)

    deletions = commands.add_parser(
        "deletions",
        help="carry what was deleted past a restore of a backup",
        description=deletions_command.HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    deletions_command.add_arguments(deletions, {"export": _export_deletions, "apply": _apply_deletions}.__getitem__)

    doctor = commands.add_parser(
        "doctor",
        help="say what does not work here, and how to mend it",
        description="Says what does not work here, and how to mend it. Exit status 1 if something failed.",
    )
    doctor.add_argument("--json", action="store_true", help="for machines")
    doctor.set_defaults(command=_doctor)
    return parser


async def _repair(options: argparse.Namespace) -> int:
    await service.repair(load(os.environ), with_parent=options.with_parent)
    return 0


async def _embed(options: argparse.Namespace) -> int:
    await service.embed(load(os.environ), with_parent=options.with_parent)
    return 0


async def _spaces(options: argparse.Namespace) -> int:
    await service.spaces(load(os.environ), with_parent=options.with_parent)
    return 0


async def _rotate_key(_: argparse.Namespace) -> int:
    rotated = await service.rotate_key(load(os.environ))
    print(json.dumps(asdict(rotated)))
    return 1 if rotated.unopened else 0


async def _reembed(options: argparse.Namespace) -> int:
    return await service.reembed(load(os.environ), options)


async def _calibrate(options: argparse.Namespace) -> int:
    return await service.calibrate(load(os.environ), options.model)


async def _crew(options: argparse.Namespace) -> int:
    fetched, records = await service.join_crew(load(os.environ), options.processes)
    print(json.dumps({"fetched": fetched, "records": records}), flush=True)  # who reads it may be gone
    return 0


async def _run(_: argparse.Namespace) -> int:
    await service.run(load(os.environ))
    return 0


async def _show_cursors(_: argparse.Namespace) -> int:
    status = await service.read_status(load(os.environ))
    for cursor in status.cursors:
        print(f"{cursor.source}  {cursor.seq}")
    return 0


async def _set_cursor(options: argparse.Namespace) -> int:
    if not 0 <= options.seq <= MAX_SEQ:
        raise Misconfigured(f"A seq is 0 to {MAX_SEQ}.")
    try:
        source = Source(normalise_source(options.source), SourceKind.RELAY)
    except ValueError as error:
        raise Misconfigured(f"{options.source}: {error}") from error
    await service.set_cursor(load(os.environ), source, options.seq)
    return 0


async def _order(options: argparse.Namespace) -> int:
    uri = parse_record_uri(options.subject)
    if is_did(options.subject):
        repo, rkey = options.subject, None
    elif uri is not None and uri.space is None and uri.collection == COLLECTION:
        repo, rkey = uri.did, uri.rkey
    else:
        raise Misconfigured("A DID is needed, or the at-uri of a public memory: at://did:…/" + COLLECTION + "/…")
    place = Place(OPERATOR, 0, datetime.now(UTC))
    print(await service.order(load(os.environ), options.order(place, repo, rkey)))
    return 0


async def _export_deletions(options: argparse.Namespace) -> int:
    await service.export_deletions(load(os.environ), deletions_command.read_since(options.since), options.out)
    return 0


async def _apply_deletions(options: argparse.Namespace) -> int:
    print(json.dumps(asdict(await service.apply_deletions(load(os.environ), options.file))))
    return 0


async def _doctor(options: argparse.Namespace) -> int:
    report = await service.examine(load(os.environ))
    print(report.to_json() if options.json else report.to_text())
    return 1 if report.failed else 0


async def _replay(options: argparse.Namespace) -> int:
    option, kind = ("host", SourceKind.PDS) if options.relay is None else ("relay", SourceKind.RELAY)
    try:
        source = Source(normalise_source(getattr(options, option)), kind)
    except ValueError as error:
        raise Misconfigured(f"--{option}: {error}") from error
    report = await service.replay(
        load(os.environ), options.files, source, options.identities, use_cursor=not options.no_cursor
    )
    if sys.stderr.isatty():
        print(file=sys.stderr)
    print(report.to_json())
    return 0


async def _record(options: argparse.Namespace) -> int:
    return await record.run(options, load(os.environ).indexer.plc_url)


async def _backfill(options: argparse.Namespace) -> int:
    return await service.backfill(load(os.environ), options)


async def _resync(options: argparse.Namespace) -> int:
    return await service.resync(load(os.environ), options)


async def _status(options: argparse.Namespace) -> int:
    settings = load(os.environ)
    status, set_up = await service.read_status(settings), service.spaces_set_up(settings)
    now, staleness = datetime.now(UTC), timedelta(seconds=settings.spaces.max_staleness_s)
    if options.json:
        told = {"problems": problems(status, now, set_up, staleness), **asdict(status), "spaces_set_up": asdict(set_up)}
        print(json.dumps(told, default=_json_default))
    else:
        print(render(status, now, set_up, staleness))
    return 0


def _json_default(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(type(value).__name__)


if __name__ == "__main__":
    sys.exit(main())
