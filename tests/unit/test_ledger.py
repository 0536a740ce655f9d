from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from indexer.arrivals import Arrival, CommitRefused, RepoCutOff
from indexer.books import LATEST_COMMIT_INTERVAL
from indexer.interpret import MemoryOp
from indexer.repo_state import RepoRow, RepoState
from indexer.verify.reasons import Fault
from memory.space import PUBLIC
from tests.builders import tid
from tests.ledgers import (
    AT,
    DID,
    RKEY,
    STRANGER,
    asked,
    commit,
    counted,
    ledger_of,
    new_row,
    place,
    put,
    rev,
    sync,
    tracked_row,
)


def state_after(row: RepoRow, arrivals: Iterable[Arrival]) -> tuple[RepoState, str | None]:
    ledger_of(row).take(arrivals)
    return row.state, row.reason


# First sight


def test_first_commit_from_an_empty_repo_makes_it_complete():
    row = new_row()
    ledger = ledger_of(row)
    ledger.take([commit(1)])
    assert (row.state, row.rev, row.data_cid) == (RepoState.ACTIVE, rev(1), "data1")
    assert asked(ledger) == {"repo_status": "first_sight"}


def test_first_commit_from_the_middle_waits_for_the_rest():
    row = new_row()
    ledger = ledger_of(row)
    ledger.take([commit(5, put(RKEY))])
    assert (row.state, row.reason, row.rev) == (RepoState.PENDING, "first_seen_in_the_middle", rev(5))
    assert asked(ledger) == {"repo_status": "first_sight", "fetch": "first_seen_in_the_middle"}
    assert ledger.records[DID, PUBLIC, RKEY].present, "its ops are indexed at once"


def test_pending_repo_chains_on_and_stays_pending():
    row = new_row()
    ledger_of(row).take([commit(5), commit(6), commit(7)])
    assert (row.state, row.rev) == (RepoState.PENDING, rev(7))


def test_first_commit_that_is_inconsistent_applies_nothing():
    row = new_row()
    ledger = ledger_of(row)
    ledger.take([commit(1, fault=Fault.INVERSION)])
    assert (row.state, row.reason, row.rev) == (RepoState.DESYNCHRONIZED, "inversion", None)


def test_several_commits_of_a_repo_that_is_first_seen_are_one_chain():
    row = new_row()
    ledger = ledger_of(row)
    ledger.take([commit(1, put(RKEY)), commit(2, put("3kaaaaaaaab2a")), commit(3, MemoryOp(RKEY, None))])
    assert (row.state, row.rev) == (RepoState.ACTIVE, rev(3))
    assert {key[2] for key, state in ledger.records.items() if state.present} == {"3kaaaaaaaab2a"}


def test_commit_of_a_repo_without_a_row_is_ignored():
    ledger = ledger_of(None)
    ledger.take([commit(1)])
    assert counted(ledger) == {"untracked": "ignored"}


# The chain


def test_next_commit_is_applied():
    row = tracked_row()
    ledger = ledger_of(row)
    ledger.take([commit(2)])
    assert (row.rev, row.commit_cid, row.data_cid) == (rev(2), "commit2", "data2")
    assert counted(ledger) == {"accepted": "accepted"}


@pytest.mark.parametrize("number", [0, 1])
def test_rev_that_is_not_greater_changes_nothing(number: int):
    row = tracked_row()
    ledger = ledger_of(row)
    ledger.take([commit(number, put(RKEY))])
    assert (row.changed, ledger.records) == (False, {})
    assert counted(ledger) == {"already_applied": "already_applied"}


def test_same_rev_with_another_commit_desynchronizes():
    assert state_after(tracked_row(), [commit(1, commit_cid="other")]) == (RepoState.DESYNCHRONIZED, "rev_conflict")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"since": rev(0)}, "since_mismatch"),
        ({"prev_data": None}, "prev_data_absent"),
        ({"prev_data": "other"}, "prev_data_mismatch"),
        ({"fault": Fault.RECORD_MISSING}, "record_missing"),
        ({"fault": Fault.REV_IN_FUTURE}, "rev_in_future"),
    ],
)
def test_signed_commit_that_does_not_fit_desynchronizes(changes: dict[str, Any], reason: str):
    row = tracked_row()
    ledger = ledger_of(row)
    ledger.take([commit(2, put(RKEY), **changes)])
    assert (row.state, row.reason, row.rev) == (RepoState.DESYNCHRONIZED, reason, rev(1))
    assert ledger.records == {}
    assert counted(ledger) == {reason: "desynchronized"}
    assert asked(ledger) == {"fetch": reason}


@pytest.mark.parametrize("state", [RepoState.DESYNCHRONIZED, RepoState.ERROR])
def test_nothing_is_applied_before_the_fetch(state: RepoState):
    row = tracked_row(state=state, reason="sync")
    ledger = ledger_of(row)
    ledger.take([commit(2, put(RKEY))])
    assert (row.rev, ledger.records) == (rev(1), {})
    assert counted(ledger) == {"awaiting_resync": "ignored"}


def test_reason_of_a_desynchronized_repo_is_the_first_one():
    row = tracked_row()
    ledger_of(row).take([commit(2, fault=Fault.INVERSION), commit(3), commit(4, fault=Fault.BAD_OP)])
    assert (row.state, row.reason) == (RepoState.DESYNCHRONIZED, "inversion")


def test_refused_commit_changes_nobody_and_asks_where_the_repo_stands():
    row = tracked_row()
    ledger = ledger_of(row)
    ledger.take([CommitRefused(place(2), DID, "bad_signature")])
    assert row == tracked_row(latest_asked_at=place(2).seen_at, changed=True)
    assert counted(ledger) == {"bad_signature": "unattributable"}
    assert asked(ledger) == {"latest_commit": "bad_signature"}


@pytest.mark.parametrize(
    ("since", "asks"), [(LATEST_COMMIT_INTERVAL - timedelta(seconds=1), False), (LATEST_COMMIT_INTERVAL, True)]
)
def test_forger_makes_us_ask_at_most_once_an_hour_also_after_it_was_answered(since: timedelta, asks: bool):
    row = tracked_row(latest_asked_at=place(2).seen_at - since)
    ledger = ledger_of(row)
    ledger.take([CommitRefused(place(2), DID, "bad_signature")])
    assert bool(ledger.requests) == row.changed == asks
    assert timedelta(hours=1) == LATEST_COMMIT_INTERVAL


def test_lane_that_was_cut_off_is_told_of_like_a_forgery():
    row = tracked_row()
    ledger = ledger_of(row)
    ledger.take([RepoCutOff(place(2), DID), CommitRefused(place(3), DID, "bad_signature")])
    assert row.state is RepoState.ACTIVE
    assert asked(ledger) == {"latest_commit": "lane_full"}


def test_refused_commit_of_a_stranger_asks_nothing():
    ledger = ledger_of(tracked_row())
    ledger.take([CommitRefused(place(2), STRANGER, "bad_signature")])
    assert ledger.requests == {}


# Syncs


@pytest.mark.parametrize(
    "changes",
    [
        {"commit_cid": "commit1", "rev": rev(9), "refusal": "rev_mismatch"},  # after a move
        {"rev": rev(1), "refusal": "bad_signature"},
        {"rev": rev(0)},
        {"data_cid": "data1", "refusal": "bad_signature"},
    ],
)
def test_sync_to_what_is_held_is_a_no_op(changes: dict[str, Any]):
    row = tracked_row()
    ledger = ledger_of(row)
    ledger.take([sync(2, **changes)])
    assert not row.changed
    assert counted(ledger) == {"already_applied": "already_applied"}
    assert ledger.requests == {}


def test_sync_that_signs_the_same_contents_anew_moves_the_gate():
    row = tracked_row()
    ledger = ledger_of(row)
    ledger.take([sync(2, data_cid="data1"), commit(3, prev_data="data1")])
    assert (row.state, row.rev) == (RepoState.ACTIVE, rev(3))


@pytest.mark.parametrize("far", ["latest", tid(AT + timedelta(days=400))])
def test_sync_never_moves_the_gate_beyond_now(far: str):
    row = tracked_row()
    ledger = ledger_of(row)
    ledger.take([sync(2, rev=far, data_cid="data1"), commit(2)])
    assert (row.state, row.rev) == (RepoState.ACTIVE, rev(2))


def test_proven_sync_to_other_contents_waits_for_a_fetch():
    row = tracked_row()
    ledger = ledger_of(row)
    ledger.take([sync(2)])
    assert (row.state, row.reason, row.rev) == (RepoState.DESYNCHRONIZED, "sync", rev(1))
    assert counted(ledger) == {"sync": "desynchronized"}
    assert asked(ledger) == {"fetch": "sync"}


@pytest.mark.parametrize("reason", ["bad_signature", "rev_mismatch", "malformed_car"])
def test_unproven_sync_to_other_contents_changes_nobody(reason: str):
    row = tracked_row()
    ledger = ledger_of(row)
    ledger.take([sync(2, refusal=reason)])
    assert row == tracked_row(latest_asked_at=place(2).seen_at, changed=True)
    assert counted(ledger) == {reason: "unattributable"}
    assert asked(ledger) == {"latest_commit": reason}


def test_sync_of_an_untracked_repo_means_nothing():
    ledger = ledger_of(None)
    ledger.take([sync(2)])
    assert (ledger.tally, ledger.requests) == ({}, {})


def test_sync_without_a_commit_is_not_taken_for_the_one_of_a_new_repo():
    row = new_row()
    ledger = ledger_of(row)
    ledger.take([sync(2, commit_cid=None, data_cid=None, refusal="malformed_car")])
    assert counted(ledger) == {"malformed_car": "unattributable"}
