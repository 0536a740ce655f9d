"""Frames: what real servers sent is read whole, what is broken is told apart from what is only unknown."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.frames import (
    MAX_FRAME_BYTES,
    MAX_SEQ,
    AccountEvent,
    BrokenFrame,
    CommitEvent,
    ErrorEvent,
    IdentityEvent,
    IgnoredFrame,
    InfoEvent,
    SyncEvent,
    decode_frame,
)
from indexer.verify.car import Link, encode_block
from memory.identifiers import COLLECTION, cid_text
from tests.builders import RepoBuilder, Write, block_cid, decode_frame_parts, encode_frame, memory
from tests.recorded import frames_of, manifest, tampered

RECORDINGS = ("pds1-live.bin", "pds1-bulk.bin", "pds2-live.bin", "control.bin")
CID = block_cid(b"\xa0")

BUILDER = RepoBuilder("frames")
IDENTITY, ACCOUNT, FIRST_COMMIT, SYNC = BUILDER.genesis()
COMMIT = BUILDER.create("3kaaaaaaaaa2a", memory("Likes green tea."))


def altered(frame: bytes, **changes: Any) -> bytes:
    """The frame with other fields in its body; `...` leaves one out."""
    header, body = decode_frame_parts(frame)
    body |= changes
    return encode_frame(header, {name: value for name, value in body.items() if value is not ...})


def broken(frame: bytes) -> str:
    with pytest.raises(BrokenFrame) as caught:
        decode_frame(frame)
    return caught.value.reason


def text(cid: bytes | None) -> str | None:
    return None if cid is None else cid_text(cid)


@pytest.mark.parametrize("name", RECORDINGS)
def test_recorded_frames_say_what_the_manifest_says(name: str) -> None:
    for frame, entry in zip(frames_of(name), manifest()["files"][name], strict=True):
        match event := decode_frame(frame):
            case CommitEvent():
                assert (event.rev, event.since) == (entry["rev"], entry["since"])
                assert (cid_text(event.commit), text(event.prev_data)) == (entry["commit"], entry["prevData"])
                assert len(event.blocks) == entry["car"]["bytes"]
                ops = [(op.action, op.path, text(op.cid), text(op.prev)) for op in event.ops]
                assert ops == [(op["action"], op["path"], op["cid"], op.get("prev")) for op in entry["ops"]]
                assert event.touches_collection == any(op["path"].startswith(COLLECTION) for op in entry["ops"])
            case SyncEvent():
                assert (event.rev, len(event.blocks)) == (entry["rev"], entry["car"]["bytes"])
            case IdentityEvent():
                assert event.handle == entry.get("handle")
            case AccountEvent():
                assert (event.active, event.status) == (entry["active"], entry.get("status"))
            case InfoEvent():
                assert (event.name, event.message) == (entry["name"], entry["message"])
            case ErrorEvent():
                assert (event.error, event.message) == (entry["error"], entry["message"])
            case IgnoredFrame():
                pytest.fail("nothing in the recordings is unknown")
        if not isinstance(event, InfoEvent | ErrorEvent):
            assert (event.seq, event.did, event.raw_time) == (entry["seq"], entry["did"], entry["time"])
            assert event.time == datetime.fromisoformat(entry["time"])


@pytest.mark.parametrize(
    ("entry", "frame"), [pytest.param(entry, frame, id=entry["name"]) for entry, frame in tampered()]
)
def test_tampered_frames_are_broken_or_ignored_as_the_manifest_says(entry: dict[str, Any], frame: bytes) -> None:
    if entry["effect"] == "quarantined":
        assert broken(frame) == entry["reason"]
    elif entry["effect"] == "ignored":
        event = decode_frame(frame)
        assert isinstance(event, IgnoredFrame)
        assert event.reason == entry["reason"]
    else:
        assert isinstance(decode_frame(frame), CommitEvent)


def test_unknown_fields_are_ignored() -> None:
    for frame in (IDENTITY, ACCOUNT, FIRST_COMMIT, SYNC, COMMIT):
        assert decode_frame(altered(frame, future={"a": [1.5, None]})) == decode_frame(frame)
    header, body = decode_frame_parts(COMMIT)
    body["ops"][0]["future"] = 1
    assert decode_frame(encode_frame({**header, "future": 1}, body)) == decode_frame(COMMIT)


def test_unknown_types_keep_their_seq() -> None:
    assert decode_frame(encode_frame({"op": 1, "t": "#future"}, {"seq": 7})) == IgnoredFrame("unknown_type", 7)
    assert decode_frame(encode_frame({"op": 7}, {"seq": 8})) == IgnoredFrame("unknown_op", 8)
    assert decode_frame(encode_frame({"op": 7}, {"seq": "8"})) == IgnoredFrame("unknown_op", None)


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\xa0",
        b"not cbor at all",
        COMMIT[:-1],
        COMMIT + b"\x00",
        COMMIT + COMMIT,
        encode_block({"op": 1, "t": "#commit"}),
        encode_block([1]) + encode_block({}),
        encode_block({"op": 1, "t": "#commit"}) + encode_block([]),
        encode_frame({}, {}),
        encode_frame({"t": "#commit"}, {}),
        encode_frame({"op": "1", "t": "#commit"}, {}),
        encode_frame({"op": True, "t": "#commit"}, {}),
        encode_frame({"op": 1}, {}),
        encode_frame({"op": 1, "t": 1}, {}),
        b"\xa1bop\xf9\x3c\x00" + b"\xa0",  # a float of two bytes
        b"\xbf\xff\xa0",  # of indefinite length
        encode_frame({"op": 1, "t": "#identity"}, {"x": b"\x00" * MAX_FRAME_BYTES}),
        b"\x81" * 100_000 + b"\x01\xa0",
        b"\xa1bop\x01" + b"\x81" * 100_000 + b"\x01",
        b"\xa1bop\x01" + b"\xa1ax" * 100_000 + b"\x01",
        b"\xa1bop\x01" + b"\x9b" + b"\xff" * 8,
    ],
    ids=range(22),
)
def test_what_is_not_two_maps_is_no_frame(frame: bytes) -> None:
    assert broken(frame) in ("broken_frame", "overclaiming")


OF_EVERY_EVENT = [
    *({"seq": seq} for seq in (..., None, 0, -1, MAX_SEQ + 1, "1", 1.0, True)),
    *({"time": time} for time in (..., None, 1, "", "yesterday", "2026-11-01", "2026-11-01T10:00:00")),
    {"time": "9999-12-31T23:59:59-14:00"},
    {"time": "0001-01-01T00:00:00+14:00"},
]
OF_COMMITS = [
    *({"repo": did} for did in (..., None, 1, "", "alice.test", "did:plc:", "did:plc:a b", "did:plc:a\x00")),
    *({"rev": rev} for rev in (..., None, 1, "\x00", "2" * 5000)),
    *({"since": since} for since in (1, b"", "\x00")),
    *({"commit": cid} for cid in (..., None, 1, "x", b"", CID[:-1], b"\x12\x20" + b"\x00" * 32)),
    *({"prevData": cid} for cid in (1, "x", b"", CID[1:])),
    *({"blocks": blocks} for blocks in (..., None, "", [])),
    *({"ops": ops} for ops in (..., None, {}, [1], [{}], [{"action": "create", "path": 1}])),
    {"ops": [{"action": 1, "path": "a/b"}]},
    {"ops": [{"action": "create", "path": "a/b", "cid": "x"}]},
    {"ops": [{"action": "create", "path": "a/b", "cid": CID[:-1]}]},
    {"ops": [{"action": "update", "path": "a/b", "cid": CID, "prev": b"x"}]},
]
OF_OTHERS = [
    (SYNC, {"blocks": ...}),
    (SYNC, {"rev": ...}),
    *((frame, {"did": did}) for frame in (SYNC, IDENTITY, ACCOUNT) for did in (..., None, "", "did:", 1)),
    *((ACCOUNT, {"active": active}) for active in (..., None, 1, "true")),
]


@pytest.mark.parametrize(
    ("frame", "changes"),
    [
        *((frame, changes) for frame in (COMMIT, SYNC, IDENTITY, ACCOUNT) for changes in OF_EVERY_EVENT),
        *((COMMIT, changes) for changes in OF_COMMITS),
        *OF_OTHERS,
        (encode_frame({"op": -1}, {}), {}),
        (encode_frame({"op": -1}, {"error": 1}), {}),
        (encode_frame({"op": 1, "t": "#info"}, {}), {}),
    ],
)
def test_an_event_without_what_it_needs_is_malformed(frame: bytes, changes: dict[str, Any]) -> None:
    assert broken(altered(frame, **changes)) == "malformed_event"


def test_fields_that_nothing_needs_may_be_missing() -> None:
    event = decode_frame(altered(COMMIT, blobs=..., rebase=..., tooBig=..., since=..., prevData=...))
    assert isinstance(event, CommitEvent)
    assert (event.too_big, event.since, event.prev_data) == (False, None, None)


def test_times_are_told_in_utc() -> None:
    event = decode_frame(altered(IDENTITY, time="2026-11-01T12:00:00.5+02:00"))
    assert isinstance(event, IdentityEvent)
    assert event.time == datetime(2026, 11, 1, 10, 0, 0, 500_000, tzinfo=UTC)
    assert event.time.tzinfo is UTC
    assert event.raw_time == "2026-11-01T12:00:00.5+02:00"


@pytest.mark.parametrize(
    ("handle", "read"),
    [("Alice.Test", "alice.test"), (..., None), (None, None), ("no handle", None), (1, None), ("a.test\x00", None)],
)
def test_a_handle_is_only_a_hint(handle: object, read: str | None) -> None:
    event = decode_frame(altered(IDENTITY, handle=handle))
    assert isinstance(event, IdentityEvent)
    assert event.handle == read


@pytest.mark.parametrize(
    ("status", "read"),
    [("takendown", "takendown"), ("aWordOfTomorrow", "aWordOfTomorrow"), (..., None), (1, None), ("a\x00", None)],
)
def test_a_status_is_a_plain_word_or_none(status: object, read: str | None) -> None:
    event = decode_frame(altered(ACCOUNT, active=False, status=status))
    assert isinstance(event, AccountEvent)
    assert (event.active, event.status) == (False, read)


def test_a_commit_touches_our_collection_by_its_paths() -> None:
    near = RepoBuilder("near").apply(
        [Write("create", "a", {}, COLLECTION + "s"), Write("create", "a", {}, "dev.bastienrobert.memory")]
    )
    for frame, touches in ((COMMIT, True), (FIRST_COMMIT, False), (near, False)):
        event = decode_frame(frame)
        assert isinstance(event, CommitEvent)
        assert event.touches_collection is touches


def test_links_may_be_of_raw_blocks() -> None:
    raw = Link(CID.replace(b"\x71", b"\x55", 1))
    event = decode_frame(altered(COMMIT, ops=[{"action": "create", "path": "a/b", "cid": raw}]))
    assert isinstance(event, CommitEvent)
    assert event.ops[0].cid == raw


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_broken(data: bytes) -> None:
    for frame in (data, encode_block({"op": 1, "t": "#commit"}) + data):
        try:
            decode_frame(frame)
        except BrokenFrame as error:
            assert error.reason in ("broken_frame", "malformed_event")  # noqa: PT017
