"""The builders make what the reference PDS makes, or tests prove nothing."""

from __future__ import annotations

import json

import pytest

from indexer.frames import AccountEvent, CommitEvent, IdentityEvent, SyncEvent, decode_frame
from indexer.verify.car import decode_block, read_car
from indexer.verify.commit import verify_commit
from indexer.verify.sync import verify_sync
from memory.identifiers import is_did, is_handle, is_tid
from memory.signatures import SignatureVerdict, parse_did_key
from tests.builders import RepoBuilder, Sequence, Write, decode_frame_parts, encode_frame, memory
from tests.recorded import frames_of
from tests.tree_model import tree_of


@pytest.mark.parametrize("recording", ["pds1-live.bin", "pds1-bulk.bin"])
def test_built_commits_carry_the_blocks_that_the_reference_sends(recording: str) -> None:
    builders: dict[str, RepoBuilder] = {}
    for frame in frames_of(recording):
        recorded = decode_frame(frame)
        if not isinstance(recorded, CommitEvent):
            continue
        blocks = read_car(recorded.blocks).blocks
        builder = builders.setdefault(recorded.did, RepoBuilder(recorded.did))
        writes: list[Write] = []
        for op in recorded.ops:
            collection, _, rkey = op.path.partition("/")
            block = None if op.cid is None else blocks.get(op.cid, b"\xa0")
            writes.append(Write(op.action, rkey, block, collection))  # pyright: ignore[reportArgumentType]
        built_frame = builder.apply(writes, time=recorded.time)
        built = decode_frame(built_frame)
        assert isinstance(built, CommitEvent)
        assert builder.data == decode_block(blocks[recorded.commit])["data"]
        assert read_car(built.blocks).blocks.keys() - {built.commit} == blocks.keys() - {recorded.commit}
        assert [(op.action, op.path, op.prev) for op in built.ops] == [
            (op.action, op.path, op.prev) for op in recorded.ops
        ]
        assert decode_frame_parts(built_frame)[1].keys() == decode_frame_parts(frame)[1].keys()


@pytest.mark.parametrize("curve", ["k256", "p256"])
def test_the_same_seed_makes_the_same_bytes(curve: str) -> None:
    first, again = (RepoBuilder("a", curve) for _ in range(2))  # pyright: ignore[reportArgumentType]
    assert first.genesis() == again.genesis()
    assert first.create("3kaaaaaaaaa2a", memory("x")) == again.create("3kaaaaaaaaa2a", memory("x"))
    assert first.export_line() == again.export_line()
    assert RepoBuilder("b").did != first.did


def test_an_account_begins_as_the_reference_begins_it() -> None:
    stream = Sequence()
    frames = [frame for name in "ab" for frame in RepoBuilder(name, stream=stream).genesis()]
    assert [type(decode_frame(frame)) for frame in frames] == [IdentityEvent, AccountEvent, CommitEvent, SyncEvent] * 2
    assert [decode_frame_parts(frame)[1]["seq"] for frame in frames] == list(range(1, 9))


def test_identities_look_real() -> None:
    builder = RepoBuilder("a")
    assert is_did(builder.did)
    assert is_handle(builder.handle)
    assert builder.apply()
    assert is_tid(builder.rev or "")


def test_an_export_line_is_signed_and_chained() -> None:
    builder = RepoBuilder("a")
    lines = [json.loads(builder.export_line()), json.loads(builder.export_line(tombstone=True))]
    assert [line["operation"]["type"] for line in lines] == ["plc_operation", "plc_tombstone"]
    assert [line["operation"]["prev"] for line in lines] == [None, lines[0]["cid"]]
    assert lines[0]["operation"]["verificationMethods"]["atproto"] == builder.did_key


def test_a_rotated_key_signs_from_then_on() -> None:
    builder = RepoBuilder("a")
    old = parse_did_key(builder.did_key)
    builder.rotate_key("new", "p256")
    new = parse_did_key(builder.did_key)
    event = decode_frame(builder.apply())
    assert isinstance(event, CommitEvent)
    assert verify_commit(event, new, event.time).fault is None
    assert old != new
    assert old.verify(b"x", builder.key.sign(b"x")) is SignatureVerdict.BAD


@pytest.mark.parametrize("count", [0, 1, 30])
def test_a_repo_is_exported_whole(count: int) -> None:
    builder = RepoBuilder("a")
    builder.apply([Write("create", f"3kaaaaaaa{n:02}2a".replace("0", "z"), memory(f"{n}")) for n in range(count)])
    car = read_car(builder.car())
    root, nodes = tree_of({path.encode(): cid for path, cid in builder.records.items()})
    assert decode_block(car.blocks[car.root])["data"] == root
    assert car.blocks.keys() == {car.root, *nodes, *builder.records.values()}
    event = decode_frame(builder.sync_frame())
    assert isinstance(event, SyncEvent)
    assert verify_sync(event, parse_did_key(builder.did_key)).rev == builder.rev


def test_a_frame_taken_apart_and_put_together_is_the_same() -> None:
    for frame in frames_of("pds1-live.bin"):
        assert encode_frame(*decode_frame_parts(frame)) == frame
