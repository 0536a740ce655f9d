"""What is to be done of one Space: list its writers, heed what its host tells of them, ask that host to tell us, and
see to it that nothing is served that was not confirmed in time.
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from indexer.resync.waits import host_wait_s, next_wait_s
from indexer.spaces.hosts import SpaceHosts
from indexer.spaces.lanes import Turn, word_for
from indexer.spaces.listing import changed_by_listing, hints_of
from indexer.spaces.purge import purge
from indexer.spaces.reads import SpaceGone, SpaceReads
from indexer.spaces.tally import DONE, SpaceTally
from indexer.store import spaces
from indexer.store.fetches import SharedClock
from indexer.store.space_counts import Work
from indexer.store.spaces import Freshness, Listed, Note, NoteKind, SealedCredential, SpaceClaim, Standing
from memory.database import Database
from memory.did_documents import is_resolvable
from memory.errors import Rejected, Unavailable
from memory.outbound_errors import HostUnavailable
from memory.queries import Connection
from memory.sealed import NotSealedHere, SealingKeys
from memory.space_authorities import SpaceAuthorities
from memory.space_credential import SpaceCredential, open_credential
from memory.space_protocol import REGISTRATION_LIFETIME
from memory.tasks import TaskGroup
from memory.telemetry import get_logger

CLAIM: Final = timedelta(minutes=1)  # another process takes over after that
CLAIM_KEPT_EVERY_S: Final = 20.0
STORED_AT_ONCE: Final = 500
# To open one takes as long as to ask the database for it; whether it holds, and is anybody's, is asked each time.
OPENED_KEPT: Final = 2_000
# Authors of one Space who are indexed: the first to be listed, and they keep their place while they are not.
AUTHORS_MAX: Final = 10_000
# Whatever viewers and hosts say, writers are listed no more often than that.
LISTING_REST: Final = timedelta(seconds=5)
REGISTRATION_RETRY: Final = timedelta(minutes=10)
REGISTRATION_MIN: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class SpacePolicy:
    """For how long what is held of Spaces may be kept and served."""

    staleness: timedelta = timedelta(minutes=15)  # what was not confirmed for so long is not served
    retention: timedelta = timedelta(days=30)  # what nobody could read for so long is deleted

    @property
    def sweep_every(self) -> timedelta:
        """So that one sweep may fail without anything being hidden."""
        return self.staleness / 3

    @property
    def freshness(self) -> Freshness:
        """Where what lapses is seen to before it does."""
        return Freshness(self.staleness, self.staleness / 10)


class Overtaken(Rejected):
    """Somebody else works on the Space by now."""

    reason = "space_overtaken"


class Credentials(NamedTuple):
    """Those of a Space that hold now."""

    opened: list[SpaceCredential]  # the best first
    shut: int  # sealed by a key that is not in the file


class CredentialStore:
    """What Spaces can be read with."""

    def __init__(self, database: Database, keys: SealingKeys, shared_clock: SharedClock) -> None:
        self._database = database
        self._keys = keys
        self._shared_clock = shared_clock
        self._opened: OrderedDict[tuple[str, SealedCredential], SpaceCredential] = OrderedDict()  # the last used last

    async def find(self, space: str) -> list[SpaceCredential]:
        """Those of a Space that hold now and open, the best first."""
        return (await self.look(space)).opened

    async def look(self, space: str) -> Credentials:
        """Those of a Space that hold now."""
        async with self._database.connection() as conn:
            sealed = await spaces.live_credentials(conn, space, self._shared_clock())
        opened = [found for each in sealed if (found := self._open(space, each)) is not None]
        return Credentials(opened, len(sealed) - len(opened))

    def _open(self, space: str, sealed: SealedCredential) -> SpaceCredential | None:
        opened = self._opened.pop((space, sealed), None)
        if opened is None:
            try:
                opened = open_credential(self._keys, sealed.sealed, space=space, viewer=sealed.viewer)
            except NotSealedHere:
                return None
        self._opened[space, sealed] = opened
        if len(self._opened) > OPENED_KEPT:
            self._opened.popitem(last=False)
        return opened


class SpaceSync:
    """Does what is to be done of Spaces, each under a claim that it keeps up meanwhile."""

    def __init__(
        self,
        database: Database,
        hosts: SpaceHosts,
        authorities: SpaceAuthorities,
        credentials: CredentialStore,
        tally: SpaceTally,
        *,
        policy: SpacePolicy,
        syncer: str | None,
        shared_clock: SharedClock,
        randomness: random.Random,
    ) -> None:
        """`syncer`: the service that hosts are to tell of writes; None: we cannot be told."""
        self._database = database
        self._hosts = hosts
        self._authorities = authorities
        self._credentials = credentials
        self._tally = tally
        self._policy = policy
        self._syncer = syncer
        self._shared_clock = shared_clock
        self._randomness = randomness
        self.listed = 0
        self.purged = 0
        self.failures: dict[str, int] = {}  # reason → listings that ended so
        self._shut = 0  # claims of Spaces whose credentials do not open, since that was told
        self._shut_told_at: datetime | None = None

    async def step(self, claim: SpaceClaim, turn: Turn) -> bool:
        """All that is to be done of one; whether there may be something to pull now.

        What hosts do wrong is told in its row; raises what the database does. What is waited for its authority counts
        for `turn`.
        """
        news = False
        async with TaskGroup() as tasks:
            keeping = tasks.create_task(self._keep_on(claim))
            with suppress(Overtaken):
                news = await self._step(claim, turn)
            keeping.cancel()
        return news

    async def _step(self, claim: SpaceClaim, turn: Turn) -> bool:
        if claim.deleted_at is not None:
            await self._purge(claim, claim.deleted_at, "space_deleted")
            return False
        notes = await self._notes(claim)
        if notes and notes[0].kind is NoteKind.DELETED:
            await self._purge(claim, notes[0].received_at, "space_deleted")
            return False
        found = await self._credentials.look(claim.space)
        if not found.opened:
            await self._wait(claim, notes, is_shut=found.shut > 0)
            return False
        try:
            reads = SpaceReads(self._hosts.in_turn(turn), claim.space, found.opened)
            return await self._sync(claim, notes, reads, turn)
        except SpaceGone:
            await self._purge(claim, claim.now, "space_deleted")
            return False

    async def _notes(self, claim: SpaceClaim) -> Sequence[Note]:
        if not claim.is_told:
            return ()
        async with self._database.connection() as conn:
            return await spaces.load_notes(conn, claim)

    async def _wait(self, claim: SpaceClaim, notes: Sequence[Note], *, is_shut: bool) -> None:
        """Nothing can be read: what is held stays for a while, unserved.

        `is_shut`: there are credentials, and another file of keys would open them. What was said meanwhile is dropped
        all the same, for the listing that is due by then finds it.
        """
        ends_at = claim.credentialed_until + self._policy.retention
        if is_shut:
            self._tell_shut(claim.now)
        elif claim.now >= ends_at and not notes:
            await self._purge(claim, claim.now, "no_credential")
            return
        async with self._database.transaction() as conn:
            await spaces.stop_pulls(conn, claim.space)
            await spaces.drop_notes(conn, claim, notes)
            await self._hide_stale(conn, claim)  # or the Space would be due for them for ever
            await self._settle(conn, claim, self._next_sweep(claim) if is_shut else ends_at)

    def _tell_shut(self, now: datetime) -> None:
        """Once in a while, for with the wrong file it is so of every Space."""
        self._shut += 1
        if self._shut_told_at is None or now - self._shut_told_at >= self._policy.staleness:
            get_logger().warning("space_credentials_shut", count=self._shut)
            self._shut, self._shut_told_at = 0, now

    async def _sync(self, claim: SpaceClaim, notes: Sequence[Note], reads: SpaceReads, turn: Turn) -> bool:
        """Whether there may be something to pull now."""
        is_due, listed = claim.now >= claim.sweep_after, None
        if is_due:
            listed = await self._list(claim, reads, turn)
        registers = self._syncer if claim.now >= claim.register_after else None
        if listed is not None and not notes and registers is None and await self._confirm(claim, listed):
            return False
        async with self._database.connection() as conn:
            known = await spaces.load_listed(conn, claim.space)
        hints = hints_of(notes, known)
        opened = any(note.kind is NoteKind.OPENED for note in notes)
        rested = claim.listed_at is None or claim.now - claim.listed_at >= LISTING_REST
        # Who was left out is left out again.
        unknown = hints.is_incomplete and len(known) < AUTHORS_MAX
        wanted = opened or (unknown and claim.attempts == 0)
        if not is_due and wanted and rested:
            listed = await self._list(claim, reads, turn)
        if listed is not None:
            await self._store(claim, list(changed_by_listing(_bounded(listed, known), known)))
        else:
            await self._heed(claim, hints.changed, sooner=wanted and not rested)
        if registers is not None:
            await self._register(claim, reads, registers, turn)
        async with self._database.transaction() as conn:
            if notes:
                await spaces.drop_notes(conn, claim, notes)
            # Authors' rows before the Space's, as whoever pulls them.
            await self._hide_stale(conn, claim)
            if listed is not None and not await spaces.note_listing(conn, claim, self._next_sweep(claim)):
                raise Overtaken
            await self._settle(conn, claim, None)
        return True

    async def _list(self, claim: SpaceClaim, reads: SpaceReads, turn: Turn) -> dict[str, Listed] | None:
        """All writers who can be asked for; None: that failed, and is told in its row."""
        try:
            async with turn.waiting():
                host = (await self._authorities.resolve(claim.authority)).host
                if host is None:
                    raise Rejected(reason="no_space_host")
                listed = await reads.list_repos(host)
        except SpaceGone:
            raise
        except (Rejected, Unavailable) as failure:
            await self._note_failure(claim, failure)
            return None
        self.listed += 1
        self._tally.count(Work.LISTING, DONE)
        return {author: each for author, each in listed.items() if is_resolvable(author)}

    async def _confirm(self, claim: SpaceClaim, listed: Mapping[str, Listed]) -> bool:
        """Ends the claim if a listing brings nothing new, as most do; whether it was so."""
        async with self._database.connection() as conn:
            return await spaces.confirm_listing(conn, claim, listed, self._next_sweep(claim), self._policy.freshness)

    def _next_sweep(self, claim: SpaceClaim) -> datetime:
        return claim.now + self._policy.sweep_every * self._randomness.uniform(0.9, 1.0)

    async def _store(self, claim: SpaceClaim, changed: Sequence[Listed]) -> None:
        """What a listing changed."""
        for start in range(0, len(changed), STORED_AT_ONCE):
            async with self._database.transaction() as conn:
                part = changed[start : start + STORED_AT_ONCE]
                await spaces.store_listed(conn, claim, part, self._shared_clock())

    async def _heed(self, claim: SpaceClaim, hints: Sequence[Listed], *, sooner: bool) -> None:
        """Stores what notifications say of listed authors; `sooner`: and has all listed once that may be."""
        if hints:
            async with self._database.transaction() as conn:
                await spaces.store_listed(conn, claim, hints, self._shared_clock())
        if sooner:
            async with self._database.connection() as conn:
                await spaces.hasten_listing(conn, claim, claim.now + LISTING_REST)

    async def _note_failure(self, claim: SpaceClaim, failure: Rejected | Unavailable) -> None:
        reason = word_for(failure)
        self.failures[reason] = self.failures.get(reason, 0) + 1
        wait_s = host_wait_s(failure, self._randomness) if isinstance(failure, HostUnavailable) else None
        attempted = wait_s is None
        if wait_s is None:
            wait_s = next_wait_s(claim.attempts + 1, self._randomness)
        wait = min(timedelta(seconds=wait_s), self._policy.staleness)
        self._tally.count(Work.LISTING, reason)
        get_logger().info("space_listing_failed", reason=reason, attempts=claim.attempts + 1)
        async with self._database.connection() as conn:
            await spaces.note_failed_listing(conn, claim, reason, claim.now + wait, attempted=attempted)

    async def _register(self, claim: SpaceClaim, reads: SpaceReads, syncer: str, turn: Turn) -> None:
        until, again, outcome = None, claim.now + REGISTRATION_RETRY, "no_space_host"
        try:
            async with turn.waiting():
                host = (await self._authorities.resolve(claim.authority)).host
                if host is not None:
                    until = min(await reads.register(host, syncer), claim.now + REGISTRATION_LIFETIME)
                    again, outcome = claim.now + max((until - claim.now) / 2, REGISTRATION_MIN), DONE
        except SpaceGone:
            raise
        except (Rejected, Unavailable) as failure:
            outcome = word_for(failure)
            get_logger().info("space_registration_failed", reason=outcome)
        self._tally.count(Work.REGISTRATION, outcome)
        async with self._database.connection() as conn:
            await spaces.note_registration(conn, claim, until, again)

    async def _hide_stale(self, conn: Connection, claim: SpaceClaim) -> None:
        """Hides authors before what is shown of them lapses."""
        lapse = self._policy.freshness
        await spaces.hide_stale(conn, claim.space, claim.now - lapse.staleness + lapse.margin, self._shared_clock())

    async def _settle(self, conn: Connection, claim: SpaceClaim, not_before: datetime | None) -> None:
        await spaces.settle(
            conn,
            claim.authority,
            claim.space,
            claim.token,
            self._policy.freshness,
            release=True,
            not_before=not_before,
        )

    async def _purge(self, claim: SpaceClaim, deleted_at: datetime, reason: str) -> None:
        await purge(self._database, claim, deleted_at, reason, lambda: self._keep(claim))
        self.purged += 1
        self._tally.count(Work.PURGE, reason)

    async def _keep(self, claim: SpaceClaim) -> None:
        async with self._database.connection() as conn:
            await spaces.keep(conn, claim, CLAIM, self._shared_clock())

    async def _keep_on(self, claim: SpaceClaim) -> None:
        while True:
            await asyncio.sleep(CLAIM_KEPT_EVERY_S)
            with suppress(Unavailable):  # without the database nothing else is under way
                await self._keep(claim)


def _bounded(listed: dict[str, Listed], known: dict[str, Standing]) -> dict[str, Listed]:
    """As many authors as are indexed of one Space: whoever is known stays."""
    found = dict(listed)
    held = sum(author in found or standing.hash is not None for author, standing in known.items())
    room = AUTHORS_MAX - held
    new = [author for author in found if author not in known]
    for author in new[max(0, room) :]:
        del found[author]
    if left_out := len(listed) - len(found):
        get_logger().warning("space_authors_left_out", count=left_out)
    return found
