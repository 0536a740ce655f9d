from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from indexer.interpret import InvalidMemory, StoredMemory, interpret_block
from indexer.record_state import NOTHING_HELD, HeldRecord, Operation, RecordState
from indexer.verify.car import encode_block
from memory.identifiers import COLLECTION, cid_text
from memory.space import PUBLIC
from tests.builders import block_cid, memory

DID = "did:plc:aaaaaaaaaaaaaaaaaaaaaaaa"
RKEY = "3kaaaaaaaaa2a"
TIMES = [datetime(2026, 11, 1, tzinfo=UTC) + timedelta(minutes=minute) for minute in range(9)]


def interpret(record: dict[str, object]) -> StoredMemory | InvalidMemory:
    block = encode_block(record)
    return interpret_block(DID, PUBLIC, RKEY, cid_text(block_cid(block)), block)


def valid(content: str, *replaced: str) -> StoredMemory:
    entries = [f"at://{DID}/{COLLECTION}/{rkey}" for rkey in replaced]
    entry = interpret(memory(content, supersedes=entries))
    assert isinstance(entry, StoredMemory)
    return entry


def invalid(note: str = "") -> InvalidMemory:
    entry = interpret({"$type": COLLECTION, "note": note})
    assert isinstance(entry, InvalidMemory)
    return entry


def held_memory(entry: StoredMemory, number: int = 1) -> HeldRecord:
    return HeldRecord(
        cid=entry.cid,
        version=number,
        effective_at=TIMES[0],
        first_indexed_at=TIMES[0],
        record_bytes=len(entry.record),
        targets=entry.targets,
        replaced=False,
        component=None,
        last_number=number,
        last_operation=Operation.CREATED,
        invalid_cid=None,
    )


def observed(state: RecordState) -> list[tuple[int, str]]:
    return [(version.number, version.operation.value) for version in state.versions]


def test_first_record_is_created():
    state = RecordState(NOTHING_HELD)
    state.put(valid("tea"), "rev", TIMES[1])
    assert observed(state) == [(1, "created")]
    assert (state.first_indexed_at, state.indexed_at) == (TIMES[1], TIMES[1])


def test_other_content_is_an_update_that_overwrites_the_held_one():
    state = RecordState(held_memory(valid("tea")))
    state.put(valid("coffee"), "rev", TIMES[1])
    assert observed(state) == [(2, "updated")]
    assert state.overwritten_at == TIMES[1]
    assert (state.first_indexed_at, state.indexed_at) == (TIMES[0], TIMES[1])


def test_cid_that_is_current_already_is_no_version():
    state = RecordState(held_memory(valid("tea")))
    state.put(valid("tea"), "rev", TIMES[1])
    assert (state.versions, state.changed, state.rev) == ([], False, None)


def test_cid_that_the_batch_has_put_already_is_no_version():
    state = RecordState(NOTHING_HELD)
    state.put(valid("tea"), "rev", TIMES[1])
    state.put(valid("tea"), "later", TIMES[2])
    assert observed(state) == [(1, "created")]
    assert (state.rev, state.indexed_at) == ("rev", TIMES[1])


def test_return_to_an_old_content_is_a_version():
    state = RecordState(held_memory(valid("tea")))
    state.put(valid("coffee"), "rev1", TIMES[1])
    state.put(valid("tea"), "rev2", TIMES[2])
    assert observed(state) == [(2, "updated"), (3, "updated")]
    assert state.overwritten_at == TIMES[1]
    assert [version.overwritten_at for version in state.versions] == [TIMES[2], None]


def test_deletion_is_a_tombstone_that_redacts_what_was_held():
    state = RecordState(held_memory(valid("tea")))
    state.delete(TIMES[1])
    assert observed(state) == [(2, "deleted")]
    assert (state.redacted_at, state.versions[0].redacted_at, state.cid) == (TIMES[1], TIMES[1], None)


def test_deletion_redacts_the_versions_of_its_own_batch():
    state = RecordState(NOTHING_HELD)
    state.put(valid("tea"), "rev1", TIMES[1])
    state.put(valid("coffee"), "rev2", TIMES[2])
    state.delete(TIMES[3])
    assert observed(state) == [(1, "created"), (2, "updated"), (3, "deleted")]
    assert [version.entry for version in state.versions] == [None, None, None]
    assert [version.redacted_at for version in state.versions] == [TIMES[3]] * 3


def test_second_deletion_leaves_the_time_of_the_first():
    state = RecordState(held_memory(valid("tea")))
    state.delete(TIMES[1])
    state.put(valid("coffee"), "rev", TIMES[2])
    state.delete(TIMES[3])
    assert observed(state) == [(2, "deleted"), (3, "created"), (4, "deleted")]
    assert [version.redacted_at for version in state.versions] == [TIMES[1], TIMES[3], TIMES[3]]
    assert state.redacted_at == TIMES[1], "what was held was erased by the first"


def test_recreated_rkey_goes_on_counting_from_its_tombstone():
    state = RecordState(held_memory(valid("tea"), number=4))
    state.delete(TIMES[1])
    state.put(valid("tea"), "rev", TIMES[2])
    assert observed(state) == [(5, "deleted"), (6, "created")]
    assert state.first_indexed_at == TIMES[2]


def test_deletion_of_what_was_never_there_leaves_no_tombstone():
    state = RecordState(NOTHING_HELD)
    state.delete(TIMES[1])
    assert (state.versions, state.redacted_at, state.present) == ([], None, False)


def test_deletion_of_a_record_that_was_never_valid_leaves_no_tombstone():
    state = RecordState(NOTHING_HELD)
    state.put(invalid(), "rev", TIMES[1])
    state.delete(TIMES[2])
    assert (state.versions, state.present) == ([], False)


def test_invalid_record_is_no_version():
    state = RecordState(NOTHING_HELD)
    state.put(invalid(), "rev", TIMES[1])
    assert (state.versions, state.memory, state.invalid, state.present) == ([], None, invalid(), True)


def test_invalid_record_overwrites_the_memory_that_it_replaces():
    state = RecordState(held_memory(valid("tea")))
    state.put(invalid(), "rev", TIMES[1])
    assert (state.overwritten_at, state.is_memory, state.versions) == (TIMES[1], False, [])


def test_memory_after_an_invalid_record_goes_on_with_the_lineage():
    state = RecordState(held_memory(valid("tea")))
    state.put(invalid(), "rev1", TIMES[1])
    state.put(valid("tea"), "rev2", TIMES[2])
    assert observed(state) == [(2, "updated")]
    assert state.overwritten_at == TIMES[1]
    assert state.first_indexed_at == TIMES[2], "it was not there in between"


def test_memory_after_a_first_invalid_record_is_created():
    state = RecordState(NOTHING_HELD)
    state.put(invalid(), "rev1", TIMES[1])
    state.put(valid("tea"), "rev2", TIMES[2])
    assert observed(state) == [(1, "created")]


def test_deletion_of_an_invalid_record_erases_the_versions_before_it():
    state = RecordState(held_memory(valid("tea")))
    state.put(invalid(), "rev", TIMES[1])
    state.delete(TIMES[2])
    assert observed(state) == [(2, "deleted")]
    assert (state.overwritten_at, state.redacted_at) == (TIMES[1], TIMES[2])


def test_withheld_memory_leaves_nothing():
    state = RecordState(NOTHING_HELD)
    state.put(valid("tea"), "rev", TIMES[1])
    assert state.withhold()
    assert (state.versions, state.memory, state.present, state.changed) == ([], None, False, True)


def test_withheld_memory_that_was_deleted_again_leaves_no_tombstone():
    state = RecordState(NOTHING_HELD)
    state.put(valid("tea"), "rev", TIMES[1])
    state.delete(TIMES[2])
    assert not state.withhold()
    assert (state.versions, state.present) == ([], False)


def test_withheld_memory_that_became_invalid_is_withheld_as_it_is():
    state = RecordState(NOTHING_HELD)
    state.put(valid("tea"), "rev", TIMES[1])
    state.put(invalid(), "rev", TIMES[2])
    assert state.withhold()
    assert (state.versions, state.present, state.withheld) == ([], False, invalid())


def test_withheld_invalid_record_leaves_nothing_of_the_memory_that_it_was():
    state = RecordState(held_memory(valid("tea")))
    state.put(valid("coffee"), "rev", TIMES[1])
    state.put(invalid(), "rev", TIMES[2])
    assert state.withhold_invalid()
    assert (state.versions, state.overwritten_at, state.present, state.withheld) == ([], None, False, invalid())


def test_only_an_invalid_record_is_withheld_as_one():
    state = RecordState(NOTHING_HELD)
    state.put(valid("tea"), "rev", TIMES[1])
    assert not state.withhold_invalid()
    assert (state.memory, state.withheld) == (valid("tea"), None)


def test_withheld_memory_leaves_the_tombstone_of_an_earlier_life():
    held = replace(NOTHING_HELD, last_number=1, last_operation=Operation.CREATED, invalid_cid=invalid().cid)
    state = RecordState(held)
    state.put(valid("coffee"), "rev1", TIMES[1])
    state.delete(TIMES[2])
    state.put(valid("water"), "rev2", TIMES[3])
    assert state.withhold()
    assert observed(state) == [(2, "deleted")]
    assert (state.redacted_at, state.memory) == (TIMES[2], None)


@pytest.mark.parametrize(
    ("before", "after", "growth"),
    [
        (None, None, (0, 0, 0, 0)),
        (None, valid("tea", "3kaaaaaaaab2a"), (1, len(valid("tea", "3kaaaaaaaab2a").record), 1, 0)),
        (valid("tea", "3kaaaaaaaab2a"), None, (-1, -len(valid("tea", "3kaaaaaaaab2a").record), -1, 0)),
        (valid("tea"), valid("coffee"), (0, 3, 0, 0)),
        (valid("tea"), invalid(), (-1, -len(valid("tea").record), 0, 1)),
        (None, invalid(), (0, 0, 0, 1)),
    ],
)
def test_growth_is_what_the_batch_adds_to_the_repo(
    before: StoredMemory | None, after: StoredMemory | InvalidMemory | None, growth: tuple[int, int, int, int]
):
    state = RecordState(held_memory(before) if before else NOTHING_HELD)
    if after:
        state.put(after, "rev", TIMES[1])
    else:
        state.delete(TIMES[1])
    assert state.growth() == growth


def test_untouched_record_does_not_grow():
    assert RecordState(held_memory(valid("tea"))).growth() == (0, 0, 0, 0)


def test_invalid_record_that_goes_makes_the_repo_smaller():
    state = RecordState(replace(NOTHING_HELD, invalid_cid=invalid().cid))
    state.delete(TIMES[1])
    assert state.growth() == (0, 0, 0, -1)
