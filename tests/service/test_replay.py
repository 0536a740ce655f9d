"""Replaying what real servers sent gives what they held, however often and in whatever pieces."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from memory.data_model import record_json
from memory.database import Database
from memory.identifiers import COLLECTION
from tests.recorded import PDS1, PDS2, contents, did, expected_memories, frames_of, replay

# Read off the recorded records by hand, with the lexicon beside them.
INVALID = {
    ("bob", "supersedesTooMany"): 1,
    ("bob", "wrongType"): 1,
    ("carol", "contentTooLong"): 1,
    ("carol", "contentTooManyGraphemes"): 2,
    ("dave", "contentMissing"): 1,
    ("dave", "createdAtMissing"): 1,
    ("dave", "noDatetime"): 3,
    ("dave", "occurredFromMissing"): 1,
    ("dave", "rkeyNoTid"): 3,
    ("dave", "scopeTooLong"): 1,
    ("dave", "nestedTooDeep"): 1,
    ("dave", "unknownPrecision"): 1,
    ("dave", "wrongType"): 3,
}
BULK, LIVE, MOVED = "pds1-bulk.bin", "pds1-live.bin", "pds2-live.bin"


async def replay_all(database: Database, **options: Any) -> None:
    await replay(database, frames_of(LIVE, BULK), PDS1, **options)
    await replay(database, frames_of(MOVED), PDS2, **options)


async def test_replayed_recordings_hold_what_the_servers_held(database: Database) -> None:
    await replay_all(database)
    async with database.connection() as conn:
        rows = await conn.fetch("select m.* from memories m join repos r using (repo, space) where r.visible")
        invalid = await conn.fetch("select i.* from invalid_records i join repos r using (repo, space) where r.visible")
    served = {(row["repo"], row["rkey"]): row for row in rows}
    refused = {(row["repo"], row["rkey"]): row for row in invalid}
    expected = {
        (repo, path.removeprefix(f"{COLLECTION}/")): memory
        for repo, account in expected_memories().items()
        for path, memory in account["memories"].items()
    }
    assert not served.keys() & refused.keys()
    assert {key: row["cid"] for key, row in (served | refused).items()} == {
        key: memory["cid"] for key, memory in expected.items()
    }
    for key, row in served.items():
        value = expected[key]["value"]
        if not isinstance(value, str):  # left out of the expectations for its size; its CID was compared
            assert record_json(row["record"]) == value
    accounts = {did(account): account for account in ("bob", "carol", "dave")}
    assert Counter((accounts[row["repo"]], row["reason"]) for row in invalid) == INVALID


async def test_accounts_end_as_their_servers_left_them(database: Database) -> None:
    await replay_all(database)
    async with database.connection() as conn:
        repos = {row["repo"]: row for row in await conn.fetch("select * from repos")}
        identities = {row["repo"]: row for row in await conn.fetch("select * from identities")}
        frank = await conn.fetchval("select count(*) from memories where repo = $1", did("frank"))
        franks_past = await conn.fetchval("select count(*) from memory_versions where repo = $1", did("frank"))
    assert not repos[did("frank")]["visible"]
    assert repos[did("frank")]["status"] == "deleted"
    assert repos[did("frank")]["rev"] is not None, "the rev gate outlives the rows"
    assert (frank, franks_past) == (0, 0)
    for account in ("alice", "bob", "carol", "dave", "erin", "grace", "heidi"):
        assert repos[did(account)]["visible"], account
        assert repos[did(account)]["state"] == "active", account
        assert repos[did(account)]["rev"] == expected_memories()[did(account)]["rev"], account
        assert repos[did(account)]["data_cid"] == expected_memories()[did(account)]["data"], account
    assert identities[did("grace")]["host"] == PDS2.url
    assert identities[did("bob")]["handle"] == "bob-renamed.test"


async def test_only_replacements_within_one_repo_mask(database: Database) -> None:
    await replay_all(database)
    async with database.connection() as conn:
        masked = await conn.fetch("select repo, rkey, content from memories where masked_from is not null")
        effects = {row["rkey"]: row["content"] for row in masked if row["repo"] == did("bob")}
        alices = {row["content"] for row in masked if row["repo"] == did("alice")}
    assert effects == {"3mcyclea22222": "cycle a"}, "the newer of two that replace each other stays"
    assert "The user prefers green tea to coffee." in alices


async def test_replaying_twice_changes_nothing(database: Database) -> None:
    await replay_all(database)
    once = await contents(database)
    await replay_all(database)
    assert await contents(database) == once
    await replay_all(database, use_cursor=False)
    assert await contents(database) == once


async def test_hosts_replayed_in_the_other_order_give_the_same_memories(database: Database) -> None:
    """The new host first: its commit is met in the middle and chained, the old host's are older than it."""
    await replay(database, frames_of(MOVED), PDS2)
    await replay(database, frames_of(LIVE, BULK), PDS1)
    async with database.connection() as conn:
        grace = await conn.fetchrow("select state, reason from repos where repo = $1", did("grace"))
        wanted = await conn.fetchval("select kind from requests where repo = $1 and kind = 'fetch'", did("grace"))
        others = await conn.fetchval("select count(*) from memories where repo <> $1", did("grace"))
    assert grace is not None
    assert grace["state"] == "pending"
    assert wanted == "fetch"
    assert others == sum(
        len(account["memories"]) for account in expected_memories().values() if account["account"] != "grace"
    ) - sum(INVALID.values())


@pytest.mark.parametrize("batch_events", [1, 7, 500])
async def test_batches_of_any_size_give_the_same_contents(database: Database, batch_events: int) -> None:
    await replay_all(database, batch_events=batch_events)
    sizes = await contents(database)
    async with database.connection() as conn:
        await conn.execute("truncate memories, memory_edges, memory_versions, invalid_records, repos, identities")
        await conn.execute("truncate account_status, requests, sources, rejections")
    await replay_all(database, batch_events=100)
    assert await contents(database) == sizes


async def test_replay_resumes_at_any_frame(database: Database, seed: int) -> None:
    await replay_all(database)
    whole = await contents(database)
    frames = frames_of(LIVE, BULK)
    draw = random.Random(seed)
    for _ in range(6):
        async with database.connection() as conn:
            await conn.execute("truncate memories, memory_edges, memory_versions, invalid_records, repos, identities")
            await conn.execute("truncate account_status, requests, sources, rejections")
        for end in sorted(draw.sample(range(len(frames)), 4)):
            await replay(database, frames[:end], PDS1)
        await replay(database, frames, PDS1)
        await replay(database, frames_of(MOVED), PDS2)
        assert await contents(database) == whole


async def test_cursor_is_the_last_seq_of_what_was_replayed(database: Database) -> None:
    await replay(database, frames_of(LIVE)[:50], PDS1)
    async with database.connection() as conn:
        assert await conn.fetchval("select seq from sources where source = $1", PDS1.url) == 50


async def test_replay_without_cursor_leaves_the_cursor_alone(database: Database) -> None:
    await replay(database, frames_of(LIVE)[:50], PDS1)
    await replay(database, frames_of(LIVE), PDS1, use_cursor=False)
    async with database.connection() as conn:
        assert await conn.fetchval("select seq from sources where source = $1", PDS1.url) == 50


async def test_an_old_hosts_word_on_a_moved_account_is_refused(database: Database) -> None:
    report = await replay(database, frames_of(LIVE), PDS1)
    assert report.rejected["wrong_host"] == 1
