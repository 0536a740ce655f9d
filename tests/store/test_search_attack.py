"""Searches as somebody asks who wants them wrong: what cannot be read, bursts, ends of time, odd arrays."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import pytest

from appview.filters import Filters
from appview.keys import Key
from appview.search.query import parse_query
from appview.search.ranking import prepare_scorer
from appview.store.matches import Matches
from appview.store.search import find_matches
from memory.database import Database
from memory.identifiers import COLLECTION
from memory.space import ReadableSpaces
from tests.memory_rows import ALICE, BOB, CAROL, SPACE, MemoryRows, day
from tests.private_rows import OTHER_SPACE
from tests.searching import sample_soon

NOBODY: Final = ReadableSpaces.public_only()
MEMBER: Final = ReadableSpaces(frozenset({SPACE}))
AUTHORS: Final = (ALICE, BOB, CAROL)
HIDDEN: Final = "did:plc:hiddenhhhhhhhhhhhhhhhhhh"
WORDS: Final = ("tea", "teas", "teapot", "green", "milk", "oolong", "茶", "绿茶", "กา")
QUESTIONS: Final = (
    ("tea", False),
    ("te", True),
    ("tea", True),
    ("green oolong teas", False),
    ("milk te", True),
    ("绿茶", False),
    ("กา", False),
    ("tea -milk", False),
    ('"green tea"', False),
    ("absent", False),
)
_ROUNDS: Final = 8


async def find(
    database: Database,
    q: str,
    spaces: ReadableSpaces = NOBODY,
    *,
    prefix: bool = False,
    watermark: datetime | None = None,
    filters: Filters | None = None,
) -> Matches:
    async with database.transaction(readonly=True) as conn:
        return await find_matches(
            conn, parse_query(q, prefix=prefix), filters or Filters(), watermark=watermark, spaces=spaces
        )


def keys(matches: Matches) -> list[Key]:
    return [Key(row["repo"], row["space"], row["rkey"]) for row in matches.rows]


def told(matches: Matches) -> tuple[object, ...]:
    """All that a ranking goes by: not when the latest was indexed, for which of many are counted is up to the table."""
    rows = [tuple(row.values()) for row in matches.rows]
    return rows, matches.corpus, matches.capped, tuple(matches.any_of)


def wild(draw: random.Random, rows: MemoryRows, count: int, repos: Sequence[str], space: str = "") -> None:
    """So many memories: some at the same moment, some later than all others, some replaced."""
    earlier: list[Key] = []
    for _ in range(count):
        days = draw.choice((0, 5, 5, draw.uniform(0, 10), 5_000))
        replaced = [draw.choice(earlier)] if earlier and draw.random() < 0.2 else []
        content = " ".join(draw.choices(WORDS, k=draw.randint(1, 5)))
        repo = draw.choice(repos)
        earlier.append(rows.put(repo, content, space=space, days=days, supersedes=replaced))


@pytest.mark.parametrize("viewer", [NOBODY, MEMBER])
async def test_however_much_a_viewer_cannot_read_samples_and_counts_are_the_same(
    database: Database, monkeypatch: pytest.MonkeyPatch, viewer: ReadableSpaces, seed: int
) -> None:
    sample_soon(monkeypatch)
    draw = random.Random(seed)
    for _ in range(_ROUNDS):
        rows = MemoryRows()
        wild(draw, rows, draw.randint(0, 30), AUTHORS)
        if viewer is MEMBER:
            wild(draw, rows, draw.randint(0, 10), AUTHORS, SPACE)
        asked = [
            (q, prefix, Filters(as_of=draw.choice((None, day(5), day(-1), day(9_999))))) for q, prefix in QUESTIONS
        ]
        await rows.write(database)
        before = [told(await find(database, q, viewer, prefix=prefix, filters=f)) for q, prefix, f in asked]
        for space in ("", SPACE, OTHER_SPACE):
            rows.repo(HIDDEN, space=space, visible=False)
            wild(draw, rows, draw.randint(0, 30), [HIDDEN], space)
        wild(draw, rows, draw.randint(1, 40), AUTHORS, OTHER_SPACE if viewer is MEMBER else SPACE)
        await rows.write(database)
        after = [told(await find(database, q, viewer, prefix=prefix, filters=f)) for q, prefix, f in asked]
        assert before == after


async def test_all_pages_rank_the_same_matches_by_the_same_weights(
    database: Database, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    sample_soon(monkeypatch)
    draw = random.Random(seed)
    for _ in range(_ROUNDS):
        rows = MemoryRows()
        wild(draw, rows, draw.randint(1, 30), AUTHORS)
        wild(draw, rows, draw.randint(0, 10), AUTHORS, SPACE)
        await rows.write(database)
        for viewer in (NOBODY, MEMBER):
            for q, prefix in QUESTIONS:
                first = await find(database, q, viewer, prefix=prefix)
                if first.indexed_at is not None:
                    later = await find(database, q, viewer, prefix=prefix, watermark=first.indexed_at)
                    assert told(first)[1:] == told(later)[1:], q
                    assert sorted(keys(first)) == sorted(keys(later)), q


async def test_nothing_that_has_a_rare_word_is_lost_by_samples(
    database: Database, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw = random.Random(seed)
    rows = MemoryRows()
    wild(draw, rows, 60, AUTHORS)
    wild(draw, rows, 10, AUTHORS, SPACE)
    await rows.write(database)
    of_words = {q: await find(database, q, MEMBER) for q in WORDS}
    for name, value in {"MAX_COUNTED": 10, "MAX_SAMPLED": 10, "FEW_SAMPLED": 3, "MAX_COUNTED_RARE": 5}.items():
        monkeypatch.setattr(f"appview.store.search_all.{name}", value)
    for q, counted in of_words.items():
        sampled = await find(database, q, MEMBER)
        assert keys(sampled) == keys(counted), q
        assert not sampled.capped


async def test_where_there_is_nothing_to_read_nothing_is_found(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample_soon(monkeypatch)
    rows = MemoryRows()
    for _ in range(2):  # an empty index, and one with private memories only
        for q, prefix in QUESTIONS:
            matches = await find(database, q, prefix=prefix)
            assert (keys(matches), matches.corpus.documents, matches.indexed_at) == ([], 0, None)
            prepare_scorer(parse_query(q, prefix=prefix).terms, matches.corpus)
        wild(random.Random(1), rows, 20, AUTHORS, SPACE)
        await rows.write(database)


async def test_in_an_index_of_private_memories_their_reader_finds_all_that_can_be_ranked(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample_soon(monkeypatch)
    rows = MemoryRows()
    put = [rows.put(ALICE, "tea", space=SPACE, days=number) for number in range(6)]
    await rows.write(database)
    matches = await find(database, "tea", MEMBER)
    assert (keys(matches), matches.capped) == (put[:2:-1], True)
    assert keys(await find(database, "tea", MEMBER, filters=Filters(as_of=day(1)))) == put[1::-1]
    assert keys(await find(database, "tea", MEMBER, filters=Filters(as_of=day(-1)))) == []


async def test_a_word_that_only_a_space_has_is_found_beside_common_public_ones(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample_soon(monkeypatch)
    rows = MemoryRows()
    for number in range(20):
        rows.put(BOB, "green tea", days=10 + number)
    secret = rows.put(ALICE, "oolong", space=SPACE, days=0)
    await rows.write(database)
    matches = await find(database, "green oolong tea", MEMBER)
    assert keys(matches) == [secret]
    assert keys(await find(database, "oolong")) == []


async def test_of_memories_of_one_moment_the_same_are_ranked_however_they_lie_in_the_table(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    sample_soon(monkeypatch)
    rows = MemoryRows()
    put = [rows.put(AUTHORS[number % 3], "tea", days=7) for number in range(12)]
    rows.stored = dict(reversed(rows.stored.items()))
    rows.repos = dict(reversed(rows.repos.items()))
    await rows.write(database)
    matches = await find(database, "tea")
    assert (keys(matches), matches.capped) == (sorted(put)[:3], True)


async def test_a_memory_of_the_year_one_breaks_no_search(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appview.store.search.MAX_CANDIDATES_OF_ALL", 3)
    rows = MemoryRows()
    record = {"$type": COLLECTION, "content": "ancient", "createdAt": "0001-01-01T00:00:00Z"}
    rows.put_record(Key(BOB, "", "3kaaaaaaaaa2a"), record, day(1))
    rows.put(BOB, "tea", days=1)
    for number in range(5):
        rows.put(ALICE, "tea", space=SPACE, days=number)
    await rows.write(database)
    matches = await find(database, "tea", MEMBER)
    assert (len(matches.rows), matches.capped) == (3, True)


@pytest.fixture
def quickly_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of 20 memories, ten of the latest tell how common a word is; what twelve have is ranked."""
    for name, value in {
        "MAX_COUNTED": 20,
        "MAX_SAMPLED": 10,
        "FEW_SAMPLED": 3,
        "MAX_COUNTED_RARE": 5,
        "TELLING_MATCHES": 12,
    }.items():
        monkeypatch.setattr(f"appview.store.search_all.{name}", value)


@pytest.mark.usefixtures("quickly_sampled")
async def test_after_a_burst_of_something_else_common_words_are_still_common(database: Database) -> None:
    rows = MemoryRows()
    for number in range(60):
        rows.put(AUTHORS[number % 3], "green tea", days=number)
    oolong = rows.put(BOB, "oolong", days=20.5)
    for number in range(10):
        rows.put(CAROL, "milk", days=100 + number)
    await rows.write(database)
    matches = await find(database, "green oolong tea")
    assert keys(matches) == [oolong]
    assert matches.corpus.frequencies["tea"] > 12 > matches.corpus.frequencies["oolong"]


@pytest.mark.usefixtures("quickly_sampled")
async def test_after_a_burst_of_a_rare_word_it_is_still_rare(database: Database) -> None:
    rows = MemoryRows()
    for number in range(90):
        rows.put(AUTHORS[number % 3], "tea" if number % 9 else "brewing", days=number)
    oolong = [rows.put(CAROL, "oolong", days=100 + number) for number in range(3)]
    await rows.write(database)
    matches = await find(database, "brewing oolong")
    assert set(oolong) <= set(keys(matches))


async def test_one_author_alone_cannot_hide_what_others_say(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"MAX_COUNTED": 20, "MAX_SAMPLED": 10, "FEW_SAMPLED": 3}.items():
        monkeypatch.setattr(f"appview.store.search_all.{name}", value)
    monkeypatch.setattr("appview.store.search.MAX_CANDIDATES_OF_ALL", 30)
    rows = MemoryRows()
    said = [rows.put(BOB, "tea", days=number) for number in range(10)]
    for number in range(40):
        rows.put(AUTHORS[number % 3], "milk", days=20 + number)
    for number in range(10):
        rows.put(CAROL, "tea", days=100 + number / 100)
    await rows.write(database)
    assert set(said) <= set(keys(await find(database, "tea")))


REPOS: Final = ((), (ALICE,), (ALICE, ALICE), (ALICE, BOB), (ALICE, HIDDEN), (HIDDEN,), ("did:plc:nobody",))


@pytest.mark.parametrize("repos", REPOS)
@pytest.mark.parametrize("viewer", [NOBODY, MEMBER])
@pytest.mark.parametrize("asked", [None, (), (SPACE,), ("",), ("", SPACE), (SPACE, OTHER_SPACE)])
@pytest.mark.parametrize("public_only", [False, True])
async def test_in_repos_each_readable_memory_is_found_once(
    database: Database,
    repos: tuple[str, ...],
    viewer: ReadableSpaces,
    asked: tuple[str, ...] | None,
    *,
    public_only: bool,
) -> None:
    rows = MemoryRows()
    for space in ("", SPACE, OTHER_SPACE):
        rows.repo(HIDDEN, space=space, visible=False)
        for repo in (*AUTHORS, HIDDEN):
            rows.put(repo, f"tea of {repo}", space=space, days=1)
    await rows.write(database)
    filters = Filters(repos=repos, spaces=asked, public_only=public_only)
    expected = {
        key
        for key in rows.stored
        if key.repo in repos
        and key.repo != HIDDEN
        and key.space in viewer
        and (asked is None or key.space in asked)
        and not (public_only and key.space)
    }
    matches = await find(database, "tea", viewer, filters=filters)
    found = keys(matches)
    assert (set(found), len(found)) == (expected, len(expected))
    assert matches.corpus.documents == matches.corpus.frequencies.get("tea", 0) == len(expected)
