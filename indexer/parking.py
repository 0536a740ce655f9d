"""Lets parked commits go on, once their author's key is known, or is known not to exist.

Run it when nothing of the repo waits to be written: what is parked then is all that came before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from indexer.arrivals import Arrival, CommitParked, CommitRefused, CommitUnparked, Place, Source
from indexer.consumer import Consumer
from indexer.frames import open_frame
from indexer.intake import WaitingRelease
from indexer.store import streams
from memory.database import Database

RELEASED_BYTES_MAX: Final = 16 * 1024 * 1024


async def release(
    database: Database, consumer: Consumer, released: WaitingRelease, source_of: Callable[[str], Source]
) -> tuple[list[Arrival], bool]:
    """What the parked commits of a repo mean now, and whether those were all of them.

    While there are more, what comes live still waits behind them. A commit that cannot be judged although its author's
    identity was just looked up is refused; else it stays parked.
    """
    repo = released.repo
    async with database.connection() as conn:
        parked = await streams.parked_frames(conn, repo, RELEASED_BYTES_MAX)
    consumer.let_go(repo)
    arrivals: list[Arrival] = []
    for rev, source_url, seq, frame in parked:
        source = source_of(source_url)
        judged, _ = consumer.judge(source, frame, open_frame(frame))
        place = Place(source, seq, consumer.now())
        unjudged = next((arrival for arrival in judged if isinstance(arrival, CommitParked)), None)
        if unjudged is None:
            arrivals += [CommitUnparked(place, repo, rev), *judged]
        elif released.answer is not None:
            consumer.candidates.discard(repo)
            arrivals += [CommitUnparked(place, repo, rev), CommitRefused(place, repo, unjudged.reason)]
    if sum(len(frame) for _, _, _, frame in parked) >= RELEASED_BYTES_MAX:
        consumer.hold_back(repo)
        return arrivals, False
    if released.answer is not None:
        consumer.let_go(repo)  # what was refused holds back nothing
        arrivals.append(released.answer)
    return arrivals, True
