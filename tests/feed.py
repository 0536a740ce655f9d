"""Frames in, rows out: an indexer without sockets, for the tests of the writing path.

feed = Feed(database)
alice = feed.account("alice")                        # a RepoBuilder that the directory knows
await feed.send(alice.create(rkey(1), memory("…")))  # judged as frames are, written as one batch
await feed.send(*frames, cut=1)                      # one batch a frame
assert await holdings(database, alice.did) == …
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from indexer.arrivals import Arrival, Batch, Place, Source, SourceKind
from indexer.consumer import Consumer, frame_clock
from indexer.parking_lot import ParkingLimits
from indexer.quota import QuotaLimits
from indexer.store import repos, streams
from indexer.writer import Outcome, Writer
from memory.database import Database
from memory.identity import Identity, PlcExport
from memory.queries import Row
from tests.builders import RepoBuilder, Sequence, tid

RELAY = Source("https://relay.test", SourceKind.RELAY)
PDS = Source("https://pds.test", SourceKind.PDS)
LIMITS = QuotaLimits(max_memories=1000, max_bytes=10**9, max_edges=10**6)
LONG_AGO = datetime(2026, 1, 1, tzinfo=UTC)

TABLES = ("memories", "memory_edges", "memory_versions", "invalid_records", "repos", "parked_commits")
_ORDER = "order by repo, space, rkey"
_HOLDINGS = {
    "memories": f"select * from memories where repo = $1 {_ORDER}",
    "edges": f"select * from memory_edges where repo = $1 {_ORDER}, target",
    "versions": f"select * from memory_versions where repo = $1 {_ORDER}, number",
    "invalid": f"select * from invalid_records where repo = $1 {_ORDER}",
    "repos": "select * from repos where repo = $1 order by space",
    "parked": "select repo, rev, source, frame from parked_commits where repo = $1 order by rev",
}


def rkey(number: int) -> str:
    """The `number`th of a row of ascending TIDs."""
    return tid(LONG_AGO + timedelta(minutes=number))


class Directory:
    """Identities as they were announced."""

    def __init__(self) -> None:
        self.identities: list[Identity] = []

    def announced(self, did: str, time: datetime) -> Identity | None:
        return self.at(did, time)

    def announce(self, builder: RepoBuilder, at: datetime, **changes: Any) -> Identity:
        """Who the builder is from then on, but for `changes`."""
        identity = Identity(
            did=builder.did,
            handle=builder.handle,
            host=builder.host,
            signing_key=builder.did_key,
            tombstoned=False,
            resolved_at=at,
        )
        self.identities.append(replace(identity, **changes))
        return self.identities[-1]

    def bury(self, builder: RepoBuilder, at: datetime) -> Identity:
        """The builder's DID is tombstoned."""
        return self.announce(builder, at, handle=None, host=None, signing_key=None, tombstoned=True)

    def at(self, did: str, time: datetime) -> Identity | None:
        return self.export().at(did, time)

    def export(self) -> PlcExport:
        """All of it, for a replay."""
        return PlcExport(self.identities)


class Feed:
    """One consumer and one writer on a database. All accounts share a stream; `clock` is the time of the last frame."""

    def __init__(
        self,
        database: Database,
        *,
        source: Source = RELAY,
        limits: QuotaLimits = LIMITS,
        parking: ParkingLimits = ParkingLimits(),  # noqa: B008  it is frozen
        admits: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self.database = database
        self.source = source
        self.stream = Sequence()
        self.directory = Directory()
        self.tracked: set[str] = set()
        self.writer = Writer(database, limits, parking)
        self._admits = admits
        self.consumer = self._new_consumer({})

    @property
    def clock(self) -> datetime:
        return self.stream.time

    def account(self, seed: str, *, host: str = PDS.url, known: bool = True) -> RepoBuilder:
        """Someone with a repo; unless `known`, the directory has never heard of them."""
        builder = RepoBuilder(seed, host=host, stream=self.stream)
        if known:
            self.directory.announce(builder, LONG_AGO)
        return builder

    def place(self, source: Source | None = None) -> Place:
        """The next place in the stream, for an arrival that is made by hand."""
        seq, time = self.stream.next(None, None)
        return Place(source or self.source, seq, time)

    def arrivals(self, *frames: bytes, source: Source | None = None) -> list[Arrival]:
        """What the frames mean, not written."""
        return [arrival for frame in frames for arrival in self.consumer.take(source or self.source, frame)[0]]

    async def send(self, *frames: bytes, source: Source | None = None, cut: int | None = None) -> Outcome:
        """Judges and writes frames, in one batch or in batches of `cut` frames."""
        outcome = Outcome()
        size = cut or len(frames)
        for start in range(0, len(frames), size):
            outcome.add(await self._send_batch(frames[start : start + size], source or self.source))
        return outcome

    async def write(self, *arrivals: Arrival) -> Outcome:
        """Writes arrivals as one batch."""
        return await self.writer.apply(Batch(list(arrivals)), self.clock)

    async def restart(self) -> None:
        """Forgets all that is in memory, as the death of the process does."""
        async with self.database.connection() as conn:
            self.tracked = await repos.tracked_repos(conn)
            self.consumer = self._new_consumer(await streams.cursors(conn))

    async def rows(self, query: str, *arguments: object) -> list[Row]:
        async with self.database.connection() as conn:
            return await conn.fetch(query, *arguments)

    async def row(self, query: str, *arguments: object) -> Row:
        """The only row."""
        (row,) = await self.rows(query, *arguments)
        return row

    async def repo(self, builder: RepoBuilder) -> Row:
        """The builder's public row in `repos`."""
        return await self.row("select * from repos where repo = $1 and space = ''", builder.did)

    async def memories(self, builder: RepoBuilder) -> dict[str, str]:
        """Rkey → content, of the builder's public memories."""
        rows = await self.rows("select * from memories where repo = $1 and space = '' order by rkey", builder.did)
        return {row["rkey"]: row["content"] for row in rows}

    async def requests(self, builder: RepoBuilder) -> dict[str, str]:
        """Kind → reason, of what is to be asked about the builder's public repo."""
        rows = await self.rows("select * from requests where repo = $1 and space = ''", builder.did)
        return {row["kind"]: row["reason"] for row in rows}

    async def cursor(self, source: Source | None = None) -> int | None:
        rows = await self.rows("select seq from sources where source = $1", (source or self.source).url)
        return rows[0]["seq"] if rows else None

    async def _send_batch(self, frames: tuple[bytes, ...], source: Source) -> Outcome:
        batch = Batch()
        for frame in frames:
            arrivals, position = self.consumer.take(source, frame)
            batch.arrivals += arrivals
            if position:
                batch.positions[source.url] = position
        return await self.writer.apply(batch, self.clock)

    def _new_consumer(self, cursors: dict[str, int]) -> Consumer:
        return Consumer(
            identities=self.directory,
            clock=frame_clock(LONG_AGO),
            tracked=self.tracked,
            admits=self._admits,
            cursors=cursors,
        )


def tally(outcome: Outcome) -> dict[str, tuple[str, int]]:
    """Reason → (effect, times), of one source."""
    return {reason: (effect.value, times) for (_, reason, effect), times in outcome.tally.items()}


async def holdings(database: Database, did: str) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of one repo, in all Spaces."""
    async with database.connection() as conn:
        return {name: [tuple(row) for row in await conn.fetch(query, did)] for name, query in _HOLDINGS.items()}


async def forget(database: Database, did: str) -> None:
    """As if the repo had never been seen."""
    async with database.transaction() as conn:
        for table in (*TABLES, "requests", "account_status", "identities"):
            await conn.execute(f"delete from {table} where repo = $1", did)
