"""Lets parked commits go on, once their author's key is known, or is known not to exist.

Run it when nothing of the repo waits to be written: what is parked then is all that came before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from indexer.arrivals import Arrival, CommitParked, CommitUnparked, Place, Source
from indexer.consumer import Consumer
from indexer.frames import open_frame
from indexer.store import streams
from memory.database import Database

RELEASED_BYTES_MAX: Final = 16 * 1024 * 1024


async def release(
    database: Database, consumer: Consumer, repo: str, source_of: Callable[[str], Source]
) -> tuple[list[Arrival], bool]:
    """What the parked commits of `repo` mean now, and whether those were all of them.

    While there are more, what comes live still waits behind them. A commit that cannot be judged yet stays parked.
    """
    async with database.connection() as conn:
        parked = await streams.parked_frames(conn, repo, RELEASED_BYTES_MAX)
    consumer.keyless.discard(repo)
    arrivals: list[Arrival] = []
    for rev, source_url, seq, frame in parked:
        source = source_of(source_url)
        judged, _ = consumer.judge(source, frame, open_frame(frame))
        if any(isinstance(arrival, CommitParked) for arrival in judged):
            return arrivals, True
        place = Place(source, seq, consumer.now())
        arrivals += [CommitUnparked(place, repo, rev), *judged]
    complete = sum(len(frame) for _, _, _, frame in parked) < RELEASED_BYTES_MAX
    if not complete:
        consumer.keyless.add(repo)
    return arrivals, complete
