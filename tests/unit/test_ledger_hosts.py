from __future__ import annotations

from typing import Any

import pytest

from indexer.arrivals import (
    AccountAsked,
    AccountChanged,
    DeletionConfirmed,
    HeadCompared,
    IdentityResolved,
    RequestAnswered,
)
from indexer.books import Answer, RequestKind
from indexer.ledger import Ledger
from indexer.repo_state import RepoRow, RepoState
from memory.space import PUBLIC
from tests.ledgers import (
    AT,
    DID,
    PDS,
    RELAY,
    STRANGER,
    asked,
    commit,
    identity,
    ledger_of,
    new_row,
    place,
    put,
    rev,
    tracked_row,
)


def compared(number: int, commit_cid: str = "") -> HeadCompared:
    return HeadCompared(place(9), DID, rev(number), commit_cid or f"commit{number}", asked_at=AT)


def told(active: bool, status: str | None = None, host: str = PDS.url) -> AccountAsked:
    """A host's own word."""
    return AccountAsked(place(9), DID, host, active, status)


def relayed(seq: int, active: bool, status: str | None = None) -> AccountChanged:
    return AccountChanged(place(seq), DID, active, status)


def hosted(**changes: Any) -> tuple[RepoRow, Ledger]:
    """A repo of an account at PDS, and its ledger."""
    row = tracked_row(host=PDS.url, signing_key="did:key:z1", **changes)
    return row, ledger_of(row, identity(0))


# Where hosts say that a repo stands


@pytest.mark.parametrize("number", [0, 1])
def test_host_that_has_no_more_than_is_held_asks_for_nothing(number: int):
    row = tracked_row()
    ledger = ledger_of(row)
    ledger.take([compared(number)])
    assert (row.state, row.audited_at, ledger.requests) == (RepoState.ACTIVE, place(9).seen_at, {})
    assert ledger.answered == [Answer(row.key, RequestKind.LATEST_COMMIT, AT)]


@pytest.mark.parametrize("before", [RepoState.ACTIVE, RepoState.PENDING])
def test_repo_behind_its_host_is_fetched(before: RepoState):
    row = tracked_row(state=before)
    ledger = ledger_of(row)
    ledger.take([compared(2)])
    assert (row.state, row.reason) == (RepoState.DESYNCHRONIZED, "behind_host")
    assert asked(ledger) == {"fetch": "behind_host"}
    assert row.audited_at == place(9).seen_at, "else it would be asked again at once"


def test_repo_at_another_commit_of_the_same_rev_is_fetched():
    row = tracked_row()
    ledger = ledger_of(row)
    ledger.take([compared(1, "other")])
    assert (row.state, row.reason) == (RepoState.DESYNCHRONIZED, "rev_conflict")


@pytest.mark.parametrize("state", [RepoState.DESYNCHRONIZED, RepoState.ERROR])
def test_first_reason_of_a_repo_that_waits_for_a_fetch_stays(state: RepoState):
    row = tracked_row(state=state, reason="inversion")
    ledger = ledger_of(row)
    ledger.take([compared(2)])
    assert (row.state, row.reason) == (state, "inversion")
    assert asked(ledger) == {"fetch": "inversion"}


def test_repo_behind_its_host_during_a_fetch_is_fetched_again():
    row = tracked_row(state=RepoState.RESYNCING)
    ledger = ledger_of(row)
    ledger.take([compared(2)])
    assert row.state is RepoState.RESYNCING
    assert asked(ledger) == {"fetch": "behind_host"}


def test_repo_of_which_nothing_is_known_is_fetched():
    row = new_row()
    ledger = ledger_of(row)
    ledger.take([compared(2)])
    assert row.state is RepoState.PENDING
    assert asked(ledger) == {"fetch": "behind_host"}


def test_hidden_account_whose_host_tells_of_it_is_asked_about_and_compared_all_the_same():
    row = tracked_row(visible=False, status="takendown")
    ledger = ledger_of(row)
    ledger.take([compared(1)])
    assert (row.state, asked(ledger)) == (RepoState.ACTIVE, {"repo_status": "live_while_inactive"})
    ledger.take([compared(2)])
    assert asked(ledger) == {"repo_status": "live_while_inactive", "fetch": "behind_host"}


def test_purged_account_whose_host_tells_of_it_is_asked_about_and_not_fetched_yet():
    ledger = ledger_of(tracked_row(visible=False, status="deleted", data_cid=None))
    ledger.take([compared(2)])
    assert asked(ledger) == {"repo_status": "live_while_inactive"}


def test_answer_about_a_denied_repo_is_crossed_out_and_changes_nothing():
    row = tracked_row(data_cid=None, state=RepoState.PENDING, reason="denied")
    ledger = ledger_of(row)
    ledger.denied = {(DID, PUBLIC, None)}
    ledger.take([compared(2)])
    assert (row.changed, ledger.requests) == (False, {})
    assert ledger.answered == [Answer(row.key, RequestKind.LATEST_COMMIT, AT)]


# What hosts say of accounts


def test_host_that_serves_an_account_no_more_hides_it():
    row, ledger = hosted()
    ledger.take([told(False, "takendown")])
    assert (row.visible, row.status, ledger.requests) == (False, "takendown", {})


def test_repo_whose_host_does_not_serve_it_has_been_compared_too():
    row, ledger = hosted()
    ledger.take([told(False, "takendown"), RequestAnswered(place(9), DID, RequestKind.LATEST_COMMIT, AT)])
    assert row.audited_at == place(9).seen_at, "it need not be asked again at once"


def test_other_answers_compare_nothing():
    row, ledger = hosted()
    ledger.take([told(True), RequestAnswered(place(9), DID, RequestKind.REPO_STATUS, AT)])
    assert row.audited_at is None


def test_word_of_a_host_that_the_account_has_left_hides_nothing():
    row, ledger = hosted()
    ledger.take([told(False, "deactivated", "https://old.test")])
    assert row.visible


def test_account_that_its_host_has_no_more_is_hidden_and_its_deletion_asked_about():
    row, ledger = hosted()
    ledger.take([told(False, "deleted")])
    assert (row.visible, row.status, row.purged) == (False, "deleted", False)
    assert asked(ledger) == {"confirm_deletion": "deleted"}


def test_purged_account_that_its_host_still_has_no_more_is_not_asked_about():
    _, ledger = hosted(visible=False, status="deleted", data_cid=None)
    ledger.take([told(False, "deleted")])
    assert ledger.requests == {}


@pytest.mark.parametrize("status", ["deactivated", "deleted"])
def test_host_lifts_what_the_account_did_to_itself_whoever_passed_it_on(status: str):
    row, ledger = hosted()
    ledger.take([relayed(5, False, status)])
    assert not row.visible
    ledger.take([told(True)])
    assert (row.visible, row.status) == (True, None)
    assert ledger.changed_statuses[DID, RELAY.url].active


@pytest.mark.parametrize("status", ["takendown", "suspended", None])
def test_host_does_not_lift_what_a_relay_did(status: str | None):
    row, ledger = hosted()
    ledger.take([relayed(5, False, status), told(True)])
    assert not row.visible


def test_later_word_of_a_relay_counts_over_what_a_host_lifted():
    row, ledger = hosted()
    ledger.take([relayed(5, False, "deactivated"), told(True), relayed(5, False, "deactivated")])
    assert row.visible, "the same word once more"
    ledger.take([relayed(6, False, "deactivated")])
    assert not row.visible


def test_later_word_of_the_stream_of_a_host_counts_over_its_answer():
    row, ledger = hosted()
    ledger.take([AccountChanged(place(5, PDS), DID, True, None), told(False, "deactivated")])
    assert not row.visible
    ledger.take([AccountChanged(place(6, PDS), DID, True, None)])
    assert row.visible


def test_purged_account_that_its_host_serves_again_is_fetched_whole():
    row, ledger = hosted(data_cid=None)
    ledger.take([told(False, "deleted"), told(True)])
    assert (row.state, row.reason) == (RepoState.PENDING, "account_came_back")
    assert asked(ledger)["fetch"] == "account_came_back"


def test_answer_about_an_account_that_is_not_tracked_means_nothing():
    ledger = ledger_of(None)
    ledger.take([told(False, "deleted"), DeletionConfirmed(place(9), STRANGER, PDS.url)])
    assert (ledger.requests, ledger.changed_statuses, ledger.purged) == ({}, {}, set())


# Deletions


def test_confirmed_deletion_purges_and_keeps_the_gate():
    row, ledger = hosted(memory_count=3)
    ledger.take([told(False, "deleted"), DeletionConfirmed(place(9), DID, PDS.url)])
    assert ledger.purged == {row.key}
    assert (row.purged, row.rev, row.memory_count, ledger.requests) == (True, rev(1), 0, {})
    assert set(ledger.answered) == {Answer(row.key, kind, None) for kind in RequestKind}


def test_confirmed_deletion_counts_whatever_word_hides_the_account():
    row, ledger = hosted()
    ledger.take([relayed(5, False, "deactivated"), told(False, "deleted"), DeletionConfirmed(place(9), DID, PDS.url)])
    assert row.purged


def test_deletion_at_a_host_that_the_account_has_left_purges_nothing():
    row, ledger = hosted()
    ledger.take([IdentityResolved(place(8), identity(8, host="https://new.test"))])
    ledger.take([told(False, "deleted"), DeletionConfirmed(place(9), DID, PDS.url)])
    assert (row.visible, row.purged) == (True, False)


def test_late_commit_of_a_purged_account_resurrects_nothing():
    row, ledger = hosted()
    ledger.take([told(False, "deleted"), DeletionConfirmed(place(9), DID, PDS.url), commit(1, put("3kaaaaaaaaa2a"))])
    assert (row.purged, ledger.records) == (True, {})
