"""What the writer takes: one arrival for each event that changes something, judged as far as goes without the database.

Arrivals of one repo are applied in the order in which they arrived; everything that depends on what is held is decided
by the writer, under the lock of the repo's rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Final
from uuid import UUID

from indexer.interpret import MemoryOp
from indexer.verify.commit import VerifiedCommit
from memory.identity import Identity


class SourceKind(StrEnum):
    """A relay speaks for every account, a PDS only for those that it hosts."""

    RELAY = "relay"
    PDS = "pds"


@dataclass(frozen=True, slots=True)
class Source:
    """A stream that is followed."""

    url: str  # normalised
    kind: SourceKind


OPERATOR: Final = Source("operator:", SourceKind.RELAY)
"""Whom orders come from, for they come from no stream."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where in which stream something was met."""

    source: Source
    seq: int  # of a broken frame: the seq before it
    seen_at: datetime  # the injected clock: now when live, the frame's own `time` in a replay


@dataclass(frozen=True, slots=True)
class CommitArrived:
    """A commit whose signature holds."""

    place: Place
    commit: VerifiedCommit
    ops: tuple[MemoryOp, ...]
    first_sight: bool  # its repo is tracked from now on
    frame: bytes = b""  # kept if it has to wait for a fetch that is under way


@dataclass(frozen=True, slots=True)
class CommitRefused:
    """A commit or sync that cannot be attributed to the repo that it names; it changes nothing."""

    place: Place
    repo: str
    reason: str


@dataclass(frozen=True, slots=True)
class CommitParked:
    """A commit that cannot be judged before its author's key is known."""

    place: Place
    repo: str
    rev: str
    frame: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class SyncArrived:
    """A `#sync`: what its commit block claims, and whether its signature holds."""

    place: Place
    repo: str
    rev: str  # the frame's, which may differ from the commit's after a move
    commit_cid: str | None  # null: no readable commit block
    data_cid: str | None
    refusal: str | None  # why the commit is not proven to be the author's; null: it is


@dataclass(frozen=True, slots=True)
class AccountChanged:
    """A source's word on whether an account is to be served."""

    place: Place
    repo: str
    active: bool
    status: str | None


@dataclass(frozen=True, slots=True)
class IdentityResolved:
    """A DID document, as it stood at `identity.resolved_at`."""

    place: Place
    identity: Identity


@dataclass(frozen=True, slots=True)
class IdentityAnnounced:
    """A DID document may have changed; what it says now has to be asked."""

    place: Place
    repo: str


@dataclass(frozen=True, slots=True)
class CommitUnparked:
    """A parked commit whose time has come: it is judged by what follows."""

    place: Place  # where it was met
    repo: str
    rev: str


@dataclass(frozen=True, slots=True)
class RepoCutOff:
    """A repo sent more than its lane holds: what follows here is lost, and has to be fetched."""

    place: Place
    repo: str


@dataclass(frozen=True, slots=True)
class TakedownOrdered:
    """An operator's word: a repo, or one record of it, is erased here and stays away, whatever arrives."""

    place: Place
    repo: str
    rkey: str | None  # null: the whole repo


@dataclass(frozen=True, slots=True)
class RestoreOrdered:
    """An operator's word: a takedown is lifted, and the repo fetched."""

    place: Place
    repo: str
    rkey: str | None


@dataclass(frozen=True, slots=True)
class RequestAnswered:
    """Something that had to be asked of a host was answered, and nothing spoke against what is held."""

    place: Place
    repo: str
    kind: str
    asked_at: datetime | None = None  # the answer is to what was asked until then; null: to all
    next_not_before: datetime | None = None  # so long the repo's next fetch has to wait; null: as before


@dataclass(frozen=True, slots=True)
class FetchOrdered:
    """A repo has to be fetched whole, for a reason that is not its own."""

    place: Place
    repo: str
    reason: str


@dataclass(frozen=True, slots=True)
class FetchBegun:
    """A fetch of a whole repo begins: what comes live waits for its end."""

    place: Place
    repo: str
    token: UUID


@dataclass(frozen=True, slots=True)
class ContentsFetched:
    """A slice of the difference between a fetched repo and what is held, while the fetch has its token."""

    place: Place
    repo: str
    token: UUID
    rev: str  # of the commit that was fetched
    ops: tuple[MemoryOp, ...]
    first: bool  # of its slices
    fresh: bool = False  # nothing was ever held where these records stand, and nothing that is held points there
    beyond: int = 0  # further records behind the quota edge, which are only counted


@dataclass(frozen=True, slots=True, repr=False)
class SpaceChanged:
    """A part of what changes in an author's repo in a Space, while its pull has the repo to itself."""

    place: Place
    repo: str
    space: str
    rev: str  # of the commit that was pulled
    ops: tuple[MemoryOp, ...]
    whole: bool  # they come of the whole repo
    first: bool  # of its parts
    last: bool  # of its parts: all is held now
    fresh: bool = False  # as in ContentsFetched


@dataclass(frozen=True, slots=True)
class FetchedHead:
    """Which commit a fetched repo is at."""

    rev: str
    commit_cid: str
    data_cid: str


@dataclass(frozen=True, slots=True)
class FetchApplied:
    """All of a fetched repo is held now; the request is answered once what waited is joined to it."""

    place: Place
    repo: str
    token: UUID
    head: FetchedHead


@dataclass(frozen=True, slots=True)
class FetchFailed:
    """A fetch came to nothing, and is tried again later; the repo is as it was."""

    place: Place
    repo: str
    token: UUID
    before: str  # its state when the fetch began
    before_reason: str | None
    reason: str | None  # null: nothing is wrong with the repo
    next_not_before: datetime | None = None  # so long its next fetch has to wait; null: it need not


@dataclass(frozen=True, slots=True)
class FetchLifted:
    """Commits that waited for a fetch go on: for the rest of a batch its repo is no longer being fetched."""

    place: Place
    repo: str
    token: UUID
    state: str  # that the fetch left
    reason: str | None


@dataclass(frozen=True, slots=True)
class HeadCompared:
    """What a repo's host says is its latest commit."""

    place: Place
    repo: str
    rev: str
    commit_cid: str
    asked_at: datetime  # it answers what was asked until then


@dataclass(frozen=True, slots=True)
class AccountAsked:
    """A host's answer to whether it serves an account."""

    place: Place
    repo: str
    host: str  # its URL
    active: bool
    status: str | None
    in_spaces: bool = False  # it counts without a public repo too


@dataclass(frozen=True, slots=True)
class DeletionConfirmed:
    """A host says that an account is no more."""

    place: Place
    repo: str
    host: str  # its URL: nobody else's word deletes


@dataclass(frozen=True, slots=True)
class FrameIgnored:
    """A whole frame that is passed over: `reason` says why, and is counted."""

    place: Place
    reason: str


@dataclass(frozen=True, slots=True)
class FrameBroken:
    """Bytes that are no frame."""

    place: Place
    frame: bytes
    reason: str


Arrival = (
    CommitArrived
    | CommitRefused
    | CommitParked
    | SyncArrived
    | AccountChanged
    | IdentityResolved
    | IdentityAnnounced
    | CommitUnparked
    | RepoCutOff
    | TakedownOrdered
    | RestoreOrdered
    | RequestAnswered
    | FetchOrdered
    | FetchBegun
    | ContentsFetched
    | SpaceChanged
    | FetchApplied
    | FetchFailed
    | FetchLifted
    | HeadCompared
    | AccountAsked
    | DeletionConfirmed
    | FrameIgnored
    | FrameBroken
)


@dataclass(frozen=True, slots=True)
class Position:
    """How far a source's stream is covered."""

    seq: int
    frame_time: datetime | None


@dataclass(slots=True)
class Batch:
    """Arrivals in order, and the cursor that each source has once they are applied."""

    arrivals: list[Arrival] = field(default_factory=list[Arrival])
    positions: dict[str, Position] = field(default_factory=dict[str, Position])

    def __bool__(self) -> bool:
        return bool(self.arrivals or self.positions)
