"""What is asked of hosts is written down in the order in which every writer locks: nobody waits in a circle."""

from __future__ import annotations

from datetime import timedelta

import pytest

from indexer.arrivals import Batch, FetchOrdered, Place, Position, SourceKind
from indexer.arrivals import Source as Stream
from indexer.store import fetches, leases
from indexer.writer import Writer
from memory.database import Database
from tests.feed import LIMITS, LONG_AGO, RELAY
from tests.store.test_lock_order import STRANGERS, meet

CLAIM = timedelta(minutes=2)
HOSTS = Stream("hosts:", SourceKind.PDS)
LOCK_REPO = "select from repos where repo = $1 for update"
LOCK_SOURCE = "select from sources where source = $1 for update"


@pytest.fixture
async def tracked(database: Database) -> list[str]:
    """Repos that have something asked, and wait for their next fetch."""
    async with database.transaction() as conn:
        await fetches.track(conn, [(did, None) for did in STRANGERS], LONG_AGO)
        await fetches.fetch_unfetched(conn, STRANGERS, LONG_AGO)
        await conn.execute("update repos set fetch_after = $1", LONG_AGO)
    return STRANGERS


async def order(database: Database, dids: list[str]) -> None:
    async with database.transaction() as conn:
        await fetches.order_fetches(conn, dids, "operator", CLAIM, LONG_AGO)


async def write(database: Database, dids: list[str], seq: int = 1) -> None:
    """A batch that asks for them all, with its cursor."""
    arrivals = [FetchOrdered(Place(HOSTS, 0, LONG_AGO), did, "test") for did in dids]
    await Writer(database, LIMITS).apply(Batch(list(arrivals), {RELAY.url: Position(seq, None)}), LONG_AGO)


async def test_operators_word_and_a_writer_never_wait_in_a_circle(database: Database, tracked: list[str]):
    backwards = list(reversed(tracked))
    for middle in tracked:
        await meet(database, LOCK_REPO, middle, lambda: order(database, backwards), lambda: write(database, backwards))
        async with database.connection() as conn:
            await conn.execute("update repos set fetch_after = $1", LONG_AGO)


async def test_two_operators_never_wait_in_a_circle(database: Database, tracked: list[str]):
    await meet(
        database,
        LOCK_REPO,
        tracked[4],
        lambda: order(database, tracked),
        lambda: order(database, list(reversed(tracked))),
    )


async def test_gap_and_a_writer_never_wait_in_a_circle(database: Database, tracked: list[str]):
    """Both end with the row of the source, and the writer asks for latest commits before."""
    await write(database, tracked)
    async with database.connection() as conn:
        await leases.note_gap(conn, RELAY.url, LONG_AGO)

    async def compare() -> None:
        async with database.transaction() as conn:
            assert await fetches.compare_next(conn, 100, LONG_AGO) == RELAY.url

    await meet(database, LOCK_SOURCE, RELAY.url, compare, lambda: write(database, tracked, seq=2))
    async with database.connection() as conn:
        assert await conn.fetchval("select gap_at from sources") is None
        assert await conn.fetchval("select seq from sources") == 2


async def test_writer_does_not_wait_for_a_gap_to_be_compared(database: Database, tracked: list[str]):
    """Its cursor is in the row that says how far the gap was worked off."""
    await write(database, tracked)
    async with database.connection() as conn:
        await leases.note_gap(conn, RELAY.url, LONG_AGO)
    async with database.transaction() as conn:
        assert await fetches._SQL.next_gap.fetchrow(conn) is not None
        await fetches._SQL.compare_repos_after.fetchval(conn, after="", now=LONG_AGO, at_most=100)
        await write(database, [], seq=2)
