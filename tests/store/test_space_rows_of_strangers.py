"""What strangers can have written into the tables of Spaces is little, and keeps nobody waiting."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from indexer.store import space_repos, spaces
from indexer.store.spaces import Listed
from memory.database import Database
from memory.queries import Connection

NOW = datetime(2026, 6, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SPACE = "at://did:plc:zzz/space/com.example.group/main"


async def space_row(conn: Connection, space: str = SPACE) -> None:
    await conn.execute(
        "insert into spaces (repo, space, opened_at, credentialed_until, due_at, listed_at) values ($1,$2,$3,$3,$4,$3)",
        space.split("/")[2],
        space,
        NOW,
        NOW + timedelta(hours=1),
    )


async def test_orphaned_notes_hide_no_others(database: Database):
    async with database.connection() as conn:
        await space_row(conn)
        await conn.execute(
            "insert into space_inbox (repo, space, kind)"
            " select 'did:plc:a', 'at://did:plc:a/space/x.y.z/' || n, 'deleted' from generate_series(1, 200) n"
        )
        await conn.execute(
            "insert into space_inbox (repo, space, kind) values ('did:plc:zzz', $1, 'deleted')",
            SPACE,
        )
        found = await spaces.claim(conn, uuid4(), MINUTE, at_most=16, now=NOW)
        assert [each.space for each in found] == [SPACE]


async def test_authors_that_cannot_be_found_hide_no_others(database: Database):
    async with database.connection() as conn:
        await conn.execute(
            "insert into space_repos (repo, space, listed_rev, listed_hash, pull_after)"
            " select 'did:web:x' || n || '.evil.example', 'at://did:plc:a/space/x.y.z/1', '3kaaaaaaaaa2a', 'x', $1"
            " from generate_series(1, 600) n",
            NOW - MINUTE,
        )
        await conn.execute(
            "insert into space_repos (repo, space, listed_rev, listed_hash, pull_after, host)"
            " values ('did:plc:good', $1, '3kaaaaaaaaa2a', 'x', $2, 'https://good.example')",
            SPACE,
            NOW,
        )
        found = await space_repos.claim(conn, uuid4(), MINUTE, at_most=16, each_host=4, busy_hosts=[], now=NOW)
        assert "did:plc:good" in [each.author for each in found]


async def test_listings_of_ever_new_authors_leave_no_more_rows(database: Database):
    async with database.connection() as conn:
        await space_row(conn)
        for round_ in range(3):
            [claim] = await spaces.claim(conn, uuid4(), MINUTE, at_most=1, now=NOW + timedelta(hours=2 + round_))
            known = await spaces.load_listed(conn, SPACE)
            listed = [Listed(f"did:web:r{round_}n{n}.evil.example", "3kaaaaaaaaa2a", b"x" * 32) for n in range(100)]
            gone = [Listed(a, None, None) for a, s in known.items() if s.listed_rev is not None]
            await spaces.store_listed(conn, claim, listed + gone, NOW)
            await conn.execute("update spaces set claimed_until = 'epoch', due_at = 'epoch'")
        assert await conn.fetchval("select count(*) from space_repos") <= 100
