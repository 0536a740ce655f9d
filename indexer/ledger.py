"""What a batch of arrivals does to the repos that it touches, decided in order against the locked rows. No I/O.

The writer loads the rows, lets the ledger take every arrival, and stores what the ledger then holds. Nothing here was
judged before the lock: whoever lost a race against another writer is judged anew by construction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, assert_never

from indexer.arrivals import (
    AccountAsked,
    AccountChanged,
    Arrival,
    CommitArrived,
    CommitParked,
    CommitRefused,
    CommitUnparked,
    ContentsFetched,
    DeletionConfirmed,
    FetchApplied,
    FetchBegun,
    FetchFailed,
    FetchLifted,
    FetchOrdered,
    FrameBroken,
    FrameIgnored,
    HeadCompared,
    IdentityAnnounced,
    IdentityResolved,
    Place,
    RepoCutOff,
    RequestAnswered,
    RestoreOrdered,
    SourceKind,
    SpaceChanged,
    SyncArrived,
    TakedownOrdered,
)
from indexer.books import RESYNCING, Answer, Books, Effect, RequestKind
from indexer.interpret import MemoryOp
from indexer.repo_state import RepoRow, RepoState, SourceStatus
from indexer.verify.admission import Accept, Desynchronize, Drop, Held, admit
from indexer.verify.commit import MAX_REV_LEAD
from memory.identifiers import is_tid, tid_time
from memory.space import PUBLIC

# Statuses that an account gives itself.
PASSED_ON: Final = ("deactivated", "deleted")


@dataclass(slots=True)
class Ledger(Books):
    """The picture of one batch. Fields are read by the writer once every arrival is taken."""

    def take(self, arrivals: Iterable[Arrival]) -> None:
        """Takes every arrival in order."""
        for arrival in arrivals:
            self._take(arrival)

    def _take(self, arrival: Arrival) -> None:  # noqa: C901  one line a kind
        match arrival:
            case CommitArrived():
                self._commit(arrival)
            case CommitRefused():
                self.refused(arrival.place, arrival.repo, arrival.reason)
            case CommitParked():
                self._parked(arrival)
            case SyncArrived():
                self._sync(arrival)
            case AccountChanged():
                self._account(arrival)
            case IdentityResolved():
                self._identity(arrival)
            case IdentityAnnounced():
                self.request((arrival.repo, PUBLIC), RequestKind.IDENTITY, "identity_event", arrival.place.seen_at)
            case CommitUnparked():
                self.unparked.append(arrival)
            case RepoCutOff():
                self._cut_off(arrival)
            case TakedownOrdered():
                self._take_down(arrival)
            case RestoreOrdered():
                self._restore(arrival)
            case RequestAnswered():
                self._answered(arrival)
            case FetchOrdered() | FetchBegun() | ContentsFetched() | FetchApplied() | FetchFailed():
                self._fetch(arrival)
            case SpaceChanged():
                self._change_in_space(arrival)
            case FetchLifted():
                self._lift(arrival)
            case HeadCompared():
                self._compare(arrival)
            case AccountAsked():
                self._asked(arrival)
            case DeletionConfirmed():
                self._deleted(arrival)
            case FrameIgnored():
                self.count(arrival.place, arrival.reason, Effect.IGNORED)
            case FrameBroken():
                self.broken.append(arrival)
                self.count(arrival.place, arrival.reason, Effect.QUARANTINED)
            case _:
                assert_never(arrival)

    # Commits and syncs

    def _commit(self, arrival: CommitArrived) -> None:
        commit, place = arrival.commit, arrival.place
        key = (commit.repo, PUBLIC)
        row = self.rows.get(key)
        if row is None or (*key, None) in self.denied:
            self.count(place, "untracked" if row is None else "denied", Effect.IGNORED)
            return
        if row.rev is None:
            self.request(key, RequestKind.REPO_STATUS, "first_sight", place.seen_at)
            self.show(key, place.seen_at)
        held = Held(row.rev, row.commit_cid, row.data_cid, row.state) if row.rev is not None else None
        judgement = admit(commit, held)
        if isinstance(judgement, Drop):
            self.count(place, "already_applied", Effect.ALREADY_APPLIED)
        elif not row.visible:
            self.inactive(row, place)
        elif row.state is RepoState.RESYNCING:
            # The fetch may have read the repo before this commit or after it: its end will tell.
            self.parked.append(CommitParked(place, commit.repo, commit.rev, arrival.frame, RESYNCING))
        elif row.state in (RepoState.DESYNCHRONIZED, RepoState.ERROR) and row.chained:
            # The fetch that this state waits for brings what this commit would; the first reason is the one to know.
            self.count(place, "awaiting_resync", Effect.IGNORED)
        elif isinstance(judgement, Desynchronize):
            self.count(place, judgement.reason, Effect.DESYNCHRONIZED)
            self.desynchronize(row, judgement.reason, place)
        else:
            self._apply(arrival, row, judgement)

    def _apply(self, arrival: CommitArrived, row: RepoRow, judgement: Accept) -> None:
        commit, at = arrival.commit, arrival.place.seen_at
        first = row.rev is None or row.data_cid is None
        row.applied(rev=commit.rev, commit_cid=commit.commit_cid, data_cid=commit.data_cid, at=at)
        # Of what a fetch had begun to bring when it failed, something may be held already.
        if first and judgement.complete and row.state is RepoState.PENDING:
            row.enter(RepoState.ACTIVE, None, at)
        elif first:
            row.enter(RepoState.PENDING, "first_seen_in_the_middle", at)
            self.request(row.key, RequestKind.FETCH, "first_seen_in_the_middle", at)
        self.count(arrival.place, "accepted", Effect.ACCEPTED)
        self._put(row, arrival.ops, commit.rev, at)

    def _put(self, row: RepoRow, ops: Iterable[MemoryOp], rev: str, at: datetime) -> None:
        for op in ops:
            key = (row.repo, row.space, op.rkey)
            state, denied = self.record(key), key in self.denied
            if not op.created and not state.present and not denied and row.keeps_out(op.rkey):
                self.freed[row.key] += 1
            if op.entry is None or denied:
                state.delete(at)
            else:
                state.put(op.entry, rev, at)

    def _change_in_space(self, arrival: SpaceChanged) -> None:
        row = self.rows[arrival.repo, arrival.space]
        if arrival.whole and arrival.first:
            row.forget_quota_edges()
        self._put(row, arrival.ops, arrival.rev, arrival.place.seen_at)
        row.pulled(arrival.rev, arrival.place.seen_at, ended=arrival.last)

    def _cut_off(self, arrival: RepoCutOff) -> None:
        """What was cut off was never verified, so it changes no state: a forger could have filled the lane.

        If the author's own was among it, their next commit will not chain, or their latest tells.
        """
        self.refused(arrival.place, arrival.repo, "lane_full")

    def _sync(self, arrival: SyncArrived) -> None:
        row = self.rows.get((arrival.repo, PUBLIC))
        if row is None or (arrival.repo, PUBLIC, None) in self.denied:
            return
        at = arrival.place.seen_at
        if row.rev is not None and (arrival.commit_cid == row.commit_cid or arrival.rev <= row.rev):
            self.count(arrival.place, "already_applied", Effect.ALREADY_APPLIED)
        elif arrival.data_cid is not None and arrival.data_cid == row.data_cid:
            self.count(arrival.place, "already_applied", Effect.ALREADY_APPLIED)
            if arrival.refusal is None and arrival.commit_cid is not None and not _is_ahead(arrival.rev, at):
                self._sign_anew(row, arrival, arrival.commit_cid, arrival.data_cid)
        elif arrival.refusal is not None:
            self.refused(arrival.place, arrival.repo, arrival.refusal)
        elif not row.visible:
            self.inactive(row, arrival.place)
        else:
            self.count(arrival.place, "sync", Effect.DESYNCHRONIZED)
            self.desynchronize(row, "sync", arrival.place)

    def _sign_anew(self, row: RepoRow, arrival: SyncArrived, commit_cid: str, data_cid: str) -> None:
        """The same contents signed anew: the next commit's `since` will name this rev."""
        if row.state is RepoState.RESYNCING:  # what was fetched may be of before: the gate is that fetch's to move
            self.desynchronize(row, "sync", arrival.place)
        else:
            row.applied(rev=arrival.rev, commit_cid=commit_cid, data_cid=data_cid, at=arrival.place.seen_at)

    def _parked(self, arrival: CommitParked) -> None:
        row = self.rows.get((arrival.repo, PUBLIC))
        if row is not None and row.rev is not None and arrival.rev <= row.rev:
            self.count(arrival.place, "already_applied", Effect.ALREADY_APPLIED)
        else:
            self.parked.append(arrival)

    def _account(self, arrival: AccountChanged) -> None:
        row = self.rows.get((arrival.repo, PUBLIC))
        source, at = arrival.place.source, arrival.place.seen_at
        words = self.statuses.setdefault(arrival.repo, {})
        known = words.get(source.url)
        if known is not None and arrival.place.seq <= known.seq:
            self.count(arrival.place, "already_applied", Effect.ALREADY_APPLIED)
            return
        word = SourceStatus(source.url, source.kind, arrival.place.seq, arrival.active, arrival.status, at)
        words[source.url] = self.changed_statuses[arrival.repo, source.url] = word
        if row is not None:  # else its first commit waits for its key, or what is held of it is in Spaces
            self.show(row.key, at)
            if arrival.active and not row.visible:  # by somebody else's word, which may be out of date
                self.request(row.key, RequestKind.REPO_STATUS, "live_while_inactive", at)
        if not arrival.active and arrival.status == "deleted" and (row is None or not row.purged):
            self.request((arrival.repo, PUBLIC), RequestKind.CONFIRM_DELETION, "deleted", at)

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
            if identity.tombstoned:
                self.purged.add((identity.did, PUBLIC))
            return
        self.show(row.key, at)
        # Compared with what was acted upon: whoever resolves an identity may have stored it before.
        moved = row.identified(identity.host, identity.signing_key)
        if identity.tombstoned:
            if not row.purged:
                self.purge(row, at)
        elif moved and row.rev is not None:  # else nothing is held yet that could be compared
            self.request(row.key, RequestKind.LATEST_COMMIT, "identity_changed", at)

    def _asked(self, arrival: AccountAsked) -> None:
        """The host's own word; its stream's later words count over it, a relay's earlier ones do not all."""
        row, at = self.rows.get((arrival.repo, PUBLIC)), arrival.place.seen_at
        if row is None and not arrival.in_spaces:
            return
        words = self.statuses.setdefault(arrival.repo, {})
        known = words.get(arrival.host)
        seq = known.seq if known is not None else 0
        news = [SourceStatus(arrival.host, SourceKind.PDS, seq, arrival.active, arrival.status, at)]
        if arrival.active:
            # What the account did to itself, a relay only passes on; its own takedown is its own to lift.
            news += [
                replace(word, active=True, status=None, event_time=at)
                for word in words.values()
                if word.kind is SourceKind.RELAY and not word.active and word.status in PASSED_ON
            ]
        for word in news:
            words[word.source] = self.changed_statuses[arrival.repo, word.source] = word
        if row is None:
            return
        self.show(row.key, at)
        if not arrival.active and arrival.status == "deleted" and not row.purged:
            self.request(row.key, RequestKind.CONFIRM_DELETION, "deleted", at)

    def _answered(self, arrival: RequestAnswered) -> None:
        """Whose host does not serve them has been compared too: there is nothing more to compare."""
        key = (arrival.repo, PUBLIC)
        self.answered.append(Answer(key, arrival.kind, arrival.asked_at))
        if key not in self.rows:
            return
        if arrival.kind == RequestKind.LATEST_COMMIT:
            self.rows[key].compared(arrival.place.seen_at)
        if arrival.next_not_before is not None:
            self.rows[key].postpone_fetch(arrival.next_not_before)

    def _deleted(self, arrival: DeletionConfirmed) -> None:
        """What hides it says which word; that its host has it no more is enough."""
        row = self.rows.get((arrival.repo, PUBLIC))
        identity = self.identities.get(arrival.repo)
        if identity is not None and identity.host != arrival.host:
            return
        if row is None:
            if any(not word.active for word in self.statuses.get(arrival.repo, {}).values()):
                self.purged.add((arrival.repo, PUBLIC))
        elif not row.visible and not row.purged:
            self.purge(row, arrival.place.seen_at)

    # Fetches

    def _fetch(self, arrival: FetchOrdered | FetchBegun | ContentsFetched | FetchApplied | FetchFailed) -> None:
        row = self.rows.get((arrival.repo, PUBLIC))
        if row is None or (arrival.repo, PUBLIC, None) in self.denied:
            return
        place, at = arrival.place, arrival.place.seen_at
        match arrival:
            case FetchOrdered():
                self.request(row.key, RequestKind.FETCH, arrival.reason, at)
            case FetchBegun():
                if row.key not in self.purged:  # by the identity that it begins with
                    row.begin_fetch(arrival.token, at)
            case ContentsFetched() | FetchApplied() | FetchFailed() if row.fetch_token != arrival.token:
                self.count(place, "fetch_overtaken", Effect.IGNORED)
            case ContentsFetched():
                if arrival.first:
                    row.forget_quota_edges()
                row.count(over_quota=arrival.beyond)
                self._put(row, arrival.ops, arrival.rev, at)
            case FetchApplied():
                self._fetched(arrival, row)
            case FetchFailed():
                self._fetch_failed(arrival, row)
            case _:
                assert_never(arrival)

    def _fetched(self, arrival: FetchApplied, row: RepoRow) -> None:
        head, at = arrival.head, arrival.place.seen_at
        row.applied(rev=head.rev, commit_cid=head.commit_cid, data_cid=head.data_cid, at=at)
        row.enter(RepoState.ACTIVE, None, at)
        row.compared(at)
        if not row.visible:  # and yet its host gave it away
            self.request(row.key, RequestKind.REPO_STATUS, "live_while_inactive", at)

    def _fetch_failed(self, arrival: FetchFailed, row: RepoRow) -> None:
        """What was chained before goes on to be; what was not says why it still is not."""
        before, at = RepoState(arrival.before), arrival.place.seen_at
        if arrival.next_not_before is not None:
            row.postpone_fetch(arrival.next_not_before)
        if arrival.reason is not None:
            self.count(arrival.place, arrival.reason, Effect.FAILED)
        if arrival.reason is None or (before in (RepoState.ACTIVE, RepoState.PENDING) and row.chained):
            row.enter(before, arrival.before_reason, at)
        else:
            row.enter(RepoState.ERROR, arrival.reason, at)

    def _lift(self, arrival: FetchLifted) -> None:
        row = self.rows.get((arrival.repo, PUBLIC))
        if row is not None and row.fetch_token == arrival.token:
            row.enter(RepoState(arrival.state), arrival.reason, arrival.place.seen_at)

    def _compare(self, arrival: HeadCompared) -> None:
        key, at = (arrival.repo, PUBLIC), arrival.place.seen_at
        self.answered.append(Answer(key, RequestKind.LATEST_COMMIT, arrival.asked_at))
        row = self.rows.get(key)
        if row is None or (*key, None) in self.denied:
            return
        row.compared(at)
        if not row.visible:  # and yet its host tells of it
            self.request(row.key, RequestKind.REPO_STATUS, "live_while_inactive", at)
        if row.rev is None or row.data_cid is None:
            if not row.purged or row.visible:  # else it is fetched when it comes back
                self.request(row.key, RequestKind.FETCH, "behind_host", at)
        elif arrival.rev > row.rev:
            self._fall_behind(row, "behind_host", arrival.place)
        elif arrival.rev == row.rev and arrival.commit_cid != row.commit_cid:
            self._fall_behind(row, "rev_conflict", arrival.place)

    def _fall_behind(self, row: RepoRow, reason: str, place: Place) -> None:
        """Its host has something else than what is held; where that is known already, the first reason stays."""
        if row.state in (RepoState.DESYNCHRONIZED, RepoState.ERROR):
            self.request(row.key, RequestKind.FETCH, row.reason or reason, place.seen_at)
        else:
            self.desynchronize(row, reason, place)

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
            self.record((order.repo, PUBLIC, order.rkey)).delete(at)

    def _restore(self, order: RestoreOrdered) -> None:
        subject = (order.repo, PUBLIC, order.rkey)
        self.denied.discard(subject)
        self.denials[subject] = False
        row = self.rows.get((order.repo, PUBLIC))
        if row is not None:
            if order.rkey is None:
                row.enter(RepoState.PENDING, "restored", order.place.seen_at)
            self.request(row.key, RequestKind.FETCH, "restored", order.place.seen_at)


def _is_ahead(rev: str, at: datetime) -> bool:
    """Whether a rev may not pass the gate, for nothing that is written now would be greater."""
    return not is_tid(rev) or tid_time(rev) - MAX_REV_LEAD > at
