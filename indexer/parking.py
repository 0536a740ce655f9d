"""Lets parked commits go on, once their author's key is known, or is known not to exist.

Run it when nothing of the repo waits to be written: what is parked then is all that came before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from indexer.arrivals import Arrival, CommitParked, CommitRefused, CommitUnparked, Place, Source
from indexer.consumer import Consumer
from indexer.judging import judge
from indexer.store import streams
from memory.database import Database

RELEASED_BYTES_MAX: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Released:
    """What parked commits of a repo mean."""

    arrivals: list[Arrival]
    frame_bytes: int
    complete: bool  # there are no more


async def release(
    database: Database, consumer: Consumer, repo: str, source_of: Callable[[str], Source], *, settled: bool
) -> Released:
    """What the parked commits of a repo mean now: all of them, or the first few megabytes.

    While there are more, what comes live still waits behind them. A commit that cannot be judged is refused if the
    author's identity is `settled`, else it stays parked. Between two commits others run, but nothing that judges: how
    long one takes is up to its author.
    """
    async with database.connection() as conn:
        parked = await streams.parked_frames(conn, repo, RELEASED_BYTES_MAX, for_fetch=False)
    consumer.let_go(repo, settled=settled)
    stranger = not consumer.follows(repo)
    if stranger:  # whatever comes of it until all is judged concerns us still
        consumer.candidates.add(repo)
    arrivals: list[Arrival] = []
    for rev, source_url, seq, frame in parked:
        source = source_of(source_url)
        judged = await judge(consumer, source, frame)
        place = Place(source, seq, consumer.now())
        unjudged = next((arrival for arrival in judged if isinstance(arrival, CommitParked)), None)
        if unjudged is None:
            arrivals += [CommitUnparked(place, repo, rev), *judged]
        elif settled:
            consumer.candidates.discard(repo)
            arrivals += [CommitUnparked(place, repo, rev), CommitRefused(place, repo, unjudged.reason)]
        await asyncio.sleep(0)
    if stranger:
        consumer.candidates.discard(repo)
    frame_bytes = sum(len(frame) for _, _, _, frame in parked)
    if frame_bytes >= RELEASED_BYTES_MAX:
        consumer.hold_back(repo)
        return Released(arrivals, frame_bytes, complete=False)
    if settled:
        consumer.let_go(repo, settled=True)  # what was refused holds back nothing
    return Released(arrivals, frame_bytes, complete=True)
