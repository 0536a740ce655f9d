"""Rows about Spaces: who gets which claim, and that what is asked again and again is found by an index."""

from __future__ import annotations

import asyncio
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from indexer.store import space_repos, spaces
from memory.database import Database
from memory.queries import load_queries

NOW = datetime(2026, 12, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SQL = Path(spaces.__file__).parent / "sql"
FILL = """
insert into spaces (repo, space, opened_at, due_at, credentialed_until)
select 'did:plc:' || n, 'at://did:plc:' || n || '/space/com.example.group/main',
    $1::timestamptz, $1::timestamptz + n * interval '1 second', $1::timestamptz
from generate_series(1, 5000) n
"""
FILL_REPOS = """
insert into space_repos (repo, space, listed_rev, listed_hash, pull_after)
select 'did:plc:author' || a || s.repo, s.space, '3kaaaaaaaaa2a', '\\x00', case when a = 1 then s.due_at end
from spaces s, generate_series(1, 6) a
"""


FILL_OTHERS = """
insert into credentials (repo, token, space, sealed, key_id, expires_at)
select repo, 't', space, '', 'k', due_at from spaces
"""
FILL_NOTES = "insert into space_inbox (repo, space, kind) select repo, space, 'opened' from spaces limit 20"
FILL_SHOWN = """
insert into repos (repo, space, state, tracked_at, changed_at)
select repo, space, 'active', now(), now() from space_repos
"""


async def fill(database: Database) -> None:
    async with database.connection() as conn:
        await conn.execute(FILL, NOW)
        await conn.execute(FILL_REPOS)
        await conn.execute(FILL_OTHERS)
        await conn.execute(FILL_SHOWN)
        await conn.execute("analyze spaces, space_repos, space_inbox, repos, credentials")


async def test_space_is_claimed_once_until_its_claim_ends(database: Database):
    await fill(database)
    now = NOW + timedelta(seconds=10)

    async def claim(at: datetime) -> list[str]:
        async with database.connection() as conn:
            return [each.space for each in await spaces.claim(conn, uuid4(), MINUTE, at_most=8, now=at)]

    taken = await asyncio.gather(*(claim(now) for _ in range(4)))
    claimed = [space for each in taken for space in each]
    assert len(claimed) == len(set(claimed)) == 10
    assert await claim(now) == []
    later = await asyncio.gather(*(claim(now + 2 * MINUTE) for _ in range(4)))
    assert len({space for each in later for space in each}) == 32


async def test_repo_is_claimed_once_until_its_claim_ends(database: Database):
    await fill(database)
    now = NOW + timedelta(seconds=10)

    async def claim(at: datetime) -> list[tuple[str, str]]:
        async with database.connection() as conn:
            found = await space_repos.claim(conn, uuid4(), MINUTE, at_most=8, each_host=8, busy_hosts=[], now=at)
            return [(each.author, each.space) for each in found]

    taken = await asyncio.gather(*(claim(now) for _ in range(4)))
    claimed = [key for each in taken for key in each]
    assert len(claimed) == len(set(claimed)) == 10
    assert await claim(now) == []


async def test_repos_of_busy_hosts_are_left_and_of_each_other_host_some_taken(database: Database):
    await fill(database)
    hosts = "update space_repos set host = 'https://' || case when space < 'at://did:plc:3' then 'a' else 'b' end"
    async with database.connection() as conn:
        await conn.execute(hosts)
        now = NOW + timedelta(hours=2)
        found = await space_repos.claim(
            conn, uuid4(), MINUTE, at_most=50, each_host=3, busy_hosts=["https://a"], now=now
        )
    assert len(found) == 3
    assert all(claim.space >= "at://did:plc:3" for claim in found)


HOT = [
    *("claim_spaces", "load_listed", "hide_stale", "settle_space", "note_listing", "live_credentials"),
    *("claim_pulls", "lock_pull", "end_pull", "put_back_pull", "note_accounts", "show_space_repos", "keep_pull"),
]


@pytest.mark.parametrize("name", HOT)
async def test_what_is_asked_again_and_again_is_found_by_an_index(database: Database, name: str):
    await fill(database)
    async with database.connection() as conn:
        await conn.execute(FILL_NOTES)
        await conn.execute("analyze space_inbox")
    statements = {each.name: each for file in ("spaces", "space_repos") for each in load_queries(SQL / f"{file}.sql")}
    given = ", ".join("null" for _ in statements[name].parameters)
    async with database.transaction() as conn:
        await conn.execute("set local plan_cache_mode = force_generic_plan")
        await conn.execute(f"prepare hot as {statements[name].sql}")
        plan = "\n".join(row[0] for row in await conn.fetch(f"explain execute hot({given})"))
        await conn.execute("deallocate hot")
    if name == "claim_spaces":  # which then joins so many with their rows, and may well read all of a small table
        assert "spaces_by_time" in plan
    else:
        assert re.findall("Seq Scan on (?:spaces|space_repos|credentials|repos) .*", plan) == []
