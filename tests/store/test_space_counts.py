"""How Spaces do, counted: each once, by the last state that fits, and nothing of what nobody has open."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from indexer.store import space_counts
from indexer.store.space_counts import NO_SPACES, SpaceCounts, SpaceRepoState, SpaceState, Work
from memory.database import Database
from memory.errors import Unavailable

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SPACE = "at://did:plc:authority/space/com.example.group/"


def ago(**time: float) -> datetime:
    return NOW - timedelta(**time)


async def put_space(
    database: Database,
    name: str,
    *,
    state: str = "ready",
    fresh_until: datetime = NOW + timedelta(minutes=1),
    listed_at: datetime | None = NOW,
    opened_at: datetime = NOW,
    failure: str | None = None,
    told_until: datetime | None = None,
    credential_until: datetime | None = NOW + timedelta(hours=1),
) -> None:
    space = SPACE + name
    async with database.transaction() as conn:
        await conn.execute(
            "insert into spaces (repo, space, state, fresh_until, listed_at, opened_at, attempts, failure,"
            " registered_until, credentialed_until)"
            " values ('did:plc:authority', $1, $2, $3, $4, $5, $6, $7, $8, $5)",
            *(space, state, fresh_until, listed_at, opened_at, int(failure is not None), failure, told_until),
        )
        if credential_until is not None:
            await conn.execute(
                "insert into credentials (repo, token, space, sealed, key_id, expires_at)"
                " values ('did:plc:viewer', 'token', $1, '', 'k', $2)",
                *(space, credential_until),
            )


async def put_repo(
    database: Database,
    name: str,
    *,
    rev: str | None = "3kaaaaaaaaa2a",
    in_step: bool = True,
    hidden: str | None = None,
    active: bool = True,
    pull_after: datetime | None = None,
    failure: str | None = None,
) -> None:
    async with database.connection() as conn:
        await conn.execute(
            "insert into space_repos (repo, space, rev, in_step, hidden, account_active, pull_after, failure)"
            " values ('did:plc:' || $1, $2, $3, $4, $5, $6, $7, $8)",
            *(name, SPACE + "one", rev, in_step, hidden, active, pull_after, failure),
        )


async def counted(database: Database) -> SpaceCounts:
    async with database.connection() as conn:
        return await space_counts.count_spaces(conn, NOW)


async def test_no_spaces_are_counted_as_none(database: Database):
    assert await counted(database) == NO_SPACES
    assert NO_SPACES.in_all == 0


async def test_each_space_is_counted_once_by_the_last_that_fits(database: Database):
    await put_space(database, "ready")
    await put_space(database, "ready-too")
    await put_space(database, "stale", fresh_until=NOW)
    await put_space(database, "syncing", state="syncing", fresh_until=NOW)
    await put_space(database, "unreachable", state="syncing", failure="host_unavailable", fresh_until=NOW)
    await put_space(database, "unread", failure="host_unavailable", credential_until=NOW, fresh_until=NOW)
    await put_space(database, "unread-too", credential_until=None)
    await put_space(database, "deleted", state="deleted", failure="host_refused", fresh_until=NOW)
    counts = await counted(database)
    assert counts.spaces == {
        SpaceState.READY: 2,
        SpaceState.STALE: 1,
        SpaceState.SYNCING: 1,
        SpaceState.UNREACHABLE: 1,
        SpaceState.UNREAD: 2,
        SpaceState.DELETED: 1,
    }
    assert set(counts.spaces) == set(SpaceState)
    assert counts.in_all == 8
    assert counts.unlisted == {"host_unavailable": 1}


async def test_hosts_that_tell_of_writes_are_counted_as_long_as_they_said(database: Database):
    await put_space(database, "told", told_until=NOW + timedelta(seconds=1))
    await put_space(database, "told-too", state="syncing", told_until=NOW + timedelta(seconds=1))
    await put_space(database, "no-longer", told_until=NOW)
    await put_space(database, "never")
    assert (await counted(database)).told == 2


async def test_sweep_is_as_old_as_the_oldest_listing_of_those_that_can_be_listed(database: Database):
    await put_space(database, "late", listed_at=ago(minutes=9))
    await put_space(database, "just-now")
    await put_space(database, "opened", state="syncing", listed_at=None, opened_at=ago(minutes=2))
    assert (await counted(database)).swept_s == 9 * 60
    await put_space(database, "unreachable", listed_at=ago(hours=5), failure="host_unavailable")
    await put_space(database, "unread", listed_at=ago(days=5), credential_until=None)
    await put_space(database, "deleted", state="deleted", listed_at=ago(days=9))
    assert (await counted(database)).swept_s == 9 * 60
    await put_space(database, "never", state="syncing", listed_at=None, opened_at=ago(minutes=12))
    assert (await counted(database)).swept_s == 12 * 60


async def test_each_repo_is_counted_once_by_the_last_that_fits(database: Database):
    await put_repo(database, "a")
    await put_repo(database, "b", in_step=False)
    await put_repo(database, "c", in_step=False, rev=None)
    await put_repo(database, "d", in_step=False, hidden="unlisted")
    await put_repo(database, "e", in_step=False, hidden="stale")
    await put_repo(database, "f", hidden="stale", active=False)
    counts = await counted(database)
    assert counts.repos == dict.fromkeys(SpaceRepoState, 1)
    assert (counts.pulls, counts.pulls_late_s, counts.unpulled) == (0, 0.0, {})


async def test_pulls_are_counted_with_how_long_the_first_could_have_been(database: Database):
    await put_repo(database, "a", in_step=False, pull_after=ago(seconds=40))
    await put_repo(database, "b", in_step=False, hidden="stale", pull_after=ago(seconds=90), failure="no_host")
    await put_repo(database, "c", in_step=False, pull_after=NOW + timedelta(hours=1), failure="no_host")
    await put_repo(database, "d", in_step=False, failure="hash_mismatch")  # nobody tries that again
    counts = await counted(database)
    assert (counts.pulls, counts.pulls_late_s) == (3, 90.0)
    assert counts.unpulled == {"no_host": 2}


async def test_pull_that_is_not_due_is_not_late(database: Database):
    await put_repo(database, "a", in_step=False, pull_after=NOW + timedelta(seconds=30))
    counts = await counted(database)
    assert (counts.pulls, counts.pulls_late_s) == (1, 0.0)


async def test_notes_are_counted_with_how_long_the_first_has_waited(database: Database):
    async with database.connection() as conn:
        for kind, author, at in (("opened", "", ago(seconds=3)), ("written", "x", ago(seconds=8))):
            await conn.execute(
                "insert into space_inbox (repo, space, kind, author, received_at) values ('a', 'b', $1, $2, $3)",
                *(kind, author, at),
            )
    counts = await counted(database)
    assert (counts.notes, counts.notes_late_s) == (2, 8.0)


async def test_tallies_add_up_over_all_who_count(database: Database):
    counts = {(Work.PULL, "ops"): 3, (Work.PULL, "no_host"): 1, (Work.PURGE, "space_deleted"): 2}
    async with database.connection() as conn:
        await space_counts.add_tallies(conn, counts, NOW)
        await space_counts.add_tallies(conn, {(Work.PULL, "ops"): 4}, None)
        assert await space_counts.load_tallies(conn) == counts | {(Work.PULL, "ops"): 7}


async def test_database_that_is_away_is_told(database: Database):
    async with database.connection() as conn:
        conn.terminate()
        with pytest.raises(Unavailable):
            await space_counts.count_spaces(conn, NOW)
