"""Identifiers: their syntax, the instant in a TID, one spelling for each source."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.identifiers import (
    COLLECTION,
    cid_text,
    is_binary_cid,
    is_cid,
    is_did,
    is_handle,
    is_nsid,
    is_rkey,
    is_tid,
    normalise_source,
    tid_time,
)
from tests.builders import block_cid, tid

CHECKS = (is_cid, is_did, is_handle, is_nsid, is_rkey, is_tid)


@pytest.mark.parametrize("text", ["alice.test", "a.co", "xn--ls8h.test", "8.cn", "ALICE.Test", "a-b.c-d.io"])
def test_handles_are_host_names(text: str) -> None:
    assert is_handle(text)


@pytest.mark.parametrize(
    "text", ["", "alice", ".test", "alice.", "-a.test", "a-.test", "a..test", "a.0", "a b.test", "@a.test", "a.test\n"]
)
def test_what_is_no_host_name_is_no_handle(text: str) -> None:
    assert not is_handle(text)


def test_handles_end_at_253_characters() -> None:
    labels = ".".join(["a" * 61] * 4)
    assert is_handle(labels + ".abcd")
    assert not is_handle(labels + ".abcdef")


def test_our_collection_is_a_name_of_a_collection() -> None:
    assert is_nsid(COLLECTION)


@given(st.text(alphabet="ab./\n\x00 é", max_size=5))
def test_record_keys_are_never_dots_and_hold_no_other_characters(text: str) -> None:
    assert is_rkey(text) == (text not in ("", ".", "..") and set(text) <= set("ab."))


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("text", ["", "\n", " ", "\x00", "é", "did:plc:a\n", "3jzfcijpj2z2a\n", "a.b.c\n", "a\n"])
def test_no_identifier_is_empty_or_ends_in_a_line_break(check: object, text: str) -> None:
    assert callable(check)
    assert check(text) is False


@given(
    st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001
    st.integers(0, 1023),
)
def test_a_tid_tells_its_instant_to_the_microsecond(moment: datetime, clock_id: int) -> None:
    text = tid(moment, clock_id)
    assert is_tid(text)
    assert tid_time(text) == moment


def test_every_tid_has_an_instant() -> None:
    assert tid_time("2222222222222") == datetime(1970, 1, 1, tzinfo=UTC)
    assert tid_time("jzzzzzzzzzzzz") - datetime(1970, 1, 1, tzinfo=UTC) > timedelta(days=365 * 500)


def test_binary_cids_are_of_the_kind_that_repos_use() -> None:
    cid = block_cid(b"\xa0")
    assert is_binary_cid(cid)
    assert cid_text(cid) == "bafyreigbtj4x7ip5legnfznufuopl4sg4knzc2cof6duas4b3q2fy6swua"
    assert is_binary_cid(cid.replace(b"\x71", b"\x55", 1))  # raw
    for other in (b"", cid[:-1], cid + b"\x00", b"\x12\x20" + cid[4:], b"\x01\x71\x12\x1f" + cid[4:], b"\x00" + cid):
        assert not is_binary_cid(other)


@pytest.mark.parametrize(
    ("url", "spelling"),
    [
        ("wss://relay.example", "https://relay.example"),
        ("ws://relay.example", "http://relay.example"),
        ("https://Relay.EXAMPLE/", "https://relay.example"),
        ("relay.example", "https://relay.example"),
        ("relay.example:8443", "https://relay.example:8443"),
        ("https://relay.example:443", "https://relay.example"),
        ("http://relay.example:80", "http://relay.example"),
        ("http://relay.example:443", "http://relay.example:443"),
        ("localhost:2583", "http://localhost:2583"),
        ("https://localhost:2583", "https://localhost:2583"),
        ("127.0.0.1", "http://127.0.0.1"),
        ("127.8.9.1:80", "http://127.8.9.1"),
        ("192.0.2.7", "https://192.0.2.7"),
        ("[::1]:2583", "http://[::1]:2583"),
        ("wss://[2001:DB8::0:1]", "https://[2001:db8::1]"),
    ],
)
def test_a_source_has_one_spelling(url: str, spelling: str) -> None:
    assert normalise_source(url) == spelling
    assert normalise_source(spelling) == spelling


@pytest.mark.parametrize(
    "url",
    [
        "",
        "https://",
        "ftp://relay.example",
        "https://relay.example/xrpc",
        "https://relay.example/?",
        "https://relay.example?cursor=1",
        "https://relay.example#x",
        "https://user@relay.example",
        "https://user:word@relay.example",
        "relay.example:0",
        "relay.example:65536",
        "relay.example:port",
        "relay example",
        "https://relay..example:x",
        "https://[::1",
        "https://[relay]",
        "rel\x00ay.example",
    ],
)
def test_what_is_more_or_less_than_a_source_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        normalise_source(url)
