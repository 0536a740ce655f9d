"""What is claimed of hosts, and what that costs where very much is due."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import pytest

from indexer.books import RequestKind
from indexer.store import fetches
from indexer.store.fetches import HOSTS_LOOKED_AT, LOOKED_AT, LOOKED_AT_EACH, Claims, HostClaim
from memory.database import Database
from memory.queries import Connection
from tests.visited_rows import visited_rows

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
CLAIM = timedelta(minutes=1)
BUSY, FREE, THIRD = "https://busy.test", "https://free.test", "https://third.test"
MANY = 100_000
# What one claim goes through: what it looks at, some steps in an index each, and what it locks.
VISITS_MAX = 20 * (LOOKED_AT + HOSTS_LOOKED_AT * (LOOKED_AT_EACH + 1))


async def due(
    conn: Connection,
    count: int,
    host: str | None,
    *,
    seed: str = "",
    since: datetime = NOW,
    rests: timedelta | None = None,
) -> None:
    """So many repos of a host whose fetches are due."""
    await conn.execute(
        "with tracked as ("
        "   insert into repos (repo, state, tracked_at, changed_at, host, fetch_after)"
        "   select 'did:web:' || $3 || n || '.test', 'desynchronized', $4, $4, $2, $5"
        "   from generate_series(1, $1::integer) n returning repo, host"
        ") insert into requests (repo, kind, reason, requested_at, not_before, asked_at, host)"
        " select repo, 'fetch', 'x', $4, $4, $4, coalesce(host, '') from tracked",
        count,
        host,
        seed,
        since,
        None if rests is None else NOW + rests,
    )


async def claim(conn: Connection, *busy: str, at_most: int = 8, after_host: str = "", now: datetime = NOW) -> Claims:
    return await fetches.claim(
        conn, RequestKind.FETCH, CLAIM, at_most=at_most, busy_hosts=busy, after_host=after_host, now=now
    )


def hosts(claims: Iterable[HostClaim]) -> list[str | None]:
    return [each.host for each in claims]


async def visits(conn: Connection, *busy: str) -> float:
    """How many rows a claim goes through, in all steps of its plan."""
    given = {
        "kind": "fetch",
        "now": NOW,
        "claim": CLAIM,
        "at_most": 8,
        "busy_hosts": list(busy),
        "after_host": "",
        "looked_at": LOOKED_AT,
        "hosts_looked_at": HOSTS_LOOKED_AT,
        "looked_at_each": LOOKED_AT_EACH,
    }
    return await visited_rows(conn, fetches._SQL.claim_of_hosts, given)


async def test_claim_goes_through_few_rows_however_many_wait_for_a_busy_host(database: Database):
    async with database.connection() as conn:
        await due(conn, MANY, BUSY, since=NOW - timedelta(days=1))
        await due(conn, 3, FREE, seed="free")
        await due(conn, 1000, None, seed="strangers", since=NOW + timedelta(days=1))
        await conn.execute("analyze requests, repos")
        assert await visits(conn, BUSY) < VISITS_MAX
        await conn.execute("update requests set not_before = $1, attempts = 0 where attempts > 0", NOW)
        assert hosts((await claim(conn, BUSY)).claims) == [FREE] * 3


async def test_claim_goes_through_few_rows_however_many_repos_rest(database: Database):
    async with database.connection() as conn:
        await due(conn, MANY, FREE, since=NOW - timedelta(days=1), rests=timedelta(hours=1))
        await conn.execute("analyze requests, repos")
        assert await visits(conn) < VISITS_MAX


async def test_what_rests_is_due_after_its_rest_and_stands_in_nobodys_way(database: Database):
    rest = timedelta(hours=1)
    async with database.connection() as conn:
        await due(conn, 3 * LOOKED_AT, FREE, since=NOW - timedelta(days=1), rests=rest)
        await due(conn, 1, FREE, seed="last")
        claimed = [each for _ in range(4) for each in (await claim(conn)).claims]
        assert [each.repo for each in claimed] == ["did:web:last1.test"]
        query = "select count(*) from requests where not_before = $1 and attempts = 0"
        put_off = await conn.fetchval(query, NOW + rest)
        assert put_off >= 2 * LOOKED_AT
        await conn.execute("delete from requests where attempts > 0")
        assert (await claim(conn, now=NOW + rest - timedelta(seconds=1))).claims == []
        assert len((await claim(conn, now=NOW + rest)).claims) == 8


async def test_request_of_a_fetch_that_was_killed_stays_due_whatever_its_repo_rests(database: Database):
    """By that it is seen that nobody works on it."""
    async with database.connection() as conn:
        await due(conn, 1, FREE, rests=timedelta(hours=1))
        await conn.execute("update repos set state = 'resyncing'")
        assert (await claim(conn)).claims == []
        assert await conn.fetchval("select not_before from requests") == NOW


async def test_longest_due_is_first_whatever_its_host(database: Database):
    async with database.connection() as conn:
        for number, host in enumerate([THIRD, FREE, None]):
            await due(conn, 1, host, seed=f"{number}", since=NOW - timedelta(hours=number))
        assert hosts((await claim(conn)).claims) == [None, FREE, THIRD]


async def test_hosts_take_turns_where_more_is_due_than_is_looked_at(database: Database):
    number = 2 * HOSTS_LOOKED_AT + 10
    async with database.connection() as conn:
        await due(conn, LOOKED_AT, BUSY, since=NOW - timedelta(days=1))
        for each in range(number):
            await due(conn, 2, f"https://{each:04}.test", seed=f"host{each}x")
        asked: list[str | None] = []
        after = ""
        for _ in range(3):
            claims = await claim(conn, BUSY, at_most=1000, after_host=after)
            asked += hosts(claims.claims)
            after = claims.looked_up_to
        assert sorted(map(str, asked)) == sorted(f"https://{each:04}.test" for each in range(number) for _ in range(2))
        assert after == "", "the next begins with the first"


async def test_host_with_very_much_to_ask_has_a_few_turns_at_a_time(database: Database):
    async with database.connection() as conn:
        await due(conn, LOOKED_AT, BUSY, since=NOW - timedelta(days=1))
        await due(conn, 50, FREE, seed="free", since=NOW - timedelta(hours=1))
        await due(conn, 2, THIRD, seed="third")
        assert hosts((await claim(conn, BUSY, at_most=50)).claims) == [FREE] * LOOKED_AT_EACH + [THIRD] * 2


async def test_repo_that_moved_is_found_at_its_new_host(database: Database):
    async with database.connection() as conn:
        await due(conn, 1, BUSY)
        await conn.execute("update repos set host = $1", FREE)
        assert (await claim(conn, FREE)).claims == [], "its old host is free, and has nothing to say"
        assert await conn.fetchval("select host from requests") == FREE
        assert hosts((await claim(conn, BUSY)).claims) == [FREE]


@pytest.mark.parametrize("kind", [RequestKind.LATEST_COMMIT, RequestKind.REPO_STATUS, RequestKind.CONFIRM_DELETION])
async def test_questions_are_bounded_and_wait_for_no_rest(database: Database, kind: RequestKind):
    async with database.connection() as conn:
        await due(conn, LOOKED_AT, BUSY, since=NOW - timedelta(days=1))
        await due(conn, 1, FREE, seed="free", rests=timedelta(hours=1))
        await conn.execute("update requests set kind = $1", kind)
        claimed = await fetches.claim(conn, kind, CLAIM, at_most=8, busy_hosts=[BUSY], now=NOW)
        assert [(each.kind, each.host) for each in claimed.claims] == [(kind, FREE)]


# Whose clock


async def test_claims_are_by_the_clock_that_all_share(database: Database):
    async with database.connection() as conn:
        await due(conn, 1, FREE)
        [claimed] = (await fetches.claim(conn, RequestKind.FETCH, CLAIM, at_most=8)).claims
        lasts = "select not_before - clock_timestamp() between '0 min' and '1 min' from requests"
        assert await conn.fetchval(lasts)
        assert await conn.fetchval("select clock_timestamp() - $1::timestamptz < '10 min'", claimed.claimed_at)
        assert (await fetches.claim(conn, RequestKind.FETCH, CLAIM, at_most=8)).claims == []
        await fetches.keep_claim(conn, claimed, timedelta(hours=1))
        assert await conn.fetchval("select not_before - clock_timestamp() between '50 min' and '60 min' from requests")
        await fetches.put_back(conn, claimed, timedelta(hours=5), attempted=True)
        assert await conn.fetchval("select not_before - clock_timestamp() between '4 h' and '5 h' from requests")


async def test_claim_that_ran_out_is_taken_over(database: Database):
    async with database.connection() as conn:
        await due(conn, 1, FREE)
        await claim(conn)
        assert (await claim(conn, now=NOW + CLAIM - timedelta(seconds=1))).claims == []
        assert len((await claim(conn, now=NOW + CLAIM)).claims) == 1
