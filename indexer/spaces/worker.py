"""Keeps what is held of Spaces true. Any number of these, on any number of machines, share the work.

Spaces and repos are claimed apart, so that an author's slow host holds up neither the Space nor its other authors.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final
from uuid import uuid4

from indexer.arrivals import AccountAsked, Batch
from indexer.patience import patiently
from indexer.resync.apply import SLICE_OPS
from indexer.resync.claims import ClaimQueue
from indexer.resync.drain import at_hosts
from indexer.resync.waits import host_wait_s, next_wait_s
from indexer.spaces import pull, sync
from indexer.spaces.apply import PullOvertaken, SpaceApplier
from indexer.spaces.hosts import SpaceHosts
from indexer.spaces.lanes import Lanes, Turn, word_for
from indexer.spaces.pull import Puller, refill_after
from indexer.spaces.reads import AccountInactive, SpaceReads
from indexer.spaces.sync import CredentialStore, SpacePolicy, SpaceSync
from indexer.spaces.tally import SpaceTally
from indexer.store import space_purge, space_repos, spaces
from indexer.store.fetches import SharedClock, database_clock
from indexer.store.pull_turns import PullTurns
from indexer.store.space_counts import Work
from indexer.store.space_repos import PullClaim
from indexer.store.spaces import SpaceClaim
from indexer.verify.space_commit import HashMismatch
from indexer.writer import Writer
from memory.database import Database
from memory.errors import MemoryAppviewError, Misconfigured, Rejected, Unavailable
from memory.outbound_errors import HostNotAsked, HostUnavailable
from memory.queries import StatementFailed
from memory.resolver import IdentityResolver
from memory.sealed import SealingKeys
from memory.space import parse_space_uri
from memory.space_authorities import SpaceAuthorities
from memory.tasks import TaskGroup
from memory.telemetry import get_logger

POLL_S: Final = 0.2
EXPIRE_EVERY_S: Final = 60.0
PULL_WAIT_MAX: Final = timedelta(hours=1)
# A CAR that does not add up was most often made while its author wrote.
TORN_WAIT_FIRST_S: Final = 1.0


class SpaceWorker:
    """Lists writers, pulls repos, and deletes what is no more."""

    def __init__(
        self,
        database: Database,
        writer: Writer,
        resolver: IdentityResolver,
        authorities: SpaceAuthorities,
        hosts: SpaceHosts,
        keys: SealingKeys,
        *,
        policy: SpacePolicy,
        clock: Callable[[], datetime],
        randomness: random.Random,
        syncer: str | None = None,
        spaces_at_once: int = 16,
        pulls_at_once: int = 16,
        slice_ops: int = SLICE_OPS,
        poll_s: float = POLL_S,
        shared_clock: SharedClock = database_clock,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`syncer`: the service of ours that hosts can tell of writes, as `did:web:…#atproto_space_syncer`; None: what
        is written is found by sweeps only.
        """
        self._database = database
        self._writer = writer
        self._hosts = hosts
        self._clock = clock
        self._randomness = randomness
        self._shared_clock = shared_clock
        self._credentials = CredentialStore(database, keys, shared_clock)
        self.tally = SpaceTally(database, shared_clock)
        self._space_lanes = Lanes(spaces_at_once, monotonic=monotonic)
        self._pull_lanes = Lanes(pulls_at_once, monotonic=monotonic)
        self._turns = PullTurns(self._pull_lanes.is_quick, self._pull_lanes.is_slow)
        self._poll_s = poll_s
        self._freshness = policy.freshness
        self.sync = SpaceSync(
            database,
            hosts,
            authorities,
            self._credentials,
            self.tally,
            policy=policy,
            syncer=syncer,
            shared_clock=shared_clock,
            randomness=randomness,
        )
        applier = SpaceApplier(
            writer,
            clock,
            policy.freshness,
            shared_clock=shared_clock,
            refill_after=refill_after,
            slice_ops=slice_ops,
        )
        self._puller = Puller(
            database,
            applier,
            resolver,
            clock=clock,
            shared_clock=shared_clock,
            longest_wait=policy.sweep_every,
            monotonic=monotonic,
        )
        self._spaces = ClaimQueue(self._claim_spaces, self._work_on_space, at_once=spaces_at_once, poll_s=poll_s)
        self._pulls = ClaimQueue(self._claim_pulls, self._work_on_repo, at_once=pulls_at_once, poll_s=poll_s)
        self.pulled = 0
        self.written = 0  # records that were created, updated or deleted
        self.failures: dict[str, int] = {}  # reason → pulls that ended so

    @property
    def failed(self) -> int:
        """What went wrong by a bug of ours."""
        return sum(queue.failed + queue.refused for queue in (self._spaces, self._pulls))

    async def run(self) -> None:
        """Works until cancelled."""
        async with TaskGroup() as tasks:
            tasks.create_task(self._spaces.run())
            tasks.create_task(self._pulls.run())
            tasks.create_task(self._expire())
            tasks.create_task(self.tally.keep())
            tasks.create_task(self._keep_room())

    async def _keep_room(self) -> None:
        """Sees to it that hosts that were quick and are slow now hold no more places than strangers may."""
        while True:
            for lanes in (self._space_lanes, self._pull_lanes):
                lanes.make_room()
            await asyncio.sleep(self._poll_s)

    # Spaces

    async def _claim_spaces(self, free: int) -> list[SpaceClaim]:
        lanes, now = self._space_lanes, self._shared_clock()
        room = lanes.room
        async with self._database.connection() as conn:
            await spaces.open_spaces(conn)
            claims = await spaces.claim(conn, uuid4(), sync.CLAIM, at_most=min(free, room), now=now)
            if len(claims) == room < free and (quick := lanes.quick()):
                left = free - room
                claims += await spaces.claim(conn, uuid4(), sync.CLAIM, at_most=left, authorities=quick, now=now)
        lanes.make_room(sum(not lanes.is_quick(claim.authority) for claim in claims))
        return claims

    async def _work_on_space(self, claim: SpaceClaim) -> None:
        try:
            with self._space_lanes.turn(claim.attempts + 1, claim.authority) as turn:
                news = await self.sync.step(claim, turn)
        except (Unavailable, StatementFailed) as failure:  # it is due again when the claim ends
            get_logger().warning("space_put_off", sqlstate=failure.context.get("sqlstate"))
            return
        if news:
            self._pulls.wake()

    # Repos

    async def _claim_pulls(self, free: int) -> list[PullClaim]:
        self._turns.strangers_at_most = self._pull_lanes.room
        async with self._database.connection() as conn:
            claims = await space_repos.claim(
                conn,
                uuid4(),
                pull.CLAIM,
                at_most=free,
                each_host=self._hosts.at_once,
                busy_hosts=self._hosts.busy(),
                now=self._shared_clock(),
                turns=self._turns,
            )
        self._pull_lanes.make_room(sum(claim.is_stranger for claim in claims))
        return claims

    async def _work_on_repo(self, claim: PullClaim) -> None:
        self._turns.under_way[claim.space] += 1
        try:
            with self._pull_lanes.turn(claim.attempts, is_trusted=not claim.is_stranger) as turn:
                await self._pull(claim, turn)
        finally:
            self._turns.under_way -= Counter([claim.space])  # which forgets whom nothing is under way of

    async def _pull(self, claim: PullClaim, turn: Turn) -> None:
        found = await self._credentials.find(claim.space)
        if not found:
            async with self._database.connection() as conn:
                await space_repos.drop(conn, claim)
            return
        try:
            async with turn.waiting():
                reads = SpaceReads(self._hosts.in_turn(turn), claim.space, found)
                changed = await self._puller.pull(claim, reads)
            if not claim.account_active:  # and yet its host gave it away
                await self._tell(claim, active=True, status=None)
        except PullOvertaken:
            return
        except (Rejected, Unavailable, StatementFailed) as failure:
            await self._postpone(claim, failure)
            return
        self.pulled += 1
        self.written += changed.ops
        self.tally.count(Work.PULL, "whole" if changed.whole else "ops")
        get_logger().info("space_repo_pulled", records=changed.ops, kind="whole" if changed.whole else "ops")

    async def _postpone(self, claim: PullClaim, failure: MemoryAppviewError) -> None:
        reason = word_for(failure)
        self.failures[reason] = self.failures.get(reason, 0) + 1
        self.tally.count(Work.PULL, reason)
        get_logger().info("space_pull_failed", reason=reason, attempts=claim.attempts)
        if isinstance(failure, AccountInactive) and claim.account_active:
            await self._tell(claim, active=False, status=failure.status)
        wait_s = host_wait_s(failure, self._randomness) if isinstance(failure, HostUnavailable) else None
        attempted = wait_s is None
        if isinstance(failure, HashMismatch):
            wait_s = TORN_WAIT_FIRST_S * 2.0 ** min(claim.attempts - 1, 20)
        elif wait_s is None:
            wait_s = next_wait_s(claim.attempts, self._randomness)
        wait = min(timedelta(seconds=wait_s), PULL_WAIT_MAX)

        # Whose host wants to be left alone is not waited for either by those who wait for all of a Space.
        told = attempted or not isinstance(failure, HostNotAsked)

        async def store() -> None:
            async with self._database.transaction() as conn:
                await space_repos.put_back(
                    conn,
                    claim,
                    wait,
                    attempted=attempted,
                    failure=reason if told else None,
                    whole=isinstance(failure, HashMismatch),
                    host=self._puller.host(claim.author),
                    now=self._shared_clock(),
                )
                space = parse_space_uri(claim.space)
                if told and claim.rev is None and space is not None:  # all that can be had may be there now
                    await spaces.settle(conn, space.authority, claim.space, claim.token, self._freshness, release=False)

        await patiently(store, "postponement", lambda: None)

    async def _tell(self, claim: PullClaim, *, active: bool, status: str | None) -> None:
        """What the author's host says of the account."""
        host, now = self._puller.host(claim.author), self._clock()
        if host is not None:
            asked = AccountAsked(at_hosts(now), claim.author, host, active, status, in_spaces=True)
            await self._writer.apply(Batch([asked]), now)

    # What has had its time

    async def _expire(self) -> None:
        while True:
            try:
                await self.expire()
            except Misconfigured:
                raise
            except (Unavailable, StatementFailed) as failure:
                get_logger().warning("expiry_failed", sqlstate=failure.context.get("sqlstate"))
            await asyncio.sleep(EXPIRE_EVERY_S)

    async def expire(self) -> None:
        """Forgets grants, credentials and notes that hold no more, and samples of what is no more."""
        more = True
        while more:
            async with self._database.connection() as conn:
                more = await space_purge.expire(conn, self._shared_clock())
        async with self._database.connection() as conn:
            await space_purge.forget_samples(conn)
