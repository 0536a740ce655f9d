from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from indexer.arrivals import (
    AccountChanged,
    CommitParked,
    FrameBroken,
    FrameIgnored,
    IdentityResolved,
    RequestAnswered,
    SourceKind,
)
from indexer.books import HASTEN_INTERVAL, Answer, RequestKind
from indexer.repo_state import RepoRow, RepoState, SourceStatus
from memory.identity import Identity
from memory.space import PUBLIC
from tests.ledgers import (
    AT,
    DID,
    PDS,
    RKEY,
    STRANGER,
    asked,
    commit,
    counted,
    identity,
    ledger_of,
    place,
    put,
    rev,
    sync,
    tracked_row,
)

# Accounts


def test_commit_while_inactive_is_ignored_remembered_and_asked_about():
    row = tracked_row(visible=False, status="deactivated")
    ledger = ledger_of(row)
    ledger.take([commit(2, put(RKEY))])
    assert (row.state, row.reason, row.rev) == (RepoState.DESYNCHRONIZED, "account_inactive", rev(1))
    assert ledger.records == {}
    assert counted(ledger) == {"account_inactive": "ignored"}
    assert asked(ledger) == {"fetch": "account_inactive", "repo_status": "live_while_inactive"}


def test_sync_while_inactive_is_evidence_too():
    row = tracked_row(visible=False, status="deactivated")
    ledger = ledger_of(row)
    ledger.take([sync(2)])
    assert asked(ledger) == {"fetch": "account_inactive", "repo_status": "live_while_inactive"}


def test_old_commit_while_inactive_is_no_evidence():
    ledger = ledger_of(tracked_row(visible=False, status="deactivated"))
    ledger.take([commit(1)])
    assert ledger.requests == {}


def test_commit_of_a_purged_repo_asks_for_its_status_and_fetches_nothing():
    row = tracked_row(visible=False, status="deleted", data_cid=None)
    ledger = ledger_of(row)
    ledger.take([commit(2, put(RKEY))])
    assert (row.state, ledger.records) == (RepoState.ACTIVE, {})
    assert asked(ledger) == {"repo_status": "live_while_inactive"}


def test_account_event_of_an_older_seq_changes_nothing():
    row = tracked_row()
    ledger = ledger_of(row)
    ledger.take([AccountChanged(place(7), DID, True, None), AccountChanged(place(6), DID, False, "deactivated")])
    assert row.visible
    assert counted(ledger) == {"already_applied": "already_applied"}


def test_deleted_account_is_hidden_and_its_deletion_asked_about():
    row = tracked_row()
    ledger = ledger_of(row)
    ledger.take([AccountChanged(place(7), DID, False, "deleted")])
    assert (row.visible, row.status, ledger.purged) == (False, "deleted", set())
    assert asked(ledger) == {"confirm_deletion": "deleted"}


def test_deletion_that_a_tombstone_has_confirmed_is_not_asked_about():
    ledger = ledger_of(tracked_row(visible=False, status="deleted", data_cid=None))
    ledger.take([AccountChanged(place(7), DID, False, "deleted")])
    assert ledger.requests == {}


def test_word_on_an_account_whose_first_commit_is_parked_is_kept_for_when_it_is_tracked():
    ledger = ledger_of(None)
    ledger.take([AccountChanged(place(7), DID, False, "deactivated")])
    assert [word.status for word in ledger.changed_statuses.values()] == ["deactivated"]
    assert ledger.requests == {}


def test_tombstone_purges_at_once_and_wants_nothing_more():
    row = tracked_row(memory_count=3, over_quota_count=2, quota_edge=RKEY)
    ledger = ledger_of(row, identity(0))
    ledger.take([commit(2, put(RKEY)), commit(4), CommitParked(place(5), DID, rev(5), b"frame", "key_unknown")])
    ledger.take([IdentityResolved(place(6), identity(6, tombstoned=True))])
    assert ledger.purged == {row.key}
    assert (row.visible, row.status, row.purged, row.memory_count) == (False, "deleted", True, 0)
    assert (row.over_quota_count, row.quota_edge) == (0, None)
    assert (ledger.records, ledger.requests, ledger.parked) == ({}, {}, [])
    assert set(ledger.answered) == {Answer(row.key, kind, None) for kind in RequestKind}


def test_account_that_comes_back_after_a_purge_is_fetched_whole():
    row = tracked_row(visible=False, status="deleted", data_cid=None)
    ledger = ledger_of(row, identity(0, tombstoned=True))
    ledger.take([IdentityResolved(place(6), identity(6))])
    assert (row.visible, row.state, row.reason) == (True, RepoState.PENDING, "account_came_back")
    assert asked(ledger)["fetch"] == "account_came_back"


def test_account_that_is_only_shown_again_is_not_fetched_and_its_handle_is_looked_up():
    row = tracked_row(visible=False, status="deactivated")
    ledger = ledger_of(row)
    ledger.take([AccountChanged(place(7), DID, True, None)])
    assert (row.visible, row.state) == (True, RepoState.ACTIVE)
    assert asked(ledger) == {"identity": "account_came_back"}


def test_account_of_which_a_relay_says_active_while_another_word_hides_it_is_asked_about():
    row = tracked_row(visible=False, status="deactivated", host=PDS.url)
    ledger = ledger_of(row, identity(0))
    ledger.statuses[DID] = {PDS.url: SourceStatus(PDS.url, SourceKind.PDS, 0, False, "deactivated", AT)}
    ledger.take([AccountChanged(place(7), DID, True, None)])
    assert not row.visible
    assert asked(ledger) == {"repo_status": "live_while_inactive"}


def test_account_that_everybody_says_is_active_is_not_asked_about():
    ledger = ledger_of(tracked_row(), identity(0))
    ledger.take([AccountChanged(place(7), DID, True, None)])
    assert ledger.requests == {}


def test_account_that_is_shown_again_before_it_is_whole_is_fetched_without_further_wait():
    row = tracked_row(visible=False, status="deactivated", state=RepoState.ERROR, reason="sync")
    ledger = ledger_of(row)
    ledger.take([AccountChanged(place(7), DID, True, None)])
    request = ledger.requests[row.key, RequestKind.FETCH]
    assert (request.reason, request.urgent) == ("sync", True)
    assert row.state is RepoState.ERROR


def test_account_that_is_switched_on_again_and_again_is_hastened_once_in_a_while():
    row = tracked_row(state=RepoState.ERROR, reason="sync")
    hastened: list[bool] = []
    for number, after in enumerate((timedelta(0), HASTEN_INTERVAL - timedelta(seconds=1), HASTEN_INTERVAL)):
        ledger = ledger_of(row)
        at = replace(place(7 + number), seen_at=AT + after)
        row.show(visible=False, status="deactivated", at=AT)
        ledger.take([AccountChanged(at, DID, True, None)])
        hastened.append(ledger.requests[row.key, RequestKind.FETCH].urgent)
    assert hastened == [True, False, True]


def test_denied_repo_that_is_shown_again_stays_denied():
    row = tracked_row(visible=False, state=RepoState.PENDING, reason="denied", data_cid=None)
    ledger = ledger_of(row)
    ledger.denied = {(DID, PUBLIC, None)}
    ledger.take([AccountChanged(place(7), DID, True, None)])
    assert (row.visible, row.state, row.reason, ledger.requests) == (True, RepoState.PENDING, "denied", {})


def acted_upon(known: Identity) -> RepoRow:
    """A repo whose author was last seen as `known`."""
    return tracked_row(host=known.host, signing_key=known.signing_key)


def test_identity_that_somebody_else_stored_is_acted_upon():
    ledger = ledger_of(acted_upon(identity(0)), identity(6, host="https://new.test"))
    ledger.take([IdentityResolved(place(7), identity(6, host="https://new.test"))])
    assert asked(ledger) == {"latest_commit": "identity_changed"}
    assert ledger.changed_identities == set()


def test_first_identity_of_a_repo_asks_nothing():
    row = tracked_row()
    ledger = ledger_of(row)
    ledger.take([IdentityResolved(place(6), identity(6))])
    assert (row.host, row.signing_key) == (identity(6).host, identity(6).signing_key)
    assert ledger.requests == {}


def test_identity_of_a_repo_of_which_nothing_is_held_asks_nothing():
    """A discovery told its host: the fetch that it waits for compares all there is."""
    row = tracked_row(host=identity(0).host, rev=None, commit_cid=None, data_cid=None, state=RepoState.PENDING)
    ledger = ledger_of(row)
    ledger.take([IdentityResolved(place(6), identity(6))])
    assert row.signing_key == identity(6).signing_key
    assert ledger.requests == {}


@pytest.mark.parametrize("changes", [{"host": "https://new.test"}, {"signing_key": "did:key:z2"}])
def test_identity_with_another_key_or_host_asks_for_the_latest_commit(changes: dict[str, Any]):
    ledger = ledger_of(acted_upon(identity(0)), identity(0))
    ledger.take([IdentityResolved(place(6), identity(6, **changes))])
    assert asked(ledger) == {"latest_commit": "identity_changed"}


def test_identity_with_another_handle_asks_nothing():
    ledger = ledger_of(acted_upon(identity(0)), identity(0))
    ledger.take([IdentityResolved(place(6), identity(6, handle="renamed.test"))])
    assert (ledger.requests, ledger.changed_identities) == ({}, {DID})


@pytest.mark.parametrize("number", [0, 5])
def test_older_document_never_replaces_a_newer(number: int):
    ledger = ledger_of(acted_upon(identity(5)), identity(5))
    ledger.take([IdentityResolved(place(6), identity(number, host="https://new.test", tombstoned=True))])
    assert (ledger.requests, ledger.changed_identities, ledger.purged) == ({}, set(), set())


# What waits, and what is no event


def test_parked_commit_is_kept_for_later():
    ledger = ledger_of(None)
    parked = CommitParked(place(2), STRANGER, rev(2), b"frame", "key_unknown")
    ledger.take([parked])
    assert (ledger.parked, ledger.requests) == ([parked], {})
    ledger.park(parked)
    assert counted(ledger) == {"key_unknown": "parked"}
    assert asked(ledger) == {"identity": "key_unknown"}


@pytest.mark.parametrize("number", [0, 1])
def test_commit_that_is_behind_the_gate_is_not_parked(number: int):
    ledger = ledger_of(tracked_row())
    ledger.take([CommitParked(place(2), DID, rev(number), b"frame", "key_unknown")])
    assert ledger.parked == []
    assert counted(ledger) == {"already_applied": "already_applied"}


def test_overflow_desynchronizes_a_tracked_repo():
    row = tracked_row()
    ledger = ledger_of(row)
    ledger.overflow(CommitParked(place(2), DID, rev(2), b"frame", "key_unknown"))
    assert (row.state, row.reason) == (RepoState.DESYNCHRONIZED, "parked_overflow")
    assert asked(ledger) == {"fetch": "parked_overflow"}


def test_overflow_of_a_stranger_is_only_counted():
    ledger = ledger_of(None)
    ledger.overflow(CommitParked(place(2), STRANGER, rev(2), b"frame", "key_unknown"))
    assert counted(ledger) == {"parked_overflow": "ignored"}
    assert ledger.requests == {}


def test_answered_request_is_crossed_out():
    ledger = ledger_of(tracked_row())
    ledger.take([RequestAnswered(place(2), DID, "repo_status")])
    assert ledger.answered == [Answer((DID, PUBLIC), "repo_status", None)]


def test_ignored_and_broken_frames_are_counted():
    ledger = ledger_of(None)
    broken = FrameBroken(place(2), b"junk", "broken_frame")
    ledger.take([FrameIgnored(place(2), "unknown_type"), broken, broken])
    assert ledger.broken == [broken, broken]
    assert {reason: times for (_, reason, _), times in ledger.tally.items()} == {"unknown_type": 1, "broken_frame": 2}
