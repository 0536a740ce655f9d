"""One random life of a repo: partly live, partly only at its host, with fetches that begin, are killed, overtaken,
given up and ended at random, and commits that arrive at any moment of them.

The writer and what applies fetches are the real ones; the host is a list of all states that the repo ever had.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from indexer.arrivals import (
    AccountAsked,
    Arrival,
    Batch,
    DeletionConfirmed,
    FetchedHead,
    Source,
    SourceKind,
)
from indexer.consumer import Consumer
from indexer.quota import QuotaLimits
from indexer.resync.apply import Applier, Fetch, FetchOvertaken, at_hosts
from indexer.resync.drain import Begin, Drain, Seam
from indexer.store import fetches
from indexer.writer import Writer
from memory.database import Database
from memory.identifiers import COLLECTION, cid_text
from memory.identity import Identity
from memory.queries import Row
from tests.builders import START, RepoBuilder, Write, memory
from tests.feed import LONG_AGO, rkey
from tests.store.fetch_snapshots import Snapshot, assert_held, iso, read_holdings
from tests.store.test_index_properties import Killed, crashing

HOST = "https://pds.test"
RELAYS = [Source(f"https://relay{number}.test", SourceKind.RELAY) for number in (1, 2)]
RKEYS = [rkey(number) for number in range(7)]
MINUTES = [LONG_AGO - timedelta(minutes=minute) for minute in (50, 40, 30, 20, 10)]
SETTLED_AFTER = 6  # fetches at most: one for what was lost, the others for what the first two asked for


class _Failed(Exception):
    """Something that is no kill ends a fetch: a disk, a host."""


class _Known:
    def __init__(self, identity: Identity) -> None:
        self._identity = identity

    def at(self, did: str, time: datetime) -> Identity | None:
        return self._identity

    def announced(self, did: str, time: datetime) -> Identity | None:
        return self._identity


class _HaltingDrain(Drain):
    """Lets something happen between pieces."""

    between: Callable[[], Awaitable[None]]

    async def take_rest(self) -> None:
        await self.between()
        await super().take_rest()

    async def _take_piece(self, begin: Begin, room: int) -> bool:
        if self._between is not None:
            await self.between()
        return await super()._take_piece(begin, room)


class _Halting(Applier):
    """Lets something happen between slices, and between pieces of what waits."""

    between: Callable[[], Awaitable[None]]
    piece_units: int
    commits_max: int

    def _drain(self, seam: Seam) -> Drain:
        drain = _HaltingDrain(
            self._database,
            self._writer,
            self._clock,
            seam,
            piece_units=self.piece_units,
            commits_max=self.commits_max,
        )
        drain.between = self.between
        return drain

    async def _take_slice(self, *arguments: Any, **options: Any) -> None:
        await super()._take_slice(*arguments, **options)
        await self.between()

    async def _finish(self, *arguments: Any, **options: Any) -> None:
        await self.between()
        await super()._finish(*arguments, **options)


@dataclass
class History:
    """One author, their host, and an index of them."""

    database: Database
    draw: random.Random
    limits: QuotaLimits
    seed: str
    now: datetime = START + timedelta(days=1)  # no rev is of the future
    snapshots: list[Snapshot] = field(default_factory=list[Snapshot])
    frames: list[bytes] = field(default_factory=list[bytes])  # that the relays sent
    unsent: list[bytes] = field(default_factory=list[bytes])
    told: list[str] = field(default_factory=list[str])  # what happened, for who looks into a failure
    depth: int = 0
    gate: str = ""
    deleted: bool = False

    def __post_init__(self) -> None:
        self.builder = RepoBuilder(self.seed)
        self.identity = Identity(self.builder.did, None, HOST, self.builder.did_key, False, LONG_AGO)
        self.tracked: set[str] = set()
        self.consumer = Consumer(
            identities=_Known(self.identity),
            clock=lambda _: self.now,
            tracked=self.tracked,
            admits=lambda _: True,
            cursors={},
        )
        self.honest = Writer(self.database, self.limits)
        self.mortal = crashing(self.database, self.draw)

    @property
    def did(self) -> str:
        return self.builder.did

    # What happens

    async def live(self) -> None:
        """From the first commit to a repo that is whole."""
        if self.draw.random() < 0.3:
            await self.track()
        self.write()
        for _ in range(self.draw.randrange(2, 6)):
            await self.happen()
            await self.check()
        await self.settle()

    async def happen(self) -> None:
        """Something at random."""
        for _ in range(self.draw.choice((0, 1, 2, 3))):
            self.write()
        often, seldom = [self.deliver, self.fetch], [self.forsake, self.go]
        await self.draw.choice([*often * 4, *seldom])()

    async def track(self) -> None:
        """As discovery does."""
        async with self.database.transaction() as conn:
            await fetches.track(conn, [(self.did, None)], self.now)
        self.tracked.add(self.did)

    def write(self) -> None:
        """A commit at the host; most of them are sent."""
        present = [path.partition("/")[2] for path in self.builder.records if path.startswith(COLLECTION)]
        writes: list[Write] = []
        for key in self.draw.sample(RKEYS, self.draw.choice((0, 1, 1, 1, 2, 3))):
            if key in present and self.draw.random() < 0.4:
                writes.append(Write("delete", key))
            else:
                writes.append(Write("update" if key in present else "create", key, self.record(key)))
        frame = self.builder.apply(writes)
        if self.draw.random() < 0.8:
            self.unsent.append(frame)
        assert self.builder.commit is not None
        assert self.builder.data is not None
        head = FetchedHead(self.builder.rev or "", cid_text(self.builder.commit[0]), cid_text(self.builder.data))
        records = {
            path.partition("/")[2]: (bytes(cid), self.builder.record_blocks[cid])
            for path, cid in self.builder.records.items()
            if path.startswith(COLLECTION)
        }
        self.snapshots.append(Snapshot(head, records))

    def record(self, key: str) -> dict[str, object]:
        draw = self.draw
        record = memory(draw.choice(("tea", "coffee", "日本語のメモ", "x" * 300)), iso(draw.choice(MINUTES)))
        if draw.random() < 0.3:
            record["updatedAt"] = iso(draw.choice(MINUTES))
        if draw.random() < 0.5:
            record["supersedes"] = [f"at://{self.did}/{COLLECTION}/{draw.choice(RKEYS)}" for _ in range(2)]
        if draw.random() < 0.2:
            del record["createdAt"]
        return record

    async def deliver(self) -> None:
        """Some of what was sent comes of a relay or of two, now and then once more, as a process that may be killed
        writes it until it is written.
        """
        count = self.draw.randrange(len(self.unsent) + 1)
        frames, self.unsent = self.unsent[:count], self.unsent[count:]
        self.frames += frames
        if self.frames and self.draw.random() < 0.2:
            frames.append(self.draw.choice(self.frames))
        self.told.append(f"deliver {len(frames)}")
        for relay in RELAYS[: self.draw.choice((1, 1, 2))]:
            await self.take(Writer(self.mortal, self.limits), frames, relay)

    async def take(self, writer: Writer, frames: Sequence[bytes], relay: Source) -> None:
        self.now += timedelta(seconds=1)
        arrivals = [arrival for frame in frames for arrival in self.consumer.take(relay, frame)[0]]
        while arrivals:
            try:
                await writer.apply(Batch(arrivals), self.now)
                return
            except Killed:
                continue

    async def fetch(self) -> None:
        """A fetch of what the host has, or had; it may come to nothing at any moment."""
        self.depth += 1
        self.told.append("fetch {")
        try:
            await self._fetch(self.draw.choice([*self.snapshots[-3:], *[self.snapshots[-1]] * 6]))
        except (Killed, _Failed):
            self.told.append("} killed")
        except FetchOvertaken:
            self.told.append("} overtaken")
        else:
            self.told.append("}")
        finally:
            self.depth -= 1

    async def _fetch(self, contents: Snapshot) -> None:
        applier = _Halting(
            self.mortal, Writer(self.mortal, self.limits), self._clock, slice_ops=self.draw.choice((1, 2, 3, 100))
        )
        applier.between = self.between
        applier.piece_units, applier.commits_max = self.draw.choice((1, 10, 600)), self.draw.choice((1, 500, 500))
        fetch = await applier.begin(self.did, self.identity, self.now)
        if fetch is None or self.deleted:
            return
        with suppress(_Failed):
            await self.between()
        if fetch.rev is not None and contents.head.rev < fetch.rev:
            await applier.give_up(fetch, self.identity, "stale_repo")
        elif self.draw.random() < 0.15:
            await applier.give_up(fetch, self.identity, self.draw.choice(("bad_signature", None)))
        else:
            try:
                await self.apply(applier, fetch, contents)
            except _Failed:
                await applier.give_up(fetch, self.identity, self.draw.choice(("unavailable", None)))

    async def apply(self, applier: Applier, fetch: Fetch, contents: Snapshot) -> None:
        await applier.apply(fetch, self.identity, contents.head, contents, lambda: self.now)

    async def between(self) -> None:
        """Something at random in the middle of a fetch."""
        chance = self.draw.random()
        if chance < 0.35:
            self.write()
            await self.deliver()
        elif chance < 0.5:
            await self.deliver()
        elif chance < 0.55:
            self.write()
        elif chance < 0.62:
            raise Killed
        elif chance < 0.68 and self.depth == 1:
            await self.fetch()  # as another process that takes over
        elif chance < 0.72:
            await self.forsake()
        elif chance < 0.75:
            await self.go()
        elif chance < 0.79:
            raise _Failed

    async def forsake(self) -> None:
        """A fetch of which nothing was heard for long is taken back."""
        self.told.append("forsake")
        async with self.database.transaction() as conn:
            await conn.execute(
                "update repos set state = 'desynchronized', reason = 'fetch_interrupted', fetch_token = null"
                " where repo = $1 and state = 'resyncing'",
                self.did,
            )

    async def go(self) -> None:
        """The account is deleted, which its host confirms, or comes back."""
        self.deleted = not self.deleted
        self.told.append("deleted" if self.deleted else "back")
        place = at_hosts(self.now)
        gone: list[Arrival] = [
            AccountAsked(place, self.did, HOST, False, "deleted"),
            DeletionConfirmed(place, self.did, HOST),
        ]
        back: list[Arrival] = [AccountAsked(place, self.did, HOST, True, None)]
        await self.honest.apply(Batch(gone if self.deleted else back), self.now)

    def _clock(self) -> datetime:
        return self.now

    # What is so then

    async def row(self) -> Row | None:
        async with self.database.connection() as conn:
            return await conn.fetchrow("select * from repos where repo = $1", self.did)

    async def check(self) -> None:
        """A repo that says it is whole is what its author had made of it at its rev; the gate moves only forward."""
        row = await self.row()
        if row is None:
            return
        assert (row["rev"] or "") >= self.gate, self.story()
        self.gate = row["rev"] or ""
        assert (row["state"] == "resyncing") == (row["fetch_token"] is not None), self.story()
        if row["data_cid"] is None:
            assert row["memory_count"] == 0 or row["state"] != "active", self.story()
        elif row["state"] == "active":
            await self.compare(row, final=False)

    async def settle(self) -> None:
        """What repairs by itself ends with a whole repo."""
        if self.deleted:
            await self.go()
        if not self.tracked:
            await self.track()
        applier = Applier(self.database, self.honest, self._clock)
        for _ in range(SETTLED_AFTER):
            frames, self.unsent = self.unsent, []
            await self.take(self.honest, frames, RELAYS[0])
            asked_at = await self.asked_at()
            row = await self.row()
            assert row is not None
            if row["state"] == "active" and asked_at is None and row["rev"] == self.snapshots[-1].head.rev:
                break
            fetch = await applier.begin(self.did, self.identity, asked_at or self.now)
            assert fetch is not None
            await self.apply(applier, fetch, self.snapshots[-1])
            await self.check()
        row = await self.row()
        assert row is not None
        assert (row["state"], row["visible"]) == ("active", True), self.story()
        assert row["rev"] == self.snapshots[-1].head.rev, self.story()
        await self.compare(row, final=True)

    async def asked_at(self) -> datetime | None:
        """When a fetch was asked for, if one was."""
        async with self.database.connection() as conn:
            return await conn.fetchval("select requested_at from requests where repo = $1 and kind = 'fetch'", self.did)

    async def compare(self, row: Row, *, final: bool) -> None:
        """The tables against the contents at the row's rev."""
        snapshot = next(each for each in self.snapshots if each.head.rev == row["rev"])
        held = await read_holdings(self.database, self.did)
        try:
            fits = assert_held(held, row, snapshot, self.did, self.limits)
        except AssertionError as wrong:
            raise AssertionError(self.story()) from wrong
        if not fits:
            assert not final, self.story()
            assert await self.asked_at() is not None, self.story()
        assert not final or held.parked == 0, self.story()

    def story(self) -> str:
        """What led there."""
        return f"{self.seed}: {', '.join(self.told)}"
