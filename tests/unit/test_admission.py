"""Admission: a verified commit against what is held of its repo."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from indexer.frames import CommitEvent, decode_frame
from indexer.verify.admission import Accept, Admission, Desynchronize, Drop, Held, admit
from indexer.verify.commit import VerifiedCommit, verify_commit
from indexer.verify.reasons import Fault
from memory.errors import Rejected
from memory.identifiers import cid_text
from memory.signatures import parse_did_key
from tests.builders import block_cid
from tests.recorded import did, export, frames_of, tampered

BASELINE_INDEX = 78  # alice's update in pds1-live.bin
REVS = ("3n3aaaaaaaa2a", "3n3aaaaaaab2a", "3n3aaaaaaac2a")
OLDER, HELD_REV, NEXT_REV = REVS
COMMIT, OTHER_COMMIT, DATA, OTHER_DATA = (cid_text(block_cid(bytes([n]))) for n in range(4))

HELD = Held(rev=HELD_REV, commit_cid=COMMIT, data_cid=DATA, state="active")
NEXT = VerifiedCommit(
    repo="did:plc:a",
    rev=NEXT_REV,
    since=HELD_REV,
    commit_cid=OTHER_COMMIT,
    data_cid=OTHER_DATA,
    prev_data=DATA,
    from_empty=False,
    fault=None,
    touches_collection=False,
    ops=(),
)


def event_of(frame: bytes) -> CommitEvent:
    event = decode_frame(frame)
    assert isinstance(event, CommitEvent)
    return event


@pytest.mark.parametrize(
    ("changes", "admission"),
    [
        ({}, Accept(complete=True)),
        ({"rev": OLDER}, Drop()),
        ({"rev": OLDER, "fault": Fault.INVERSION}, Drop()),
        ({"rev": HELD_REV, "commit_cid": COMMIT}, Drop()),
        ({"rev": HELD_REV}, Desynchronize(Fault.REV_CONFLICT)),
        ({"rev": "latest", "fault": Fault.REV_NOT_TID, "since": None}, Desynchronize(Fault.REV_NOT_TID)),
        ({"fault": Fault.REV_IN_FUTURE, "since": OLDER}, Desynchronize(Fault.REV_IN_FUTURE)),
        ({"since": OLDER}, Desynchronize(Fault.SINCE_MISMATCH)),
        ({"since": None}, Desynchronize(Fault.SINCE_MISMATCH)),
        ({"since": OLDER, "prev_data": None}, Desynchronize(Fault.SINCE_MISMATCH)),
        ({"prev_data": None, "fault": Fault.PREV_DATA_ABSENT}, Desynchronize(Fault.PREV_DATA_ABSENT)),
        ({"prev_data": None}, Desynchronize(Fault.PREV_DATA_ABSENT)),
        ({"prev_data": OTHER_DATA}, Desynchronize(Fault.PREV_DATA_MISMATCH)),
        ({"prev_data": OTHER_DATA, "fault": Fault.INVERSION}, Desynchronize(Fault.PREV_DATA_MISMATCH)),
        ({"fault": Fault.INVERSION}, Desynchronize(Fault.INVERSION)),
    ],
)
def test_a_commit_must_chain_on_what_is_held(changes: dict[str, Any], admission: Admission) -> None:
    assert admit(replace(NEXT, **changes), HELD) == admission


@pytest.mark.parametrize("state", ["pending", "resyncing", "desynchronized", "error"])
def test_a_chained_commit_completes_nothing_that_was_not_complete(state: str) -> None:
    assert admit(NEXT, replace(HELD, state=state)) == Accept(complete=False)


@pytest.mark.parametrize("held", [None, Held(None, None, None, "pending"), Held(HELD_REV, COMMIT, None, "active")])
@pytest.mark.parametrize(
    ("changes", "admission"),
    [
        ({}, Accept(complete=False)),
        ({"since": "3n3zzzzzzzz2z", "prev_data": OTHER_DATA}, Accept(complete=False)),
        ({"from_empty": True}, Accept(complete=True)),
        ({"fault": Fault.INVERSION}, Desynchronize(Fault.INVERSION)),
        ({"fault": Fault.PREV_DATA_ABSENT, "prev_data": None}, Desynchronize(Fault.PREV_DATA_ABSENT)),
    ],
)
def test_at_first_sight_a_commit_is_judged_by_itself(
    held: Held | None, changes: dict[str, Any], admission: Admission
) -> None:
    assert admit(replace(NEXT, **changes), held) == admission


def test_after_a_purge_only_the_gate_is_left() -> None:
    purged = Held(HELD_REV, None, None, "active")
    assert admit(replace(NEXT, rev=OLDER), purged) == Drop()
    assert admit(replace(NEXT, rev=HELD_REV), purged) == Drop()
    assert admit(replace(NEXT, since="3n3zzzzzzzz2z"), purged) == Accept(complete=False)


@pytest.fixture(scope="module")
def held_before_baseline() -> dict[str, Held]:
    held: dict[str, Held] = {}
    for frame in frames_of("pds1-live.bin")[:BASELINE_INDEX]:
        event = decode_frame(frame)
        if isinstance(event, CommitEvent):
            verified = verify(event)
            assert admit(verified, held.get(event.did)) == Accept(complete=True)
            held[event.did] = Held(verified.rev, verified.commit_cid, verified.data_cid, "active")
    return held


def verify(event: CommitEvent) -> VerifiedCommit:
    identity = export().at(event.did, event.time)
    assert identity is not None
    return verify_commit(event, parse_did_key(identity.signing_key or ""), event.time)


@pytest.mark.parametrize(
    ("entry", "frame"),
    [
        pytest.param(entry, frame, id=entry["name"])
        for entry, frame in tampered()
        if entry["effect"] not in ("ignored", "quarantined")  # those end at decoding
    ],
)
def test_tampered_commits_end_as_the_manifest_says(
    entry: dict[str, Any], frame: bytes, held_before_baseline: dict[str, Held]
) -> None:
    event = event_of(frame)
    held = held_before_baseline[event.did]
    if entry["effect"] == "unattributable":
        with pytest.raises(Rejected) as caught:
            verify(event)
        assert caught.value.reason == entry["reason"]
    elif entry["effect"] == "desynchronized":
        assert admit(verify(event), held) == Desynchronize(Fault(entry["reason"]))
    else:
        assert admit(verify(event), held) == Accept(complete=True)
        assert event.did == did("alice")
