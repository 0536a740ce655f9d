"""The migration of memory stores counts and names what was there before it as the writer does what comes after it."""

from __future__ import annotations

from memory.database import Database
from memory.schema import MIGRATIONS
from tests.builders import memory
from tests.feed import Feed, rkey

MIGRATION = MIGRATIONS / "20261202040000_stores.sql"
UNDONE = """
    drop index repos_by_id, repos_public_by_age, repos_in_space_by_age, repos_by_lower_did;
    drop index memory_versions_by_memory_id, memory_versions_by_id, memory_versions_by_time;
    alter table repos drop entry_count, drop entry_bytes, drop first_indexed_at, drop status_changed_at;
    alter table memory_versions drop id_hash;
    delete from settings where name = 'id_key';
"""
KEPT = "select repo, entry_count, entry_bytes, first_indexed_at is not null from repos order by repo"
NAMED = "select repo, rkey, number, id_hash from memory_versions where cid is not null order by repo, rkey, number"


async def test_rows_from_before_are_counted_and_named_alike(database: Database):
    feed = Feed(database)
    alice, bob = feed.account("alice"), feed.account("bob")
    old = f"at://{alice.did}/dev.bastienrobert.memory.record/{rkey(1)}"
    await feed.send(
        alice.create(rkey(1), memory("old")),
        alice.create(rkey(2), memory("newer", supersedes=[old])),
        alice.update(rkey(2), memory("très nouveau", supersedes=[old])),
        bob.create(rkey(1), memory("gone")),
        bob.delete(rkey(1)),
    )
    counts, names = [[tuple(row) for row in await feed.rows(query)] for query in (KEPT, NAMED)]
    assert sorted(count[1:3] for count in counts) == [(0, 0), (1, 13)]
    async with database.transaction() as conn:
        await conn.execute(UNDONE)
        await conn.execute(MIGRATION.read_text().partition("-- migrate:down")[0])
    assert [tuple(row) for row in await feed.rows(KEPT)] == counts
    assert [tuple(row) for row in await feed.rows(NAMED)] == names
    [unnamed] = await feed.rows("select count(*) from memory_versions where id_hash is null")
    assert tuple(unnamed) == (0,)
