"""A repo that has one block under many keys costs no more to read than the block does once."""

from __future__ import annotations

from collections import Counter

import pytest

from indexer import interpret
from memory.database import Database
from memory.identifiers import COLLECTION
from memory.record import InvalidRecord, Memory, interpret_record
from tests.builders import Write, encode_block, memory
from tests.feed import rkey
from tests.mending import mending

KEYS = 60


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> Counter[bytes]:
    """How often each block was read as a record."""
    counted = Counter[bytes]()

    def counting(key: str, block: bytes) -> Memory | InvalidRecord:
        counted[block] += 1
        return interpret_record(key, block)

    monkeypatch.setattr(interpret, "interpret_record", counting)
    return counted


async def test_fetched_block_is_read_once_and_means_itself_at_each_key(database: Database, readings: Counter[bytes]):
    async with mending(database) as world:
        world.start()
        alice = world.account("alice")
        targets = [f"at://{alice.did}/{COLLECTION}/{rkey(number)}" for number in (1, 2)]
        block = encode_block(memory("the same", supersedes=targets))
        alice.apply([Write("create", rkey(number), block) for number in range(KEYS)])
        await world.ask(alice)
        await world.until_answered(alice)
        assert readings == {block: 1}
        held = [row["rkey"] for row in await world.rows("select rkey from memories order by rkey")]
        assert held == [rkey(number) for number in range(KEYS)]
        edges = {(row["rkey"], row["target"]) for row in await world.rows("select rkey, target from memory_edges")}
        assert edges == {(key, target) for key in held for target in (rkey(1), rkey(2)) if key != target}
