"""`#commit` by itself: real ones pass, altered ones fail as they must, nothing else ever happens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from indexer.frames import CommitEvent, decode_frame
from indexer.verify.car import Link, encode_block, read_car
from indexer.verify.commit import MAX_BLOCKS_BYTES, MAX_OPS, MAX_RECORD_BYTES, verify_commit
from indexer.verify.reasons import Fault, Unattributable
from indexer.verify.tree import EMPTY_TREE
from memory.errors import Rejected
from memory.identifiers import COLLECTION, cid_text
from tests.builders import RepoBuilder, SigningKey, Write, block_cid, write_car
from tests.commits import NOISE, NOTE, RKEY, event_of, grown, key_at, refusal, verified, with_car
from tests.recorded import frames_of, manifest

# Real commits


@pytest.mark.parametrize("recording", ["pds1-live.bin", "pds1-bulk.bin", "pds2-live.bin"])
def test_recorded_commits_verify(recording: str) -> None:
    for entry, frame in zip(manifest()["files"][recording], frames_of(recording), strict=True):
        event = decode_frame(frame)
        if not isinstance(event, CommitEvent):
            continue
        commit = verify_commit(event, key_at(event), event.time)
        assert commit.fault is None
        assert (commit.repo, commit.rev, commit.since) == (entry["did"], entry["rev"], entry["since"])
        assert (commit.commit_cid, commit.data_cid) == (entry["commit"], entry["data"])
        assert commit.prev_data == entry["prevData"]
        last = {op["path"]: op for op in entry["ops"] if op["path"].startswith(f"{COLLECTION}/")}
        assert commit.touches_collection == bool(last)
        for op in commit.ops:
            assert last[f"{COLLECTION}/{op.rkey}"]["cid"] == op.cid
            assert op.cid == (None if op.block is None else cid_text(block_cid(op.block)))


def test_every_one_bit_change_of_a_recorded_car_is_noticed() -> None:
    event = event_of(frames_of("pds1-live.bin")[28])
    key = key_at(event)
    assert verify_commit(event, key, event.time).fault is None
    for bit in range(len(event.blocks) * 8):
        blocks = bytearray(event.blocks)
        blocks[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Rejected) as caught:
            verify_commit(replace(event, blocks=bytes(blocks)), key, event.time)
        assert isinstance(caught.value.reason, Unattributable)


def test_p256_keys_sign_commits() -> None:
    builder = grown(3, "p256")
    assert verified(builder, event_of(builder.create(RKEY, NOTE))).fault is None


def test_order_repetition_and_extra_blocks_do_not_matter() -> None:
    builder = grown()
    event = event_of(builder.create(RKEY, NOTE))
    extra = encode_block({"nobody": "asked"})
    shuffled = with_car(
        event,
        lambda car: write_car(
            car.root, [*reversed(car.blocks.items()), (block_cid(extra), extra), *car.blocks.items()]
        ),
    )
    assert verified(builder, shuffled) == verified(builder, event)


def test_blobs_and_rebase_are_ignored() -> None:
    builder = grown()
    event = event_of(
        builder.create(RKEY, NOTE, tamper=lambda parts: parts.body.update(blobs=[EMPTY_TREE], rebase=True))
    )
    assert verified(builder, event).fault is None


# The first commit


def test_a_first_commit_brings_all_that_a_repo_holds() -> None:
    for writes in ([], [Write("create", RKEY, NOTE)]):
        builder = RepoBuilder("first")
        commit = verified(builder, event_of(builder.apply(writes)))
        assert (commit.fault, commit.from_empty, commit.prev_data) == (None, True, None)


def test_a_commit_on_an_empty_tree_brings_all_that_a_repo_holds() -> None:
    builder = RepoBuilder("first")
    builder.apply()
    assert verified(builder, event_of(builder.create(RKEY, NOTE))).from_empty
    assert not verified(builder, event_of(builder.create("other", NOTE))).from_empty


def test_a_commit_that_poses_as_the_first_is_at_fault() -> None:
    builder = grown()
    event = replace(event_of(builder.create(RKEY, NOTE)), since=None, prev_data=None)
    assert verified(builder, event).fault is Fault.INVERSION


def test_a_later_commit_needs_prev_data() -> None:
    builder = grown()
    event = event_of(builder.create(RKEY, NOTE))
    assert verified(builder, replace(event, prev_data=None)).fault is Fault.PREV_DATA_ABSENT


def test_an_empty_commit_proves_that_nothing_changed() -> None:
    builder = grown()
    event = event_of(builder.apply())
    commit = verified(builder, event)
    assert (commit.fault, commit.ops, commit.touches_collection) == (None, (), False)
    assert commit.prev_data == commit.data_cid
    assert verified(builder, replace(event, prev_data=EMPTY_TREE)).fault is Fault.INVERSION


# What is not attributable


def resigned(change: Callable[[dict[str, Any]], object]) -> tuple[RepoBuilder, CommitEvent]:
    """A commit whose block was changed before it was signed."""
    builder = grown(3)
    return builder, event_of(builder.create(RKEY, NOTE, tamper=lambda parts: change(parts.commit) and None))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"did": RepoBuilder("other").did}, "did_mismatch"),
        ({"rev": "3n3aaaaaaaa2a"}, "rev_mismatch"),
        ({"version": 2}, "malformed_commit"),
        ({"version": "3"}, "malformed_commit"),
        ({"did": None}, "malformed_commit"),
        ({"rev": 3}, "malformed_commit"),
        ({"data": None}, "malformed_commit"),
        ({"data": bytes(EMPTY_TREE)}, "malformed_commit"),
        ({"data": Link(b"\x01")}, "malformed_commit"),
        ({"prev": "x"}, "malformed_commit"),
    ],
)
def test_a_commit_block_must_be_of_this_repo_and_form(changes: dict[str, Any], reason: str) -> None:
    assert refusal(*resigned(lambda commit: commit.update(changes) or True)) == reason


def test_fields_of_tomorrow_are_signed_too() -> None:
    builder, event = resigned(lambda commit: commit.update(future=[1]) or True)
    assert verified(builder, event).fault is None
    builder, event = resigned(lambda commit: commit.pop("prev") is None)
    assert verified(builder, event).fault is None


@pytest.mark.parametrize(
    ("block", "reason"),
    [
        (b"\xff", "malformed_commit"),
        (b"\x81" * 100_000 + b"\x01", "malformed_commit"),
        (encode_block([]), "malformed_commit"),
        (encode_block({}), "malformed_commit"),
    ],
)
def test_what_is_no_commit_block_signs_nothing(block: bytes, reason: str) -> None:
    builder = grown(3)
    cid = block_cid(block)
    event = replace(event_of(builder.apply()), commit=cid, blocks=write_car(cid, [(cid, block)]))
    assert refusal(builder, event) == reason


def test_a_commit_that_is_not_in_canonical_form_signs_nothing() -> None:
    builder = grown(3)
    event = event_of(builder.apply())
    block = read_car(event.blocks).blocks[event.commit].replace(b"gversion\x03", b"gversion\x18\x03")
    cid = block_cid(block)
    assert refusal(builder, replace(event, commit=cid, blocks=write_car(cid, [(cid, block)]))) == "malformed_commit"


@pytest.mark.parametrize("signature", [None, "x", b"", b"\x00" * 64, b"\x00" * 65, EMPTY_TREE])
def test_a_signature_must_be_the_authors(signature: object) -> None:
    builder = grown(3)
    commit = {"did": builder.did, "version": 3, "rev": builder.rev, "data": EMPTY_TREE, "prev": None, "sig": signature}
    block = encode_block(commit)
    cid = block_cid(block)
    event = replace(event_of(builder.apply()), rev=commit["rev"], commit=cid, blocks=write_car(cid, [(cid, block)]))
    assert refusal(builder, event) == ("bad_signature" if type(signature) is bytes else "malformed_commit")


def test_another_key_signs_nothing() -> None:
    builder = grown(3)
    event = event_of(builder.create(RKEY, NOTE, tamper=lambda parts: setattr(parts, "key", SigningKey("other"))))
    assert refusal(builder, event) == "bad_signature"


def test_a_commit_named_as_a_raw_block_is_missing() -> None:
    builder = grown(3)
    event = event_of(builder.create(RKEY, NOTE))
    raw = event.commit.replace(b"\x71", b"\x55", 1)
    renamed = with_car(event, lambda car: write_car(raw, [(raw, car.blocks[car.root])]))
    assert refusal(builder, replace(renamed, commit=raw)) == "commit_missing"


# Limits


def test_blocks_end_at_two_million_bytes() -> None:
    builder = grown(3)
    event = event_of(builder.create(RKEY, NOTE))
    filler = b"\x5a\x00\x1d\x00\x00" + bytes(0x1D0000)
    assert len(filler) < MAX_BLOCKS_BYTES < len(filler) * 2
    for count, reason in ((1, None), (2, "too_big")):
        bigger = with_car(
            event, lambda car, n=count: write_car(car.root, [*car.blocks.items(), *[(block_cid(filler), filler)] * n])
        )
        assert (verified(builder, bigger).fault if reason is None else refusal(builder, bigger)) == reason


def test_too_big_is_only_a_word_when_blocks_are_there() -> None:
    builder = grown(3)
    event = replace(event_of(builder.create(RKEY, NOTE)), too_big=True)
    assert verified(builder, event).fault is None
    assert refusal(builder, replace(event, blocks=b"", ops=())) == "too_big"
    assert refusal(builder, replace(event, blocks=b"", ops=(), too_big=False)) == "malformed_car"


@pytest.mark.parametrize(("count", "fault"), [(MAX_OPS, None), (MAX_OPS + 1, Fault.TOO_MANY_OPS)])
def test_a_commit_has_200_ops_at_most(count: int, fault: Fault | None) -> None:
    builder = RepoBuilder("many")
    commit = verified(builder, event_of(builder.apply([Write("create", f"r{n}", {"n": n}) for n in range(count)])))
    assert (commit.fault, len(commit.ops)) == (fault, 0 if fault else count)


@pytest.mark.parametrize(("surplus", "fault"), [(0, None), (1, Fault.RECORD_TOO_BIG)])
def test_a_record_has_a_million_bytes_at_most(surplus: int, fault: Fault | None) -> None:
    builder = grown(3)
    block = b"\x5a\x00\x0f\x42\x3b" + bytes(MAX_RECORD_BYTES - 5 + surplus)
    assert verified(builder, event_of(builder.create(RKEY, block))).fault is fault
    assert verified(builder, event_of(builder.create(RKEY, block, NOISE))).fault is None


@pytest.mark.parametrize(
    ("lead", "fault"),
    [(timedelta(minutes=5), None), (timedelta(minutes=5, microseconds=1), Fault.REV_IN_FUTURE)],
)
def test_a_rev_is_five_minutes_ahead_at_most(lead: timedelta, fault: Fault | None) -> None:
    builder = grown(3)
    now = datetime(2027, 1, 1, tzinfo=UTC)
    assert verified(builder, event_of(builder.create(RKEY, NOTE, time=now + lead)), now).fault is fault


@pytest.mark.parametrize("now", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_no_clock_is_too_early_or_late(now: datetime) -> None:
    builder = grown(3)
    fault = verified(builder, event_of(builder.create(RKEY, NOTE)), now).fault
    assert fault is (Fault.REV_IN_FUTURE if now.year == 1 else None)
