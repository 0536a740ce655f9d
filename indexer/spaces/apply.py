"""Makes what is held of a repo in a Space what was pulled of it, through the same tail as public repos.

What fits into one slice is one transaction, with the set hash that goes with it. More than that is taken slice by
slice: from the first one until the last the repo is `resyncing`, which tells whoever comes after a kill that what is
held is not what its set hash says, and that only the whole repo will do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from indexer.arrivals import SpaceChanged
from indexer.interpret import MemoryOp
from indexer.patience import despite_conflicts
from indexer.resync.apply import SLICE_BYTES, SLICE_OPS
from indexer.resync.difference import bytes_of
from indexer.resync.drain import at_hosts
from indexer.resync.slices import Slice
from indexer.store import denials, space_repos, spaces
from indexer.store.fetches import SharedClock
from indexer.store.space_repos import PullClaim, Pulled
from indexer.store.spaces import Freshness
from indexer.writer import Taking, Writer, is_about_data
from memory.errors import Rejected
from memory.queries import StatementFailed, StatementTimedOut
from memory.space import PUBLIC, parse_space_uri


class PullOvertaken(Rejected):
    """The repo was purged, or is pulled by somebody else by now."""

    reason = "pull_overtaken"


class Denied(Rejected):
    """An operator took the author down."""

    reason = "denied"


@dataclass(slots=True)
class Change:
    """What a pull changes, as far as it was not written yet."""

    claim: PullClaim
    rev: str
    whole: bool  # it comes of the whole repo
    fresh: bool  # nothing was ever held
    waiting: list[MemoryOp] = field(default_factory=list[MemoryOp])
    waiting_bytes: int = 0
    written: int = 0  # ops
    slices: int = 0
    refill: bool = False

    def add(self, op: MemoryOp) -> None:
        """One more, in whatever order."""
        self.waiting.append(op)
        self.waiting_bytes += bytes_of(op)

    def take(self) -> Slice:
        """All that waits, which no longer does."""
        taken = Slice(self.rev, self.waiting, self.slices == 0, self.fresh)
        self.waiting, self.waiting_bytes = [], 0
        return taken


class SpaceApplier:
    """Applies changes. Raises PullOvertaken where the pull no longer has its repo, Denied, what the database does."""

    def __init__(
        self,
        writer: Writer,
        clock: Callable[[], datetime],
        freshness: Freshness,
        *,
        shared_clock: SharedClock,
        refill_after: Callable[[datetime], datetime],
        slice_ops: int = SLICE_OPS,
    ) -> None:
        """`refill_after`: when the whole repo is pulled again for what its quota may have room for now."""
        self._writer = writer
        self._clock = clock
        self._freshness = freshness
        self._shared_clock = shared_clock
        self._refill_after = refill_after
        self._slice_ops = slice_ops

    def is_full(self, change: Change) -> bool:
        """Whether what waits is as much as one transaction takes."""
        return len(change.waiting) >= self._slice_ops or change.waiting_bytes >= SLICE_BYTES

    async def write(self, change: Change) -> None:
        """Writes what waits; more of the change is to come."""
        await self._write(change, None)

    async def finish(self, change: Change, pulled: Pulled) -> None:
        """Writes what waits, and that all is held."""
        await self._write(change, pulled)

    async def _write(self, change: Change, pulled: Pulled | None) -> None:
        slice_ = change.take()
        try:
            await despite_conflicts(lambda: self._take(change, slice_, pulled, in_halves=False), "space_slice")
        except (StatementFailed, StatementTimedOut) as failure:
            if not is_about_data(failure) or not slice_.can_be_less:
                raise
            await despite_conflicts(lambda: self._take(change, slice_, pulled, in_halves=True), "space_slice")
        change.slices += 1
        change.written += len(slice_.ops)
        change.fresh = change.fresh and not slice_.has_targets
        if not slice_.fresh or slice_.has_targets:
            await self._writer.keep_statistics(slice_.ops)

    async def _take(self, change: Change, slice_: Slice, pulled: Pulled | None, *, in_halves: bool) -> None:
        claim, now = change.claim, self._clock()
        async with self._writer.transaction(now) as taking:
            locked = await space_repos.lock(taking.conn, claim, now)
            if locked is None:
                raise PullOvertaken
            if locked.any_denied and await denials.denied(taking.conn, [(claim.author, PUBLIC)], []):
                raise Denied
            if in_halves:
                await self._take_or_halve(taking, change, slice_, last=pulled is not None)
            else:
                await taking.take([_arrival(change, slice_, now, last=pulled is not None)])
            change.refill = change.refill or (claim.author, claim.space) in taking.outcome.refills
            if pulled is not None:
                await self._end(taking, change, pulled)

    async def _end(self, taking: Taking, change: Change, pulled: Pulled) -> None:
        conn, claim, shared_now = taking.conn, change.claim, self._shared_clock()
        if change.refill:
            pulled = pulled.refilled(self._refill_after(claim.now))
        space = parse_space_uri(claim.space)
        assert space is not None
        await space_repos.end(conn, claim, space.authority, pulled, shared_now)
        await spaces.settle(
            conn, space.authority, claim.space, claim.token, self._freshness, release=False, is_locked=True
        )

    async def _take_or_halve(self, taking: Taking, change: Change, slice_: Slice, *, last: bool) -> None:
        """An op that the database cannot hold becomes an invalid record, and takes no other along."""
        try:
            async with taking.conn.transaction():
                await taking.take([_arrival(change, slice_, taking.now, last=last)])
            return
        except (StatementFailed, StatementTimedOut) as failure:
            if not is_about_data(failure) or not slice_.can_be_less:
                raise
        for part in slice_.parts():
            await self._take_or_halve(taking, change, part, last=last)


def _arrival(change: Change, slice_: Slice, now: datetime, *, last: bool) -> SpaceChanged:
    return SpaceChanged(
        at_hosts(now),
        change.claim.author,
        change.claim.space,
        change.rev,
        tuple(slice_.ops),
        change.whole,
        slice_.first,
        last,
        slice_.fresh,
    )


async def rest_now_and_then(yielded: float, every_s: float) -> float:
    """Lets others run if it is time to; when that was last so."""
    now = asyncio.get_running_loop().time()
    if now - yielded <= every_s:
        return yielded
    await asyncio.sleep(0)
    return asyncio.get_running_loop().time()
