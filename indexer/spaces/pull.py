"""Pulls one author's repo in one Space from the author's own host: by its ops where they lead to what is there now,
else whole.

The commit is verified, and the set hash compared with it, before anything is applied. A CAR that does not add up is
most often one that was made while its author wrote: nothing is hidden or deleted for it, and it is asked for again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from indexer.books import REFILL_INTERVAL
from indexer.interpret import Interpreter, MemoryOp
from indexer.repo_state import RepoState
from indexer.resync.apply import YIELD_EVERY_S
from indexer.resync.fetch import REST_FACTOR, REST_MAX, NoHost
from indexer.spaces.apply import Change, SpaceApplier, rest_now_and_then
from indexer.spaces.reads import PAGES_S, AccountInactive, RepoAbsent, SpaceGone, SpaceReads
from indexer.store import space_repos
from indexer.store.fetches import SharedClock
from indexer.store.space_repos import PullClaim, Pulled
from indexer.verify.reasons import Unattributable
from indexer.verify.space_car import SpaceCar, SpaceRecord, VerifiedSpaceRepo
from indexer.verify.space_commit import SpaceCommit, SpaceRepo
from indexer.verify.space_oplog import Folded, OplogFold
from indexer.verify.space_reasons import SpaceRefusal
from memory.database import Database
from memory.errors import Rejected, Unavailable
from memory.identifiers import COLLECTION, cid_text
from memory.identity import Identity
from memory.resolver import IdentityResolver
from memory.signatures import parse_did_key
from memory.tasks import TaskGroup

CLAIM: Final = timedelta(minutes=1)  # another process takes over after that
CLAIM_KEPT_EVERY_S: Final = 20.0
# Of records that are others than what is held. More of them are written while the rest comes.
HELD_BACK_BYTES: Final = 8 * 1024 * 1024
_DOUBTS_KEY: Final = (Unattributable.BAD_SIGNATURE,)
# What the whole repo would be refused for as well.
_OF_THE_AUTHOR: Final = (Unattributable.BAD_SIGNATURE, SpaceRefusal.REV_IN_FUTURE)


@dataclass(frozen=True, slots=True)
class Changed:
    """What a pull came to."""

    ops: int
    whole: bool


class _Found(NamedTuple):
    """What is there now: what was not written of it yet, and the verified commit with the state of its set hash."""

    change: Change
    commit: SpaceCommit
    state: bytes


class Puller:
    """Pulls repos, each under a claim that it keeps up meanwhile."""

    def __init__(
        self,
        database: Database,
        applier: SpaceApplier,
        resolver: IdentityResolver,
        *,
        clock: Callable[[], datetime],
        shared_clock: SharedClock,
        longest_wait: timedelta,
        monotonic: Callable[[], float],
    ) -> None:
        """`longest_wait`: how seldom a repo is pulled that is listed with what its own host does not have."""
        self._database = database
        self._applier = applier
        self._resolver = resolver
        self._clock = clock
        self._shared_clock = shared_clock
        self._longest_wait = longest_wait
        self._monotonic = monotonic

    async def pull(self, claim: PullClaim, reads: SpaceReads) -> Changed:
        """Brings a repo up to date; raises Rejected and Unavailable with the reason why not."""
        began = self._monotonic()
        identity = await self._author(claim.author)
        async with TaskGroup() as tasks:
            keeping = tasks.create_task(self._keep(claim))
            try:
                changed = await self._pull(claim, reads, identity, began)
            except Rejected as refused:
                if refused.reason not in _DOUBTS_KEY:
                    raise
                renewed = (await self._resolver.refresh(claim.author)).identity
                if (renewed.host, renewed.signing_key) == (identity.host, identity.signing_key):
                    raise
                changed = await self._pull(claim, reads, renewed, began)
            keeping.cancel()
        return changed

    def host(self, author: str) -> str | None:
        """Whom an author's repos are asked of, as far as is known without asking."""
        identity = self._resolver.cached(author)
        return None if identity is None else identity.host

    async def _author(self, did: str) -> Identity:
        await self._resolver.reload([did])
        identity = (await self._resolver.resolve(did)).identity
        if identity.host is None and not identity.tombstoned:
            identity = (await self._resolver.refresh(did)).identity
        return identity

    async def _pull(self, claim: PullClaim, reads: SpaceReads, identity: Identity, began: float) -> Changed:
        if identity.host is None or identity.signing_key is None:
            raise NoHost
        repo = SpaceRepo(claim.space, claim.author, parse_did_key(identity.signing_key))
        found = None
        if claim.rev is not None and not claim.whole and claim.state == RepoState.ACTIVE:
            found = await self._by_ops(claim, reads, repo, identity.host)
        if found is None:
            found = await self._whole(claim, reads, repo, identity.host)
        change, commit, state = found
        pulled = Pulled(
            rev=commit.rev,
            hash=commit.hash,
            set_state=state,
            host=identity.host,
            rest=min(timedelta(seconds=(self._monotonic() - began) * REST_FACTOR), REST_MAX),
            again=min(timedelta(seconds=2.0 ** min(claim.attempts, 20)), self._longest_wait),
        )
        await self._applier.finish(change, pulled)
        return Changed(change.written, change.whole)

    # By its ops

    async def _by_ops(self, claim: PullClaim, reads: SpaceReads, repo: SpaceRepo, host: str) -> _Found | None:
        """What its ops come to; None: the whole repo is needed."""
        assert claim.rev is not None
        assert claim.set_state is not None
        fold = OplogFold(repo, state=claim.set_state, since=claim.rev)
        try:
            async with asyncio.timeout(PAGES_S):
                more = True
                while more:
                    more = fold.add(await reads.list_ops(host, claim.author, claim.rev, fold.cursor))
            folded = fold.finish(self._clock())
        except TimeoutError:
            return None
        except (AccountInactive, RepoAbsent, SpaceGone):
            raise
        except Rejected as refused:
            if refused.reason in _OF_THE_AUTHOR:
                raise
            return None
        if folded is None:
            raise RepoAbsent
        if folded.missing:
            return None
        change = Change(claim, folded.commit.rev, whole=False, fresh=False)
        await self._add(change, _ops(claim, folded))
        return _Found(change, folded.commit, folded.state)

    async def _add(self, change: Change, ops: Iterable[MemoryOp]) -> None:
        yielded = 0.0
        for op in ops:
            if self._applier.is_full(change):
                await self._applier.write(change)
            change.add(op)
            yielded = await rest_now_and_then(yielded, YIELD_EVERY_S)

    # Whole

    async def _whole(self, claim: PullClaim, reads: SpaceReads, repo: SpaceRepo, host: str) -> _Found:
        car = SpaceCar(repo, self._clock())
        incoming: _Incoming | None = None
        async with reads.repo(host, claim.author) as chunks:
            async for chunk in chunks:
                records = car.feed(chunk)
                if incoming is None and car.verified is not None:
                    incoming = await self._begin(claim, car.verified)
                for record in records:
                    if incoming is not None:
                        incoming.take(record)
                if incoming is not None and incoming.bytes > HELD_BACK_BYTES:
                    await self._add(incoming.change, incoming.ops())
        verified = car.finish()
        if incoming is None:
            incoming = await self._begin(claim, verified)
        await self._add(incoming.change, incoming.ops())
        return _Found(incoming.change, verified.commit, verified.state)

    async def _begin(self, claim: PullClaim, verified: VerifiedSpaceRepo) -> _Incoming:
        held = None
        if claim.state is not None:  # else nothing ever was
            async with self._database.connection() as conn:
                held = await space_repos.held(conn, claim)
        change = Change(claim, verified.commit.rev, whole=True, fresh=held is None)
        gone = dict(held or {})
        yielded = 0.0
        for listed in verified.index:
            if listed.collection == COLLECTION:
                gone.pop(listed.rkey, None)
            yielded = await rest_now_and_then(yielded, YIELD_EVERY_S)
        incoming = _Incoming(claim, change, held or {})
        # Deletes first, for the quota is of what is left.
        await self._add(change, (MemoryOp(rkey, None) for rkey in sorted(gone)) if gone else ())
        return incoming

    async def _keep(self, claim: PullClaim) -> None:
        while True:
            await asyncio.sleep(CLAIM_KEPT_EVERY_S)
            with suppress(Unavailable):  # without the database nothing else is under way
                async with self._database.connection() as conn:
                    await space_repos.keep(conn, claim, CLAIM, self._shared_clock())


class _Incoming:
    """Records of a CAR that are others than what is held, until they are written."""

    def __init__(self, claim: PullClaim, change: Change, held: dict[str, str]) -> None:
        self.change = change
        self.bytes = 0
        self._held = held
        self._interpreter = Interpreter(claim.author, claim.space)
        self._records: list[tuple[str, str, bytes]] = []

    def take(self, record: SpaceRecord) -> None:
        if record.collection != COLLECTION:
            return
        cid = cid_text(record.cid)
        if self._held.get(record.rkey) != cid:
            self._records.append((record.rkey, cid, record.block))
            self.bytes += len(record.block)

    def ops(self) -> Iterable[MemoryOp]:
        """What they come to; they are held back no more."""
        records, self._records, self.bytes = self._records, [], 0
        for rkey, cid, block in records:
            yield MemoryOp(rkey, self._interpreter.interpret(rkey, cid, block), created=rkey not in self._held)


def _ops(claim: PullClaim, folded: Folded) -> Iterable[MemoryOp]:
    """Deletes first, for the quota is of what is left, then in order of rkey."""
    interpreter = Interpreter(claim.author, claim.space)
    for op in sorted(folded.ops, key=lambda op: (op.cid is not None, op.rkey)):
        if op.cid is None or op.block is None:
            yield MemoryOp(op.rkey, None)
        else:
            entry = interpreter.interpret(op.rkey, op.cid, op.block)
            yield MemoryOp(op.rkey, entry, created=op.prev is None)


def refill_after(now: datetime) -> datetime:
    """When what a quota kept out is looked for again."""
    return now + REFILL_INTERVAL
