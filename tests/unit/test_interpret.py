"""One block under many keys is read once, and means at each of them what it means by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexer import interpret
from indexer.interpret import (
    REMEMBERED_BYTES,
    REMEMBERED_BYTES_LEAST,
    Interpreter,
    MemoryOp,
    StoredMemory,
    interpret_block,
    interpret_commit,
)
from indexer.verify.commit import RecordOp, VerifiedCommit
from memory.identifiers import COLLECTION, cid_text
from memory.record import Memory, interpret_record
from memory.space import PUBLIC
from tests.builders import block_cid, encode_block, memory
from tests.feed import rkey

ALICE = "did:plc:alice"
REMEMBERED_AT_MOST = REMEMBERED_BYTES // REMEMBERED_BYTES_LEAST


def uri(key: str, author: str = ALICE) -> str:
    return f"at://{author}/{COLLECTION}/{key}"


KEYS = [*(rkey(number) for number in range(4)), "self", "3zzz"]
BLOCKS = [
    encode_block(memory("plain")),
    encode_block(memory("replaces all", supersedes=[uri(key) for key in KEYS])),
    encode_block(memory("replaces one of another", supersedes=[uri(rkey(1), "did:plc:bob"), uri(rkey(2)), "nothing"])),
    encode_block({"$type": COLLECTION}),
    b"\xff no record" + b"x" * 5000,
]


def cid_of(block: bytes) -> str:
    return cid_text(bytes(block_cid(block)))


def written(key: str, block: bytes, prev: str | None = None) -> RecordOp:
    return RecordOp(key, prev, cid_of(block), block)


def commit(ops: Iterable[RecordOp]) -> VerifiedCommit:
    return VerifiedCommit(
        repo=ALICE,
        rev="3kaaaaaaaaaaa",
        since=None,
        commit_cid="commit",
        data_cid="data",
        prev_data=None,
        from_empty=True,
        fault=None,
        touches_collection=True,
        ops=tuple(ops),
    )


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Counter[bytes]:
    """How often each block was read as a record."""
    counted = Counter[bytes]()

    def counting(key: str, block: bytes) -> Memory | object:
        counted[block] += 1
        return interpret_record(key, block)

    monkeypatch.setattr(interpret, "interpret_record", counting)
    return counted


writes = st.builds(written, st.sampled_from(KEYS), st.sampled_from(BLOCKS), st.sampled_from([None, "before"]))
deletes = st.builds(RecordOp, st.sampled_from(KEYS), st.just("before"), st.none(), st.none())


@settings(max_examples=200)
@given(st.lists(writes | deletes, max_size=24))
def test_op_means_in_a_commit_what_it_means_by_itself(ops: list[RecordOp]):
    alone = tuple(
        MemoryOp(op.rkey, None)
        if op.cid is None or op.block is None
        else MemoryOp(op.rkey, interpret_block(ALICE, PUBLIC, op.rkey, op.cid, op.block), created=op.prev is None)
        for op in ops
    )
    assert interpret_commit(commit(ops)) == alone


@settings(max_examples=100)
@given(
    st.lists(st.tuples(st.sampled_from(KEYS), st.sampled_from(BLOCKS)), max_size=40),
    st.integers(0, 3 * REMEMBERED_BYTES_LEAST),
)
def test_record_means_the_same_whatever_is_remembered(records: list[tuple[str, bytes]], remembered_bytes: int):
    interpreter = Interpreter(ALICE, PUBLIC, remembered_bytes=remembered_bytes)
    for key, block in records:
        alone = interpret_block(ALICE, PUBLIC, key, cid_of(block), block)
        assert interpreter.interpret(key, cid_of(block), block) == alone


def test_commit_reads_a_block_once_however_many_keys_have_it(readings: Counter[bytes]):
    blocks = BLOCKS * 40
    ops = interpret_commit(commit(written(rkey(number), block) for number, block in enumerate(blocks)))
    assert len(ops) == 200
    assert readings == dict.fromkeys(BLOCKS, 1)


def test_each_key_of_a_block_has_its_own_targets():
    block = encode_block(memory("either", supersedes=[uri(rkey(1)), uri(rkey(2))]))
    first, second = interpret_commit(commit([written(rkey(1), block), written(rkey(2), block)]))
    assert isinstance(first.entry, StoredMemory)
    assert isinstance(second.entry, StoredMemory)
    assert (first.entry.targets, second.entry.targets) == ((rkey(2),), (rkey(1),))


def test_fetch_reads_a_block_once_however_many_keys_have_it(readings: Counter[bytes]):
    interpreter = Interpreter(ALICE, PUBLIC)
    hot = BLOCKS[0]
    for number in range(3 * REMEMBERED_AT_MOST):
        interpreter.interpret(rkey(number), cid_of(hot), hot)
        other = encode_block(memory(f"{number}"))  # what comes between does not push it out
        interpreter.interpret(rkey(1000 + number), cid_of(other), other)
    assert readings[hot] == 1


def test_block_is_forgotten_behind_so_many_others(readings: Counter[bytes]):
    interpreter = Interpreter(ALICE, PUBLIC)
    blocks = [encode_block(memory(f"{number}")) for number in range(REMEMBERED_AT_MOST + 1)]
    for block in [*blocks, blocks[1], blocks[0]]:
        interpreter.interpret(rkey(0), cid_of(block), block)
    assert (readings[blocks[1]], readings[blocks[0]]) == (1, 2)


def test_large_blocks_are_forgotten_behind_fewer(readings: Counter[bytes]):
    interpreter = Interpreter(ALICE, PUBLIC)
    blocks = [encode_block(memory(f"{number}", kind="x" * 900_000)) for number in range(3)]
    for block in [*blocks, blocks[1], blocks[0]]:
        interpreter.interpret(rkey(0), cid_of(block), block)
    assert (readings[blocks[1]], readings[blocks[0]]) == (1, 2)
