"""Makes what is held of a repo what was fetched of it: creates, updates and deletes, while live commits wait.

A fetch begins by marking its repo: from then on what comes live is parked, and nothing but this fetch changes what is
held. So the difference can be taken in slices, each in a transaction of its own that holds the repo's row for some
milliseconds. The last brings, under one lock, the rest of the difference, the new head, and the first of the parked
commits; `drain` joins the others. Killed in between, a repo is as `resyncing` as before, and the next fetch takes the
difference to what is held then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol
from uuid import UUID, uuid4

from indexer.arrivals import (
    Arrival,
    Batch,
    ContentsFetched,
    FetchApplied,
    FetchBegun,
    FetchedHead,
    FetchFailed,
    IdentityResolved,
    RequestAnswered,
)
from indexer.books import RequestKind
from indexer.interpret import MemoryOp
from indexer.ledger import Ledger
from indexer.patience import despite_conflicts
from indexer.repo_state import RepoRow, RepoState
from indexer.resync.difference import Contents, Difference, bytes_of, find_gone, list_ops
from indexer.resync.drain import Drain, FetchOvertaken, Seam, at_hosts
from indexer.resync.slices import Slice
from indexer.store import denials, fetches
from indexer.store import repos as repo_rows
from indexer.writer import Taking, Writer, is_about_data
from memory.database import Database
from memory.errors import Unavailable
from memory.identity import Identity
from memory.queries import Connection, StatementFailed, StatementTimedOut
from memory.space import PUBLIC
from memory.store.identities import load_identities

SLICE_OPS: Final = 500
SLICE_BYTES: Final = 256 * 1024  # of texts whose every word is another, 0.3 s of writing
# What interprets a record takes a while, and sockets wait for it.
YIELD_EVERY_S: Final = 0.005

# Why a repo is not whole any more of which a fetch had begun to change what is held.
INTERRUPTED: Final = "fetch_interrupted"


class Moved(Unavailable):
    """The account is at another host now, or under another key: who was asked has nothing more to say."""


class _NotFetched(Exception):
    """The repo is not tracked, or denied."""


class _Take(Protocol):
    """Takes something in a transaction of its own: at once, or as far as the database can hold it."""

    async def __call__(self, *, in_halves: bool) -> None: ...


@dataclass(slots=True)
class Fetch:
    """A fetch that is under way."""

    repo: str
    token: UUID
    before: RepoState  # what its repo is again, if nothing comes of it
    before_reason: str | None
    rev: str | None  # that is held
    asked_at: datetime  # what was asked until then is answered by it
    rested_at: datetime | None = None  # if nothing comes of it, none begins before
    quota_edge: str | None = None  # as its slices so far left it

    def begin_to_apply(self) -> None:
        """From now on what is held may be of no one commit."""
        if self.before is not RepoState.DESYNCHRONIZED:
            self.go_back(RepoState.DESYNCHRONIZED, INTERRUPTED)

    def go_back(self, state: RepoState, reason: str | None) -> None:
        """What its repo is again, if nothing comes of the rest."""
        self.before, self.before_reason = state, reason


class Applier:
    """Begins, applies and ends fetches. Raises Unavailable as the database does; nothing is half done then.

    Where the database takes one of its transactions back for the sake of another's, it is done again.
    """

    def __init__(
        self, database: Database, writer: Writer, clock: Callable[[], datetime], *, slice_ops: int = SLICE_OPS
    ) -> None:
        self._database = database
        self._writer = writer
        self._clock = clock
        self._slice_ops = slice_ops

    async def begin(self, repo: str, identity: Identity, asked_at: datetime) -> Fetch | None:
        """Marks a repo; null: it is not tracked, denied, or gone with its identity."""
        return await despite_conflicts(lambda: self._begin(repo, identity, asked_at), "fetch_begin")

    async def apply(
        self,
        fetch: Fetch,
        identity: Identity,
        head: FetchedHead,
        contents: Contents,
        next_not_before: Callable[[], datetime],
    ) -> Difference:
        """Makes the repo what was fetched, and whole; at its end it is asked when the next may be.

        Raises FetchOvertaken.
        """
        async with self._database.connection() as conn:
            held = await fetches.held_cids(conn, fetch.repo)
        gone = await find_gone(held or {}, contents)
        put = beyond = 0
        waiting: list[MemoryOp] = []
        waiting_bytes = 0
        first, fresh = True, held is None
        time = asyncio.get_running_loop().time
        yielded = time()
        for op in list_ops(fetch.repo, held or {}, gone, contents, lambda: fetch.quota_edge):
            if op is None:
                beyond += 1
            else:
                if len(waiting) == self._slice_ops or waiting_bytes >= SLICE_BYTES:
                    await self._take_slice(fetch, slice_ := Slice(head.rev, waiting, first, fresh, beyond))
                    fresh = fresh and not slice_.has_targets
                    waiting, waiting_bytes, first, beyond = [], 0, False, 0
                waiting.append(op)
                waiting_bytes += bytes_of(op)
                put += op.entry is not None
            if time() - yielded > YIELD_EVERY_S:
                await asyncio.sleep(0)
                yielded = time()
        await self._finish(fetch, identity, head, Slice(head.rev, waiting, first, fresh, beyond), next_not_before)
        return Difference(put, len(gone))

    async def answer(self, repo: str, asked_at: datetime, *further: Arrival) -> None:
        """There is nothing to fetch; `further` says why."""
        now = self._clock()
        answered = RequestAnswered(at_hosts(now), repo, RequestKind.FETCH, asked_at)
        await self._writer.apply(Batch([*further, answered]), now)

    async def note(self, identity: Identity) -> None:
        """Who the author is, also where nothing more can be done now: what is asked next depends on the host."""
        now = self._clock()
        await self._writer.apply(Batch([IdentityResolved(at_hosts(now), identity)]), now)

    async def refuse(self, repo: str, identity: Identity | None, reason: str) -> None:
        """A fetch that fails before it begins: its host cannot even be asked."""
        await despite_conflicts(lambda: self._refuse(repo, identity, reason), "fetch_refusal")

    async def give_up(self, fetch: Fetch, identity: Identity, reason: str | None, *further: Arrival) -> None:
        """Leaves the repo as it was, says why, and lets the parked commits go on; `further` goes with it."""
        await despite_conflicts(lambda: self._give_up(fetch, identity, reason, further), "fetch_end")

    async def _begin(self, repo: str, identity: Identity, asked_at: datetime) -> Fetch | None:
        token, now = uuid4(), self._clock()
        seen: list[tuple[RepoRow, Fetch]] = []

        def look(ledger: Ledger) -> None:
            row = ledger.rows.get((repo, PUBLIC))
            if row is None or (repo, PUBLIC, None) in ledger.denied:
                raise _NotFetched
            seen.append((row, Fetch(repo, token, *_before(row), row.rev, asked_at)))

        begun = [IdentityResolved(at_hosts(now), identity), FetchBegun(at_hosts(now), repo, token)]
        try:
            async with self._writer.transaction(now) as taking:
                await taking.take(begun, look)
                await _require_newest(taking.conn, identity)
        except _NotFetched:
            return None
        [(row, fetch)] = seen
        return fetch if row.fetch_token == token else None

    async def _refuse(self, repo: str, identity: Identity | None, reason: str) -> None:
        token, now = uuid4(), self._clock()
        async with self._writer.transaction(now) as taking:
            row = await self._lock(taking.conn, repo)
            if row is None:
                return
            failed = FetchFailed(at_hosts(now), repo, token, *_before(row), reason)
            arrivals: list[Arrival] = [FetchBegun(at_hosts(now), repo, token), failed]
            if identity is not None:
                arrivals.insert(0, IdentityResolved(at_hosts(now), identity))
            await taking.take(arrivals)

    async def _finish(
        self,
        fetch: Fetch,
        identity: Identity,
        head: FetchedHead,
        last: Slice,
        next_not_before: Callable[[], datetime],
    ) -> None:
        async def finish(*, in_halves: bool) -> None:
            async def begin(taking: Taking, closing: Sequence[Arrival]) -> None:
                applied = FetchApplied(at_hosts(taking.now), fetch.repo, fetch.token, head)
                await self._take(taking, fetch, last, applied, *closing, in_halves=in_halves)

            await joined.take_first(begin, len(last.ops))

        def closing(now: datetime) -> list[Arrival]:
            asked_at, not_before = fetch.asked_at, next_not_before()
            return [RequestAnswered(at_hosts(now), fetch.repo, RequestKind.FETCH, asked_at, not_before)]

        joined = self._drain(
            Seam(
                fetch.repo, fetch.token, identity, lambda conn: _require_newest(conn, identity), closing, fetch.go_back
            )
        )
        await self._despite_data(last, finish, "fetch_end")
        await joined.take_rest()

    async def _give_up(self, fetch: Fetch, identity: Identity, reason: str | None, further: Sequence[Arrival]) -> None:
        before = fetch.before, fetch.before_reason

        async def begin(taking: Taking, closing: Sequence[Arrival]) -> None:
            failed = FetchFailed(at_hosts(taking.now), fetch.repo, fetch.token, *before, reason, fetch.rested_at)
            await taking.take([failed, *closing])

        joined = self._drain(Seam(fetch.repo, fetch.token, identity, _require_nothing, lambda _: [], fetch.go_back))
        with suppress(FetchOvertaken):
            await joined.take_first(begin, 0)
            await joined.take_rest()
        if further:
            async with self._writer.transaction(self._clock()) as taking:
                await taking.take(further)

    def _drain(self, seam: Seam) -> Drain:
        return Drain(self._database, self._writer, self._clock, seam)

    async def _take_slice(self, fetch: Fetch, slice_: Slice) -> None:
        async def take(*, in_halves: bool) -> None:
            async with self._writer.transaction(self._clock()) as taking:
                await self._take(taking, fetch, slice_, in_halves=in_halves)

        fetch.begin_to_apply()
        await self._despite_data(slice_, take, "fetch_slice")

    async def _despite_data(self, slice_: Slice, take: _Take, what: str) -> None:
        """Has a slice taken in a transaction, at once if the database can hold all of it."""
        try:
            await despite_conflicts(lambda: take(in_halves=False), what)
        except (StatementFailed, StatementTimedOut) as failure:
            if not is_about_data(failure) or not slice_.can_be_less:
                raise
            await despite_conflicts(lambda: take(in_halves=True), what)
        if not slice_.fresh or slice_.has_targets:  # else nothing was looked up
            await self._writer.keep_statistics(slice_.ops)

    async def _take(self, taking: Taking, fetch: Fetch, slice_: Slice, *further: Arrival, in_halves: bool) -> None:
        """Applies a slice and what follows it. Raises FetchOvertaken."""

        def require(ledger: Ledger) -> None:
            row = ledger.rows.get((fetch.repo, PUBLIC))
            if row is None or row.fetch_token != fetch.token:
                raise FetchOvertaken

        if in_halves:
            await self._require(taking.conn, fetch)
            await self._take_or_halve(taking, fetch, slice_)
            outcome = await taking.take(further)
        else:
            outcome = await taking.take([_arrival(fetch, slice_, taking.now), *further], require)
        fetch.quota_edge = outcome.quota_edges.get(fetch.repo)

    async def _lock(self, conn: Connection, repo: str) -> RepoRow | None:
        """The row of a repo that may be fetched."""
        row = (await repo_rows.lock_repos(conn, [(repo, PUBLIC)])).get((repo, PUBLIC))
        return None if row is None or await denials.denied(conn, [row.key], []) else row

    async def _has(self, conn: Connection, fetch: Fetch) -> bool:
        """Locks the repo's row, and says whether it is still this fetch's."""
        row = (await repo_rows.lock_repos(conn, [(fetch.repo, PUBLIC)])).get((fetch.repo, PUBLIC))
        return row is not None and row.fetch_token == fetch.token

    async def _require(self, conn: Connection, fetch: Fetch) -> None:
        if not await self._has(conn, fetch):
            raise FetchOvertaken

    async def _take_or_halve(self, taking: Taking, fetch: Fetch, slice_: Slice) -> None:
        """An op that the database cannot hold becomes an invalid record, and takes no other along."""
        try:
            async with taking.conn.transaction():
                await taking.take([_arrival(fetch, slice_, taking.now)])
            return
        except (StatementFailed, StatementTimedOut) as failure:
            if not is_about_data(failure) or not slice_.can_be_less:
                raise
        for part in slice_.parts():
            await self._take_or_halve(taking, fetch, part)


async def _require_nothing(conn: Connection) -> None:
    """For what ends without a word of its own."""


async def _require_newest(conn: Connection, identity: Identity) -> None:
    """Raises Moved where another process has learnt since that the author is elsewhere, or has another key.

    Once the repo's row is locked: who acts upon an identity locks it too.
    """
    for stored in await load_identities(conn, [identity.did]):
        known, newest = (identity.host, identity.signing_key), (stored.host, stored.signing_key)
        if stored.resolved_at > identity.resolved_at and known != newest:
            raise Moved


def _before(row: RepoRow) -> tuple[RepoState, str | None]:
    """What a repo goes back to, and why; a fetch that was killed may have left it in the middle."""
    if row.state is RepoState.RESYNCING:
        return RepoState.DESYNCHRONIZED, row.reason or INTERRUPTED
    return row.state, row.reason


def _arrival(fetch: Fetch, slice_: Slice, now: datetime) -> ContentsFetched:
    return slice_.arrival(at_hosts(now), fetch.repo, fetch.token)
