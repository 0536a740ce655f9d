"""Bytes gone wrong, by chance or by intent: rejected or at fault, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.frames import CommitEvent, SyncEvent, decode_frame
from indexer.verify.admission import Held, admit
from indexer.verify.car import Link
from indexer.verify.commit import verify_commit
from indexer.verify.sync import verify_sync
from memory.errors import Rejected
from memory.identifiers import cid_text
from tests.builders import CommitParts, block_cid, decode_frame_parts, encode_frame
from tests.commits import NOTE, RKEY, event_of, grown, key_at, verified
from tests.recorded import export, frames_of

FRAMES = [frame for name in ("pds1-live.bin", "pds2-live.bin") for frame in frames_of(name) if len(frame) < 3000]
COMMITS = [frame for frame in FRAMES if isinstance(decode_frame(frame), CommitEvent)]
HELD = Held("3n3ifcr5ibc2i", None, None, "active")

# Where, what is put in, how many bytes are taken out.
Edit = tuple[int, bytes, int]
edits = st.lists(st.tuples(st.integers(0, 2999), st.binary(max_size=3), st.integers(0, 3)), min_size=1, max_size=4)


def mutated(data: bytes, changes: Sequence[Edit]) -> bytes:
    for at, inserted, removed in changes:
        at %= len(data) + 1
        data = data[:at] + inserted + data[at + removed :]
    return data


def judge(frame: bytes) -> str | None:
    """All of verification; why the frame is rejected, if it is."""
    try:
        event = decode_frame(frame)
        if isinstance(event, CommitEvent | SyncEvent) and export().at(event.did, event.time) is not None:
            if isinstance(event, SyncEvent):
                verify_sync(event, key_at(event))
            else:
                admit(verify_commit(event, key_at(event), event.time), HELD)
    except Rejected as error:
        return error.reason
    return None


@given(frame=st.sampled_from(FRAMES), changes=edits)
def test_mutated_frames_are_rejected_for_a_reason_or_taken(frame: bytes, changes: list[Edit]) -> None:
    assert judge(mutated(frame, changes)) != Rejected.reason


@given(frame=st.sampled_from(COMMITS), changes=edits)
def test_mutated_blocks_in_a_whole_frame_are_rejected_for_a_reason_or_taken(frame: bytes, changes: list[Edit]) -> None:
    header, body = decode_frame_parts(frame)
    body["blocks"] = mutated(body["blocks"], changes)
    assert judge(encode_frame(header, body)) != Rejected.reason


@given(chosen=st.integers(0, 99), changes=edits)
def test_a_signed_tree_with_an_altered_node_is_at_fault(chosen: int, changes: list[Edit]) -> None:
    def alter(parts: CommitParts) -> None:
        nodes = [cid for cid, block in parts.blocks.items() if block[:3] == b"\xa2ae"]
        cid = nodes[chosen % len(nodes)]
        rename = {cid: mutated(parts.blocks.pop(cid), changes)}
        while rename:  # whoever links to a renamed block is renamed too, up to the root
            old, block = rename.popitem()
            new = block_cid(block)
            parts.blocks[new] = block
            if parts.commit["data"] == old:
                parts.commit["data"] = Link(new)
            for holder in [holder for holder, held in parts.blocks.items() if old in held and holder != new]:
                rename[holder] = parts.blocks.pop(holder).replace(old, new)

    builder = grown(30)
    commit = verified(builder, event_of(builder.create(RKEY, NOTE, tamper=alter)))
    assert builder.data is not None
    # A change that changes nothing is no change.
    assert (commit.fault is None) == (commit.data_cid == cid_text(builder.data))


@pytest.mark.soak
def test_a_million_mutated_frames_are_rejected_for_a_reason_or_taken(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(1_000_000):
        changes = [
            (draw.randrange(3000), draw.randbytes(draw.randrange(4)), draw.randrange(4))
            for _ in range(draw.randint(1, 4))
        ]
        frame = draw.choice(FRAMES)
        if draw.random() < 0.5 or frame not in COMMITS:
            frame = mutated(frame, changes)
        else:
            header, body = decode_frame_parts(frame)
            body["blocks"] = mutated(body["blocks"], changes)
            frame = encode_frame(header, body)
        assert judge(frame) != Rejected.reason
