"""Words over all authors: where there are more memories than can be counted, a sample of the latest tells."""

from __future__ import annotations

import random

import pytest

from appview.filters import Filters
from appview.search.query import parse_query
from appview.store import search_all
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
    for name, value in {
        "MAX_COUNTED": 20,
        "MAX_SAMPLED": 10,
        "FEW_SAMPLED": 3,
        "FEW_AUTHORS": 2,
        "MAX_COUNTED_RARE": 5,
    }.items():
        monkeypatch.setattr(f"appview.store.search_all.{name}", value)
    return monkeypatch


def put(rows: MemoryRows, count: int, words: str, *, first_day: int = 0) -> None:
    for number in range(count):
        rows.put(AUTHORS[number % 3], words, days=first_day + number)


def keys(matches: Matches) -> list[tuple[str, str, str]]:
    return [(row["repo"], row["space"], row["rkey"]) for row in matches.rows]


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
        words = ("green " if number < 4 else "") + ("tea" if number < 8 else "milk")
        rows.put(AUTHORS[number % 3], words, days=100 + number)
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
    put(rows, 30, "tea")
    put(rows, 10, "milk", first_day=100)
    await rows.write(database)
    assert (await find(database, "tea")).corpus.frequencies["tea"] == 20


async def test_of_a_word_that_too_many_have_the_latest_are_ranked(
    database: Database, small: pytest.MonkeyPatch
) -> None:
    small.setattr("appview.store.search.MAX_CANDIDATES_OF_ALL", 15)
    rows = MemoryRows()
    put(rows, 60, "tea")
    await rows.write(database)
    matches = await find(database, "tea")
    found = [row["effective_at"] for row in matches.rows]
    assert matches.capped
    assert found == [day(59 - number) for number in range(15)]


async def test_where_a_word_was_rarer_before_all_are_looked_at(database: Database, small: pytest.MonkeyPatch) -> None:
    small.setattr("appview.store.search.MAX_CANDIDATES_OF_ALL", 15)
    rows = MemoryRows()
    put(rows, 2, "old tea")
    put(rows, 60, "milk", first_day=10)
    put(rows, 9, "tea", first_day=100)  # all but one of the sample: as if some sixty had it
    await rows.write(database)
    matches = await find(database, "tea")
    assert (len(matches.rows), matches.capped) == (11, False)


async def test_how_far_back_is_looked_changes_nothing(database: Database, small: pytest.MonkeyPatch, seed: int) -> None:
    draw = random.Random(seed)
    small.setattr("appview.store.search.MAX_CANDIDATES_OF_ALL", 12)
    for _ in range(10):
        rows = MemoryRows()
        pace = draw.choice([0.0, 0.1, 5.0])  # all at once, or one after another
        for number in range(draw.randrange(30, 90)):
            words = draw.choice(["tea", "green tea", "milk", "milk and cake"])
            rows.put(
                draw.choice(AUTHORS), words, space=draw.choice(["", "", SPACE]), days=number ** draw.random() * pace
            )
        await rows.write(database)
        for spaces in (NOBODY, ReadableSpaces(frozenset({SPACE}))):
            for q in ("tea", "green tea", "milk cake"):
                found = await find(database, q, spaces)
                with small.context() as all_times:
                    all_times.setattr(search_all._Sample, "since", lambda *_: None)
                    expected = await find(database, q, spaces)
                assert (keys(found), found.capped) == (keys(expected), expected.capped)


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
