"""Records a firehose: its frames as the socket gives them, and the identities that a replay of them needs.

Beside FILE stands FILE.identities.jsonl: the whole history of each author with a commit to our collection in the
recording. Of other accounts a replay asks nothing: it tracks none of them.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from indexer.frames import MAX_FRAME_BYTES, BrokenFrame, CommitEvent, ErrorEvent, InfoEvent, decode_frame
from indexer.messages import Text, TooLarge
from indexer.record_identities import IdentityLookUp
from indexer.recording import RecordingWriter
from indexer.socket import SourceUnavailable, Stream, subscribe
from memory.errors import Misconfigured, Unavailable
from memory.identifiers import normalise_source

HELP: Final = """\
Records a relay's or PDS's firehose, and the identities of those who wrote memories, so that it can be replayed
anywhere.

  python -m indexer record --relay wss://relay.example.com --out frames.bin --seconds 60
"""

_SECONDS_BETWEEN_REPORTS: Final = 1.0

Progress = Callable[[str], None]
"""Told what happens, in lines for people."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When to stop by oneself; null: never."""

    frames: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Recorded:
    """What one recording holds."""

    frames: int
    bytes: int
    authors: int  # of memories
    missing: Mapping[str, str]  # DIDs whose identity could not be had, and why
    ended: str | None  # why the stream ended of itself; null: it was we who stopped


def identities_path(out: Path) -> Path:
    """Where the identities of a recording stand."""
    return out.with_name(out.name + ".identities.jsonl")


async def record(
    relay_url: str,
    out: Path,
    look_up: IdentityLookUp,
    *,
    limits: Limits,
    cursor: int | None = None,
    overwrite: bool = False,
    stop: asyncio.Event | None = None,
    progress: Progress = lambda _: None,
) -> Recorded:
    """Record until a limit, `stop` or the stream's own end; what was received until then is kept in every case.

    `cursor`: None = live, 0 = from the oldest that the relay keeps. Raises Misconfigured where a file would be
    overwritten, and Unavailable where the relay cannot be reached: then nothing was written.
    """
    beside = identities_path(out)
    for path in (out, beside):
        if path.exists() and not overwrite:
            raise Misconfigured(f"{path}: exists already", path=str(path))
    async with _connected(relay_url, cursor) as connection:
        with RecordingWriter(out, overwrite=overwrite) as writer:
            reception = _Reception(writer, limits.frames, progress)
            ended = await _stoppable(connection, reception, limits.seconds, stop or asyncio.Event())
    progress(f"looking up {len(reception.authors)} authors")
    found = await look_up.find(reception.authors)
    with beside.open("wb" if overwrite else "xb") as file:
        file.writelines(line + b"\n" for line in found.lines)
        file.flush()
        os.fsync(file.fileno())
    return Recorded(writer.frames, writer.bytes, len(reception.authors), found.missing, ended)


@asynccontextmanager
async def _connected(relay_url: str, cursor: int | None) -> AsyncGenerator[Stream]:
    try:
        source = normalise_source(relay_url)
    except ValueError as error:
        raise Misconfigured(f"{relay_url}: {error}", setting="--relay") from error
    async with AsyncExitStack() as stack:
        try:
            connection = await stack.enter_async_context(subscribe(source, cursor))
        except SourceUnavailable as failure:
            told = f"answered {failure.status}" if failure.status else f"cannot be reached: {failure.reason}"
            raise Unavailable(f"{source} {told}", source=source) from failure
        yield connection


async def _stoppable(
    connection: Stream, reception: _Reception, seconds: float | None, stop: asyncio.Event
) -> str | None:
    """Receive until the end, for `seconds`, or until `stop`; the answer is why the stream ended, if not by us."""
    receiving = asyncio.create_task(reception.run(connection))
    stopping = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait({receiving, stopping}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        connection.begin_close()  # receiving goes on with all that the relay sent before it heard of the end
        reason = await receiving
        return reason if receiving in done else reception.last_words
    finally:
        receiving.cancel()
        stopping.cancel()


class _Reception:
    """Writes what a connection sends, and notes who wrote memories."""

    def __init__(self, writer: RecordingWriter, max_frames: int | None, progress: Progress) -> None:
        self.authors: dict[str, datetime] = {}  # DID → time of the first commit to our collection
        self.last_words: str | None = None  # the relay's error frame
        self._writer = writer
        self._max_frames = max_frames
        self._progress = progress

    async def run(self, connection: Stream) -> str | None:
        """Until there are frames enough (None), or the stream ends: why it did."""
        clock = asyncio.get_running_loop().time
        report_at = clock() + _SECONDS_BETWEEN_REPORTS
        try:
            while self._max_frames is None or self._writer.frames < self._max_frames:
                message = await connection.receive()
                if isinstance(message, Text):
                    return "the relay sent text where frames are binary"
                if isinstance(message, TooLarge):
                    self._progress(f"a message is left out: it has more than {MAX_FRAME_BYTES} bytes")
                    continue
                self._writer.write(message)
                self._note(message)
                if clock() >= report_at:
                    self._progress(f"{self._writer.frames} frames, {self._writer.bytes} bytes")
                    report_at = clock() + _SECONDS_BETWEEN_REPORTS
        except SourceUnavailable as ended:
            return self.last_words or f"the relay went away: {ended.reason}"
        return self.last_words

    def _note(self, frame: bytes) -> None:
        try:
            event = decode_frame(frame)
        except BrokenFrame as broken:
            self._progress(f"frame {self._writer.frames} is kept, but broken: {broken.reason}")
            return
        match event:
            case CommitEvent() if event.touches_collection:
                self.authors.setdefault(event.did, event.time)
            case ErrorEvent():
                self.last_words = f"the relay ended the stream: {event.error}: {event.message or 'no message'}"
            case InfoEvent():
                self._progress(f"the relay says: {event.name}: {event.message or 'no message'}")
            case _:
                pass


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `python -m indexer record`."""
    parser.add_argument("--relay", required=True, metavar="URL", help="the relay or PDS to record")
    parser.add_argument(
        "--out", required=True, type=Path, metavar="FILE", help="gets the frames; FILE.identities.jsonl is made too"
    )
    parser.add_argument("--frames", type=_positive_int, metavar="N", help="stop after this many frames")
    parser.add_argument("--seconds", type=_positive_float, metavar="S", help="stop after this many seconds")
    parser.add_argument(
        "--cursor", type=_seq, metavar="SEQ", help="start after this seq; 0: as far back as it goes (default: now)"
    )
    parser.add_argument("--force", action="store_true", help="overwrite what exists")


async def run(arguments: argparse.Namespace, plc_url: str) -> int:
    """Record as the command line says, until a limit or an interrupt. 0: complete; 1: cut short, or lacks identities.

    A second interrupt stops the looking up of identities; the frames are safe by then.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def interrupted() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, interrupted)
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    recorded = await record(
        arguments.relay,
        arguments.out,
        IdentityLookUp(plc_url),
        limits=Limits(arguments.frames, arguments.seconds),
        cursor=arguments.cursor,
        overwrite=arguments.force,
        stop=stop,
        progress=_say,
    )
    _say(f"recorded {recorded.frames} frames ({recorded.bytes} bytes) with memories of {recorded.authors} authors")
    for did, reason in recorded.missing.items():
        _say(f"no identity of {did}: {reason}")
    if recorded.ended is not None:
        _say(recorded.ended)
    return 1 if recorded.missing or recorded.ended is not None else 0


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def _seq(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError("it must be a whole number from 0 on")
    return int(text)


def _positive_int(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError("it must be a whole number from 1 on")
    return int(text)


def _positive_float(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError("it must be a number greater than 0")
    return number
