"""Joins the commits that came live during a fetch to what is held at its end."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Final

from indexer.arrivals import Arrival, CommitParked, CommitRefused, CommitUnparked, Place, Source, SourceKind
from indexer.consumer import Consumer
from indexer.frames import open_frame
from indexer.store import streams
from indexer.writer import Writer
from memory.identity import Identity
from memory.queries import Connection

DRAINED_BYTES: Final = 8 * 1024 * 1024


async def drain(conn: Connection, writer: Writer, repo: str, identity: Identity, now: datetime) -> None:
    """Judges what waits for the fetch of a repo, in its order, against what is held now; nothing of it waits then.

    In the transaction that ends the fetch, or else what comes live would be judged before it.
    """
    consumer = Consumer(
        identities=_Known(identity), clock=lambda _: now, tracked={repo}, admits=lambda _: True, cursors={}
    )
    while parked := await streams.parked_frames(conn, repo, DRAINED_BYTES, for_fetch=True):
        arrivals: list[Arrival] = []
        for rev, source_url, seq, frame in parked:
            source = Source(source_url, SourceKind.RELAY)
            place = Place(source, seq, now)
            judged, _ = consumer.judge(source, frame, open_frame(frame))
            await asyncio.sleep(0)
            arrivals.append(CommitUnparked(place, repo, rev))
            arrivals += [
                CommitRefused(place, repo, each.reason) if isinstance(each, CommitParked) else each for each in judged
            ]
        await writer.take(conn, arrivals, now)


class _Known:
    """One identity, whatever the time."""

    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    def at(self, did: str, time: datetime) -> Identity | None:  # noqa: ARG002
        """It, for its own DID."""
        return self._identity if did == self._identity.did else None

    def announced(self, did: str, time: datetime) -> Identity | None:  # noqa: ARG002
        """Is not told here."""
        return None
