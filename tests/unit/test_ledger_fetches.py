from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from indexer.arrivals import (
    CommitParked,
    CommitRefused,
    ContentsFetched,
    FetchApplied,
    FetchBegun,
    FetchedHead,
    FetchFailed,
    FetchLifted,
    FetchOrdered,
    IdentityResolved,
    RequestAnswered,
    SourceKind,
    TakedownOrdered,
)
from indexer.books import REFILL_INTERVAL, RESYNCING, Answer, RequestKind
from indexer.interpret import MemoryOp
from indexer.repo_state import RepoRow, RepoState, SourceStatus
from indexer.verify.reasons import Fault
from memory.space import PUBLIC
from tests.ledgers import (
    AT,
    DID,
    RELAY,
    RKEY,
    STRANGER,
    asked,
    commit,
    counted,
    identity,
    ledger_of,
    new_row,
    place,
    put,
    rev,
    sync,
    tracked_row,
)

TOKEN, OLD_TOKEN = UUID(int=2), UUID(int=1)
LATER = AT + timedelta(hours=3)


def fetching(**changes: Any) -> RepoRow:
    """A repo that was whole after commit 1, and is being fetched."""
    return tracked_row(**({"state": RepoState.RESYNCING, "fetch_token": TOKEN} | changes))


def contents(*ops: MemoryOp, token: UUID = TOKEN, first: bool = True) -> ContentsFetched:
    return ContentsFetched(place(9), DID, token, rev(5), ops, first)


def applied(token: UUID = TOKEN) -> FetchApplied:
    head = FetchedHead(rev(5), "commit5", "data5")
    return FetchApplied(place(9), DID, token, head)


def answered() -> RequestAnswered:
    return RequestAnswered(place(9), DID, RequestKind.FETCH, AT, LATER)


def failed(before: RepoState, reason: str | None, before_reason: str | None = "sync") -> FetchFailed:
    return FetchFailed(place(9), DID, TOKEN, before, before_reason, reason)


# Its beginning


def test_ordered_fetch_is_asked_for_and_changes_nothing_yet():
    row = tracked_row()
    ledger = ledger_of(row)
    ledger.take([FetchOrdered(place(2), DID, "operator")])
    assert not row.changed
    assert asked(ledger) == {"fetch": "operator"}


def test_fetch_that_begins_marks_the_repo_and_keeps_why_it_is_fetched():
    row = tracked_row(state=RepoState.DESYNCHRONIZED, reason="sync")
    ledger_of(row).take([FetchBegun(place(2), DID, TOKEN)])
    assert (row.state, row.reason, row.fetch_token, row.rev) == (RepoState.RESYNCING, "sync", TOKEN, rev(1))


def test_fetch_that_takes_over_ends_the_one_before():
    row = fetching(fetch_token=OLD_TOKEN)
    ledger = ledger_of(row)
    ledger.take([FetchBegun(place(2), DID, TOKEN), contents(put(RKEY), token=OLD_TOKEN), applied(OLD_TOKEN)])
    assert (row.state, row.fetch_token, row.rev, ledger.records) == (RepoState.RESYNCING, TOKEN, rev(1), {})
    assert counted(ledger) == {"fetch_overtaken": "ignored"}


def test_fetch_does_not_begin_by_an_identity_that_is_no_more():
    row = tracked_row()
    ledger = ledger_of(row, identity(0))
    ledger.take([IdentityResolved(place(2), identity(2, tombstoned=True)), FetchBegun(place(2), DID, TOKEN)])
    assert (row.purged, row.fetch_token) == (True, None)


@pytest.mark.parametrize("arrival", [FetchOrdered(place(2), DID, "operator"), FetchBegun(place(2), DID, TOKEN)])
def test_denied_repo_is_not_fetched(arrival: FetchOrdered | FetchBegun):
    row = tracked_row()
    ledger = ledger_of(row)
    ledger.denied = {(DID, PUBLIC, None)}
    ledger.take([arrival])
    assert (row.changed, ledger.requests) == (False, {})


def test_fetch_of_a_repo_that_is_not_tracked_means_nothing():
    ledger = ledger_of(None)
    ledger.take([FetchBegun(place(2), STRANGER, TOKEN), FetchOrdered(place(2), STRANGER, "operator")])
    assert (ledger.tally, ledger.requests) == ({}, {})


# What comes live meanwhile


@pytest.mark.parametrize(
    "changes", [{}, {"since": rev(0)}, {"prev_data": "other"}, {"fault": Fault.INVERSION}, {"prev_data": None}]
)
def test_commit_that_comes_during_a_fetch_waits_for_its_end_whatever_it_is(changes: dict[str, Any]):
    row = fetching()
    ledger = ledger_of(row)
    arrived = replace(commit(2, put(RKEY), **changes), frame=b"frame")
    ledger.take([arrived])
    assert ledger.parked == [CommitParked(arrived.place, DID, rev(2), b"frame", RESYNCING)]
    assert (row.changed, ledger.records, ledger.requests, ledger.tally) == (False, {}, {}, {})


def test_first_commit_of_a_repo_that_is_fetched_already_waits_too():
    row = replace(new_row(), state=RepoState.RESYNCING, fetch_token=TOKEN)
    ledger = ledger_of(row)
    ledger.take([commit(1)])
    assert [parked.reason for parked in ledger.parked] == [RESYNCING]
    assert row.rev is None


@pytest.mark.parametrize("number", [0, 1])
def test_commit_that_is_held_does_not_wait(number: int):
    ledger = ledger_of(fetching())
    ledger.take([commit(number)])
    assert ledger.parked == []
    assert counted(ledger) == {"already_applied": "already_applied"}


def test_commit_of_a_hidden_account_does_not_wait_and_is_fetched_again():
    row = fetching(visible=False, status="deactivated")
    ledger = ledger_of(row)
    ledger.take([commit(2)])
    assert (ledger.parked, row.state) == ([], RepoState.RESYNCING)
    assert asked(ledger) == {"fetch": "account_inactive", "repo_status": "live_while_inactive"}


def test_commit_that_waits_for_a_fetch_asks_for_no_identity():
    ledger = ledger_of(fetching())
    ledger.park(CommitParked(place(2), DID, rev(2), b"frame", RESYNCING))
    assert counted(ledger) == {RESYNCING: "parked"}
    assert ledger.requests == {}


def test_commit_too_many_during_a_fetch_has_the_repo_fetched_again():
    row = fetching()
    ledger = ledger_of(row)
    ledger.overflow(CommitParked(place(2), DID, rev(2), b"frame", RESYNCING))
    assert row.state is RepoState.RESYNCING
    assert counted(ledger) == {"parked_overflow": "ignored"}
    assert asked(ledger) == {"fetch": "parked_overflow"}


def test_refused_commit_during_a_fetch_asks_where_the_repo_stands():
    row = fetching()
    ledger = ledger_of(row)
    ledger.take([CommitRefused(place(2), DID, "bad_signature")])
    assert row.state is RepoState.RESYNCING
    assert asked(ledger) == {"latest_commit": "bad_signature"}


def test_sync_during_a_fetch_lets_it_go_on_and_asks_for_another():
    row = fetching(reason="sync")
    ledger = ledger_of(row)
    ledger.take([sync(2)])
    assert (row.state, row.reason, row.fetch_token) == (RepoState.RESYNCING, "sync", TOKEN)
    assert asked(ledger) == {"fetch": "sync"}


def test_sync_to_the_same_contents_does_not_move_the_gate_of_a_fetch():
    row = fetching()
    ledger = ledger_of(row)
    ledger.take([sync(2, data_cid="data1")])
    assert (row.rev, row.state) == (rev(1), RepoState.RESYNCING)
    assert asked(ledger) == {"fetch": "sync"}


# What it brings


def test_fetched_contents_are_applied_and_the_head_stays_until_the_end():
    row = fetching()
    ledger = ledger_of(row)
    ledger.take([contents(put(RKEY), MemoryOp("3kaaaaaaaab2a", None))])
    assert ledger.records[DID, PUBLIC, RKEY].rev == rev(5)
    assert not ledger.records[DID, PUBLIC, "3kaaaaaaaab2a"].present
    assert (row.rev, row.state) == (rev(1), RepoState.RESYNCING)


def test_fetched_record_that_is_denied_is_kept_out():
    ledger = ledger_of(fetching())
    ledger.denied = {(DID, PUBLIC, RKEY)}
    ledger.take([contents(put(RKEY))])
    assert not ledger.records[DID, PUBLIC, RKEY].present


def test_first_slice_forgets_what_the_quota_kept_out():
    row = fetching(over_quota_count=3, quota_edge="3k")
    ledger = ledger_of(row)
    ledger.take([contents(put(RKEY))])
    assert (row.over_quota_count, row.quota_edge, ledger.freed) == (0, None, {})


def test_further_slice_keeps_what_the_first_one_left():
    row = fetching(over_quota_count=3, quota_edge="3k")
    ledger_of(row).take([contents(first=False)])
    assert (row.over_quota_count, row.quota_edge) == (3, "3k")


def test_applied_fetch_makes_the_repo_whole():
    row = fetching(reason="sync")
    ledger = ledger_of(row)
    ledger.take([applied()])
    assert (row.state, row.reason, row.fetch_token) == (RepoState.ACTIVE, None, None)
    assert (row.rev, row.commit_cid, row.data_cid) == (rev(5), "commit5", "data5")
    assert (row.audited_at, row.fetch_after) == (place(9).seen_at, None)
    assert (ledger.requests, ledger.answered) == ({}, [])


def test_answered_fetch_is_crossed_out_and_the_next_one_waits():
    row = tracked_row()
    ledger = ledger_of(row)
    ledger.take([answered()])
    assert row.fetch_after == LATER
    assert ledger.answered == [Answer(row.key, RequestKind.FETCH, AT)]


def test_repo_whose_fetch_is_lifted_takes_what_waited_and_waits_again():
    row = fetching()
    ledger = ledger_of(row)
    ledger.take([FetchLifted(place(8), DID, TOKEN, RepoState.PENDING, "discovered"), commit(2)])
    assert (row.state, row.reason, row.rev, row.fetch_token) == (RepoState.PENDING, "discovered", rev(2), None)
    ledger.take([FetchBegun(place(9), DID, TOKEN)])
    assert (row.state, row.reason, row.fetch_token) == (RepoState.RESYNCING, "discovered", TOKEN)


def test_fetch_that_was_overtaken_is_not_lifted():
    row = fetching()
    ledger_of(row).take([FetchLifted(place(8), DID, OLD_TOKEN, RepoState.ACTIVE, None)])
    assert (row.state, row.fetch_token) == (RepoState.RESYNCING, TOKEN)


def test_commit_behind_an_applied_fetch_chains_on():
    row = fetching()
    ledger_of(row).take([applied(), commit(6)])
    assert (row.state, row.rev) == (RepoState.ACTIVE, rev(6))


def test_rest_after_a_fetch_never_ends_a_longer_one():
    row = fetching(fetch_after=LATER + timedelta(hours=1))
    ledger_of(row).take([applied()])
    assert row.fetch_after == LATER + timedelta(hours=1)


def test_hidden_account_whose_host_gave_its_repo_away_is_asked_about():
    ledger = ledger_of(fetching(visible=False, status="deactivated"))
    ledger.take([applied()])
    assert asked(ledger) == {"repo_status": "live_while_inactive"}


# What comes to nothing


@pytest.mark.parametrize("before", [RepoState.ACTIVE, RepoState.PENDING])
def test_chained_repo_goes_on_after_a_fetch_that_failed(before: RepoState):
    row = fetching()
    ledger = ledger_of(row)
    ledger.take([failed(before, "bad_signature")])
    assert (row.state, row.reason, row.fetch_token, row.rev) == (before, "sync", None, rev(1))
    assert counted(ledger) == {"bad_signature": "failed"}
    assert ledger.answered == [], "it is tried again"


@pytest.mark.parametrize("before", [RepoState.DESYNCHRONIZED, RepoState.ERROR])
def test_repo_that_waits_for_a_fetch_says_why_it_failed(before: RepoState):
    row = fetching()
    ledger_of(row).take([failed(before, "bad_signature")])
    assert (row.state, row.reason, row.fetch_token) == (RepoState.ERROR, "bad_signature", None)


@pytest.mark.parametrize("gate", [None, rev(1)])
def test_repo_of_which_nothing_is_known_says_why_its_fetch_failed(gate: str | None):
    row = fetching(rev=gate, data_cid=None)
    ledger_of(row).take([failed(RepoState.PENDING, "no_host")])
    assert (row.state, row.reason) == (RepoState.ERROR, "no_host")


def test_first_commit_of_a_repo_whose_fetch_failed_is_taken_behind_its_gate():
    row = fetching(data_cid=None)
    ledger_of(row).take([failed(RepoState.PENDING, "no_host"), commit(3, put(RKEY))])
    assert (row.state, row.reason, row.rev) == (RepoState.PENDING, "first_seen_in_the_middle", rev(3))


@pytest.mark.parametrize("state", [RepoState.DESYNCHRONIZED, RepoState.ERROR])
def test_first_commit_after_a_fetch_that_failed_makes_nothing_whole(state: RepoState):
    """What that fetch had begun to bring may be held already."""
    row = replace(new_row(), state=state)
    ledger = ledger_of(row)
    ledger.take([commit(1)])
    assert (row.state, row.rev) == (RepoState.PENDING, rev(1))
    assert "fetch" in asked(ledger)


@pytest.mark.parametrize("before", [state for state in RepoState if state is not RepoState.RESYNCING])
def test_repo_is_what_it_was_where_nothing_is_wrong_with_it(before: RepoState):
    row = fetching(rev=None, data_cid=None)
    ledger = ledger_of(row)
    ledger.take([failed(before, None)])
    assert (row.state, row.reason, row.fetch_token) == (before, "sync", None)
    assert ledger.tally == {}


@pytest.mark.parametrize("reason", ["bad_signature", None])
def test_repo_rests_after_a_fetch_that_failed(reason: str | None):
    row = fetching()
    ledger_of(row).take([replace(failed(RepoState.ACTIVE, reason), next_not_before=LATER)])
    assert row.fetch_after == LATER


@pytest.mark.parametrize("arrival", [contents(put(RKEY)), applied(), failed(RepoState.ACTIVE, "bad_signature")])
def test_end_of_a_fetch_that_was_overtaken_changes_nothing(arrival: ContentsFetched | FetchApplied | FetchFailed):
    row = fetching(fetch_token=OLD_TOKEN)
    ledger = ledger_of(row)
    ledger.take([arrival])
    assert (row.changed, ledger.records, ledger.answered) == (False, {}, [])
    assert counted(ledger) == {"fetch_overtaken": "ignored"}


def test_takedown_ends_the_fetch():
    row = fetching()
    ledger = ledger_of(row)
    ledger.take([TakedownOrdered(place(3), DID, None), contents(put(RKEY)), applied()])
    assert (row.state, row.reason, row.fetch_token, row.rev) == (RepoState.PENDING, "denied", None, rev(1))
    assert (ledger.records, ledger.tally) == ({}, {})


def test_takedown_of_a_record_lets_the_fetch_go_on_without_it():
    row = fetching()
    ledger = ledger_of(row)
    ledger.take([TakedownOrdered(place(3), DID, RKEY), contents(put(RKEY)), applied()])
    assert (row.state, row.rev) == (RepoState.ACTIVE, rev(5))
    assert not ledger.records[DID, PUBLIC, RKEY].present


def test_purge_ends_the_fetch_and_leaves_the_gate():
    row = fetching()
    ledger = ledger_of(row, identity(0))
    ledger.take([IdentityResolved(place(3), identity(3, tombstoned=True)), contents(put(RKEY)), applied()])
    assert (row.state, row.reason, row.fetch_token, row.rev) == (RepoState.PENDING, "emptied", None, rev(1))
    assert ledger.records == {}


def test_account_that_comes_back_while_it_is_fetched_is_not_fetched_once_more():
    row = fetching(visible=False, status="deactivated", data_cid=None)
    ledger = ledger_of(row, identity(0))
    ledger.statuses[DID] = {RELAY.url: SourceStatus(RELAY.url, SourceKind.RELAY, 1, False, "deactivated", AT)}
    ledger.show(row.key, AT)
    ledger.statuses[DID] = {}
    ledger.show(row.key, AT)
    assert (row.visible, row.state, row.fetch_token) == (True, RepoState.RESYNCING, TOKEN)
    assert [kind for _, kind in ledger.requests] == [RequestKind.IDENTITY]  # a handle may be told again


# Quotas


def test_refill_waits_a_while_so_that_nobody_is_fetched_without_end():
    row = tracked_row()
    ledger = ledger_of(row)
    ledger.request_refill(row.key, AT)
    assert row.fetch_after == AT + REFILL_INTERVAL
    assert timedelta(minutes=10) == REFILL_INTERVAL
    assert asked(ledger) == {"fetch": "quota_refill"}
