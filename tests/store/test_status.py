"""What `status` counts of fetches, gaps and searches."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from indexer.erasure import Erasure
from indexer.store import fetches
from indexer.store.erasure import store_state
from indexer.store.fetches import Sweep
from indexer.store.status import (
    FailedFetches,
    FetchesStatus,
    GapStatus,
    IndexStatus,
    RequestStatus,
    SweepStatus,
    index_status,
)
from memory.database import Database

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)


async def read(database: Database) -> IndexStatus:
    async with database.connection() as conn:
        return await index_status(conn)


async def track(database: Database, *repos: str, state: str = "pending", audited_at: datetime | None = None) -> None:
    async with database.connection() as conn:
        await conn.execute(
            "insert into repos (repo, state, tracked_at, changed_at, audited_at)"
            " select repo, $2, $3, $3, $4 from unnest($1::text[]) as n (repo)",
            list(repos),
            state,
            NOW,
            audited_at,
        )


async def ask(
    database: Database, repo: str, *, not_before: datetime = NOW, attempts: int = 0, failure: str | None = None
) -> None:
    async with database.connection() as conn:
        await conn.execute(
            "insert into requests (repo, kind, reason, requested_at, not_before, attempts, failure)"
            " values ($1, 'fetch', 'sync', $2, $3, $4, $5)",
            repo,
            NOW,
            not_before,
            attempts,
            failure,
        )


async def test_fetches_are_told_apart_by_how_far_they_are(database: Database):
    await track(database, "a", "b", "e", "f", "g")
    await track(database, "c", state="resyncing")
    await track(database, "d", state="active", audited_at=NOW)
    for repo in ("a", "b"):
        await ask(database, repo)
    await ask(database, "c", attempts=1, not_before=LATER)
    await ask(database, "e", attempts=3, not_before=LATER, failure="host_unavailable")
    await ask(database, "f", attempts=1, not_before=LATER + timedelta(hours=1), failure="host_unavailable")
    await ask(database, "g", attempts=1, not_before=LATER, failure="block_hash")
    status = await read(database)
    assert status.fetches == FetchesStatus(
        waiting=2,
        under_way=1,
        failed=[FailedFetches("host_unavailable", 2, LATER), FailedFetches("block_hash", 1, LATER)],
        confirmed_at=NOW,
    )


async def test_requests_are_told_with_when_the_first_was_due(database: Database):
    for repo, not_before in (("a", LATER), ("b", NOW + timedelta(minutes=1))):
        await ask(database, repo, not_before=not_before)
    assert (await read(database)).requests == [RequestStatus("fetch", "sync", 2, NOW, NOW + timedelta(minutes=1))]


async def test_gap_is_told_with_how_far_it_is_compared(database: Database):
    await track(database, "a", "b", "c", "d", state="active")
    async with database.connection() as conn:
        await conn.execute(
            "insert into sources (source, seq, updated_at, gap_at, gap_compared_to)"
            " values ('x', 1, $1, $1, 'b'), ('y', 1, $1, $1, null), ('z', 1, $1, null, null)",
            NOW,
        )
    assert (await read(database)).gaps == [GapStatus("x", NOW, 2, 4), GapStatus("y", NOW, 0, 4)]


async def test_search_is_told_until_it_is_through(database: Database):
    async with database.connection() as conn:
        await fetches.store_sweep(conn, "https://through.test", Sweep(None, 5, NOW, NOW), NOW)
        await fetches.store_sweep(conn, "https://under-way.test", Sweep("x", 7, NOW), LATER)
    assert (await read(database)).sweeps == [SweepStatus("https://under-way.test", 7, NOW, LATER)]


async def test_parked_commits_that_wait_for_a_fetch_are_told_apart(database: Database):
    async with database.connection() as conn:
        await conn.execute(
            "insert into parked_commits (repo, rev, source, seq, frame, reason, parked_at)"
            " values ('a', '1', 'x', 1, '', 'resyncing', $1), ('a', '2', 'x', 2, '', 'key_unknown', $1)",
            NOW,
        )
    status = await read(database)
    assert (status.parked_commits, status.parked_for_fetch) == (2, 1)


async def test_erasure_is_told_with_when_it_was_last_seen_to(database: Database):
    never = (await read(database)).erasure
    assert (never.last_at, never.in_use, never.is_overdue) == (None, False, False)
    assert never.server_started_at < never.now
    await Erasure(database).look()
    begun = (await read(database)).erasure
    assert begun.last_at is not None
    assert never.now < begun.last_at < begun.now
    assert not begun.is_overdue


async def test_erasure_that_is_overdue_is_told(database: Database):
    await track(database, "a")
    erasure = (await read(database)).erasure
    assert erasure.in_use
    last_at = erasure.now - timedelta(hours=25)
    async with database.connection() as conn:
        await store_state(conn, last_at, "7 1.5")
    erasure = (await read(database)).erasure
    assert (erasure.last_at, erasure.is_overdue) == (last_at, True)
