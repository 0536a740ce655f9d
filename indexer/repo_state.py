"""The state of one repo, and how arrivals move it. No I/O.

How it goes:

    first commit, or found ─► pending ─► resyncing ─► active ─► desynchronized ─► resyncing …
    first commit, complete ─────────────────────────► active
    a fetch that failed:      resyncing ─► what it was before, or error ─► resyncing …
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from indexer.arrivals import SourceKind

RepoKey = tuple[str, str]  # (repo, space)


class RepoState(StrEnum):
    """How far what is held can be trusted to be the whole repo."""

    PENDING = "pending"  # found, or chained from the middle: the rest waits for a fetch
    RESYNCING = "resyncing"  # a fetch is under way
    ACTIVE = "active"  # complete, every commit chained
    DESYNCHRONIZED = "desynchronized"  # a commit could not be applied; nothing more is, until a fetch
    ERROR = "error"  # not whole, and the last fetch failed; `reason` says why


@dataclass(slots=True)
class RepoRow:
    """A row of `repos`, as this batch leaves it."""

    repo: str
    space: str
    state: RepoState
    reason: str | None
    rev: str | None
    commit_cid: str | None
    data_cid: str | None
    visible: bool
    status: str | None
    memory_count: int
    memory_bytes: int
    edge_count: int
    over_quota_count: int  # records that the quota keeps out
    quota_edge: str | None  # from this rkey on all are kept out, every memory before it is held; null: none is
    host: str | None  # of the DID document that was last acted upon
    signing_key: str | None
    tracked_at: datetime
    changed_at: datetime
    fetch_token: UUID | None = None  # of the fetch that is under way
    fetch_after: datetime | None = None  # no fetch begins before
    latest_asked_at: datetime | None = None  # when something that may be forged last made us ask its host
    audited_at: datetime | None = None  # when what is held was last compared with what its host has
    hastened_at: datetime | None = None  # when it last had not to wait any longer for what failed
    invalid_count: int = 0
    invalid_edge: str | None = None  # from this rkey on invalid records are kept out; before `quota_edge`, or null
    first_indexed_at: datetime | None = None  # when its contents were first known
    status_changed_at: datetime | None = None  # when `visible` or `status` last became another
    entries_added: int = 0  # by this batch, of what is in view
    entry_bytes_added: int = 0
    changed: bool = False

    @property
    def key(self) -> RepoKey:
        return (self.repo, self.space)

    @property
    def purged(self) -> bool:
        """Whether nothing but the rev gate is left: the contents are unknown until a fetch."""
        return self.rev is not None and self.data_cid is None

    @property
    def chained(self) -> bool:
        """Whether it is known behind which commit the next has to be."""
        return self.rev is not None and self.data_cid is not None

    @property
    def usage(self) -> tuple[int, int, int]:
        """Memories, record bytes, edges."""
        return self.memory_count, self.memory_bytes, self.edge_count

    def count_entries(self, entries: int, content_bytes: int) -> None:
        """So many more are in view, beside what statements count by themselves: what is deleted, or judged anew."""
        if entries or content_bytes:
            self.entries_added += entries
            self.entry_bytes_added += content_bytes
            self.changed = True

    def applied(self, *, rev: str, commit_cid: str, data_cid: str, at: datetime) -> None:
        """Moves the rev gate; revs only grow."""
        self.rev, self.commit_cid, self.data_cid = rev, commit_cid, data_cid
        self.first_indexed_at = self.first_indexed_at or at
        self._touch(at)

    def pulled(self, rev: str, at: datetime, *, ended: bool) -> None:
        """Of a repo in a Space, where nothing chains and a rev may go back: some of it is held, or all."""
        if ended:
            self.rev, self.first_indexed_at = rev, self.first_indexed_at or at
        self.state, self.reason = (RepoState.ACTIVE if ended else RepoState.RESYNCING), None
        self._touch(at)

    def enter(self, state: RepoState, reason: str | None, at: datetime) -> None:
        if state is not RepoState.RESYNCING:
            self.fetch_token = None
        if (self.state, self.reason) != (state, reason):
            self.state, self.reason = state, reason
            self._touch(at)

    def begin_fetch(self, token: UUID, at: datetime) -> None:
        """From now on only the fetch with this token changes its contents; what comes live is parked."""
        self.fetch_token = token
        self.state = RepoState.RESYNCING
        self._touch(at)

    def postpone_fetch(self, until: datetime) -> None:
        """Lets no fetch begin before that."""
        if self.fetch_after is None or self.fetch_after < until:
            self.fetch_after = until
            self.changed = True

    def may_ask_latest(self, at: datetime, interval: timedelta) -> bool:
        """Whether its host may be asked about something that may be forged; True counts as having asked."""
        if self.latest_asked_at is not None and at - self.latest_asked_at < interval:
            return False
        self.latest_asked_at = at
        self.changed = True
        return True

    def may_hasten(self, at: datetime, interval: timedelta) -> bool:
        """Whether its fetch need not wait any longer for what failed; True counts as having hastened it."""
        if self.hastened_at is not None and at - self.hastened_at < interval:
            return False
        self.hastened_at = at
        self.changed = True
        return True

    def compared(self, at: datetime) -> None:
        """Its host was asked where it stands."""
        self.audited_at = at
        self.changed = True

    def show(self, *, visible: bool, status: str | None, at: datetime) -> None:
        if (self.visible, self.status) != (visible, status):
            self.visible, self.status = visible, status
            self.status_changed_at = at
            self._touch(at)

    def identified(self, host: str | None, signing_key: str | None) -> bool:
        """Notes who the author is now; says whether host or key changed from known ones."""
        before, now = (self.host, self.signing_key), (host, signing_key)
        if before == now:
            return False
        self.host, self.signing_key = now
        self.changed = True
        return before != (None, None)

    def emptied(self, at: datetime) -> None:
        """After a purge: only the rev gate stays, the contents are unknown until a fetch. One under way has ended."""
        self.data_cid = None
        self.fetch_token = None
        if self.state is RepoState.RESYNCING:
            self.state, self.reason = RepoState.PENDING, "emptied"
        self.memory_count = self.memory_bytes = self.edge_count = self.over_quota_count = self.invalid_count = 0
        self.quota_edge = self.invalid_edge = None
        self._touch(at)

    def forget_quota_edges(self) -> None:
        """All that was kept out is about to be looked at again."""
        self.over_quota_count, self.quota_edge, self.invalid_edge = 0, None, None
        self.changed = True

    def keeps_out(self, rkey: str) -> bool:
        """Whether a record there that is not held is one that the quota keeps out."""
        return (self.quota_edge is not None and rkey >= self.quota_edge) or (
            self.invalid_edge is not None and rkey >= self.invalid_edge
        )

    def count(
        self, *, memories: int = 0, record_bytes: int = 0, edges: int = 0, invalid: int = 0, over_quota: int = 0
    ) -> None:
        """Moves the counters; once none is over quota there is no edge."""
        self.memory_count += memories
        self.memory_bytes += record_bytes
        self.edge_count += edges
        self.invalid_count += invalid
        self.over_quota_count = max(0, self.over_quota_count + over_quota)
        if self.over_quota_count == 0:
            self.quota_edge = self.invalid_edge = None
        self.changed = True

    def _touch(self, at: datetime) -> None:
        self.changed_at = at
        self.changed = True


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """What one source last said of an account."""

    source: str
    kind: SourceKind
    seq: int
    active: bool
    status: str | None
    event_time: datetime


def visibility(statuses: Iterable[SourceStatus], host: str | None, *, tombstoned: bool) -> tuple[bool, str | None]:
    """Whether an account is served, and the status that explains it.

    A relay's word always counts: its own takedown hides until that relay says active again. A PDS's counts only while
    the DID document names that PDS: an old host's late `deactivated` must not win.
    """
    if tombstoned:
        return False, "deleted"
    explained: str | None = None
    for word in sorted(statuses, key=lambda word: word.source):
        if word.kind is SourceKind.PDS and host is not None and word.source != host:
            continue
        if not word.active:
            return False, word.status or "inactive"
        explained = explained or word.status
    return True, explained
