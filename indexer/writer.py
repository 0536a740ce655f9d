"""The writer: one batch, one transaction, the cursor within it.

Every content write locks its repos' rows (sorted, so that writers never wait in a circle) and judges against what it
finds there. A kill at any moment loses and doubles nothing: all of a batch is there with its cursor, or nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from time import monotonic
from typing import TypeAlias

from indexer import masks, quota
from indexer.arrivals import (
    Arrival,
    Batch,
    CommitArrived,
    CommitParked,
    ContentsFetched,
    FrameIgnored,
    SpaceChanged,
    TakedownOrdered,
)
from indexer.books import Effect, RecordKey
from indexer.interpret import MemoryOp, StoredMemory
from indexer.ledger import Ledger
from indexer.parking_lot import Parked, ParkingLimits, ParkingLot
from indexer.quota import QuotaLimits
from indexer.record_state import RecordState
from indexer.repo_state import RepoKey, RepoRow, visibility
from indexer.store import deletions, denials, embeddings, space_repos, streams
from indexer.store import records as record_rows
from indexer.store import repos as repo_rows
from indexer.store.embeddings import Lane
from indexer.store.records import CurrentMemory
from indexer.store.space_repos import AccountWord
from indexer.subjects import account_of, key_of, touched
from indexer.verify.reasons import Fault
from memory.database import Database
from memory.errors import Unavailable
from memory.queries import Connection, StatementFailed, StatementTimedOut
from memory.space import PUBLIC
from memory.store.identities import load_identities, store_identities
from memory.telemetry import get_logger

FIRST_STATISTICS_AT = 500
SUMMING_SHARE = 20


@dataclass(slots=True)
class Outcome:
    """What became of the arrivals of one batch or more."""

    tally: Counter[tuple[str, str, Effect]] = field(default_factory=Counter[tuple[str, str, Effect]])
    tracked: set[str] = field(default_factory=set[str])  # repos that have a row now
    quota_edges: dict[str, str] = field(default_factory=dict[str, str])  # public repo → its edge, where there is one
    refills: set[RepoKey] = field(default_factory=set[RepoKey])  # in Spaces: all of it has to be pulled before long

    def add(self, other: Outcome) -> None:
        self.tally.update(other.tally)
        self.tracked |= other.tracked
        self.quota_edges |= other.quota_edges
        self.refills |= other.refills


Take: TypeAlias = Callable[[Connection, Sequence[Arrival]], Awaitable[Outcome]]
Look: TypeAlias = Callable[[Ledger], None]
"""Sees what is held and locked before anything is taken; what it raises goes through."""


class Writer:
    """Applies batches. One instance per process; many processes may write at once."""

    def __init__(self, database: Database, limits: QuotaLimits, parking: ParkingLimits | None = None) -> None:
        self._database = database
        self._limits = limits
        self._parking = parking or ParkingLimits()
        self._totals = (0, 0)
        self._sum_at = 0.0  # when what is parked is summed up again
        self._records = 0  # that this writer has seen
        self._analyze_at = FIRST_STATISTICS_AT

    async def apply(self, batch: Batch, now: datetime) -> Outcome:
        """Applies `batch` and moves its cursors; `now` is the injected clock, of cursors and counters.

        What the database refuses to hold never takes the rest along: in a transaction of its own the batch is halved
        until the arrival that it refuses is alone, and that one is judged without its data.
        """
        try:
            outcome = await self._transact(batch, now, self.take)
        except (StatementFailed, StatementTimedOut) as failure:
            if not is_about_data(failure):
                raise
            outcome = await self._transact(batch, now, self._take_in_halves)
        await self.keep_statistics(
            op for arrival in batch.arrivals if isinstance(arrival, CommitArrived) for op in arrival.ops
        )
        return outcome

    async def _transact(self, batch: Batch, now: datetime, take: Take) -> Outcome:
        async with self._database.transaction() as conn:
            outcome = await take(conn, batch.arrivals)
            # Last, for these rows are every writer's.
            await _count_rejections(conn, outcome, now)
            if batch.positions:
                await streams.advance_cursors(conn, batch.positions, now)
            return outcome

    @asynccontextmanager
    async def transaction(self, now: datetime) -> AsyncGenerator[Taking]:
        """A transaction of the caller's, in which it takes as it likes; raises what the database does."""
        async with self._database.transaction() as conn:
            taking = Taking(self, conn, now)
            yield taking
            await _count_rejections(conn, taking.outcome, now)

    async def take(self, conn: Connection, arrivals: Sequence[Arrival], look: Look | None = None) -> Outcome:
        """Applies arrivals within a transaction, whose end counts what was rejected."""
        ledger = await self._load(conn, arrivals)
        if look is not None:
            look(ledger)
        ledger.take(arrivals)
        await self._store(conn, ledger, live=not any(map(_is_of_whole_repo, arrivals)))
        if explained := {repo for repo in map(account_of, arrivals) if repo}:
            now = max(arrival.place.seen_at for arrival in arrivals)
            await space_repos.show_accounts(conn, [_word_on(repo, ledger) for repo in sorted(explained)], now)
        edges = {
            row.repo: row.quota_edge for row in ledger.rows.values() if row.quota_edge is not None and not row.space
        }
        tracked = {repo for repo, space in ledger.rows if not space}
        return Outcome(ledger.tally, tracked, edges, ledger.refills)

    async def _take_in_halves(self, conn: Connection, arrivals: Sequence[Arrival]) -> Outcome:
        await _lock(conn, arrivals)  # all of them before the first half, and so in order
        return await self.take_or_halve(conn, arrivals)

    async def take_or_halve(self, conn: Connection, arrivals: Sequence[Arrival]) -> Outcome:
        """As `take`; what the database refuses to hold takes nothing else along."""
        try:
            async with conn.transaction():
                return await self.take(conn, arrivals)
        except (StatementFailed, StatementTimedOut) as failure:
            if not is_about_data(failure):
                raise
            if len(arrivals) == 1:
                return await self.take_or_halve(conn, [_without_data(arrivals[0], failure)])
        middle = len(arrivals) // 2
        outcome = await self.take_or_halve(conn, arrivals[:middle])
        outcome.add(await self.take_or_halve(conn, arrivals[middle:]))
        return outcome

    async def keep_statistics(self, written: Iterable[MemoryOp]) -> None:
        """Lets Postgres count its rows while tables fill; call it once that is committed, for it raises nothing.

        What was never counted is planned for as if it were one row, so that each look-up reads all of its repo.
        Autovacuum would come within minutes.
        """
        self._records += sum(map(_rows_of, written))
        if self._records < self._analyze_at:
            return
        self._analyze_at = 4 * self._records
        try:
            async with self._database.connection() as conn:
                await record_rows.analyze(conn)
        except (Unavailable, StatementFailed) as failure:  # what was written is written
            get_logger().warning("statistics_skipped", sqlstate=failure.context.get("sqlstate"))

    async def _load(self, conn: Connection, arrivals: Sequence[Arrival]) -> Ledger:
        """What the arrivals are judged against, its repos' rows locked."""
        rows = await _lock(conn, arrivals)
        keys = set(touched(arrivals))
        fresh = {
            key_of(arrival)
            for arrival in arrivals
            if isinstance(arrival, ContentsFetched | SpaceChanged) and arrival.fresh
        }
        known = sorted(key for key in keys if key[:2] not in fresh)
        explained = {repo for repo in map(account_of, arrivals) if repo}
        if unseen := {row.repo for row in rows.values() if row.rev is None}:
            explained |= unseen & {each.commit.repo for each in arrivals if isinstance(each, CommitArrived)}
        ledger = Ledger(
            rows=rows,
            held=await record_rows.held_records(conn, known) if known else {},
            statuses=await repo_rows.account_statuses(conn, explained) if explained else {},
            identities={found.did: found for found in await load_identities(conn, explained)} if explained else {},
        )
        ledger.denied = await denials.denied(conn, rows, keys)
        return ledger

    async def _store(self, conn: Connection, ledger: Ledger, *, live: bool) -> None:
        if ledger.purged:
            await repo_rows.purge(conn, ledger.purged)
            await space_repos.empty_accounts(conn, {repo for repo, _ in ledger.purged})
        if ledger.unparked:
            await streams.unpark_commits(conn, ledger.unparked)
        if ledger.parked:
            await self._park(conn, ledger)
        quota.withhold(ledger)
        changed = {key: state for key, state in ledger.records.items() if state.changed}
        if changed:
            await _store_records(conn, changed)
            await _keep_embeddings(conn, changed, live=live)
            for (repo, space, _), state in changed.items():
                ledger.rows[repo, space].count_entries(*state.entry_growth())
            affected = masks.affected(changed)
            affected += await quota.settle(conn, ledger, changed, self._limits)
            if affected:
                await masks.recompute(conn, affected)
        await deletions.settle(conn, ledger)
        await _store_repos(conn, ledger)
        if ledger.denials:
            times = [
                row.changed_at for row in ledger.rows.values()
            ]  # none: of a repo that was never seen, one is lifted
            await denials.store_denials(conn, ledger.denials, now=max(times, default=None))
        if ledger.broken:
            await streams.quarantine_frames(conn, ledger.broken)

    async def _park(self, conn: Connection, ledger: Ledger) -> None:
        sizes = await streams.parked_sizes(conn, {commit.repo for commit in ledger.parked})
        lot = ParkingLot(self._parking, Parked(sizes, *await self._parked_totals(conn)))
        kept: list[CommitParked] = []
        for commit in ledger.parked:
            if lot.has(commit):
                ledger.parked_before(commit)
            elif lot.take(commit, tracked=(commit.repo, PUBLIC) in ledger.rows):
                kept.append(commit)
                ledger.park(commit)
            else:
                ledger.overflow(commit)
        if kept:
            await streams.park_commits(conn, kept)
        self._totals = lot.totals

    async def _parked_totals(self, conn: Connection) -> tuple[int, int]:
        """How much is parked in all, and of strangers: with what this writer added since that was last summed up.

        A sum goes through all that is parked, of which a flood makes much; so it takes a small part of the time.
        """
        began = monotonic()
        if began >= self._sum_at:
            self._totals = await streams.parked_totals(conn)
            ended = monotonic()
            self._sum_at = ended + SUMMING_SHARE * (ended - began)
        return self._totals


@dataclass(slots=True)
class Taking:
    """A transaction in which a writer takes more than once.

    What was rejected is counted at its end, in one go: those rows are every writer's, and whoever holds some of them
    must not wait for anything any more.
    """

    writer: Writer
    conn: Connection
    now: datetime
    outcome: Outcome = field(default_factory=Outcome)

    async def take(self, arrivals: Sequence[Arrival], look: Look | None = None) -> Outcome:
        """Applies arrivals; what `look` raises goes through."""
        outcome = await self.writer.take(self.conn, arrivals, look)
        self.outcome.add(outcome)
        return outcome

    async def take_storable(self, arrivals: Sequence[Arrival]) -> None:
        """As `take`; what the database refuses to hold takes nothing else along."""
        self.outcome.add(await self.writer.take_or_halve(self.conn, arrivals))


# What is applied, or was applied before, is no rejection.
_NO_REJECTION = (Effect.ACCEPTED, Effect.ALREADY_APPLIED)


async def _count_rejections(conn: Connection, outcome: Outcome, now: datetime) -> None:
    rejections = {key: times for key, times in outcome.tally.items() if key[2] not in _NO_REJECTION}
    if rejections:
        await streams.count_rejections(conn, rejections, now)


def _rows_of(op: MemoryOp) -> int:
    """About how many rows it brings: a memory, and an edge for each that it replaces."""
    return 1 + len(op.entry.targets) if isinstance(op.entry, StoredMemory) else 1


def is_about_data(failure: StatementFailed | StatementTimedOut) -> bool:
    """Class 22: data that a type cannot hold; 54: more than a limit of the server; 42601: text that is no tsvector.

    What takes too long is what one repo made so, as all that can be slow grows with one repo's contents.
    """
    if isinstance(failure, StatementTimedOut):
        return True
    return (failure.sqlstate or "").startswith(("22", "54", "42601"))


def _without_data(arrival: Arrival, failure: StatementFailed | StatementTimedOut) -> Arrival:
    """The same, as far as the database can hold it; raises the failure where nothing can be left out."""
    match arrival:
        case CommitArrived() if arrival.commit.fault is not Fault.UNSTORABLE:
            return replace(arrival, commit=replace(arrival.commit, fault=Fault.UNSTORABLE), ops=())
        case FrameIgnored():
            raise failure
        case _:
            return FrameIgnored(arrival.place, Fault.UNSTORABLE)


def _is_of_whole_repo(arrival: Arrival) -> bool:
    return isinstance(arrival, ContentsFetched) or (isinstance(arrival, SpaceChanged) and arrival.whole)


def _word_on(repo: str, ledger: Ledger) -> AccountWord:
    """What is known of an account, whether or not it has a public repo here."""
    identity = ledger.identities.get(repo)
    words = ledger.statuses.get(repo, {}).values()
    tombstoned = identity is not None and identity.tombstoned
    active, status = visibility(words, identity.host if identity else None, tombstoned=tombstoned)
    return AccountWord(repo, active, status)


async def _lock(conn: Connection, arrivals: Iterable[Arrival]) -> dict[RepoKey, RepoRow]:
    """The rows of the repos that `arrivals` are about, those of new repos made first."""
    first: dict[RepoKey, datetime] = {}
    for arrival in arrivals:
        if isinstance(arrival, CommitArrived) and arrival.first_sight:
            first.setdefault((arrival.commit.repo, PUBLIC), arrival.place.seen_at)
        elif isinstance(arrival, TakedownOrdered):  # its row is what a first commit waits for
            first.setdefault((arrival.repo, PUBLIC), arrival.place.seen_at)
    if first:
        await repo_rows.insert_repos(conn, sorted(first.items()))
    return await repo_rows.lock_repos(conn, {key for key in map(key_of, arrivals) if key})


async def _store_repos(conn: Connection, ledger: Ledger) -> None:
    rows = [row for row in ledger.rows.values() if row.changed]
    if rows:
        await repo_rows.update_repos(conn, rows)
    if ledger.changed_statuses:
        words = [(repo, word) for (repo, _), word in ledger.changed_statuses.items()]
        await repo_rows.upsert_account_statuses(conn, words)
    if ledger.changed_identities:
        await store_identities(conn, [ledger.identities[did] for did in ledger.changed_identities])
    if ledger.answered and ledger.requests:
        await repo_rows.lock_requests(conn, [*ledger.answered, *ledger.requests.values()])
    if ledger.answered:
        await repo_rows.delete_requests(conn, ledger.answered)
    if ledger.requests:
        await repo_rows.upsert_requests(conn, list(ledger.requests.values()))


async def _store_records(conn: Connection, changed: dict[RecordKey, RecordState]) -> None:
    overwritten = [(key, state.overwritten_at) for key, state in changed.items() if state.overwritten_at]
    redacted = [(key, state.redacted_at) for key, state in changed.items() if state.redacted_at]
    if overwritten:
        await record_rows.keep_overwritten(conn, overwritten)
    if redacted:
        await record_rows.redact_versions(conn, redacted)
    versions = [(key, version) for key, state in changed.items() for version in state.versions]
    if versions:
        await record_rows.insert_versions(conn, versions)
    gone = [key for key, state in changed.items() if state.held.cid and state.memory is None]
    if gone:
        await record_rows.delete_memories(conn, gone)
    current = [row for key, state in changed.items() if (row := _current(key, state))]
    if current:
        await record_rows.upsert_memories(conn, current)
    edges = [(key, target) for key, state in changed.items() if state.memory for target in state.memory.targets]
    if edges or any(state.held.targets for state in changed.values()):
        await record_rows.replace_edges(conn, changed, edges)
    valid = [key for key, state in changed.items() if state.held.invalid_cid and state.invalid is None]
    if valid:
        await record_rows.delete_invalid_records(conn, valid)
    invalid = [
        (key, state.invalid, state.indexed_at) for key, state in changed.items() if state.invalid and state.indexed_at
    ]
    if invalid:
        await record_rows.upsert_invalid_records(conn, invalid)


async def _keep_embeddings(conn: Connection, changed: dict[RecordKey, RecordState], *, live: bool) -> None:
    """After the memories are stored: whoever embeds locks them first, too."""
    if not await embeddings.are_kept(conn):
        return
    if stale := [key for key, state in changed.items() if state.held.cid]:
        await embeddings.forget(conn, stale)
    if fresh := [(key, memory.cid) for key, state in changed.items() if (memory := state.memory)]:
        await embeddings.request(conn, fresh, Lane.LIVE if live else Lane.BACKLOG)


def _current(key: RecordKey, state: RecordState) -> CurrentMemory | None:
    entry = state.memory
    if entry is None or state.rev is None or state.indexed_at is None or state.first_indexed_at is None:
        return None
    return CurrentMemory(key, entry, state.rev, state.versions[-1].number, state.first_indexed_at, state.indexed_at)
