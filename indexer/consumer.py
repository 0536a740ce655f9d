"""From a frame to the arrivals that it means: decoded, filtered, verified, interpreted. No database, no socket.

Commits of one DID pass in the order of their frames. What would need an answer from outside is not waited for: it
becomes an arrival that the writer makes durable.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from typing import assert_never

from indexer.arrivals import (
    AccountChanged,
    Arrival,
    CommitArrived,
    CommitParked,
    CommitRefused,
    FrameBroken,
    FrameIgnored,
    IdentityAnnounced,
    IdentityResolved,
    Place,
    Position,
    Source,
    SourceKind,
    SyncArrived,
)
from indexer.frames import (
    AccountEvent,
    BrokenFrame,
    CommitEvent,
    ErrorEvent,
    IdentityEvent,
    IgnoredFrame,
    InfoEvent,
    OpenFrame,
    SyncEvent,
    open_frame,
    read_event,
)
from indexer.interpret import interpret_commit
from indexer.verify.commit import verify_commit
from indexer.verify.reasons import Unattributable
from indexer.verify.sync import read_sync, verify_sync
from memory.datetimes import clip_to_utc
from memory.errors import Rejected
from memory.identifiers import is_did
from memory.identity import Identity, IdentitySource
from memory.signatures import BadKey, parse_did_key

# Keys cost 20 µs to parse; this many are a few megabytes.
KEYS_CACHED = 20_000
# What a flood of forged DIDs can make us remember; whom it keeps out is noticed at the next commit.
CANDIDATES_MAX = 100_000
# So many commits of one repo wait for its key to be asked for anew: enough for who changed it, too few for a forger to
# fill what may be parked.
DOUBTED_COMMITS_MAX = 16
# Who is held back in order is remembered for so many; what is more is parked all the same.
KEYLESS_MAX = 1_000_000
_KEY_MAY_HAVE_CHANGED = (Unattributable.BAD_SIGNATURE, BadKey.reason)

Clock = Callable[[datetime | None], datetime]
"""Now, given the `time` that an event claims (null: it claims none)."""


def frame_clock(start: datetime) -> Clock:
    """A replay's clock: each event's own time; `start` until the first is known. It may go back, as recordings do."""
    last = start

    def read(claimed: datetime | None) -> datetime:
        nonlocal last
        last = claimed or last
        return last

    return read


@dataclass(slots=True)
class _Doubt:
    """A key that did not fit, until it was asked for anew."""

    key: str
    parked: set[str] = field(default_factory=set[str])  # revs


class Consumer:
    """Judges the frames of any number of sources, as far as that takes no database."""

    def __init__(
        self,
        *,
        identities: IdentitySource,
        clock: Clock,
        tracked: set[str],
        admits: Callable[[str], bool],
        cursors: dict[str, int],
        may_refresh: Callable[[str], bool] = lambda _: False,
        watched: AbstractSet[str] = frozenset(),
    ) -> None:
        """`tracked` grows as repos are first seen; `admits` says of a DID whether it may be tracked at all; frames at
        or below a source's entry in `cursors` are dropped; `may_refresh` says whether a DID's key may be asked for
        anew, after a signature that the known one did not make; of `watched` accounts, that have something in Spaces,
        what is said of them is read though their public repos are not followed.
        """
        self._identities = identities
        self._clock = clock
        self._tracked = tracked
        self._admits = admits
        self._cursors = cursors
        self._seqs = dict(cursors)
        self._may_refresh = may_refresh
        self._watched = watched
        self._key = lru_cache(KEYS_CACHED)(parse_did_key)
        self.keyless: set[str] = set()  # whose commits are parked until a key is known, all of them in order
        self.candidates: set[str] = set()  # who named our collection, and is not tracked yet
        self._doubts: dict[str, _Doubt] = {}

    def notice(self, frame: OpenFrame) -> str:
        """Whom a frame that concerns us names ('': no DID); from the next frame on, all of theirs concern us."""
        named = frame.body.get("repo") or frame.body.get("did")
        if not isinstance(named, str) or not is_did(named):
            return ""
        repo = named
        # Of who is watched all is read anyway, in order, and so the commit that makes their repo ours.
        new = repo not in self._tracked and repo not in self._watched and frame.header.get("t") == "#commit"
        if new and self._admits(repo) and len(self.candidates) < CANDIDATES_MAX:
            self.candidates.add(repo)
        return repo

    def now(self) -> datetime:
        """The clock, as it stands."""
        return self._clock(None)

    def hold_back(self, repo: str) -> None:
        """Parks what comes of a repo until it is let go, so that its commits are judged in order."""
        if len(self.keyless) < KEYLESS_MAX:
            self.keyless.add(repo)

    def let_go(self, repo: str, *, settled: bool) -> None:
        """Judges what comes of a repo again; by the key that is known now, unless that is still in doubt."""
        self.keyless.discard(repo)
        if settled:
            self._doubts.pop(repo, None)

    def held_back(self) -> set[str]:
        """Repos that have something parked for their key."""
        return self.keyless | self._doubts.keys()

    def concerned(self, repo: str) -> bool:
        """Whether all events of a repo are read."""
        return repo in self._watched or self.follows(repo)

    def follows(self, repo: str) -> bool:
        """Whether the commits of a repo count."""
        return repo in self._tracked or repo in self.candidates or repo in self.keyless

    def take(self, source: Source, frame: bytes) -> tuple[list[Arrival], Position | None]:
        """What `frame` means, and how far its source's stream is covered once that is applied (null: no further)."""
        try:
            opened = open_frame(frame)
        except BrokenFrame as broken:
            return [FrameBroken(self._between(source), frame, broken.reason)], None
        return self.judge(source, frame, opened)

    def judge(self, source: Source, frame: bytes, opened: OpenFrame) -> tuple[list[Arrival], Position | None]:
        """As `take`, of a frame that is open already."""
        try:
            event = read_event(opened)
        except BrokenFrame as broken:
            return [FrameBroken(self._between(source), frame, broken.reason)], None
        match event:
            case IgnoredFrame():
                return self._ignored(source, event)
            case InfoEvent() | ErrorEvent():
                reason = "info" if isinstance(event, InfoEvent) else "error"
                return [FrameIgnored(self._between(source), reason)], None
            case _:
                pass
        if event.seq <= self._cursors.get(source.url, 0):
            return [], None
        self._seqs[source.url] = event.seq
        time = clip_to_utc(event.time)  # the very ends of time are no instants to the database
        place = Place(source, event.seq, self._clock(time))
        return self._arrivals(place, event, frame), Position(event.seq, time)

    def _ignored(self, source: Source, event: IgnoredFrame) -> tuple[list[Arrival], Position | None]:
        if event.seq is None:
            return [FrameIgnored(self._between(source), event.reason)], None
        if event.seq <= self._cursors.get(source.url, 0):
            return [], None
        self._seqs[source.url] = event.seq
        return [FrameIgnored(self._between(source), event.reason)], Position(event.seq, None)

    def _between(self, source: Source) -> Place:
        """The place of what has no seq or time of its own: behind the last frame that has."""
        return Place(source, self._seqs.get(source.url, 0), self._clock(None))

    def _arrivals(
        self, place: Place, event: CommitEvent | SyncEvent | IdentityEvent | AccountEvent, frame: bytes
    ) -> list[Arrival]:
        is_commit = isinstance(event, CommitEvent | SyncEvent)
        known = self.follows(event.did) if is_commit else self.concerned(event.did)
        if not known and not (isinstance(event, CommitEvent) and event.touches_collection and self._admits(event.did)):
            return []
        if isinstance(event, IdentityEvent):
            announced = self._identities.announced(event.did, place.seen_at)
            return [IdentityResolved(place, announced) if announced else IdentityAnnounced(place, event.did)]
        identity = self._identities.at(event.did, place.seen_at)
        if _is_hosted_elsewhere(place.source, identity):
            return [FrameIgnored(place, "wrong_host")]
        if isinstance(event, AccountEvent):
            return [AccountChanged(place, event.did, event.active, event.status)]
        if identity is not None and identity.tombstoned:
            return [FrameIgnored(place, "tombstoned")]
        match event:
            case CommitEvent():
                return self._commit(place, event, frame, identity)
            case SyncEvent():
                return self._sync(place, event, identity)
            case _:
                assert_never(event)

    def _commit(self, place: Place, event: CommitEvent, frame: bytes, identity: Identity | None) -> list[Arrival]:
        if identity is None or identity.signing_key is None or event.did in self.keyless:
            self.hold_back(event.did)
            return [CommitParked(place, event.did, event.rev, frame, "key_unknown")]
        # While a key is in doubt, what it fits goes on: the author is not held up by who forges their commits.
        doubt = self._doubts.get(event.did)
        key = identity.signing_key if doubt is None else doubt.key
        try:
            commit = verify_commit(event, self._key(key), place.seen_at)
        except Rejected as refusal:
            if refusal.reason in _KEY_MAY_HAVE_CHANGED and self._may_doubt(event, key):
                return [CommitParked(place, event.did, event.rev, frame, refusal.reason)]
            self.candidates.discard(event.did)
            return [CommitRefused(place, event.did, refusal.reason)]
        arrived = CommitArrived(place, commit, interpret_commit(commit), event.did not in self._tracked, frame)
        if not arrived.first_sight:
            return [arrived]
        if not commit.touches_collection:  # of a candidate, whose first op in our collection is still to come
            return []
        self._tracked.add(event.did)
        self.candidates.discard(event.did)
        return [IdentityResolved(place, identity), arrived]

    def _may_doubt(self, event: CommitEvent, key: str) -> bool:
        """Whether a commit that `key` does not fit may wait until the key is asked for anew."""
        doubt = self._doubts.get(event.did)
        if doubt is None:
            if not self._may_refresh(event.did):
                return False
            doubt = self._doubts[event.did] = _Doubt(key)
        if len(doubt.parked) < DOUBTED_COMMITS_MAX:
            doubt.parked.add(event.rev)
        return event.rev in doubt.parked

    def _sync(self, place: Place, event: SyncEvent, identity: Identity | None) -> list[Arrival]:
        claimed = None
        try:
            claimed = read_sync(event)
            if identity is None or identity.signing_key is None:
                raise Rejected(reason="key_unknown")
            verify_sync(event, self._key(identity.signing_key))
            refusal = None
        except Rejected as refused:
            refusal = refused.reason
        if claimed is None:
            return [SyncArrived(place, event.did, event.rev, None, None, refusal)]
        return [SyncArrived(place, event.did, event.rev, claimed.commit_cid, claimed.data_cid, refusal)]


def _is_hosted_elsewhere(source: Source, identity: Identity | None) -> bool:
    """A PDS speaks only for the accounts that it hosts; a relay for all."""
    return source.kind is SourceKind.PDS and identity is not None and identity.host not in (None, source.url)
