"""The ops of a commit: what they amount to, and whether the tree bears them out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.frames import RepoOp
from indexer.verify.car import encode_block, read_car
from indexer.verify.reasons import Fault
from memory.identifiers import COLLECTION, cid_text
from tests.builders import CommitParts, RepoBuilder, Write, block_cid, write_car
from tests.commits import NOISE, NOTE, PATH, RKEY, event_of, grown, verified, with_car

A, B, C = (block_cid(bytes([n])) for n in range(3))


@pytest.mark.parametrize(
    "path",
    [
        "", "/", COLLECTION, f"{COLLECTION}/", f"/{RKEY}", f"{COLLECTION}//{RKEY}", f"{PATH}/x", f"{COLLECTION}/.",
        f"{COLLECTION}/..", f"{COLLECTION}/a b", f"{COLLECTION}/é", f"{COLLECTION}/a\x00", f"{COLLECTION}/a\n",
        f"{COLLECTION}/{'x' * 513}", f"{'x' * 600}/a", f"{NOISE}/..", f"{NOISE}/a%20b",
    ],
)  # fmt: skip
def test_a_path_is_a_collection_and_a_record_key(path: str) -> None:
    builder = grown(3)
    event = event_of(builder.create(RKEY, NOTE))
    assert verified(builder, replace(event, ops=(*event.ops, RepoOp("create", path, A, None)))).fault is Fault.BAD_PATH


@pytest.mark.parametrize("rkey", ["x" * 512, ":", "~", "-_.", "...", "A", "a:b", "self"])
def test_record_keys_may_be_long_and_odd(rkey: str) -> None:
    builder = grown(3)
    commit = verified(builder, event_of(builder.create(rkey, NOTE)))
    assert (commit.fault, [op.rkey for op in commit.ops]) == (None, [rkey])


@pytest.mark.parametrize(
    ("ops", "fault"),
    [
        ([("rename", A, None)], Fault.BAD_OP),
        ([("create", None, None)], Fault.BAD_OP),
        ([("create", A, B)], Fault.BAD_OP),
        ([("update", None, A)], Fault.BAD_OP),
        ([("delete", A, B)], Fault.BAD_OP),
        ([("update", A, None)], Fault.PREV_ABSENT),
        ([("delete", None, None)], Fault.PREV_ABSENT),
        ([("create", A, None), ("create", B, None)], Fault.BAD_OP),
        ([("create", A, None), ("update", B, C)], Fault.BAD_OP),
        ([("create", A, None), ("delete", None, None), ("update", B, None)], Fault.BAD_OP),
        ([("delete", None, A), ("delete", None, None)], Fault.BAD_OP),
        ([("create", A, None)], Fault.RECORD_MISSING),
    ],
)
def test_ops_must_not_contradict_themselves(ops: list[tuple[str, bytes | None, bytes | None]], fault: Fault) -> None:
    builder = grown(3)
    event = replace(event_of(builder.apply()), ops=tuple(RepoOp(action, PATH, cid, prev) for action, cid, prev in ops))
    assert verified(builder, event).fault is fault


@pytest.mark.parametrize(
    "ops",
    [
        [],
        [("create", A, None), ("delete", None, None)],
        [("create", A, None), ("update", B, None), ("delete", None, B)],
        [("update", B, A), ("update", A, None)],
        [("update", B, A), ("delete", None, B), ("create", A, None)],
        [("delete", None, A), ("create", A, None)],
    ],
)
def test_ops_on_one_path_that_end_where_they_began_change_nothing(
    ops: list[tuple[str, bytes | None, bytes | None]],
) -> None:
    builder = grown(3)
    event = replace(event_of(builder.apply()), ops=tuple(RepoOp(action, PATH, cid, prev) for action, cid, prev in ops))
    commit = verified(builder, event)
    assert (commit.fault, commit.ops, commit.touches_collection) == (None, (), bool(ops))


def test_ops_on_one_path_are_collapsed_to_what_they_amount_to() -> None:
    builder = grown(3)
    builder.create(RKEY, NOTE)
    rewritten = verified(builder, event_of(builder.apply([Write("delete", RKEY), Write("create", RKEY, {"n": 1})])))
    assert [(op.action, op.block) for op in rewritten.ops] == [("update", encode_block({"n": 1}))]
    twice = verified(
        builder, event_of(builder.apply([Write("create", "new", {"n": 2}), Write("update", "new", {"n": 3})]))
    )
    assert [(op.action, op.rkey, op.block) for op in twice.ops] == [("create", "new", encode_block({"n": 3}))]


def test_an_op_left_out_or_added_is_noticed() -> None:
    builder = grown()
    event = event_of(builder.apply([Write("create", RKEY, NOTE), Write("create", "a", {}, NOISE)]))
    assert verified(builder, replace(event, ops=event.ops[:1])).fault is Fault.INVERSION
    assert verified(builder, replace(event, ops=event.ops[1:])).fault is Fault.INVERSION
    added = RepoOp("create", f"{NOISE}/not-there", A, None)
    assert verified(builder, replace(event, ops=(*event.ops, added))).fault is Fault.OP_MISMATCH


def test_records_of_other_collections_need_not_be_there() -> None:
    builder = grown()
    record = block_cid(encode_block({"text": "hi"}))
    event = event_of(builder.create("a", {"text": "hi"}, NOISE, tamper=lambda parts: parts.blocks.pop(record) and None))
    assert verified(builder, event).fault is None


@pytest.mark.parametrize("block", [b"", b"\xff", b"\x81" * 1500 + b"\x01", b"\xa1ax\xfb\x3f\xf0" + b"\x00" * 6])
def test_a_hostile_record_does_not_fail_its_commit(block: bytes) -> None:
    builder = grown()
    commit = verified(builder, event_of(builder.create(RKEY, block)))
    assert commit.fault is None
    assert [op.block for op in commit.ops] == [block]


def test_a_malformed_tree_is_at_fault() -> None:
    def reverse_root(parts: CommitParts) -> None:
        root = encode_block({"e": [], "l": parts.commit["data"]})
        parts.blocks[block_cid(root)] = root
        parts.commit["data"] = block_cid(root)

    builder = grown()
    event = event_of(builder.create(RKEY, NOTE, tamper=reverse_root))
    assert verified(builder, event).fault is Fault.MALFORMED_TREE


steps = st.lists(
    st.lists(st.tuples(st.integers(0, 25), st.sampled_from([COLLECTION, NOISE]), st.integers(0, 3)), max_size=6),
    min_size=1,
    max_size=6,
)


@given(steps)
def test_ops_lead_from_the_tree_before_to_the_tree_after(batches: list[list[tuple[int, str, int]]]) -> None:
    builder = RepoBuilder("random")
    for batch in batches:
        before, writes, now_held = dict(builder.records), list[Write](), set(builder.records)
        for number, collection, value in batch:
            write = Write("delete", f"r{number}", None, collection)
            if value:
                action = "update" if write.path in now_held else "create"
                write = Write(action, write.rkey, {"n": value}, collection)
                now_held.add(write.path)
            elif write.path in now_held:
                now_held.remove(write.path)
            else:
                continue
            writes.append(write)
        commit = verified(builder, event_of(builder.apply(writes)))
        assert commit.fault is None
        after = builder.records
        changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        assert {f"{COLLECTION}/{op.rkey}" for op in commit.ops} == {p for p in changed if p.startswith(COLLECTION)}
        for op in commit.ops:
            path = f"{COLLECTION}/{op.rkey}"
            assert op.prev == (cid_text(before[path]) if path in before else None)
            assert op.cid == (cid_text(after[path]) if path in after else None)
            assert op.action == ("delete" if path not in after else "update" if path in before else "create")


@given(st.data())
def test_a_commit_without_one_of_its_blocks_is_whole_or_at_fault(data: st.DataObject) -> None:
    builder = grown()
    rkeys = sorted(path.removeprefix(f"{COLLECTION}/") for path in builder.records)
    chosen = data.draw(st.lists(st.sampled_from(rkeys), unique=True, min_size=1, max_size=3))
    event = event_of(builder.apply([Write("delete", chosen[0]), *(Write("update", r, NOTE) for r in chosen[1:])]))
    missing = data.draw(st.sampled_from(sorted(read_car(event.blocks).blocks)))
    if missing == event.commit:
        return
    thinned = with_car(event, lambda car: write_car(car.root, [b for b in car.blocks.items() if b[0] != missing]))
    expected = {None, Fault.TREE_INCOMPLETE, Fault.RECORD_MISSING, Fault.INVERSION}
    assert verified(builder, thinned).fault in expected
