"""`#sync`: whose commit it names."""

from __future__ import annotations

from typing import Any

import pytest

from indexer.frames import SyncEvent, decode_frame
from indexer.verify.car import read_car
from indexer.verify.sync import MAX_SYNC_BYTES, read_sync, verify_sync
from memory.errors import Rejected
from memory.identifiers import cid_text
from memory.signatures import parse_did_key
from tests.builders import RepoBuilder, SigningKey, block_cid, decode_frame_parts, encode_frame, memory, write_car
from tests.recorded import did, export, frames_of, manifest

BUILDER = RepoBuilder("sync")
BUILDER.create("3kaaaaaaaaa2a", memory("Likes green tea."))
FRAME = BUILDER.sync_frame()
KEY = parse_did_key(BUILDER.did_key)


def sync(frame: bytes = FRAME, **changes: Any) -> SyncEvent:
    header, body = decode_frame_parts(frame)
    event = decode_frame(encode_frame(header, {**body, **changes}))
    assert isinstance(event, SyncEvent)
    return event


def refused(event: SyncEvent) -> str:
    with pytest.raises(Rejected) as caught:
        verify_sync(event, KEY)
    return caught.value.reason


def test_a_signed_sync_names_the_commit_and_its_data() -> None:
    assert BUILDER.commit is not None
    assert BUILDER.data is not None
    commit = verify_sync(sync(), KEY)
    assert commit == read_sync(sync())
    assert (commit.did, commit.rev) == (BUILDER.did, BUILDER.rev)
    assert (commit.commit_cid, commit.data_cid) == (cid_text(BUILDER.commit[0]), cid_text(BUILDER.data))


def test_recorded_syncs_verify() -> None:
    entries = manifest()["files"]["pds1-live.bin"]
    for entry, frame in zip(entries, frames_of("pds1-live.bin"), strict=True):
        event = decode_frame(frame)
        if isinstance(event, SyncEvent):
            identity = export().at(event.did, event.time)
            assert identity is not None
            commit = verify_sync(event, parse_did_key(identity.signing_key or ""))
            assert (commit.commit_cid, commit.data_cid) == (entry["commit"], entry["data"])


def test_after_a_move_the_imported_commit_keeps_its_old_key_and_rev() -> None:
    event = next(e for e in map(decode_frame, frames_of("pds2-live.bin")) if isinstance(e, SyncEvent))
    assert event.did == did("grace")
    identity = export().at(event.did, event.time)
    assert identity is not None
    commit = read_sync(event)
    assert commit.rev != event.rev
    with pytest.raises(Rejected) as caught:
        verify_sync(event, parse_did_key(identity.signing_key or ""))
    assert caught.value.reason == "rev_mismatch"


def test_another_key_refuses() -> None:
    with pytest.raises(Rejected) as caught:
        verify_sync(sync(), parse_did_key(SigningKey("another").did_key))
    assert caught.value.reason == "bad_signature"


def test_the_frame_must_name_the_commits_did_and_rev() -> None:
    assert refused(sync(did=RepoBuilder("other").did)) == "did_mismatch"
    assert refused(sync(rev="2222222222222")) == "rev_mismatch"
    assert read_sync(sync(rev="2222222222222")).rev == BUILDER.rev


def test_without_a_commit_block_nothing_is_said() -> None:
    car = read_car(sync().blocks)
    other = b"\xa0"
    assert refused(sync(blocks=b"")) == "malformed_car"
    assert refused(sync(blocks=write_car(car.root, []))) == "commit_missing"
    assert refused(sync(blocks=write_car(block_cid(other), [(block_cid(other), other)]))) == "malformed_commit"
    assert refused(sync(blocks=write_car(car.root, [(car.root, other)]))) == "block_hash"


def test_blocks_end_at_10000_bytes() -> None:
    car = read_car(sync().blocks)
    filler = b"\x59\x20\x00" + b"\x00" * 0x2000
    blocks = [*car.blocks.items(), (block_cid(filler), filler)]
    fits = write_car(car.root, blocks)
    assert len(fits) <= MAX_SYNC_BYTES
    verify_sync(sync(blocks=fits), KEY)
    assert refused(sync(blocks=write_car(car.root, [*blocks, *blocks]))) == "too_big"
