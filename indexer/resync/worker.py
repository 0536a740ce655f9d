"""Asks hosts what was written down to be asked of them: whole repos, where they stand, and whom they serve.

Whatever goes wrong is told by one word, and tried again after a wait that grows to a day; nothing is abandoned. What is
the host's matter, and not the repo's, is no attempt.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

from indexer.arrivals import (
    AccountAsked,
    Arrival,
    Batch,
    DeletionConfirmed,
    HeadCompared,
    IdentityResolved,
    RequestAnswered,
)
from indexer.books import RequestKind
from indexer.patience import patiently
from indexer.repo_state import RepoState
from indexer.resync.answers import DELETED, AccountStatus
from indexer.resync.apply import SLICE_OPS, Applier, at_hosts
from indexer.resync.claims import POLL_S, ClaimQueue
from indexer.resync.disk import DISK_UNAVAILABLE, Disk, DiskBudget
from indexer.resync.fetch import PATIENCE_WITH_HOST_S, Fetcher, Moved, NoHost
from indexer.resync.hosts import RepoHosts
from indexer.resync.spool import DiskUnavailable
from indexer.resync.waits import host_wait_s, next_wait_s, spread_s
from indexer.store import fetches
from indexer.store.fetches import HostClaim, SharedClock, Standing, database_clock
from indexer.writer import Writer
from memory.database import Database
from memory.errors import MemoryAppviewError, Rejected, Unavailable
from memory.identifiers import tid_time
from memory.identity import Identity
from memory.outbound_errors import HostNotAsked, HostUnavailable
from memory.queries import StatementFailed
from memory.resolver import LOOK_UP_INTERVAL, IdentityResolver, IdentityUnavailable
from memory.tasks import TaskGroup
from memory.telemetry import get_logger

CLAIM: Final = timedelta(minutes=1)  # another process takes over after that
QUESTIONS_AT_ONCE: Final = 32  # of each kind
GAP: Final = "gap"  # why every repo is compared
# A commit as young as that may still be on its way to us.
IN_FLIGHT: Final = timedelta(seconds=60)
# Who heard from a host that an account is gone looked it up just then; a look-up is forced once in ten minutes.
OF_ONE_MOMENT: Final = timedelta(seconds=30)
LOOK_AGAIN: Final = timedelta(seconds=15)


class HostWorker:
    """Works off the requests to hosts. Any number of them, on any number of machines, share the work."""

    def __init__(
        self,
        database: Database,
        writer: Writer,
        resolver: IdentityResolver,
        hosts: RepoHosts,
        *,
        clock: Callable[[], datetime],
        randomness: random.Random,
        disk: Disk | None = None,
        fetches_at_once: int = 8,
        slice_ops: int = SLICE_OPS,
        poll_s: float = POLL_S,
        shared_clock: SharedClock = database_clock,
    ) -> None:
        """`disk` is for repos that are too large for memory while they are fetched; of a difference, `slice_ops`
        records are applied in one transaction.
        """
        self._database = database
        self._writer = writer
        self._resolver = resolver
        self._hosts = hosts
        self._clock = clock
        self._randomness = randomness
        self._poll_s = poll_s
        self._shared_clock = shared_clock
        self._disk = disk or Disk(DiskBudget())
        self._turns: dict[RequestKind, str] = {}  # the host with which the next claim goes on
        applier = Applier(database, writer, clock, slice_ops=slice_ops)
        self._fetcher = Fetcher(applier, resolver, hosts, clock=clock, keep_claim=self._keep, disk=self._disk)
        self._fetches = ClaimQueue(self._claim_fetches, self._fetch, at_once=fetches_at_once, poll_s=poll_s)
        self.fetched = 0
        self.failures: dict[str, int] = {}  # reason → fetches that ended so

    @property
    def records(self) -> int:
        """How many records, of all collections, were verified in what was fetched here."""
        return self._fetcher.records

    async def run(self) -> None:
        """Works until cancelled."""
        questions: Sequence[tuple[RequestKind, Callable[[HostClaim, Identity, str], Awaitable[list[Arrival]]]]] = (
            (RequestKind.LATEST_COMMIT, self._compare),
            (RequestKind.REPO_STATUS, self._ask_status),
            (RequestKind.CONFIRM_DELETION, self._confirm),
        )
        async with TaskGroup() as tasks:
            tasks.create_task(self._fetches.run())
            for kind, ask in questions:
                queue = ClaimQueue(
                    lambda free, kind=kind: self._claim(
                        kind, free, self._hosts.busy_with_questions(PATIENCE_WITH_HOST_S)
                    ),
                    lambda claim, ask=ask: self._question(claim, ask),
                    at_once=QUESTIONS_AT_ONCE,
                    poll_s=self._poll_s,
                )
                tasks.create_task(queue.run())

    # Claims

    async def _claim_fetches(self, free: int) -> list[HostClaim]:
        if self._disk.pause_s():
            return []
        return await self._claim(RequestKind.FETCH, free, self._hosts.unavailable(PATIENCE_WITH_HOST_S))

    async def _claim(self, kind: RequestKind, free: int, busy: dict[str, float]) -> list[HostClaim]:
        async with self._database.connection() as conn:
            claimed = await fetches.claim(
                conn,
                kind,
                CLAIM,
                at_most=free,
                busy_hosts=busy,
                after_host=self._turns.get(kind, ""),
                now=self._shared_clock(),
            )
        self._turns[kind] = claimed.looked_up_to
        return claimed.claims

    async def _keep(self, claim: HostClaim) -> None:
        async with self._database.connection() as conn:
            await fetches.keep_claim(conn, claim, CLAIM, self._shared_clock())

    async def _put_back(
        self, claim: HostClaim, wait: timedelta, *, attempted: bool, failure: str | None = None
    ) -> None:
        async def store() -> None:
            async with self._database.connection() as conn:
                await fetches.put_back(
                    conn, claim, wait, attempted=attempted, failure=failure, now=self._shared_clock()
                )

        await patiently(store, "postponement", lambda: None)

    async def _postpone(self, claim: HostClaim, failure: MemoryAppviewError) -> None:
        """Leaves what failed for later: as long as the host asks for, or longer with each attempt."""
        if isinstance(failure, Moved):
            await self._put_back(claim, timedelta(0), attempted=False)
            return
        if isinstance(failure, DiskUnavailable):  # ours: neither the host's matter nor the repo's
            wait = timedelta(seconds=spread_s(self._disk.note(failure), self._randomness))
            await self._put_back(claim, wait, attempted=False, failure=reason_of(failure))
            return
        wait_s = host_wait_s(failure, self._randomness) if isinstance(failure, HostUnavailable) else None
        attempted = wait_s is None
        if wait_s is None:
            wait_s = next_wait_s(claim.attempts, self._randomness)
        reason = reason_of(failure) if attempted else None
        await self._put_back(claim, timedelta(seconds=wait_s), attempted=attempted, failure=reason)

    # Fetches

    async def _fetch(self, claim: HostClaim) -> None:
        try:
            status = await self._fetcher.fetch(claim)
        except (Unavailable, Rejected, StatementFailed) as failure:
            reason = reason_of(failure)
            self.failures[reason] = self.failures.get(reason, 0) + 1
            get_logger().info("fetch_failed", did=claim.repo, reason=reason, attempts=claim.attempts)
            await self._postpone(claim, failure)
            return
        if status is None:
            self.fetched += 1
            return
        word = f"account_{status.status or 'inactive'}"
        self.failures[word] = self.failures.get(word, 0) + 1
        wait = timedelta(seconds=next_wait_s(claim.attempts, self._randomness))
        await self._put_back(claim, wait, attempted=True, failure=word)

    # Questions

    async def _question(
        self, claim: HostClaim, ask: Callable[[HostClaim, Identity, str], Awaitable[list[Arrival]]]
    ) -> None:
        try:
            identity = await self._identify(claim)
            place = at_hosts(self._clock())
            arrivals: list[Arrival] = [IdentityResolved(place, identity)]
            if identity.tombstoned:
                arrivals.append(RequestAnswered(place, claim.repo, claim.kind, claim.requested_at))
            elif identity.host is None:
                raise NoHost
            else:
                arrivals += await ask(claim, identity, identity.host)
        except _LookAgain as again:
            await self._put_back(claim, LOOK_AGAIN, attempted=again.counts)
            return
        except (Unavailable, Rejected) as failure:
            get_logger().info(
                "question_failed", did=claim.repo, kind=claim.kind, reason=reason_of(failure), attempts=claim.attempts
            )
            await self._postpone(claim, failure)
            return
        await patiently(lambda: self._write(arrivals), "answer", lambda: None)

    def _require_free(self, host: str) -> None:
        """Raises HostNotAsked: many questions to one host would stand in the way of those to others.

        Ask at once: the next who looks must find the slot taken.
        """
        if (wait_s := self._hosts.question_turns.available_in_s(host)) > PATIENCE_WITH_HOST_S:
            raise HostNotAsked(f"{host} is busy", host=host, retry_after_s=wait_s)

    async def _identify(self, claim: HostClaim) -> Identity:
        await self._resolver.reload([claim.repo])
        if claim.kind is RequestKind.CONFIRM_DELETION:  # a tombstone would be the answer
            identity = (await self._resolver.refresh(claim.repo)).identity
            if identity.resolved_at < claim.requested_at - OF_ONE_MOMENT:  # from before the word that deletes
                raise IdentityUnavailable("The identity cannot be renewed at the moment.", did=claim.repo)
            return identity
        if claim.reason != GAP:
            return await self._fetcher.author(claim.repo)
        # What was lost may have been the word of a move: the host to ask is the one that is named since.
        age = max(self._clock() - claim.requested_at, timedelta(0))
        found = await self._resolver.resolve(claim.repo, max_age=age)
        if found.stale and self._clock() - found.identity.resolved_at > LOOK_UP_INTERVAL:
            raise IdentityUnavailable("The identity cannot be renewed at the moment.", did=claim.repo)
        return found.identity

    async def _write(self, arrivals: list[Arrival]) -> None:
        await self._writer.apply(Batch(arrivals), self._clock())

    async def _compare(self, claim: HostClaim, identity: Identity, host: str) -> list[Arrival]:
        held = await self._standing(claim.repo)
        if held is not None and held.state is RepoState.RESYNCING:  # what that fetch brings is what to compare with
            raise _LookAgain(counts=False)
        self._require_free(host)
        answer = await self._hosts.latest_commit(host, claim.repo)
        if isinstance(answer, AccountStatus):
            return await self._told(claim, identity, host, answer)
        if claim.attempts == 1 and self._clock() - tid_time(answer.rev) < IN_FLIGHT:
            held = await self._standing(claim.repo)
            if held is not None and held.rev is not None and held.rev < answer.rev:
                raise _LookAgain(counts=True)
        return [HeadCompared(at_hosts(self._clock()), claim.repo, answer.rev, answer.cid, claim.requested_at)]

    async def _standing(self, repo: str) -> Standing | None:
        async with self._database.connection() as conn:
            return await fetches.standing(conn, repo)

    async def _ask_status(self, claim: HostClaim, identity: Identity, host: str) -> list[Arrival]:
        self._require_free(host)
        return await self._told(claim, identity, host, await self._hosts.repo_status(host, identity.did))

    async def _confirm(self, claim: HostClaim, identity: Identity, host: str) -> list[Arrival]:
        self._require_free(host)
        status = await self._hosts.repo_status(host, identity.did)
        told = await self._told(claim, identity, host, status)
        if not status.active and status.status == DELETED:
            told.append(DeletionConfirmed(at_hosts(self._clock()), claim.repo, host))
        return told

    async def _told(self, claim: HostClaim, identity: Identity, host: str, status: AccountStatus) -> list[Arrival]:
        if not status.active:
            await self._fetcher.require_still_there(identity)
        place = at_hosts(self._clock())
        return [
            AccountAsked(place, claim.repo, host, status.active, status.status),
            RequestAnswered(place, claim.repo, claim.kind, claim.requested_at),
        ]


class _LookAgain(Exception):
    """What the host has may just be on its way to us."""

    def __init__(self, *, counts: bool) -> None:
        self.counts = counts  # as an attempt
        super().__init__()


def reason_of(failure: MemoryAppviewError) -> str:
    """One word for it, as it is counted and shown."""
    if isinstance(failure, Rejected):
        return failure.reason
    if isinstance(failure, HostUnavailable):
        return "host_unavailable"
    if isinstance(failure, DiskUnavailable):
        return DISK_UNAVAILABLE
    return "unavailable" if isinstance(failure, Unavailable) else "unstorable"
