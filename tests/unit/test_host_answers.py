from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.resync.answers import (
    MAX_CURSOR_CHARS,
    MAX_PAGE_REPOS,
    AccountStatus,
    LatestCommit,
    ListedRepo,
    Refused,
    RefusedReason,
    RepoPage,
    judge_refusal,
    read_collections,
    read_latest_commit,
    read_page,
    read_status,
)
from memory.errors import Rejected
from memory.outbound_errors import HostRefused

HOST = "https://pds.example"
DID = "did:plc:ragtjsm2j2vknwkz3zp4oxrd"
OTHER = "did:web:other.example"
CID = "bafyreiel3gstmiyvi5j7ymc3g6flagwrnzzy76fu55vras6jlpvo3dayty"
REV = "3n3izox6oac2a"
SECRET = "Mandarin"

NO_JSON = [b"", b"{", b"<html>Mandarin</html>", b"\xff", b"[]", b"null", b'"Mandarin"', b"[" * 100_000]


def encoded(said: Any) -> bytes:
    return json.dumps(said).encode()


def refused(status: int, error: str | None = None, location: str | None = None) -> AccountStatus | Refused:
    return judge_refusal(HostRefused(HOST, status, error=error, location=location))


def unreadable(read: Any, *arguments: Any) -> None:
    with pytest.raises(Refused) as caught:
        read(HOST, *arguments)
    assert caught.value.reason == "unreadable_answer"
    assert caught.value.host == HOST
    assert SECRET not in str(caught.value)
    assert SECRET not in str(caught.value.context)
    assert caught.value.__cause__ is None


# Refusals


@pytest.mark.parametrize("http_status", [400, 403, 404, 410])
@pytest.mark.parametrize(
    ("error", "status"),
    [
        ("RepoNotFound", "deleted"),
        ("RepoTakendown", "takendown"),
        ("RepoSuspended", "suspended"),
        ("RepoDeactivated", "deactivated"),
    ],
)
def test_refusal_that_names_why_a_repo_is_not_served_is_its_status(http_status: int, error: str, status: str):
    assert refused(http_status, error) == AccountStatus(active=False, status=status)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 410, 501])
@pytest.mark.parametrize("error", [None, "InvalidRequest", "MethodNotImplemented", "repoNotFound", "AuthMissing"])
def test_any_other_refusal_says_nothing_of_the_account(status: int, error: str | None):
    judged = refused(status, error)
    assert isinstance(judged, Refused)
    assert (judged.reason, judged.host) == ("host_refused", HOST)
    assert judged.bad_request == (status == 400)


def test_server_that_cannot_do_what_it_is_asked_says_nothing_of_the_account():
    assert isinstance(refused(501, "RepoNotFound"), Refused)


@pytest.mark.parametrize("status", [300, 301, 302, 303, 307, 308])
def test_redirect_is_not_followed_whatever_it_says(status: int):
    judged = refused(status, "RepoNotFound", "https://elsewhere.example/")
    assert isinstance(judged, Refused)
    assert judged.reason == "redirected"


def test_every_reason_is_one_that_a_repo_in_error_can_show():
    for reason in RefusedReason:
        assert isinstance(Refused(HOST, reason), Rejected)
        assert reason != Rejected.reason


# getRepoStatus


def status_of(**said: Any) -> AccountStatus:
    return read_status(HOST, DID, encoded({"did": DID, **said}))


def test_active_account_is_told():
    assert status_of(active=True, rev=REV) == AccountStatus(active=True)


@pytest.mark.parametrize(
    "status", ["deactivated", "takendown", "desynchronized", "throttled", "some-new-word", "a" * 64]
)
@pytest.mark.parametrize("active", [True, False])
def test_word_of_a_status_is_kept_also_where_it_is_a_new_one(active: bool, status: str):
    assert status_of(active=active, status=status) == AccountStatus(active, status)


@pytest.mark.parametrize(
    "status", ["", "a" * 65, "Deactivated", "a b", "a\n", "ä", "a_b", 1, None, ["deactivated"], {}]
)
def test_status_that_is_no_word_is_none(status: Any):
    assert status_of(active=False, status=status) == AccountStatus(active=False)


def test_unknown_fields_of_an_answer_are_passed_over():
    assert status_of(active=True, **{"$type": "x", "hosts": [1]}) == AccountStatus(active=True)


@pytest.mark.parametrize(
    "said",
    [
        {"did": DID},
        {"did": DID, "active": "true"},
        {"did": DID, "active": 1},
        {"did": DID, "active": None},
        {"active": True},
        {"did": 1, "active": True},
        {"did": "Mandarin", "active": True},
    ],
)
def test_status_without_what_decides_is_unreadable(said: Any):
    unreadable(read_status, DID, encoded(said))


def test_status_of_another_account_is_unreadable():
    unreadable(read_status, DID, encoded({"did": OTHER, "active": False, "status": "takendown"}))


@pytest.mark.parametrize("answer", NO_JSON)
def test_status_that_is_no_object_is_unreadable(answer: bytes):
    unreadable(read_status, DID, answer)


# getLatestCommit


def test_latest_commit_is_its_cid_and_rev():
    assert read_latest_commit(HOST, encoded({"cid": CID, "rev": REV, "x": 1})) == LatestCommit(CID, REV)


@pytest.mark.parametrize(
    "said",
    [
        {"cid": CID},
        {"rev": REV},
        {"cid": CID, "rev": "Mandarin"},
        {"cid": CID, "rev": REV + "2"},
        {"cid": CID, "rev": 1},
        {"cid": "baf/Mandarin", "rev": REV},
        {"cid": "", "rev": REV},
        {"cid": {"$link": CID}, "rev": REV},
    ],
)
def test_latest_commit_without_a_cid_and_a_tid_is_unreadable(said: Any):
    unreadable(read_latest_commit, encoded(said))


@pytest.mark.parametrize("answer", NO_JSON)
def test_latest_commit_that_is_no_object_is_unreadable(answer: bytes):
    unreadable(read_latest_commit, answer)


# describeRepo


def test_description_tells_the_collections():
    said = {"did": DID, "handle": "a.test", "didDoc": {"id": 1}, "collections": ["a.b.c", "d.e.f"]}
    assert read_collections(HOST, DID, encoded(said)) == {"a.b.c", "d.e.f"}


@pytest.mark.parametrize(
    "said",
    [
        {"did": DID},
        {"did": OTHER, "collections": []},
        {"did": DID, "collections": "a.b.c"},
        {"did": DID, "collections": [1]},
        {"did": DID, "collections": ["a"] * 10_001},
        {"did": DID, "collections": ["a.b.c", "Mandarin\0"]},
        {"did": DID, "collections": ["a.b.c", "Mandarin\ud800"]},
    ],
)
def test_description_without_a_list_of_collections_is_unreadable(said: Any):
    unreadable(read_collections, DID, encoded(said))


@pytest.mark.parametrize("answer", NO_JSON)
def test_description_that_is_no_object_is_unreadable(answer: bytes):
    unreadable(read_collections, DID, answer)


# listRepos, listReposByCollection


def page_of(*repos: Any, **said: Any) -> RepoPage:
    return read_page(HOST, encoded({"repos": repos, **said}))


def test_page_tells_who_is_served_and_where_the_list_goes_on():
    page = page_of(
        {"did": DID, "head": CID, "rev": REV, "active": True},
        {"did": OTHER, "active": False, "status": "takendown", "x": 1},
        cursor="17::x",
        x=1,
    )
    assert page == RepoPage([ListedRepo(DID), ListedRepo(OTHER, active=False)], "17::x")


def test_list_of_those_with_a_collection_tells_their_dids():
    assert page_of({"did": DID}) == RepoPage([ListedRepo(DID)], None)


@pytest.mark.parametrize("cursor", [{}, {"cursor": None}, {"cursor": ""}])
def test_page_without_a_cursor_is_the_last(cursor: dict[str, Any]):
    assert page_of({"did": DID}, **cursor).cursor is None


def test_empty_page_with_a_cursor_is_not_the_last():
    assert page_of(cursor="x") == RepoPage([], "x")


@pytest.mark.parametrize(
    "entry", [{}, {"did": 1}, {"did": "Mandarin"}, {"did": "did:plc:" + "a" * 3000}, DID, None, 1, []]
)
def test_entry_without_a_did_spoils_no_other(entry: Any):
    assert page_of({"did": DID}, entry, {"did": OTHER}) == RepoPage([ListedRepo(DID), ListedRepo(OTHER)], None)


@pytest.mark.parametrize(
    "fields",
    [{"rev": "Mandarin"}, {"rev": 1}, {"head": "Mandarin/"}, {"head": {"$link": CID}}, {"status": "Man darin"}],
)
def test_field_of_an_entry_that_nobody_asks_for_may_be_anything(fields: dict[str, Any]):
    assert page_of({"did": DID, **fields}) == RepoPage([ListedRepo(DID)], None)


@pytest.mark.parametrize("active", [False, None, "true", 1])
def test_only_a_plain_yes_makes_an_account_active(active: Any):
    assert page_of({"did": DID, "active": active}).repos == [ListedRepo(DID, active=False)]


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"repos": None},
        {"repos": {}},
        {"repos": [], "cursor": 1},
        {"repos": [], "cursor": "x" * (MAX_CURSOR_CHARS + 1)},
        {"repos": [{}] * (MAX_PAGE_REPOS + 1)},
    ],
)
def test_page_that_is_none_is_unreadable(said: Any):
    unreadable(read_page, encoded(said))


@pytest.mark.parametrize("character", ["\0", "\n", "\x1b", "\x7f", "\x85", "\ud800"])
def test_cursor_that_no_database_or_terminal_should_get_makes_a_page_unreadable(character: str):
    unreadable(read_page, encoded({"repos": [{"did": DID}], "cursor": f"17{character}"}))


def test_cursor_may_be_written_in_any_script():
    assert page_of(cursor="17 … \U0001f34a").cursor == "17 … \U0001f34a"


@pytest.mark.parametrize("answer", [*NO_JSON, b'{"repos":' + b"[" * 100_000])
def test_page_that_is_no_object_is_unreadable(answer: bytes):
    unreadable(read_page, answer)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.sampled_from([DID, CID, REV, "takendown"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["did", "rev", "head", "status", "active"]), inner),
)
FIELDS = st.dictionaries(
    st.sampled_from(["did", "active", "status", "rev", "cid", "collections", "repos", "cursor"]), ANYTHING
)


@given(FIELDS.map(encoded) | st.binary())
def test_whatever_is_answered_is_read_or_refused(answer: bytes):
    for read in (
        lambda: read_status(HOST, DID, answer),
        lambda: read_latest_commit(HOST, answer),
        lambda: read_collections(HOST, DID, answer),
        lambda: read_page(HOST, answer),
    ):
        with suppress(Refused):
            read()
