"""Words over all authors: where there are more memories than can be counted, a sample of the latest tells."""

from __future__ import annotations

import random

import pytest

from appview.filters import Filters
from appview.search.query import parse_query
from appview.store.matches import Matches
from appview.store.search import find_matches
from memory.database import Database
from memory.space import ReadableSpaces
from tests.memory_rows import ALICE, BOB, CAROL, SPACE, MemoryRows, day

NOBODY = ReadableSpaces.public_only()
AUTHORS = (ALICE, BOB, CAROL)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As of 20 memories, ten of the latest tell what more than five have."""
    for name, value in {"MAX_COUNTED": 20, "MAX_SAMPLED": 10, "FEW_SAMPLED": 3, "MAX_COUNTED_RARE": 5}.items():
        monkeypatch.setattr(f"appview.store.search_all.{name}", value)
    return monkeypatch


def put(rows: MemoryRows, count: int, words: str, *, first_day: int = 0) -> None:
    for number in range(count):
        rows.put(AUTHORS[number % 3], words, days=first_day + number)


async def find(database: Database, q: str, spaces: ReadableSpaces = NOBODY, **filters: object) -> Matches:
    async with database.transaction() as conn:
        return await find_matches(conn, parse_query(q), Filters(**filters), watermark=None, spaces=spaces)  # type: ignore[arg-type]


async def test_up_to_a_number_all_are_counted(database: Database, small: pytest.MonkeyPatch) -> None:
    rows = MemoryRows()
    put(rows, 12, "green tea")
    put(rows, 8, "green coffee", first_day=20)
    await rows.write(database)
    corpus = (await find(database, "green tea")).corpus
    assert (corpus.documents, corpus.frequencies["green"], corpus.frequencies["tea"]) == (20, 20, 12)


async def test_of_more_the_latest_tell_how_common_a_word_is_and_rare_ones_are_counted(
    database: Database, small: pytest.MonkeyPatch
) -> None:
    rows = MemoryRows()
    put(rows, 3, "oolong tea")
    put(rows, 27, "tea", first_day=10)
    for number in range(10):  # these are sampled: eight of ten have tea, four of ten have green
        rows.put(ALICE, ("green " if number < 4 else "") + ("tea" if number < 8 else "milk"), days=100 + number)
    await rows.write(database)
    corpus = (await find(database, "oolong green tea absent")).corpus
    assert corpus.documents == 40
    assert {word: corpus.frequencies.get(word) for word in ("oolong", "green", "tea", "absent")} == {
        "oolong": 3,  # counted
        "green": 16,  # four are estimated as sixteen
        "tea": 32,
        "absent": 0,
    }


async def test_counting_stops_where_a_word_turns_out_to_be_common(
    database: Database, small: pytest.MonkeyPatch
) -> None:
    rows = MemoryRows()
    put(rows, 20, "tea")
    put(rows, 10, "milk", first_day=100)
    await rows.write(database)
    assert (await find(database, "tea")).corpus.frequencies["tea"] == 5


async def test_of_a_word_that_too_many_have_the_latest_are_ranked(
    database: Database, small: pytest.MonkeyPatch
) -> None:
    small.setattr("appview.store.search.MAX_CANDIDATES", 15)
    small.setattr("appview.store.search_all.WANTED_LATEST", 12)
    small.setattr("appview.store.search_all.ENOUGH_LATEST", 6)
    rows = MemoryRows()
    put(rows, 60, "tea")
    await rows.write(database)
    matches = await find(database, "tea")
    found = [row["effective_at"] for row in matches.rows]
    assert matches.capped
    assert found == [day(59 - number) for number in range(len(found))]
    assert 6 <= len(found) <= 15


async def test_where_a_word_was_rarer_before_all_are_looked_at(database: Database, small: pytest.MonkeyPatch) -> None:
    small.setattr("appview.store.search.MAX_CANDIDATES", 15)
    small.setattr("appview.store.search_all.WANTED_LATEST", 12)
    small.setattr("appview.store.search_all.ENOUGH_LATEST", 12)
    rows = MemoryRows()
    put(rows, 2, "old tea")
    put(rows, 60, "milk", first_day=10)
    put(rows, 9, "tea", first_day=100)  # all but one of the sample: as if some sixty had it
    await rows.write(database)
    matches = await find(database, "tea")
    assert (len(matches.rows), matches.capped) == (11, False)


async def test_what_a_viewer_may_read_in_spaces_is_found_however_old(
    database: Database, small: pytest.MonkeyPatch
) -> None:
    small.setattr("appview.store.search.MAX_CANDIDATES", 15)
    small.setattr("appview.store.search_all.WANTED_LATEST", 5)
    small.setattr("appview.store.search_all.ENOUGH_LATEST", 1)
    rows = MemoryRows()
    put(rows, 60, "tea", first_day=10)
    private = rows.put(ALICE, "tea", space=SPACE, days=0)
    await rows.write(database)
    found = await find(database, "tea", ReadableSpaces(frozenset({SPACE})))
    assert private.rkey in {row["rkey"] for row in found.rows}
    assert all(row["space"] == "" for row in (await find(database, "tea")).rows)


async def test_the_past_is_told_by_what_was_the_latest_then(database: Database, small: pytest.MonkeyPatch) -> None:
    rows = MemoryRows()
    put(rows, 30, "tea")
    put(rows, 30, "milk", first_day=100)
    await rows.write(database)
    assert (await find(database, "milk", as_of=day(50))).corpus.frequencies["milk"] == 0
    assert (await find(database, "tea", as_of=day(50))).corpus.frequencies["tea"] == 60


async def test_estimates_are_near_what_counting_gives(database: Database, small: pytest.MonkeyPatch) -> None:
    seed = 20261130
    draw = random.Random(seed)
    small.setattr("appview.store.search_all.MAX_SAMPLED", 200)
    rows = MemoryRows()
    for number in range(600):
        rows.put(draw.choice(AUTHORS), " ".join(["x", *(["tea"] if draw.random() < 0.3 else [])]), days=number / 10)
    await rows.write(database)
    estimate = (await find(database, "tea")).corpus.frequencies["tea"]
    small.setattr("appview.store.search_all.MAX_COUNTED", 1_000)
    assert (await find(database, "tea")).corpus.frequencies["tea"] == pytest.approx(estimate, rel=0.25), seed
