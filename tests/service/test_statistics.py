"""getStats: how far the index is, whatever senders claim, and what asking often costs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from memory.database import Database
from tests.api_client import NOW, Api
from tests.memory_rows import ALICE, BOB, MemoryRows, day, text

A_MINUTE = timedelta(minutes=1)


async def follow(database: Database, source: str, frame_time: datetime | None, *, leased: str | None = None) -> None:
    """A source that was read so far; `leased`: from now on, for so long, a daemon follows it."""
    async with database.connection() as conn:
        await conn.execute(
            "insert into sources (source, seq, frame_time, updated_at) values ($1, 1, $2, now())", source, frame_time
        )
        if leased is not None:
            lease = "insert into leases select $1, gen_random_uuid(), now() + $2::text::interval"
            await conn.execute(lease, source, leased)


async def told(database: Database) -> dict[str, Any]:
    return await Api(database).get("getStats")


async def test_the_index_is_as_far_as_the_slowest_that_is_followed(database: Database) -> None:
    await follow(database, "https://fast.test", NOW - A_MINUTE, leased="1 hour")
    await follow(database, "https://slow.test", NOW - 3 * A_MINUTE, leased="1 hour")
    await follow(database, "https://new.test", None, leased="1 hour")
    await follow(database, "https://left.test", day(1), leased="-1 hour")
    await follow(database, "https://never.test", day(1))
    assert (await told(database))["indexingLagSeconds"] == 180


async def test_while_none_is_followed_all_sources_count(database: Database) -> None:
    await follow(database, "https://one.test", NOW - A_MINUTE)
    await follow(database, "https://two.test", NOW - 2 * A_MINUTE, leased="-1 hour")
    assert (await told(database))["indexingLagSeconds"] == 120


async def test_a_claim_of_the_future_is_not_believed(database: Database) -> None:
    await follow(database, "https://honest.test", NOW - A_MINUTE, leased="1 hour")
    await follow(database, "https://liar.test", NOW + timedelta(days=900), leased="1 hour")
    assert (await told(database))["indexingLagSeconds"] == 60


async def test_a_clock_that_is_a_little_fast_is_now(database: Database) -> None:
    await follow(database, "https://fast.test", NOW + 4 * A_MINUTE)
    stats = await told(database)
    assert (stats["indexedThrough"], stats["indexingLagSeconds"]) == (text(NOW).replace("Z", ".000000Z"), 0)


async def test_where_all_claim_the_future_nothing_is_told(database: Database) -> None:
    await follow(database, "https://liar.test", NOW + 6 * A_MINUTE, leased="1 hour")
    assert "indexedThrough" not in await told(database)


async def test_totals_are_counted_anew_after_some_seconds_only(database: Database) -> None:
    rows = MemoryRows()
    rows.put(ALICE, "one")
    await rows.write(database)
    seconds = 100.0
    api = Api(database, monotonic=lambda: seconds)
    assert (await api.get("getStats"))["records"] == 1
    rows.put(BOB, "two")
    await rows.write(database)
    seconds = 104.9
    assert (await api.get("getStats"))["records"] == 1
    assert (await api.get("getStats", repo=BOB))["records"] == 1  # one author is always counted
    seconds = 105.0
    stats = await api.get("getStats")
    assert (stats["records"], stats["repos"]) == (2, 2)


@pytest.mark.parametrize("state", ["active", "desynchronized"])
async def test_only_the_public_repo_has_a_state_to_tell(database: Database, state: str) -> None:
    rows = MemoryRows()
    rows.repo(ALICE, state=state)
    await rows.write(database)
    assert (await Api(database).get("getStats", repo=ALICE))["sync"]["state"] == state
