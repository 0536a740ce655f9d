"""Handles that could not be asked for when their documents were read: asked for again, few at a time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest

from indexer.books import RequestKind
from indexer.store import requests
from indexer.store.requests import HANDLE_UNSETTLED, HANDLES_LOOKED_AT, SiteShares
from memory.database import Database
from memory.identity import Identity
from memory.store.identities import UnsettledHandle, load_identities, store_identities, store_identity
from tests.feed import LONG_AGO

MINUTE = timedelta(minutes=1)
SHORTEST = timedelta(minutes=10)
LONGEST = timedelta(days=1)
NAMES = [f"did:plc:{letter * 24}" for letter in "abcdefgh"]


async def missed(
    database: Database, dids: Sequence[str], *, at: datetime = LONG_AGO, misses: int = 1, tracked: bool = True
) -> None:
    """Their handles are to be asked for at that time."""
    async with database.transaction() as conn:
        for did in dids:
            identity = Identity(did, None, "https://pds.test", None, tombstoned=False, resolved_at=LONG_AGO)
            await store_identity(conn, identity, UnsettledHandle(at, misses))
            if tracked:
                await conn.execute(
                    "insert into repos (repo, state, tracked_at, changed_at) values ($1, 'active', $2, $2)", did, at
                )


async def ask(database: Database, now: datetime = LONG_AGO, *, at_most: int = 10) -> list[str]:
    """Who is asked for then, of all that wait."""
    async with database.connection() as conn:
        await requests.ask_for_handles(conn, now, at_most=at_most, shortest=SHORTEST, longest=LONGEST)
    return await asked(database)


async def asked(database: Database) -> list[str]:
    async with database.connection() as conn:
        rows = await conn.fetch("select repo from requests where reason = $1 order by repo", HANDLE_UNSETTLED)
    return [row["repo"] for row in rows]


async def due_at(database: Database, did: str) -> datetime | None:
    async with database.connection() as conn:
        return await conn.fetchval("select handle_retry_at from identities where repo = $1", did)


async def test_handle_is_asked_for_when_its_time_has_come(database: Database):
    await missed(database, NAMES[:2])
    await missed(database, NAMES[2:4], at=LONG_AGO + MINUTE)
    assert await ask(database) == NAMES[:2]
    async with database.connection() as conn:
        claims = await requests.claim(
            conn,
            RequestKind.IDENTITY,
            LONG_AGO,
            SHORTEST,
            at_most=10,
            tracked=True,
            shares=SiteShares(plc=10, others=10, busy={}),
        )
    assert {claim.repo: claim.reason for claim in claims} == dict.fromkeys(NAMES[:2], HANDLE_UNSETTLED)


async def test_settled_handle_is_not_asked_for(database: Database):
    await missed(database, NAMES)
    renewed = [
        Identity(did, None, None, None, tombstoned=False, resolved_at=LONG_AGO + MINUTE) for did in sorted(NAMES[1:])
    ]
    async with database.connection() as conn:
        await store_identities(conn, renewed)
    assert await ask(database, LONG_AGO + LONGEST) == NAMES[:1]


async def test_older_look_up_unsettles_no_newer_one(database: Database):
    known = Identity(NAMES[0], "a.test", None, None, tombstoned=False, resolved_at=LONG_AGO + MINUTE)
    async with database.connection() as conn:
        await store_identity(conn, known)
    await missed(database, NAMES[:1])
    assert await ask(database, LONG_AGO + LONGEST) == []
    async with database.connection() as conn:
        assert await load_identities(conn, NAMES[:1]) == [known]


async def test_no_more_wait_for_their_handle_than_may(database: Database):
    await missed(database, NAMES)
    assert len(await ask(database, at_most=3)) == 3
    assert len(await ask(database, at_most=3)) == 3  # nobody was answered yet
    async with database.connection() as conn:
        await conn.execute("delete from requests where repo = $1", NAMES[0])
    assert len(await ask(database, LONG_AGO, at_most=3)) == 3


async def test_those_that_were_missed_least_often_come_first_and_then_the_longest_due(database: Database):
    await missed(database, NAMES[:4], misses=8, at=LONG_AGO - MINUTE)
    await missed(database, NAMES[4:6], misses=1)
    await missed(database, NAMES[6:], misses=1, at=LONG_AGO - MINUTE)
    assert await ask(database, at_most=3) == [NAMES[4], *NAMES[6:]] or await asked(database) == [NAMES[5], *NAMES[6:]]


async def test_handle_whose_answer_is_lost_is_asked_for_again(database: Database):
    await missed(database, NAMES[:1])
    await ask(database)
    async with database.connection() as conn:
        await conn.execute("delete from requests")
    assert await due_at(database, NAMES[0]) == LONG_AGO + SHORTEST
    assert await ask(database, LONG_AGO + SHORTEST - MINUTE) == []
    assert await ask(database, LONG_AGO + SHORTEST) == NAMES[:1]


async def test_strangers_are_put_off_and_keep_nobody_waiting(database: Database):
    strangers = [f"did:web:h{number}.example" for number in range(HANDLES_LOOKED_AT)]
    await missed(database, strangers, at=LONG_AGO - MINUTE, tracked=False)
    await missed(database, NAMES[:1])
    await ask(database)
    assert await ask(database) == NAMES[:1]
    assert {await due_at(database, did) for did in strangers} == {LONG_AGO + SHORTEST}


@pytest.mark.parametrize(
    ("age", "wait"),
    [(MINUTE, SHORTEST), (40 * MINUTE, 40 * MINUTE), (2 * LONGEST, LONGEST)],
    ids=["new", "older", "old"],
)
async def test_stranger_is_put_off_for_as_long_as_what_is_known_of_them_is_old(
    database: Database, age: timedelta, wait: timedelta
):
    await missed(database, NAMES[:1], tracked=False)
    assert await ask(database, LONG_AGO + age) == []
    assert await due_at(database, NAMES[0]) == LONG_AGO + age + wait


async def test_stranger_who_is_tracked_by_then_is_asked_for(database: Database):
    await missed(database, NAMES[:1], tracked=False)
    assert await ask(database) == []
    await missed(database, NAMES[:1])
    assert await ask(database, LONG_AGO + LONGEST) == NAMES[:1]


async def test_who_is_asked_for_anyway_is_asked_for_as_before(database: Database):
    await missed(database, NAMES[:1])
    async with database.connection() as conn:
        await conn.execute(
            "insert into requests (repo, kind, reason, requested_at, not_before)"
            " values ($1, 'identity', 'identity_event', $2, $2)",
            NAMES[0],
            LONG_AGO - MINUTE,
        )
    assert await ask(database) == []
    async with database.connection() as conn:
        [row] = await conn.fetch("select reason, requested_at from requests")
    assert tuple(row) == ("identity_event", LONG_AGO - MINUTE)


@pytest.mark.parametrize("locked", [0, 1, 2])
async def test_row_that_somebody_writes_is_waited_for_by_nobody(database: Database, locked: int):
    await missed(database, NAMES[:2])
    async with database.transaction() as conn:
        await conn.execute("select from identities where repo = any($1) for update", NAMES[:locked])
        assert await ask(database) == NAMES[locked:2]
