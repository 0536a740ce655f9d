"""What a batch of arrivals does to the repos that it touches, decided in order against the locked rows. No I/O.

The writer loads the rows, lets the ledger take every arrival, and stores what the ledger then holds. Nothing here was
judged before the lock: whoever lost a race against another writer is judged anew by construction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import assert_never

from indexer.arrivals import (
    AccountChanged,
    Arrival,
    CommitArrived,
    CommitParked,
    CommitRefused,
    CommitUnparked,
    FrameBroken,
    FrameIgnored,
    IdentityAnnounced,
    IdentityResolved,
    Place,
    RepoCutOff,
    RequestAnswered,
    RestoreOrdered,
    SyncArrived,
    TakedownOrdered,
)
from indexer.record_state import NOTHING_HELD, HeldRecord, RecordState
from indexer.repo_state import RepoKey, RepoRow, RepoState, SourceStatus, visibility
from indexer.verify.admission import Accept, Desynchronize, Drop, Held, admit
from indexer.verify.commit import MAX_REV_LEAD
from memory.identifiers import is_tid, tid_time
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


# A forger can make us ask a host at most so often about one repo.
LATEST_COMMIT_INTERVAL = timedelta(hours=1)


@dataclass(slots=True)
class Request:
    """A row for `requests`."""

    key: RepoKey
    kind: RequestKind
    reason: str
    at: datetime
    interval: timedelta = timedelta(0)  # how long an earlier request of the same kind stands for this one


@dataclass(frozen=True, slots=True)
class Answer:
    """A row of `requests` that is answered."""

    key: RepoKey
    kind: str
    asked_at: datetime | None  # one that was asked again since stays; null: none does


@dataclass(slots=True)
class Ledger:
    """The picture of one batch. Fields are read by the writer once every arrival is taken."""

    rows: dict[RepoKey, RepoRow]
    held: Mapping[RecordKey, HeldRecord]
    statuses: dict[str, dict[str, SourceStatus]]  # repo → source → its word
    identities: dict[str, Identity]  # as cached, then as this batch leaves them
    freed: Counter[RepoKey] = field(default_factory=Counter[RepoKey])  # records that were kept out, deleted or updated
    records: dict[RecordKey, RecordState] = field(default_factory=dict[RecordKey, RecordState])
    purged: set[RepoKey] = field(default_factory=set[RepoKey])
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

    def take(self, arrivals: Iterable[Arrival]) -> None:
        """Takes every arrival in order."""
        for arrival in arrivals:
            self._take(arrival)

    def _take(self, arrival: Arrival) -> None:  # noqa: C901  one line a kind
        match arrival:
            case CommitArrived():
                self._commit(arrival)
            case CommitRefused():
                self._refused(arrival.place, arrival.repo, arrival.reason)
            case CommitParked():
                self._parked(arrival)
            case SyncArrived():
                self._sync(arrival)
            case AccountChanged():
                self._account(arrival)
            case IdentityResolved():
                self._identity(arrival)
            case IdentityAnnounced():
                self._request((arrival.repo, PUBLIC), RequestKind.IDENTITY, "identity_event", arrival.place.seen_at)
            case CommitUnparked():
                self.unparked.append(arrival)
            case RepoCutOff():
                self._cut_off(arrival)
            case TakedownOrdered():
                self._take_down(arrival)
            case RestoreOrdered():
                self._restore(arrival)
            case RequestAnswered():
                self.answered.append(Answer((arrival.repo, PUBLIC), arrival.kind, arrival.asked_at))
            case FrameIgnored():
                self._count(arrival.place, arrival.reason, Effect.IGNORED)
            case FrameBroken():
                self.broken.append(arrival)
                self._count(arrival.place, arrival.reason, Effect.QUARANTINED)
            case _:
                assert_never(arrival)

    # Commits and syncs

    def _commit(self, arrival: CommitArrived) -> None:
        commit, place = arrival.commit, arrival.place
        key = (commit.repo, PUBLIC)
        row = self.rows.get(key)
        if row is None or (*key, None) in self.denied:
            self._count(place, "untracked" if row is None else "denied", Effect.IGNORED)
            return
        if row.rev is None:
            self._request(key, RequestKind.REPO_STATUS, "first_sight", place.seen_at)
            self._show(key, place.seen_at)
        held = Held(row.rev, row.commit_cid, row.data_cid, row.state) if row.rev is not None else None
        judgement = admit(commit, held)
        if isinstance(judgement, Drop):
            self._count(place, "already_applied", Effect.ALREADY_APPLIED)
        elif not row.visible:
            self._inactive(row, place)
        elif row.state in (RepoState.DESYNCHRONIZED, RepoState.RESYNCING, RepoState.ERROR):
            # The fetch that this state waits for brings what this commit would; the first reason is the one to know.
            self._count(place, "awaiting_resync", Effect.IGNORED)
        elif isinstance(judgement, Desynchronize):
            self._count(place, judgement.reason, Effect.DESYNCHRONIZED)
            self._desynchronize(row, judgement.reason, place)
        else:
            self._apply(arrival, row, judgement)

    def _apply(self, arrival: CommitArrived, row: RepoRow, judgement: Accept) -> None:
        commit, at = arrival.commit, arrival.place.seen_at
        first = row.rev is None or row.data_cid is None
        row.applied(rev=commit.rev, commit_cid=commit.commit_cid, data_cid=commit.data_cid, at=at)
        if first and judgement.complete:
            row.enter(RepoState.ACTIVE, None, at)
        elif first:
            row.enter(RepoState.PENDING, "first_seen_in_the_middle", at)
            self._request(row.key, RequestKind.FETCH, "first_seen_in_the_middle", at)
        self._count(arrival.place, "accepted", Effect.ACCEPTED)
        edge = row.quota_edge
        for op in arrival.ops:
            state = self._record((row.repo, row.space, op.rkey))
            if edge is not None and op.rkey >= edge and not op.created and not state.present:
                self.freed[row.key] += 1
            if op.entry is None or (row.repo, row.space, op.rkey) in self.denied:
                state.delete(at)
            else:
                state.put(op.entry, commit.rev, at)

    def _cut_off(self, arrival: RepoCutOff) -> None:
        """What was cut off was never verified, so it changes no state: a forger could have filled the lane.

        If the author's own was among it, their next commit will not chain, or their latest tells.
        """
        self._refused(arrival.place, arrival.repo, "lane_full")

    def _record(self, key: RecordKey) -> RecordState:
        state = self.records.get(key)
        if state is None:
            purged = (key[0], key[1]) in self.purged
            state = self.records[key] = RecordState(NOTHING_HELD if purged else self.held.get(key, NOTHING_HELD))
        return state

    def _sync(self, arrival: SyncArrived) -> None:
        row = self.rows.get((arrival.repo, PUBLIC))
        if row is None or (arrival.repo, PUBLIC, None) in self.denied:
            return
        at = arrival.place.seen_at
        if row.rev is not None and (arrival.commit_cid == row.commit_cid or arrival.rev <= row.rev):
            self._count(arrival.place, "already_applied", Effect.ALREADY_APPLIED)
        elif arrival.data_cid is not None and arrival.data_cid == row.data_cid:
            self._count(arrival.place, "already_applied", Effect.ALREADY_APPLIED)
            if arrival.refusal is None and arrival.commit_cid is not None and not _is_ahead(arrival.rev, at):
                # The same contents signed anew: the next commit's `since` will name this rev.
                row.applied(rev=arrival.rev, commit_cid=arrival.commit_cid, data_cid=arrival.data_cid, at=at)
        elif arrival.refusal is not None:
            self._refused(arrival.place, arrival.repo, arrival.refusal)
        elif not row.visible:
            self._inactive(row, arrival.place)
        else:
            self._count(arrival.place, "sync", Effect.DESYNCHRONIZED)
            self._desynchronize(row, "sync", arrival.place)

    def _parked(self, arrival: CommitParked) -> None:
        row = self.rows.get((arrival.repo, PUBLIC))
        if row is not None and row.rev is not None and arrival.rev <= row.rev:
            self._count(arrival.place, "already_applied", Effect.ALREADY_APPLIED)
        else:
            self.parked.append(arrival)

    def _refused(self, place: Place, repo: str, reason: str) -> None:
        self._count(place, reason, Effect.UNATTRIBUTABLE)
        if (repo, PUBLIC) in self.rows:
            self._request(
                (repo, PUBLIC), RequestKind.LATEST_COMMIT, reason, place.seen_at, interval=LATEST_COMMIT_INTERVAL
            )

    def _inactive(self, row: RepoRow, place: Place) -> None:
        """A signed sign of life from an account that is not to be served: the status may be out of date."""
        self._count(place, "account_inactive", Effect.IGNORED)
        self._request(row.key, RequestKind.REPO_STATUS, "live_while_inactive", place.seen_at)
        if not row.purged:  # else it is fetched whole when it comes back
            self._desynchronize(row, "account_inactive", place)

    def _desynchronize(self, row: RepoRow, reason: str, place: Place) -> None:
        row.enter(RepoState.DESYNCHRONIZED, reason, place.seen_at)
        self._request(row.key, RequestKind.FETCH, reason, place.seen_at)

    # Accounts and identities

    def _account(self, arrival: AccountChanged) -> None:
        row = self.rows.get((arrival.repo, PUBLIC))
        source, at = arrival.place.source, arrival.place.seen_at
        words = self.statuses.setdefault(arrival.repo, {})
        known = words.get(source.url)
        if known is not None and arrival.place.seq <= known.seq:
            self._count(arrival.place, "already_applied", Effect.ALREADY_APPLIED)
            return
        word = SourceStatus(source.url, source.kind, arrival.place.seq, arrival.active, arrival.status, at)
        words[source.url] = self.changed_statuses[arrival.repo, source.url] = word
        if row is None:  # its first commit waits for its key: the word counts once it is tracked
            return
        self._show(row.key, at)
        if not arrival.active and arrival.status == "deleted" and not row.purged:
            self._request(row.key, RequestKind.CONFIRM_DELETION, "deleted", at)

    def _identity(self, arrival: IdentityResolved) -> None:
        identity, at = arrival.identity, arrival.place.seen_at
        known = self.identities.get(identity.did)
        if known is not None and known.resolved_at >= identity.resolved_at:
            identity = known
        else:
            self.identities[identity.did] = identity
            self.changed_identities.add(identity.did)
        row = self.rows.get((identity.did, PUBLIC))
        if row is None:
            return
        self._show(row.key, at)
        # Compared with what was acted upon: whoever resolves an identity may have stored it before.
        moved = row.identified(identity.host, identity.signing_key)
        if identity.tombstoned:
            if not row.purged:
                self.purge(row, at)
        elif moved:
            self._request(row.key, RequestKind.LATEST_COMMIT, "identity_changed", at)

    def _show(self, key: RepoKey, at: datetime) -> None:
        row, identity = self.rows[key], self.identities.get(key[0])
        was_visible = row.visible
        words = self.statuses.get(key[0], {}).values()
        tombstoned = identity is not None and identity.tombstoned
        visible, status = visibility(words, identity.host if identity else None, tombstoned=tombstoned)
        row.show(visible=visible, status=status, at=at)
        if row.visible and not was_visible and row.purged:
            row.enter(RepoState.PENDING, "account_came_back", at)
            self._request(key, RequestKind.FETCH, "account_came_back", at)

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

    # An operator's word

    def _take_down(self, order: TakedownOrdered) -> None:
        row, at = self.rows[order.repo, PUBLIC], order.place.seen_at
        subject = (order.repo, PUBLIC, order.rkey)
        self.denied.add(subject)
        self.denials[subject] = True
        if order.rkey is None:
            self.purge(row, at)
            row.enter(RepoState.PENDING, "denied", at)
        else:
            self._record((order.repo, PUBLIC, order.rkey)).delete(at)

    def _restore(self, order: RestoreOrdered) -> None:
        subject = (order.repo, PUBLIC, order.rkey)
        self.denied.discard(subject)
        self.denials[subject] = False
        row = self.rows.get((order.repo, PUBLIC))
        if row is not None:
            if order.rkey is None:
                row.enter(RepoState.PENDING, "restored", order.place.seen_at)
            self._request(row.key, RequestKind.FETCH, "restored", order.place.seen_at)

    # What waits

    def park(self, commit: CommitParked) -> None:
        """A commit for which there is room."""
        self._count(commit.place, commit.reason, Effect.PARKED)
        self._request((commit.repo, PUBLIC), RequestKind.IDENTITY, commit.reason, commit.place.seen_at)

    def parked_before(self, commit: CommitParked) -> None:
        """A commit that waits already: met again in a replay."""
        self._count(commit.place, "already_parked", Effect.ALREADY_APPLIED)

    def overflow(self, commit: CommitParked) -> None:
        """A commit for which there is no room: its repo waits for a fetch, a stranger's is only counted."""
        row = self.rows.get((commit.repo, PUBLIC))
        if commit.reason != "key_unknown":  # the known key did not make its signature: it may be anybody's
            self._refused(commit.place, commit.repo, commit.reason)
            return
        self._count(commit.place, "parked_overflow", Effect.DESYNCHRONIZED if row else Effect.IGNORED)
        if row is not None:
            self._desynchronize(row, "parked_overflow", commit.place)

    def request_refill(self, key: RepoKey, at: datetime) -> None:
        """Asks for what a quota kept out, now that there is room."""
        self._request(key, RequestKind.FETCH, "quota_refill", at)

    # Bookkeeping

    def _request(
        self, key: RepoKey, kind: RequestKind, reason: str, at: datetime, interval: timedelta = timedelta(0)
    ) -> None:
        self.requests.setdefault((key, kind), Request(key, kind, reason, at, interval))

    def _count(self, place: Place, reason: str, effect: Effect) -> None:
        self.tally[place.source.url, reason, effect] += 1


def _is_ahead(rev: str, at: datetime) -> bool:
    """Whether a rev may not pass the gate, for nothing that is written now would be greater."""
    return not is_tid(rev) or tid_time(rev) - MAX_REV_LEAD > at
