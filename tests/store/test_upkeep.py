"""Beside the stream: what has had its time goes in slices that wait for nobody, and counting stays cheap."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from time import monotonic
from uuid import uuid4

import pytest

from indexer import upkeep
from indexer.consumer import Consumer, frame_clock
from indexer.intake import Intake, WaitingRelease
from indexer.metrics import IndexerMetrics
from indexer.store.upkeep import expiries
from indexer.upkeep import COUNT_EVERY, COUNTING_SHARE, EXPIRY_EVERY, PUT_ASIDE_KEPT, STRANGERS_KEPT, Upkeep
from memory.database import Database
from tests.daemons import Clock
from tests.feed import LONG_AGO, Directory
from tests.store.expiry import expire

NOW = Clock().now
OLD = NOW - timedelta(days=8)
OLDER = NOW - timedelta(days=100)

# Each takes a DID of one letter and a time.
PARKED = "insert into parked_commits values ('did:' || $1, 'rev', 'relay', 1, '', '', $2)"
QUARANTINED = "insert into quarantine values ('relay', $1::text::bytea, 1, '', '', 1, $2, $2)"
INVALID = "insert into invalid_records values ('did:' || $1, '', 'rkey', 'cid', '', 'excerpt', $2)"
VERSION = (
    "insert into memory_versions"
    " values ('did:' || $1, '', 'rkey', 1, 'created', 'cid', 'scope', 1, 'x', 'x', $2, $2, null, 'id')"
)
STATUS = "insert into account_status values ('did:' || $1, 'relay', 'relay', 1, true, null, $2)"
REQUEST = "insert into requests values ('did:' || $1, '', 'identity', 'key_unknown', $2, $2)"
IDENTITY = "insert into identities (repo, resolved_at) values ('did:' || $1, $2)"
TRACKED = "insert into repos (repo, state, tracked_at, changed_at) values ('did:' || $1, 'active', $2, $2)"
ACCESS = "insert into access_tokens values ('did:' || $1, 'id', '', 'name', $2, $2)"
SEEN = "insert into seen_tokens values ('did:' || $1, '', $2)"
DELETION = "insert into deletions values ('did:' || $1, '', $2)"
LEFT = {
    PARKED: "select count(*) from parked_commits",
    QUARANTINED: "select count(*) from quarantine",
    INVALID: "select count(*) from invalid_records where excerpt <> ''",
    VERSION: "select count(*) from memory_versions where record is not null",
    STATUS: "select count(*) from account_status",
    REQUEST: "select count(*) from requests",
    ACCESS: "select count(*) from access_tokens",
    SEEN: "select count(*) from seen_tokens",
    DELETION: "select count(*) from deletions",
    IDENTITY: "select count(*) from identities",
}
NAMES = [
    *("parked_commits", "quarantine", "invalid_records", "memory_versions", "account_status", "requests"),
    *("access_tokens", "seen_tokens", "deletions", "identities"),
]
TABLES = pytest.mark.parametrize("row", LEFT, ids=NAMES)


async def insert(database: Database, row: str, names: Sequence[str], at: datetime) -> None:
    async with database.connection() as conn:
        for name in names:
            await conn.execute(row, name, at)


async def value(database: Database, query: str) -> int:
    async with database.connection() as conn:
        return await conn.fetchval(query)


# What goes


@TABLES
async def test_what_has_had_its_time_goes_and_the_rest_stays(database: Database, row: str):
    await insert(database, row, "abc", OLDER)
    await insert(database, row, "de", NOW)
    assert await expire(database, NOW) == 3
    assert await value(database, LEFT[row]) == 2


@TABLES
async def test_no_slice_takes_more_rows_than_it_may(database: Database, row: str):
    names = [f"{number:02}" for number in range(25)]
    await insert(database, row, names, OLDER)
    rows: list[int] = []
    for expiry in expiries(kept_since=OLD, content_since=OLD, deletions_since=OLD, resolved_since=OLD):
        while not expiry.ended:
            async with database.connection() as conn:
                rows.append(await expiry.take_slice(conn, 10))
    assert [taken for taken in rows if taken] == [10, 10, 5]
    assert await value(database, LEFT[row]) == 0


@TABLES
async def test_what_somebody_works_on_is_waited_for_by_nobody_and_goes_the_next_time(database: Database, row: str):
    await insert(database, row, "abc", OLDER)
    table = NAMES[list(LEFT).index(row)]
    async with database.transaction() as conn:
        name = "source" if table == "quarantine" else "repo"
        await conn.execute(f"select {name} from {table} limit 1 for update")
        assert await expire(database, NOW) == 2
    assert await expire(database, NOW) == 1


@pytest.mark.parametrize(
    ("row", "oldest"),
    [
        (PARKED, "select min(parked_at) from parked_commits"),
        (QUARANTINED, "select min(last_met_at) from quarantine"),
        (INVALID, "select min(seen_at) from invalid_records where excerpt <> ''"),
        (VERSION, "select min(overwritten_at) from memory_versions where record is not null"),
    ],
    ids=NAMES[:4],
)
async def test_oldest_go_first(database: Database, row: str, oldest: str):
    for name, days in {"a": 2, "b": 0, "c": 1}.items():
        await insert(database, row, name, OLDER + timedelta(days))
    for expiry in expiries(kept_since=NOW, content_since=NOW, deletions_since=NOW, resolved_since=NOW):
        async with database.connection() as conn:
            await expiry.take_slice(conn, 1)
    async with database.connection() as conn:
        assert await conn.fetchval(oldest) == OLDER + timedelta(days=1)


# Of strangers


@pytest.mark.parametrize("row", [STATUS, REQUEST, IDENTITY], ids=["account_status", "requests", "identities"])
async def test_what_is_about_a_tracked_repo_stays(database: Database, row: str):
    await insert(database, row, "abc", OLDER)
    await insert(database, TRACKED, "b", OLDER)
    await expire(database, NOW)
    assert await value(database, LEFT[row]) == 1


async def test_question_about_a_stranger_stays_for_as_long_as_a_commit_waits_for_its_answer(database: Database):
    await insert(database, REQUEST, "ab", OLDER)
    await insert(database, PARKED, "b", NOW)
    await expire(database, NOW)
    async with database.connection() as conn:
        assert [row["repo"] for row in await conn.fetch("select repo from requests")] == ["did:b"]


async def test_identity_of_an_author_in_a_space_stays(database: Database):
    await insert(database, IDENTITY, "ab", OLDER)
    async with database.connection() as conn:
        await conn.execute(
            "insert into repos (repo, space, state, tracked_at, changed_at)"
            " values ('did:b', 'at://x', 'active', $1, $1)",
            OLDER,
        )
    await expire(database, NOW)
    assert await value(database, LEFT[IDENTITY]) == 1


async def test_identity_stays_for_as_long_as_somebody_is_to_ask_about_it(database: Database):
    await insert(database, IDENTITY, "ab", OLDER)
    await insert(database, REQUEST, "b", NOW)
    await expire(database, NOW)
    async with database.connection() as conn:
        assert [row["repo"] for row in await conn.fetch("select repo from identities")] == ["did:b"]


async def test_identity_of_whoever_signed_in_stays_for_thirty_days_after_the_last_look_up(database: Database):
    await insert(database, IDENTITY, "a", NOW - STRANGERS_KEPT)
    assert timedelta(days=30) == STRANGERS_KEPT
    await expire(database, NOW)
    assert await value(database, LEFT[IDENTITY]) == 1
    await expire(database, NOW + timedelta(microseconds=1))
    assert await value(database, LEFT[IDENTITY]) == 0


# Rounds


class Keeping:
    """Upkeep whose rounds a test begins."""

    def __init__(self, database: Database) -> None:
        self.clock = Clock()
        self.metrics = IndexerMetrics()
        self.intake = Intake(monotonic, self.clock)
        self.consumer = Consumer(
            identities=Directory(), clock=frame_clock(LONG_AGO), tracked=set(), admits=lambda _: True, cursors={}
        )
        self.upkeep = Upkeep(
            database,
            self.intake,
            self.consumer,
            set(),
            self.metrics,
            clock=self.clock,
            version_content=timedelta(days=30),
            deletions_kept=timedelta(days=90),
            holder=uuid4(),
        )

    async def round(self, after: timedelta = timedelta(0)) -> None:
        self.clock.now += after
        await self.upkeep._round()

    def metric(self, name: str, **labels: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, labels)


async def test_expiry_that_has_used_its_time_goes_on_in_the_next_round(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(upkeep, "EXPIRY_BUDGET_S", 0.0)
    monkeypatch.setattr(upkeep, "SLICE_ROWS", 10)
    await insert(database, QUARANTINED, [f"{number:02}" for number in range(25)], OLD)
    await insert(database, PARKED, [f"{number:02}" for number in range(15)], OLD)
    keeping = Keeping(database)
    left: list[tuple[int, int]] = []
    for _ in range(5):
        await keeping.round()
        left.append((await value(database, LEFT[QUARANTINED]), await value(database, LEFT[PARKED])))
    assert left == [(15, 15), (5, 15), (0, 15), (0, 5), (0, 0)]


async def test_expiry_begins_anew_after_an_hour_and_no_sooner(database: Database):
    keeping = Keeping(database)
    await keeping.round()
    await insert(database, PARKED, "a", NOW - PUT_ASIDE_KEPT)
    await keeping.round(after=EXPIRY_EVERY - timedelta(seconds=1))
    assert await value(database, LEFT[PARKED]) == 1
    await keeping.round(after=timedelta(seconds=1))
    assert await value(database, LEFT[PARKED]) == 0


async def test_tables_are_counted_now_and_then(database: Database):
    keeping = Keeping(database)
    await keeping.round()
    await insert(database, PARKED, "ab", NOW)
    await insert(database, QUARANTINED, "a", NOW)
    await insert(database, REQUEST, "abc", NOW)

    def counted() -> list[float | None]:
        return [
            keeping.metric("indexer_parked_commits"),
            keeping.metric("indexer_quarantined_frames"),
            keeping.metric("indexer_open_requests", kind="identity"),
            keeping.metric("indexer_open_requests", kind="fetch"),
        ]

    await keeping.round(after=COUNT_EVERY - timedelta(seconds=1))
    assert counted() == [0, 0, 0, 0]
    await keeping.round(after=timedelta(seconds=1))
    assert counted() == [2, 1, 3, 0]
    async with database.connection() as conn:
        await conn.execute("delete from requests")
    await keeping.round(after=COUNT_EVERY)
    assert counted() == [2, 1, 0, 0]


async def test_clock_that_was_set_back_stops_no_counting(database: Database):
    keeping = Keeping(database)
    await keeping.round()
    await insert(database, PARKED, "a", NOW)
    await keeping.round(after=-timedelta(days=1))
    assert keeping.metric("indexer_parked_commits") == 1


async def test_tables_that_take_long_to_count_are_counted_less_often(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    keeping, took = Keeping(database), timedelta(seconds=3)
    count, counts = upkeep.upkeep.gauges, 0

    async def slow(*arguments: object) -> object:
        nonlocal counts
        counts += 1
        keeping.clock.now += took
        return await count(*arguments)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(upkeep.upkeep, "gauges", slow)
    await keeping.round()
    await keeping.round(after=COUNTING_SHARE * took - timedelta(seconds=4))
    assert counts == 1
    await keeping.round(after=timedelta(seconds=1))
    assert counts == 2


async def test_every_repo_that_is_held_back_is_looked_at_in_its_turn(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(upkeep, "HELD_BACK_A_ROUND", 2)
    keeping, names = Keeping(database), [f"{number:02}" for number in range(9)]
    for name in names:
        keeping.consumer.hold_back(f"did:{name}")
    [*others, answered] = keeping.consumer.held_back()
    await insert(database, REQUEST, [did.removeprefix("did:") for did in others], NOW)
    for _ in range(10):
        await keeping.round()
    assert len(keeping.intake) > 0
    load = await keeping.intake.take(100, 10**6)
    assert {waiting.repo for waiting in load.waiting if isinstance(waiting, WaitingRelease)} == {answered}
