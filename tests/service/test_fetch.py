"""Repos are fetched from their hosts: created, updated, deleted."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator

import pytest

from memory.database import Database
from memory.identifiers import COLLECTION
from tests.builders import memory
from tests.feed import rkey
from tests.mending import Mending, mending


@pytest.fixture
async def world(database: Database) -> AsyncGenerator[Mending]:
    async with mending(database) as opened:
        opened.start()
        yield opened


async def test_repo_that_was_never_seen_is_fetched_whole(world: Mending):
    alice = world.account("alice")
    for number in range(5):
        alice.create(rkey(number), memory(f"{number}"))
    alice.create("self", {"text": "none of ours"}, collection="app.bsky.actor.profile")
    await world.ask(alice)
    await world.until_answered(alice)
    assert await world.contents(alice) == ["0", "1", "2", "3", "4"]
    row = await world.row(alice)
    assert (row["state"], row["reason"], row["rev"], row["fetch_token"]) == ("active", None, alice.rev, None)
    assert (row["audited_at"], row["host"]) == (world.clock.now, alice.host)
    assert row["memory_count"] == 5


async def test_repo_without_memories_is_whole_too(world: Mending):
    alice, bob = world.account("alice"), world.account("bob")
    bob.create("self", {"text": "none of ours"}, collection="app.bsky.actor.profile")
    await world.ask(alice, bob)
    await world.until_answered(alice, bob)
    assert await world.state(alice) == await world.state(bob) == ("active", None)


async def test_blocks_may_come_in_any_order(world: Mending, seed: int):
    world.pds.car_order = random.Random(seed)
    alice = world.account("alice")
    for number in range(40):
        alice.create(rkey(number), memory(f"{number}"))
    await world.ask(alice)
    await world.until_answered(alice)
    assert await world.contents(alice) == [f"{number}" for number in range(40)]


async def test_difference_is_created_updated_and_deleted(world: Mending):
    alice = world.account("alice")
    await world.live(*alice.genesis(), *(alice.create(rkey(n), memory(f"{n}")) for n in range(4)))
    alice.update(rkey(1), memory("one"))
    alice.delete(rkey(2))
    alice.create(rkey(5), memory("five"))
    await world.ask(alice)
    await world.until_answered(alice)
    assert await world.contents(alice) == ["0", "one", "3", "five"]
    versions = await world.rows("select rkey, operation from memory_versions order by rkey, number")
    assert [tuple(row) for row in versions] == [
        (rkey(0), "created"),
        (rkey(1), "created"),
        (rkey(1), "updated"),
        (rkey(2), "created"),
        (rkey(2), "deleted"),
        (rkey(3), "created"),
        (rkey(5), "created"),
    ]


async def test_fetched_memories_mask_as_live_ones_do(world: Mending):
    alice = world.account("alice")
    uri = f"at://{alice.did}/{COLLECTION}/{rkey(1)}"
    alice.create(rkey(1), memory("Likes green tea."))
    alice.create(rkey(2), memory("Likes black tea.", "2026-11-02T10:00:00.000Z", supersedes=[uri]))
    await world.ask(alice)
    await world.until_answered(alice)
    masked = await world.rows("select rkey from memories where masked_from is not null")
    assert [row["rkey"] for row in masked] == [rkey(1)]


async def test_live_commits_chain_on_after_a_fetch(world: Mending):
    alice = world.account("alice")
    alice.create(rkey(1), memory("one"))
    await world.ask(alice)
    await world.until_answered(alice)
    await world.live(alice.create(rkey(2), memory("two")))
    assert await world.contents(alice) == ["one", "two"]
    assert await world.state(alice) == ("active", None)
