"""The short way past an event of others says what the long one says."""

from __future__ import annotations

import itertools
import random

import pytest

from indexer.frames import MAX_FRAME_BYTES, MAX_SEQ, BrokenFrame, event_of_others, open_frame
from memory.identifiers import COLLECTION
from tests.builders import decode_frame_parts, encode_frame
from tests.mutations import mutate
from tests.recorded import frames_of

LIVE = frames_of("pds1-live.bin")
CONTROL = frames_of("control.bin")
ALICE = "did:plc:alice"
POST = {"action": "create", "path": "app.bsky.feed.post/1", "cid": None}
MEMORY = {"action": "create", "path": f"{COLLECTION}/1", "cid": None}


def by_the_long_way(frame: bytes, concerned: str) -> tuple[int, object] | None:
    try:
        opened = open_frame(frame)
    except BrokenFrame:
        return None
    if opened.header.get("op") == -1 or opened.seq is None or opened.concerns(lambda repo: repo == concerned):
        return None
    return opened.seq, opened.body.get("time")


def both_ways(frame: bytes, concerned: str = ALICE) -> tuple[int, object] | None:
    said = event_of_others(frame, lambda repo: repo == concerned)
    assert said == by_the_long_way(frame, concerned)
    return said


@pytest.mark.parametrize("frame", [*LIVE, *CONTROL], ids=range(len(LIVE) + len(CONTROL)))
def test_recorded_frame_is_passed_if_it_names_nobody_who_concerns_us_and_no_memory(frame: bytes):
    header, body = decode_frame_parts(frame)
    named = body.get("repo") or body.get("did")
    memory = any(op["path"].startswith(f"{COLLECTION}/") for op in body.get("ops", ()))
    of_others = header["op"] == 1 and header["t"] != "#info" and not memory
    assert both_ways(frame) == ((body["seq"], body["time"]) if of_others else None)
    assert named is None or both_ways(frame, named) is None


@pytest.mark.parametrize(
    "kind", ["#commit", "#identity", "#account", "#sync", "#info", "#mandarin", None, 7, ["#commit"], {}]
)
@pytest.mark.parametrize("op", [1, -1, 7, "1", None])
def test_only_known_events_are_passed(kind: object, op: object):
    frame = encode_frame({"op": op, "t": kind}, {"seq": 5, "did": "did:plc:bob", "repo": "did:plc:bob", "ops": [POST]})
    passed = kind in ("#commit", "#identity", "#account", "#sync") and op != -1
    assert both_ways(frame) == ((5, None) if passed else None)


@pytest.mark.parametrize("seq", [0, -1, MAX_SEQ + 1, "5", None, True, [5]])
def test_event_without_a_seq_is_not_passed(seq: object):
    assert both_ways(encode_frame({"op": 1, "t": "#identity"}, {"seq": seq, "did": "did:plc:bob"})) is None


@pytest.mark.parametrize(
    "ops", [[MEMORY], [POST, MEMORY], [POST, 7], [POST, {}], [{"path": 7}], [["path"]], "ops", {"path": "x"}, None, 7]
)
def test_commit_with_a_memory_or_without_proper_ops_is_not_passed(ops: object):
    assert both_ways(encode_frame({"op": 1, "t": "#commit"}, {"seq": 5, "repo": "did:plc:bob", "ops": ops})) is None


@pytest.mark.parametrize("repo", [None, 7, [], {}, b"did:plc:bob"])
@pytest.mark.parametrize("kind", ["#commit", "#identity"])
def test_event_that_names_nobody_is_not_passed(kind: str, repo: object):
    body = {"seq": 5, "did": repo, "repo": repo, "ops": []}
    assert both_ways(encode_frame({"op": 1, "t": kind}, body)) is None
    assert both_ways(encode_frame({"op": 1, "t": kind}, {"seq": 5})) is None


def test_frame_above_the_limit_is_not_passed():
    body = {"seq": 5, "did": "did:plc:bob", "x": bytes(MAX_FRAME_BYTES)}
    assert both_ways(encode_frame({"op": 1, "t": "#identity"}, body)) is None


def test_both_ways_say_the_same_of_damaged_frames(seed: int):
    draw = random.Random(seed)
    frames = [*LIVE, *CONTROL]
    for frame in itertools.islice(itertools.cycle(frames), 3000):
        both_ways(mutate(frame, draw), ALICE)
