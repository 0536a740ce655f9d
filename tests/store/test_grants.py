"""Which Spaces an access token may read, told in one way whichever Space is meant."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import appview.store
from appview.store.access import delete_access_token
from appview.store.grants import (
    MAX_GRANTS,
    MAX_NOTICES,
    SealedCredential,
    ToldWrite,
    add_grant,
    delete_grant,
    delete_grants_of_token,
    hold_token,
    is_authority,
    is_held,
    list_grants,
    load_readable_spaces,
    put_deletion,
    put_write,
)
from appview.tokens import AccessToken, make_access_token
from memory.database import Database
from memory.queries import load_queries
from memory.space import SpaceRef, parse_space_uri
from memory.tasks import TaskGroup
from tests.deadline import until
from tests.granted import HOUR, grant, hold, make_token, texts
from tests.memory_rows import ALICE, BOB, SPACE

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
WORK = "at://did:plc:otheraaaaaaaaaaaaaaaaaa/space/com.example.group/work"
AUTHORITY = "did:plc:spaceaaaaaaaaaaaaaaaaaa"
INSTANT = timedelta(microseconds=1)
STATEMENTS = {
    statement.name: statement for statement in load_queries(Path(appview.store.__file__).parent / "sql" / "grants.sql")
}


def ref(space: str) -> SpaceRef:
    found = parse_space_uri(space)
    assert found is not None
    return found


async def readable(database: Database, token: AccessToken, now: datetime = NOW) -> set[str]:
    async with database.connection() as conn:
        return set((await load_readable_spaces(conn, token.did, token.id, now=now)).spaces)


async def add(
    database: Database, token: AccessToken, space: str = SPACE, *, now: datetime = NOW, sealed: bytes = b"sealed"
) -> bool:
    credential = SealedCredential(sealed, "k", now + HOUR)
    async with database.transaction() as conn:
        return await add_grant(conn, token.did, token.id, ref(space), credential, granted_at=now, expires_at=now + HOUR)


async def run(database: Database, statement: str, *values: object) -> None:
    async with database.connection() as conn:
        await conn.execute(statement, *values)


# What may be read


async def test_what_is_granted_and_held_may_be_read_by_that_very_token(database: Database):
    await hold(database, SPACE, WORK)
    token = await grant(database, ALICE, SPACE, now=NOW)
    other = await grant(database, ALICE, WORK, now=NOW)
    assert await readable(database, token) == {SPACE}
    assert await readable(database, other) == {WORK}
    assert await readable(database, make_access_token(ALICE)) == set()


async def test_token_of_another_with_the_same_id_reads_nothing(database: Database):
    await hold(database, SPACE)
    token = await grant(database, ALICE, SPACE, now=NOW)
    assert await readable(database, AccessToken(BOB, token.id, token.text)) == set()


async def test_grant_ends_when_it_expires(database: Database):
    await hold(database, SPACE)
    token = await grant(database, ALICE, SPACE, now=NOW)
    assert await readable(database, token, NOW + HOUR - INSTANT) == {SPACE}
    assert await readable(database, token, NOW + HOUR) == set()


@pytest.mark.parametrize(("fresh", "state"), [(False, "ready"), (False, "syncing"), (True, "deleted")])
async def test_what_is_not_held_as_it_is_may_not_be_read(database: Database, fresh: bool, state: str):
    await hold(database, SPACE, fresh=fresh, state=state)
    token = await grant(database, ALICE, SPACE, now=NOW)
    assert await readable(database, token) == set()
    await hold(database, SPACE)
    assert await readable(database, token) == {SPACE}


async def test_what_is_unknown_here_may_not_be_read(database: Database):
    assert await readable(database, await grant(database, ALICE, SPACE, now=NOW)) == set()


async def test_space_of_another_authority_by_the_same_uri_is_not_meant(database: Database):
    """No row of the indexer's is like that; were there one, it would open nothing."""
    token = await grant(database, ALICE, SPACE, now=NOW)
    await hold(database, SPACE)
    await run(database, "update spaces set repo = 'did:plc:another'")
    assert await readable(database, token) == set()


async def test_deletion_that_was_told_ends_reading_before_it_is_acted_on(database: Database):
    await hold(database, SPACE, WORK)
    token = await grant(database, ALICE, SPACE, WORK, now=NOW)
    async with database.connection() as conn:
        await put_deletion(conn, ref(SPACE))
        assert not await is_held(conn, ref(SPACE))
        assert await is_held(conn, ref(WORK))
        assert [(each.space, each.ready) for each in await list_grants(conn, ALICE, token.id, now=NOW)] == [
            (WORK, True),
            (SPACE, False),
        ]
    assert await readable(database, token) == {WORK}


# Accounts


STATUS = "insert into account_status values ($1, $2, $3, 1, $4, null, now())"
REPO = "insert into repos (repo, state, visible, tracked_at, changed_at) values ($1, 'active', $2, now(), now())"
IDENTITY = "insert into identities (repo, host, tombstoned, resolved_at) values ($1, 'https://pds.example', $2, now())"


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(
    ("rows", "active"),
    [
        ([(REPO, True)], True),
        ([(REPO, False)], False),
        ([(IDENTITY, False)], True),
        ([(IDENTITY, True)], False),
        ([(STATUS, "https://relay.example", "relay", True)], True),
        ([(STATUS, "https://relay.example", "relay", False)], False),
        ([(STATUS, "https://pds.example", "pds", False)], False),
        ([(IDENTITY, False), (STATUS, "https://pds.example", "pds", False)], False),
        ([(IDENTITY, False), (STATUS, "https://left.example", "pds", False)], True),
        ([(IDENTITY, False), (STATUS, "https://left.example", "relay", False)], False),
        ([(REPO, True), (STATUS, "https://relay.example", "relay", False)], False),
    ],
)
async def test_only_active_accounts_read_what_is_private(
    database: Database, rows: list[tuple[object, ...]], active: bool, there: bool
):
    """Also of viewers who are followed, or were only met: `there` says of whom the rows are."""
    await hold(database, SPACE)
    token = await grant(database, ALICE, SPACE, now=NOW)
    for statement, *values in rows:
        await run(database, str(statement), ALICE if there else BOB, *values)
    assert await readable(database, token) == ({SPACE} if active or not there else set())


# One statement


async def a_thousand_grants(database: Database) -> AccessToken:
    token = await make_token(database, ALICE, now=NOW)
    async with database.transaction() as conn:
        await conn.execute(
            "insert into grants select 'did:plc:' || i / 100, i % 7, 'at://did:plc:a' || i % 500 || '/space/com.a.x/a',"
            " $1::timestamptz, $1 + interval '1 hour' from generate_series(1, 20000) i on conflict do nothing",
            NOW,
        )
        await conn.execute(
            "insert into grants select $1, $2, 'at://did:plc:a' || i || '/space/com.a.x/a', $3::timestamptz,"
            " $3 + interval '1 hour' from generate_series(1, 40) i",
            ALICE,
            token.id,
            NOW,
        )
        await conn.execute(
            "insert into spaces (repo, space, opened_at, fresh_until, credentialed_until) select 'did:plc:a' || i, "
            "'at://did:plc:a' || i || '/space/com.a.x/a', now(), now() + interval '1 day', now() "
            "from generate_series(1, 5000) i"
        )
        await conn.execute("insert into space_inbox select repo, space, 'opened' from spaces")
        await conn.execute(
            "insert into account_status select 'did:plc:' || i, 'x', 'relay', 1, true, null, now() "
            "from generate_series(1, 5000) i"
        )
    async with database.connection() as conn:
        for table in ("grants", "spaces", "space_inbox", "account_status"):
            await conn.execute(f"analyze {table}")
    return token


@pytest.mark.parametrize("mode", ["force_generic_plan", "force_custom_plan"])
async def test_only_rows_of_the_token_are_visited_and_what_they_lead_to(database: Database, mode: str):
    token = await a_thousand_grants(database)
    statement = STATEMENTS["readable_spaces"]
    assert statement.parameters == ("repo", "token", "now")  # which Space is meant is no part of it
    async with database.transaction() as conn:
        await conn.execute(f"set local plan_cache_mode = {mode}")
        await conn.execute(f"prepare planned as {statement.sql}")
        plan = "\n".join(
            row[0]
            for row in await conn.fetch(
                f"explain (analyze, timing off, costs off) execute planned('{ALICE}', '{token.id}', '{NOW}')"
            )
        )
    assert "Seq Scan" not in plan.replace("Seq Scan on repos", "").replace("Seq Scan on identities", ""), plan
    assert {"grants_pkey", "spaces_pkey"} <= set(re.findall(r"(?:using|on) (\w+_pkey)", plan)), plan
    visited = [int(float(rows) * int(loops)) for rows, loops in re.findall(r"actual rows=([\d.]+) loops=(\d+)", plan)]
    assert max(visited) <= 40, plan


# What is written


async def test_grant_comes_with_its_credential_and_is_told_to_the_indexer(database: Database):
    token = await make_token(database, ALICE, now=NOW)
    assert await add(database, token)
    async with database.connection() as conn:
        [kept] = await conn.fetch("select * from grants")
        assert tuple(kept) == (ALICE, token.id, SPACE, NOW, NOW + HOUR)
        [kept] = await conn.fetch("select * from credentials")
        assert tuple(kept) == (ALICE, token.id, SPACE, b"sealed", "k", NOW + HOUR)
        [told] = await conn.fetch("select repo, space, kind, author from space_inbox")
        assert tuple(told) == (AUTHORITY, SPACE, "opened", "")


async def test_space_that_is_opened_again_is_granted_anew(database: Database):
    token = await make_token(database, ALICE, now=NOW)
    assert await add(database, token)
    assert await add(database, token, now=NOW + HOUR / 2, sealed=b"another")
    async with database.connection() as conn:
        [kept] = await list_grants(conn, ALICE, token.id, now=NOW)
        assert (kept.granted_at, kept.expires_at) == (NOW + HOUR / 2, NOW + HOUR * 1.5)
        assert await conn.fetchval("select sealed from credentials") == b"another"


async def test_token_reads_a_bounded_number_of_spaces(database: Database):
    token = await make_token(database, ALICE, now=NOW)
    await run(
        database,
        "insert into grants select $1, $2, 'at://x/' || i, $3::timestamptz, $3 + interval '1 hour'"
        " from generate_series(2, $4) i",
        ALICE,
        token.id,
        NOW,
        MAX_GRANTS,
    )
    assert await add(database, token)
    assert not await add(database, token, WORK)
    assert await texts(database, "select space from credentials") == [SPACE]
    assert await add(database, token)  # again
    assert await add(database, await make_token(database, ALICE, now=NOW), WORK)
    assert await add(database, token, WORK, now=NOW + HOUR)  # when those have expired


@pytest.mark.parametrize("of_all", [True, False])
async def test_closed_space_is_closed_with_its_credential(database: Database, of_all: bool):
    tokens = [await grant(database, ALICE, SPACE, WORK, now=NOW) for _ in range(2)]
    foreign = await grant(database, BOB, SPACE, now=NOW)
    async with database.transaction() as conn:
        await delete_grant(conn, ALICE, SPACE, token=None if of_all else tokens[0].id)
    kept = sorted([f"{tokens[0].id} {WORK}", f"{tokens[1].id} {WORK}", f"{foreign.id} {SPACE}"])
    kept = kept if of_all else sorted([*kept, f"{tokens[1].id} {SPACE}"])
    for table in ("grants", "credentials"):
        assert await texts(database, f"select token || ' ' || space from {table}") == kept


async def revoke(database: Database, token: AccessToken) -> None:
    async with database.transaction() as conn:
        assert await delete_access_token(conn, token.did, token.id)
        await delete_grants_of_token(conn, token.did, token.id)


async def test_revoked_token_takes_its_grants_along(database: Database):
    token = await grant(database, ALICE, SPACE, WORK, now=NOW)
    await grant(database, ALICE, SPACE, now=NOW)
    await revoke(database, token)
    for table in ("grants", "credentials"):
        assert await texts(database, f"select space from {table}") == [SPACE]


async def who_waits(database: Database) -> int:
    async with database.connection() as conn:
        return await conn.fetchval(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        )


async def test_nothing_is_granted_to_a_token_that_is_being_revoked(database: Database):
    token = await make_token(database, ALICE, now=NOW)
    credential = SealedCredential(b"", "k", NOW + HOUR)
    async with TaskGroup() as group, database.transaction() as conn:
        assert await hold_token(conn, ALICE, token.id, now=NOW) == NOW + HOUR * 24
        group.create_task(revoke(database, token))
        await until(lambda: who_waits(database))
        assert await add_grant(conn, ALICE, token.id, ref(SPACE), credential, granted_at=NOW, expires_at=NOW + HOUR)
    for table in ("grants", "credentials"):
        assert await texts(database, f"select space from {table}") == []
    async with database.transaction() as conn:
        assert await hold_token(conn, ALICE, token.id, now=NOW) is None


async def test_token_that_has_expired_is_held_no_more(database: Database):
    token = await make_token(database, ALICE, now=NOW, lasts=HOUR)
    async with database.transaction() as conn:
        assert await hold_token(conn, ALICE, token.id, now=NOW + HOUR - INSTANT) == NOW + HOUR
        assert await hold_token(conn, ALICE, token.id, now=NOW + HOUR) is None
        assert await hold_token(conn, BOB, token.id, now=NOW) is None


# What authorities say


async def put(database: Database, author: str, rev: str = "3kaaaaaaaaa2a", space: str = SPACE) -> None:
    async with database.connection() as conn:
        await put_write(conn, ref(space), ToldWrite(author, rev, b"h" * 32))


async def inbox(database: Database) -> list[tuple[object, ...]]:
    async with database.connection() as conn:
        rows = await conn.fetch("select repo, space, kind, author, rev, hash from space_inbox order by kind, author")
    return [tuple(row) for row in rows]


async def test_last_word_on_an_author_waits_for_the_indexer(database: Database):
    await hold(database, SPACE)
    await put(database, ALICE)
    await run(database, "update space_inbox set received_at = '2020-01-01'")
    await put(database, ALICE, "3kaaaaaaaaa2b")
    await put(database, BOB)
    async with database.connection() as conn:
        await put_deletion(conn, ref(SPACE))
        await put_deletion(conn, ref(SPACE))
        assert await conn.fetchval("select count(*) from space_inbox where received_at < now() - interval '1 day'") == 0
    assert await inbox(database) == [
        (AUTHORITY, SPACE, "deleted", "", None, None),
        (AUTHORITY, SPACE, "written", ALICE, "3kaaaaaaaaa2b", b"h" * 32),
        (AUTHORITY, SPACE, "written", BOB, "3kaaaaaaaaa2a", b"h" * 32),
    ]


async def test_nothing_is_kept_of_spaces_that_nobody_opened(database: Database):
    await hold(database, WORK)
    await put(database, ALICE)
    async with database.connection() as conn:
        await put_deletion(conn, ref(SPACE))
        assert not await is_authority(conn, AUTHORITY)
        assert await is_authority(conn, ref(WORK).authority)
    assert await inbox(database) == []


async def test_deletion_of_what_was_opened_just_now_is_kept_too(database: Database):
    """The indexer has not even begun; who was granted the deleted one is not to read one that comes after it."""
    assert await add(database, await make_token(database, ALICE, now=NOW))
    async with database.connection() as conn:
        await put_deletion(conn, ref(SPACE))
    assert [row[2] for row in await inbox(database)] == ["deleted", "opened"]


async def test_no_more_authors_of_a_space_wait_than_may(database: Database):
    await hold(database, SPACE, WORK)
    await run(
        database,
        "insert into space_inbox (repo, space, kind, author) select $1, $2, 'written', 'did:plc:' || i"
        " from generate_series(2, $3) i",
        AUTHORITY,
        SPACE,
        MAX_NOTICES,
    )
    for author in (ALICE, BOB, ALICE):
        await put(database, author)
    await put(database, ALICE, "3kaaaaaaaaa2b")
    await put(database, BOB, space=WORK)
    async with database.connection() as conn:
        await put_deletion(conn, ref(SPACE))
    told = [row for row in await inbox(database) if row[3] in ("", ALICE, BOB)]
    assert [(row[1], row[2], row[3], row[4]) for row in told] == [
        (SPACE, "deleted", "", None),
        (SPACE, "written", ALICE, "3kaaaaaaaaa2b"),
        (WORK, "written", BOB, "3kaaaaaaaaa2a"),
    ]
