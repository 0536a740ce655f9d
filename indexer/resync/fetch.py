"""Fetches one repo from its host: downloaded, verified whole, proven to be its author's, applied."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

from indexer.arrivals import AccountAsked, FetchedHead, IdentityResolved
from indexer.resync.answers import AccountStatus
from indexer.resync.apply import Applier, Fetch, FetchOvertaken, Moved, at_hosts
from indexer.resync.disk import Disk
from indexer.resync.download import FetchedRepo, download
from indexer.resync.hosts import RepoHosts
from indexer.resync.spool import DiskUnavailable
from indexer.store.fetches import HostClaim
from indexer.verify.commit import MAX_REV_LEAD
from indexer.verify.reasons import Fault, Unattributable
from indexer.verify.signed import SignedCommit, check_signature
from memory.errors import Rejected, Unavailable
from memory.identifiers import is_tid, tid_time
from memory.identity import Identity
from memory.outbound_errors import HostNotAsked, HostUnavailable
from memory.outbound_hosts import LOOK_AGAIN_S
from memory.queries import StatementFailed
from memory.resolver import LOOK_UP_INTERVAL, IdentityResolver, IdentityUnavailable
from memory.signatures import parse_did_key
from memory.tasks import TaskGroup
from memory.telemetry import get_logger

CLAIM_KEPT_EVERY_S: Final = 20.0
# A repo waits no longer than that for its host's turn, and not for a slot that is taken: live commits wait with it.
PATIENCE_WITH_HOST_S: Final = LOOK_AGAIN_S / 2
# So many times what a fetch took goes by until the next: whoever makes us fetch a repo again and again gets a tenth of
# one slot.
REST_FACTOR: Final = 9.0
REST_MAX: Final = timedelta(days=1)


class NoHost(Rejected):
    """The DID document names no host."""

    reason = "no_host"


class StaleRepo(Rejected):
    """The host has less of the repo than is held."""

    reason = "stale_repo"


class Fetcher:
    """Fetches repos, each under a claim that it keeps up meanwhile."""

    def __init__(
        self,
        applier: Applier,
        resolver: IdentityResolver,
        hosts: RepoHosts,
        *,
        clock: Callable[[], datetime],
        keep_claim: Callable[[HostClaim], Awaitable[None]],
        disk: Disk,
    ) -> None:
        self._applier = applier
        self._resolver = resolver
        self._hosts = hosts
        self._clock = clock
        self._keep_claim = keep_claim
        self._disk = disk
        self._doors = WeakValueDictionary[str, asyncio.Lock]()  # host → who is about to ask it
        self.records = 0  # of all collections, verified in repos that were applied

    async def fetch(self, claim: HostClaim) -> AccountStatus | None:
        """Brings a repo up to date. An account that its host does not serve is told of; null: it was applied, or is
        none of ours.

        Raises Rejected and Unavailable with the reason why not; the repo says so too then.
        """
        ahead = claim.claimed_at - self._clock()  # of our clock: the one that all share
        try:
            identity = await self.author(claim.repo)
        except Rejected as refused:
            await self._refuse(claim, None, refused)
            raise
        host = identity.host
        if identity.tombstoned:
            resolved = IdentityResolved(at_hosts(self._clock()), identity)
            await self._applier.answer(claim.repo, claim.requested_at, resolved)
            return None
        if host is None:
            await self._refuse(claim, identity, refused := NoHost())
            raise refused
        # One after another, up to the moment when they ask: else many would find the same slot free.
        async with self._doors.setdefault(host, asyncio.Lock()):
            if (wait_s := self._hosts.available_in_s(host)) > PATIENCE_WITH_HOST_S:
                if claim.host != host:  # so that it is not claimed again before its host is free
                    await self._applier.note(identity)
                raise HostNotAsked(f"{host} is busy", host=host, retry_after_s=wait_s)
            fetch = await self._applier.begin(claim.repo, identity, claim.requested_at)
        if fetch is None:
            await self._applier.answer(claim.repo, claim.requested_at)
            return None
        began = time.monotonic()
        rested = partial(self._rested, began, ahead)
        try:
            return await self._fetch(claim, fetch, identity, host, began, rested)
        except FetchOvertaken:
            raise
        except (Rejected, Unavailable, StatementFailed) as failure:
            # What the directory tells is seldom enough, and what our disk lacks is not the repo's to wait for.
            if not isinstance(failure, (Moved, DiskUnavailable)):
                fetch.rested_at = rested()
            await self._applier.give_up(fetch, identity, _told_reason(failure))
            raise

    async def author(self, repo: str) -> Identity:
        """Who is asked for; one without a host is looked up anew before that is believed."""
        await self._resolver.reload([repo])  # the daemon may have learnt of a move or a new key
        identity = (await self._resolver.resolve(repo)).identity
        if identity.host is None and not identity.tombstoned:
            identity = (await self._resolver.refresh(repo)).identity
        return identity

    async def require_still_there(self, identity: Identity) -> None:
        """Asks anew where an account is whose host does not serve it: an old host's word counts for nothing.

        Raises Moved; Unavailable where that cannot be told now.
        """
        await self._resolver.reload([identity.did])
        found = await self._resolver.refresh(identity.did)
        if found.identity.host != identity.host:
            raise Moved
        if found.stale and self._clock() - found.identity.resolved_at > LOOK_UP_INTERVAL:
            raise IdentityUnavailable("The identity cannot be renewed at the moment.", did=identity.did)

    async def _refuse(self, claim: HostClaim, identity: Identity | None, refused: Rejected) -> None:
        """Has the repo say why it cannot even be asked for."""
        await self._applier.refuse(claim.repo, identity, str(refused.reason))

    async def _fetch(
        self,
        claim: HostClaim,
        fetch: Fetch,
        identity: Identity,
        host: str,
        began: float,
        rested: Callable[[], datetime],
    ) -> AccountStatus | None:
        async with AsyncExitStack() as held, TaskGroup() as tasks:
            keeping = tasks.create_task(self._keep(claim))
            async with self._hosts.repo(host, claim.repo) as answer:
                if isinstance(answer, AccountStatus):
                    keeping.cancel()
                    await self.require_still_there(identity)
                    asked = AccountAsked(at_hosts(self._clock()), claim.repo, host, answer.active, answer.status)
                    await self._applier.give_up(fetch, identity, None, asked)
                    return answer
                disk = self._disk.budget
                fetched = await held.enter_async_context(
                    download(answer, claim.repo, disk.folder, memory_bytes=disk.memory_bytes, room=self._disk)
                )
            identity = await self._proven(identity, fetched.commit)
            if fetch.rev is not None and fetched.commit.rev < fetch.rev:
                raise StaleRepo
            commit = fetched.commit
            head = FetchedHead(commit.rev, commit.commit_cid, commit.data_cid)
            difference = await self._applier.apply(fetch, identity, head, fetched, rested)
            keeping.cancel()
        self.records += fetched.records
        self._tell(claim, fetched, difference.put, difference.deleted, time.monotonic() - began)
        return None

    def _tell(self, claim: HostClaim, fetched: FetchedRepo, put: int, deleted: int, seconds: float) -> None:
        get_logger().info(
            "repo_fetched",
            did=claim.repo,
            reason=claim.reason,
            rev=fetched.commit.rev,
            records=fetched.records,
            bytes=fetched.car_bytes,
            put=put,
            deleted=deleted,
            seconds=round(seconds, 3),
        )

    def _rested(self, began: float, ahead: timedelta) -> datetime:
        """When the repo may be fetched again, by the clock that all share, which is so far ahead of ours."""
        rest = timedelta(seconds=(time.monotonic() - began) * REST_FACTOR)
        return self._clock() + ahead + min(rest, REST_MAX)

    async def _keep(self, claim: HostClaim) -> None:
        while True:
            await asyncio.sleep(CLAIM_KEPT_EVERY_S)
            try:
                await self._keep_claim(claim)
            except Unavailable:
                continue  # without the database nothing else is under way; the next attempt tells

    async def _proven(self, identity: Identity, commit: SignedCommit) -> Identity:
        """The author's identity, by which the commit is theirs. Raises Rejected: it is not, or of no time; Moved: what
        was read is the word of a host that it left.
        """
        if not is_tid(commit.rev):
            raise Rejected(reason=Fault.REV_NOT_TID)
        written_at = tid_time(commit.rev)
        if written_at - MAX_REV_LEAD > self._clock():
            raise Rejected(reason=Fault.REV_IN_FUTURE)
        if _is_signed_by(identity.signing_key, commit):
            return identity
        host, identity = identity.host, (await self._resolver.refresh(identity.did)).identity
        if identity.host != host:
            raise Moved
        if _is_signed_by(identity.signing_key, commit):
            return identity
        # After a move the new host has the commit that the old key signed, until the first new write.
        for key in await self._resolver.keys_valid_at(identity.did, written_at):
            if _is_signed_by(key, commit):
                return identity
        raise Rejected(reason=Unattributable.BAD_SIGNATURE)


def _is_signed_by(key: str | None, commit: SignedCommit) -> bool:
    if key is None:
        return False
    try:
        check_signature(commit, parse_did_key(key))
    except Rejected:
        return False
    return True


def _told_reason(failure: Rejected | Unavailable | StatementFailed) -> str | None:
    """What the repo says of a fetch that failed; null: nothing, for it is the host's matter or ours."""
    match failure:
        case Rejected(reason=reason):
            return str(reason)
        case HostUnavailable(retry_after_s=None) if not isinstance(failure, HostNotAsked):
            return "host_unavailable"
        case StatementFailed():
            return Fault.UNSTORABLE
        case _:
            return None
