"""The books of one batch: the rows that it found, what it leaves of them, and what it asks for. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from indexer.arrivals import CommitParked, CommitUnparked, FrameBroken, Place
from indexer.record_state import NOTHING_HELD, HeldRecord, RecordState
from indexer.repo_state import RepoKey, RepoRow, RepoState, SourceStatus, visibility
from memory.identity import Identity
from memory.space import PUBLIC

RecordKey = tuple[str, str, str]  # (repo, space, rkey)
Subject = tuple[str, str, str | None]  # (repo, space, rkey) of what an operator took down; null: the whole repo


class RequestKind(StrEnum):
    """What must be asked of a host or directory."""

    FETCH = "fetch"  # getRepo, and diff with the tables
    LATEST_COMMIT = "latest_commit"  # getLatestCommit, and fetch if it differs
    REPO_STATUS = "repo_status"  # getRepoStatus
    CONFIRM_DELETION = "confirm_deletion"  # getRepoStatus or a PLC tombstone, then purge
    IDENTITY = "identity"  # the DID document


class Effect(StrEnum):
    """What became of something that was not simply applied."""

    ACCEPTED = "accepted"
    ALREADY_APPLIED = "already_applied"
    UNATTRIBUTABLE = "unattributable"
    DESYNCHRONIZED = "desynchronized"
    IGNORED = "ignored"
    QUARANTINED = "quarantined"
    PARKED = "parked"
    FAILED = "failed"  # to be tried again


# A forger can make us ask a host at most so often about one repo.
LATEST_COMMIT_INTERVAL = timedelta(hours=1)
# An author who frees and fills places by turns makes us fetch the repo at most so often.
REFILL_INTERVAL = timedelta(minutes=10)
# An account that is switched off and on makes us try anew what failed at most so often.
HASTEN_INTERVAL = timedelta(minutes=10)
# Why an identity is asked for whose account is shown again: while its host served it to nobody, nobody could verify its
# handle.
CAME_BACK = "account_came_back"
# Why a commit waits that comes while its repo is fetched.
RESYNCING = "resyncing"


@dataclass(slots=True)
class Request:
    """A row for `requests`."""

    key: RepoKey
    kind: RequestKind
    reason: str
    at: datetime
    urgent: bool = False  # not to wait any longer for what failed before


@dataclass(frozen=True, slots=True)
class Answer:
    """A row of `requests` that is answered."""

    key: RepoKey
    kind: str
    asked_at: datetime | None  # one that was asked again since stays; null: none does


@dataclass(slots=True)
class Books:
    """What the writer loads under its locks, and stores once every arrival is taken."""

    rows: dict[RepoKey, RepoRow]
    held: Mapping[RecordKey, HeldRecord]
    statuses: dict[str, dict[str, SourceStatus]]  # repo → source → its word
    identities: dict[str, Identity]  # as cached, then as this batch leaves them
    freed: Counter[RepoKey] = field(default_factory=Counter[RepoKey])  # records that were kept out, deleted or updated
    records: dict[RecordKey, RecordState] = field(default_factory=dict[RecordKey, RecordState])
    purged: set[RepoKey] = field(default_factory=set[RepoKey])
    refills: set[RepoKey] = field(default_factory=set[RepoKey])  # in Spaces: what a quota kept out may be held now
    requests: dict[tuple[RepoKey, RequestKind], Request] = field(
        default_factory=dict[tuple[RepoKey, RequestKind], Request]
    )
    answered: list[Answer] = field(default_factory=list[Answer])
    changed_statuses: dict[tuple[str, str], SourceStatus] = field(default_factory=dict[tuple[str, str], SourceStatus])
    changed_identities: set[str] = field(default_factory=set[str])
    parked: list[CommitParked] = field(default_factory=list[CommitParked])
    denied: set[Subject] = field(default_factory=set[Subject])  # among what the arrivals are about
    denials: dict[Subject, bool] = field(default_factory=dict[Subject, bool])  # from now on; False: no longer
    unparked: list[CommitUnparked] = field(default_factory=list[CommitUnparked])
    broken: list[FrameBroken] = field(default_factory=list[FrameBroken])
    tally: Counter[tuple[str, str, Effect]] = field(default_factory=Counter[tuple[str, str, Effect]])

    def record(self, key: RecordKey) -> RecordState:
        """What stands at a record key, as the arrivals so far leave it."""
        state = self.records.get(key)
        if state is None:
            purged = (key[0], key[1]) in self.purged
            state = self.records[key] = RecordState(NOTHING_HELD if purged else self.held.get(key, NOTHING_HELD))
        return state

    def desynchronize(self, row: RepoRow, reason: str, place: Place) -> None:
        """Asks for a fetch; one that is under way goes on, for it may bring what is missing, and is asked for again."""
        if row.state is not RepoState.RESYNCING:
            row.enter(RepoState.DESYNCHRONIZED, reason, place.seen_at)
        self.request(row.key, RequestKind.FETCH, reason, place.seen_at)

    def refused(self, place: Place, repo: str, reason: str) -> None:
        """Something that anybody may have made up: whether there is more to it, only the repo's host can tell."""
        self.count(place, reason, Effect.UNATTRIBUTABLE)
        row = self.rows.get((repo, PUBLIC))
        if row is not None and row.may_ask_latest(place.seen_at, LATEST_COMMIT_INTERVAL):
            self.request(row.key, RequestKind.LATEST_COMMIT, reason, place.seen_at)

    def inactive(self, row: RepoRow, place: Place) -> None:
        """A signed sign of life from an account that is not to be served: the status may be out of date."""
        self.count(place, "account_inactive", Effect.IGNORED)
        self.request(row.key, RequestKind.REPO_STATUS, "live_while_inactive", place.seen_at)
        if not row.purged:  # else it is fetched whole when it comes back
            self.desynchronize(row, "account_inactive", place)

    def show(self, key: RepoKey, at: datetime) -> None:
        """Serves or hides a repo, by what every source says of its account."""
        row, identity = self.rows[key], self.identities.get(key[0])
        was_visible = row.visible
        words = self.statuses.get(key[0], {}).values()
        tombstoned = identity is not None and identity.tombstoned
        visible, status = visibility(words, identity.host if identity else None, tombstoned=tombstoned)
        row.show(visible=visible, status=status, at=at)
        if not row.visible or was_visible or (*key, None) in self.denied:
            return
        self.request(key, RequestKind.IDENTITY, CAME_BACK, at)
        if row.purged and row.state is not RepoState.RESYNCING:
            row.enter(RepoState.PENDING, "account_came_back", at)
        if row.state not in (RepoState.ACTIVE, RepoState.RESYNCING):
            # As long as its host served it to nobody, every attempt failed, and waits have grown.
            urgent = row.may_hasten(at, HASTEN_INTERVAL)
            self.request(key, RequestKind.FETCH, row.reason or row.state, at, urgent=urgent)

    def purge(self, row: RepoRow, at: datetime) -> None:
        """Leaves nothing of a repo but its rev gate."""
        self.purged.add(row.key)
        for key in [key for key in self.records if key[:2] == row.key]:
            del self.records[key]
        self.parked = [commit for commit in self.parked if commit.repo != row.repo]
        del self.freed[row.key]
        row.emptied(at)
        # Nothing of it is wanted any more.
        self.requests = {key: request for key, request in self.requests.items() if key[0] != row.key}
        self.answered += [Answer(row.key, kind, None) for kind in RequestKind]

    # What waits

    def park(self, commit: CommitParked) -> None:
        """A commit for which there is room."""
        self.count(commit.place, commit.reason, Effect.PARKED)
        if commit.reason != RESYNCING:
            self.request((commit.repo, PUBLIC), RequestKind.IDENTITY, commit.reason, commit.place.seen_at)

    def parked_before(self, commit: CommitParked) -> None:
        """A commit that waits already: met again in a replay."""
        self.count(commit.place, "already_parked", Effect.ALREADY_APPLIED)

    def overflow(self, commit: CommitParked) -> None:
        """A commit for which there is no room: its repo waits for a fetch, a stranger's is only counted."""
        row = self.rows.get((commit.repo, PUBLIC))
        if commit.reason == RESYNCING:
            self.count(commit.place, "parked_overflow", Effect.IGNORED)
            self.request((commit.repo, PUBLIC), RequestKind.FETCH, "parked_overflow", commit.place.seen_at)
            return
        if commit.reason != "key_unknown":  # the known key did not make its signature: it may be anybody's
            self.refused(commit.place, commit.repo, commit.reason)
            return
        self.count(commit.place, "parked_overflow", Effect.DESYNCHRONIZED if row else Effect.IGNORED)
        if row is not None:
            self.desynchronize(row, "parked_overflow", commit.place)

    def request_refill(self, key: RepoKey, at: datetime) -> None:
        """Asks for what a quota kept out, now that there is room; in a Space that is its pull's to see to."""
        if key[1] != PUBLIC:
            self.refills.add(key)
            return
        self.rows[key].postpone_fetch(at + REFILL_INTERVAL)
        self.request(key, RequestKind.FETCH, "quota_refill", at)

    # Bookkeeping

    def request(self, key: RepoKey, kind: RequestKind, reason: str, at: datetime, *, urgent: bool = False) -> None:
        """Writes down what must be asked; the first reason is the one to know."""
        request = self.requests.setdefault((key, kind), Request(key, kind, reason, at))
        request.urgent = request.urgent or urgent

    def count(self, place: Place, reason: str, effect: Effect) -> None:
        """Counts what became of an arrival."""
        self.tally[place.source.url, reason, effect] += 1
