"""`make up`: the daemon and the API on one machine, with a line that tells how they do.

Follows the relays of INDEXER_RELAY_URLS (a public one by default) and serves at APPVIEW_PORT. Without DATABASE_URL it
keeps an embedded Postgres in `.data/postgres`. Where a relay cannot be reached it says so, tries again, and serves what
is there.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final
from urllib.error import URLError
from urllib.request import urlopen

from prometheus_client.parser import text_string_to_metric_families

from memory.errors import MemoryAppviewError
from memory.identifiers import NAMESPACE
from memory.settings import Settings, load

PUBLIC_RELAY: Final = "wss://relay1.us-east.bsky.network"
TELL_EVERY_S: Final = 5.0
STOP_TIMEOUT_S: Final = 15.0
ASK_TIMEOUT_S: Final = 5.0

EARLIER_MEMORIES: Final = """\
  The index is empty. What was written before is brought in by a second command, beside this one:

    .venv/bin/python -m indexer backfill --discover """
FIRST_MEMORY: Final = """\
  To write a first memory, with an account on any PDS and an app password of it:

    PDS=https://bsky.social   HANDLE=you.example.com   PASSWORD=xxxx-xxxx-xxxx-xxxx
    SESSION=$(curl -s $PDS/xrpc/com.atproto.server.createSession -H 'Content-Type: application/json' \\
      -d "{\\"identifier\\":\\"$HANDLE\\",\\"password\\":\\"$PASSWORD\\"}")
    TOKEN=$(echo "$SESSION" | python3 -c 'import json,sys; print(json.load(sys.stdin)["accessJwt"])')
    DID=$(echo "$SESSION" | python3 -c 'import json,sys; print(json.load(sys.stdin)["did"])')
    curl -s $PDS/xrpc/com.atproto.repo.createRecord -H "Authorization: Bearer $TOKEN" \\
      -H 'Content-Type: application/json' -d "{\\"repo\\":\\"$DID\\",
        \\"collection\\":\\"dev.bastienrobert.memory.record\\",
        \\"record\\":{\\"\\$type\\":\\"dev.bastienrobert.memory.record\\",\\"content\\":\\"Likes green tea.\\",
        \\"createdAt\\":\\"$(date -u +%Y-%m-%dT%H:%M:%SZ)\\"}}"

  Seconds later it is found: """


@dataclass(frozen=True, slots=True)
class Sample:
    """What the daemon's metrics said at one moment."""

    at: float
    frames: float
    connected: dict[str, bool]
    lag_seconds: float | None
    waiting_for_vectors: int = 0


def main() -> int:
    """Runs until Ctrl-C. 0: stopped; 2: something has to be mended first; 1: a part of it ended by itself."""
    try:
        return asyncio.run(run(os.environ))
    except MemoryAppviewError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0


async def run(environ: Mapping[str, str]) -> int:
    """Starts both parts, tells how they do, and stops both when one ends or a signal comes."""
    given = dict(environ)
    if not given.get("INDEXER_RELAY_URLS") and not given.get("INDEXER_PDS_URLS"):
        given["INDEXER_RELAY_URLS"] = PUBLIC_RELAY
    given.setdefault("INDEXER_HEALTH_PORT", str(_free_port()))
    settings = load(given)
    followed = ", ".join((*settings.indexer.relay_urls, *settings.indexer.pds_urls))
    print(f"• Following {followed}\n• Serving at {_api(settings)}/ (Ctrl-C stops both)", flush=True)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    parts = [await _start(given, "indexer", "run"), await _start(given, "appview", "serve")]
    telling = asyncio.create_task(_tell(settings))
    ends = [asyncio.create_task(part.wait()) for part in parts]
    stopping = asyncio.create_task(stop.wait())
    try:
        await asyncio.wait([*ends, stopping], return_when=asyncio.FIRST_COMPLETED)
        return 0 if stop.is_set() else 1
    finally:
        telling.cancel()
        stopping.cancel()
        await _stop(parts)


async def _start(environ: Mapping[str, str], *command: str) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", *command, env=environ, stdout=asyncio.subprocess.DEVNULL, start_new_session=True
    )


async def _stop(parts: list[Process]) -> None:
    for part in parts:
        if part.returncode is None:
            part.terminate()
    try:
        async with asyncio.timeout(STOP_TIMEOUT_S):
            await asyncio.gather(*(part.wait() for part in parts))
    except TimeoutError:
        for part in parts:
            if part.returncode is None:
                part.kill()


async def _tell(settings: Settings) -> None:
    before: Sample | None = None
    told_first = False
    while True:
        await asyncio.sleep(TELL_EVERY_S)
        sample, counts = await asyncio.to_thread(_sample, settings), await asyncio.to_thread(_counts, settings)
        print(describe(before, sample, counts), flush=True)
        if counts is not None and counts["records"] == 0 and not told_first:
            print(describe_empty(settings), flush=True)
            told_first = True
        before = sample


def describe_empty(settings: Settings) -> str:
    """How memories come into an index that has none."""
    source = (*settings.indexer.relay_urls, *settings.indexer.pds_urls)[0]
    listing = f"{_api(settings)}/xrpc/{NAMESPACE}listRecords"
    return f"{EARLIER_MEMORIES}{source}\n\n{FIRST_MEMORY}curl '{listing}'"


def describe(before: Sample | None, now: Sample | None, counts: Mapping[str, int] | None) -> str:
    """One line: how the stream runs, how far behind it is, what is there, and what of it search by meaning lacks."""
    if now is None:
        stream = "the daemon is starting"
    elif not any(now.connected.values()):
        unreached = ", ".join(now.connected) or "the relay"
        stream = f"{unreached} cannot be reached; trying again, and serving what is there"
    else:
        since = before or Sample(now.at - TELL_EVERY_S, 0.0, {}, None)
        rate = (now.frames - since.frames) / max(now.at - since.at, 0.001)
        lag = "" if now.lag_seconds is None else f", {now.lag_seconds:.0f} s behind"
        stream = f"{rate:,.0f} frames/s{lag}"
    held = "the API is starting"
    if counts is not None:
        held = f"{counts['records']:,} memories of {counts['repos']:,} people"
    if now is not None and now.waiting_for_vectors:
        held += f", {now.waiting_for_vectors:,} wait for a vector"
    return f"  {stream}; {held}"


def _sample(settings: Settings) -> Sample | None:
    try:
        url = f"http://{settings.indexer.health_host}:{settings.indexer.health_port}/metrics"
        with urlopen(url, timeout=ASK_TIMEOUT_S) as answer:
            text = answer.read().decode()
    except (URLError, OSError):
        return None
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    lags = [sample.value for sample in samples if sample.name == "indexer_lag_seconds"]
    return Sample(
        at=monotonic(),
        frames=sum(sample.value for sample in samples if sample.name == "indexer_frames_total"),
        connected={s.labels["source"]: bool(s.value) for s in samples if s.name == "indexer_connected"},
        lag_seconds=max(lags, default=None),
        waiting_for_vectors=int(sum(s.value for s in samples if s.name == "indexer_embeddings_waiting")),
    )


def _counts(settings: Settings) -> Any:
    try:
        url = f"{_api(settings)}/xrpc/{NAMESPACE}getStats"
        with urlopen(url, timeout=ASK_TIMEOUT_S) as answer:  # noqa: S310  our own, on this machine
            return json.load(answer)
    except (URLError, OSError):
        return None


def _api(settings: Settings) -> str:
    return f"http://{settings.appview.host}:{settings.appview.port}"


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
