"""`python -m indexer`: the commands that write the index, and say how it is."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from indexer import record, service
from indexer.arrivals import Source, SourceKind
from indexer.status_text import render
from memory.errors import MemoryAppviewError, Misconfigured
from memory.identifiers import normalise_source
from memory.settings import load
from memory.telemetry import set_up_logging

_REPLAY_HELP = """\
Replays recorded frames through the path that live data takes: every commit is verified, memories are interpreted,
masked and stored, and the cursor moves with them. Progress goes to stderr; the last line on stdout is JSON.

  python -m indexer replay frames.bin --host pds.example.com --identities export.jsonl
  python -m indexer replay a.bin b.bin --relay relay.example.com --identities export.jsonl --no-cursor
"""
_RECORD_HELP = """\
Records a relay's or PDS's firehose, and the identities of those who wrote memories, so that it can be replayed
anywhere.

  python -m indexer record --relay wss://relay.example.com --out frames.bin --seconds 60
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. 0: done; 2: something given cannot be used, and stderr says what; 1: it failed."""
    options = _parser().parse_args(arguments)
    set_up_logging()
    try:
        return asyncio.run(options.command(options))
    except Misconfigured as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 2
    except MemoryAppviewError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m indexer", description=__doc__)
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

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
        description=_RECORD_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    record.add_arguments(recorder)
    recorder.set_defaults(command=_record)

    status = commands.add_parser("status", help="say how the index is", description="Says how the index is.")
    status.add_argument("--json", action="store_true", help="for machines")
    status.set_defaults(command=_status)
    return parser


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


async def _status(options: argparse.Namespace) -> int:
    status = await service.read_status(load(os.environ))
    print(json.dumps(asdict(status), default=_json_default) if options.json else render(status))
    return 0


def _json_default(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(type(value).__name__)


if __name__ == "__main__":
    sys.exit(main())
