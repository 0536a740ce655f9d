from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from indexer.arrivals import SourceKind
from indexer.repo_state import RepoRow, RepoState, SourceStatus, visibility

DID = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
AT = datetime(2026, 11, 1, tzinfo=UTC)
LATER = AT + timedelta(minutes=1)
HOST, OLD_HOST = "https://pds.test", "https://old.test"


def row() -> RepoRow:
    return RepoRow(
        repo=DID,
        space="",
        state=RepoState.ACTIVE,
        reason=None,
        rev="3kaaaaaaaaa2a",
        commit_cid="commit",
        data_cid="data",
        visible=True,
        status=None,
        memory_count=1,
        memory_bytes=2,
        edge_count=3,
        over_quota_count=4,
        quota_edge="3kaaaaaaaab2a",
        host=None,
        signing_key=None,
        tracked_at=AT,
        changed_at=AT,
    )


def relay(status: str | None, *, active: bool = False, url: str = "https://relay.test") -> SourceStatus:
    return SourceStatus(url, SourceKind.RELAY, 1, active, status, AT)


def pds(status: str | None, *, active: bool = False, url: str = HOST) -> SourceStatus:
    return SourceStatus(url, SourceKind.PDS, 1, active, status, AT)


def test_account_of_which_nothing_was_said_is_served():
    assert visibility([], HOST, tombstoned=False) == (True, None)


@pytest.mark.parametrize("status", ["deactivated", "suspended", "takendown", "deleted", "somethingNew"])
def test_inactive_account_is_hidden_under_its_status(status: str):
    assert visibility([relay(status)], HOST, tombstoned=False) == (False, status)


def test_inactive_account_without_a_status_is_hidden():
    assert visibility([relay(None)], HOST, tombstoned=False) == (False, "inactive")


@pytest.mark.parametrize("status", ["throttled", "desynchronized", None])
def test_active_account_is_served_whatever_its_status(status: str | None):
    assert visibility([relay(status, active=True)], HOST, tombstoned=False) == (True, status)


def test_relays_takedown_hides_what_the_host_calls_active():
    words = [pds(None, active=True), relay("takendown")]
    assert visibility(words, HOST, tombstoned=False) == (False, "takendown")


def test_one_relays_takedown_hides_what_another_serves():
    words = [relay(None, active=True), relay("takendown", url="https://other.test")]
    assert visibility(words, HOST, tombstoned=False) == (False, "takendown")


def test_word_of_the_host_that_the_document_names_counts():
    assert visibility([pds("deactivated")], HOST, tombstoned=False) == (False, "deactivated")


def test_word_of_another_host_does_not_count():
    assert visibility([pds("deactivated", url=OLD_HOST)], HOST, tombstoned=False) == (True, None)


def test_status_that_another_host_gives_explains_nothing():
    assert visibility([pds("throttled", active=True, url=OLD_HOST)], HOST, tombstoned=False) == (True, None)


def test_any_hosts_word_counts_while_the_document_is_unknown():
    assert visibility([pds("deactivated", url=OLD_HOST)], None, tombstoned=False) == (False, "deactivated")


def test_tombstone_hides_whatever_sources_say():
    assert visibility([relay(None, active=True)], HOST, tombstoned=True) == (False, "deleted")


def test_order_of_the_words_decides_nothing():
    words = [relay("takendown", url="https://b.test"), relay("suspended", url="https://a.test")]
    assert visibility(words, HOST, tombstoned=False) == visibility(words[::-1], HOST, tombstoned=False)


def test_state_that_is_entered_again_is_no_change():
    repo = row()
    repo.enter(RepoState.ACTIVE, None, LATER)
    repo.show(visible=True, status=None, at=LATER)
    assert (repo.changed, repo.changed_at) == (False, AT)


def test_new_state_is_a_change():
    repo = row()
    repo.enter(RepoState.DESYNCHRONIZED, "sync", LATER)
    assert (repo.state, repo.reason, repo.changed, repo.changed_at) == ("desynchronized", "sync", True, LATER)


def test_purge_leaves_the_rev_gate_only():
    repo = row()
    repo.emptied(LATER)
    assert (repo.rev, repo.commit_cid, repo.data_cid) == ("3kaaaaaaaaa2a", "commit", None)
    assert (repo.usage, repo.over_quota_count, repo.quota_edge) == ((0, 0, 0), 0, None)
    assert repo.purged
    assert repo.changed


def test_repo_of_which_nothing_was_applied_is_not_purged():
    repo = row()
    repo.rev = repo.commit_cid = repo.data_cid = None
    assert not repo.purged


def test_count_of_what_is_over_quota_never_falls_below_zero():
    repo = row()
    repo.count(over_quota=-9)
    assert repo.over_quota_count == 0


def test_quota_edge_goes_when_none_is_over_quota():
    repo = row()
    repo.count(over_quota=-3)
    assert repo.quota_edge == "3kaaaaaaaab2a"
    repo.count(over_quota=-1)
    assert repo.quota_edge is None
