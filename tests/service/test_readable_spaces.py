"""What a viewer may not read changes no byte of any answer; what they may read, they see."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from appview.faces.xrpc import PREFIX
from appview.filters import Filters
from appview.keys import Key, uri_of
from appview.search.hits import rank_candidates
from appview.search.marks import Judge
from appview.search.query import parse_query
from appview.search.ranking import prepare_scorer
from appview.store.history import (
    FIRST_REPLACED_PLACE,
    FIRST_REPLACING_PLACE,
    FIRST_VERSION_PLACE,
    find_replaced,
    find_replacing,
    load_versions,
)
from appview.store.lists import Order, list_places, start_of
from appview.store.search import explain_candidate
from appview.store.stats import RecentTotals, count_memories, count_memories_of, count_repos, load_repo_sync
from appview.store.views import load_memories, load_memory
from memory.database import Database
from memory.queries import Connection
from memory.space import ReadableSpaces
from tests.api_client import CATALOGUE, NAMESPACE, Api, Asked, in_query
from tests.memory_rows import ALICE, BOB, CAROL, SPACE, MemoryRows, day, text
from tests.private_rows import (
    FIFTH,
    FIRST,
    FOURTH,
    OTHER_SPACE,
    SECOND,
    THIRD,
    Answer,
    answer_of,
    changed_answers,
    public_rows,
    rows_and_hidden,
    rows_and_unreadable,
)
from tests.searching import find_candidates, sample_soon

OF_VIEWERS = {"createAccessToken", "listAccessTokens", "revokeAccessToken", "openSpace", "closeSpace", "listGrants"}

DAVE = "did:plc:daveddddddddddddddddddd"

PUBLIC_ONLY = ReadableSpaces.public_only()
GRANTED = ReadableSpaces(frozenset({SPACE}))

REQUESTS: list[tuple[str, dict[str, Asked]]] = [
    ("searchRecords", {"q": "green tea", "explain": True}),
    ("searchRecords", {"q": "green tea", "limit": 1}),
    ("searchRecords", {"q": "tea", "repo": [ALICE, BOB, CAROL], "explain": True}),
    ("searchRecords", {"q": "tea", "repo": [ALICE], "includeSuperseded": True}),
    ("searchRecords", {"q": "tea", "asOf": text(day(3.5)), "explain": True}),
    ("searchRecords", {"q": "te", "prefix": True, "explain": True, "publicOnly": True}),
    ("searchRecords", {"q": "black", "explainUri": f"at://{ALICE}/dev.bastienrobert.memory.record/{FIRST}"}),
    ("searchRecords", {"q": "tea", "repo": [CAROL]}),
    ("searchRecords", {"q": '"tea for" -two'}),
    ("listRecords", {}),
    ("listRecords", {"limit": 1}),
    ("listRecords", {"order": "oldest", "includeSuperseded": True}),
    ("listRecords", {"order": "occurred", "includeSuperseded": True}),
    ("listRecords", {"asOf": text(day(3.5)), "includeSuperseded": True}),
    ("listRecords", {"repo": [ALICE, BOB, CAROL], "includeSuperseded": True}),
    ("listRecords", {"repo": ["alice.test"], "order": "occurred"}),
    ("listRecords", {"repo": [CAROL], "order": "oldest"}),
    ("listRecords", {"kind": ["secret"]}),
    ("listRecords", {"agent": ["spy"]}),
    ("getRecord", {"uri": f"at://{ALICE}/dev.bastienrobert.memory.record/{FIRST}"}),
    ("getRecord", {"uri": f"at://{ALICE}/dev.bastienrobert.memory.record/{SECOND}"}),
    ("getRecord", {"uri": f"at://{ALICE}/dev.bastienrobert.memory.record/{THIRD}"}),
    ("getRecord", {"uri": f"at://{ALICE}/dev.bastienrobert.memory.record/{FOURTH}"}),
    ("getRecord", {"uri": f"at://{ALICE}/dev.bastienrobert.memory.record/{FIFTH}"}),
    ("getRecord", {"uri": f"at://{BOB}/dev.bastienrobert.memory.record/{FIRST}"}),
    ("getRecord", {"uri": f"at://{CAROL}/dev.bastienrobert.memory.record/{FIRST}"}),
    ("getRecord", {"uri": f"{SPACE}/{ALICE}/dev.bastienrobert.memory.record/{FIRST}"}),
    ("getHistory", {"uri": f"at://{ALICE}/dev.bastienrobert.memory.record/{FIRST}"}),
    ("getHistory", {"uri": f"at://{ALICE}/dev.bastienrobert.memory.record/{SECOND}"}),
    ("getHistory", {"uri": f"at://{ALICE}/dev.bastienrobert.memory.record/{THIRD}"}),
    ("getHistory", {"uri": f"at://{BOB}/dev.bastienrobert.memory.record/{FIRST}"}),
    ("getHistory", {"uri": f"{SPACE}/{ALICE}/dev.bastienrobert.memory.record/{FIRST}"}),
    ("getStats", {}),
    ("getStats", {"repo": ALICE}),
    ("getStats", {"repo": CAROL}),
]


async def answers(api: Api) -> list[Answer]:
    """What each request is answered."""
    return [
        answer_of(await api.send("GET", PREFIX + NAMESPACE + method, params=in_query(asked)))
        for method, asked in REQUESTS
    ]


def test_every_method_that_reads_memories_is_asked() -> None:
    methods = {nsid.removeprefix(NAMESPACE) for nsid in CATALOGUE.methods}
    assert {method for method, _ in REQUESTS} == methods - OF_VIEWERS


@pytest.fixture(params=["counted", "sampled"])
def all_authors(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """How it is told what all authors have: counted, or as of more memories than can be, by a sample of the latest."""
    if request.param == "sampled":
        sample_soon(monkeypatch)


@pytest.mark.usefixtures("all_authors")
async def test_unreadable_rows_change_no_byte_of_any_answer(database: Database) -> None:
    api = Api(database)
    changed = await changed_answers(database, rows_and_unreadable(), lambda: answers(api))
    assert [REQUESTS[place] for place in changed] == []


@pytest.mark.usefixtures("all_authors")
async def test_repos_that_are_not_served_change_no_byte_of_any_answer(database: Database) -> None:
    api = Api(database)
    changed = await changed_answers(database, rows_and_hidden(), lambda: answers(api))
    assert [REQUESTS[place] for place in changed] == []


@pytest.fixture
async def rows(database: Database) -> MemoryRows:
    """Public and private memories, written."""
    written = rows_and_unreadable()
    written.repo(BOB, space=OTHER_SPACE, visible=False)
    # An author who is not served: neither in public nor in the Space.
    for space in ("", SPACE):
        written.repo(DAVE, space=space, visible=False)
        old = written.put(DAVE, "hidden tea", space=space, days=1, occurred=("2020-01-01T00:00:00Z", "day"))
        written.put(DAVE, "hidden tea", space=space, days=2, supersedes=[old])
    await written.write(database)
    return written


def expected(rows: MemoryRows, *spaces: str) -> set[Key]:
    """The keys of all current memories of served authors in these Spaces."""
    current = {key for key, stored in rows.stored.items() if stored.block is not None}
    return {key for key in current if key.space in spaces and rows.repos[key.repo, key.space]["visible"]}


@pytest.mark.parametrize("order", list(Order))
@pytest.mark.parametrize("repos", [None, (ALICE, BOB, CAROL, DAVE)])
async def test_granted_spaces_appear_in_lists(
    database: Database, rows: MemoryRows, order: Order, repos: tuple[str, ...] | None
) -> None:
    filters = Filters(repos=repos, superseded=True)
    async with database.connection() as conn:
        for spaces, visible in ((PUBLIC_ONLY, expected(rows, "")), (GRANTED, expected(rows, "", SPACE))):
            start = start_of(order, None)
            places = await list_places(conn, order, filters, after=start, limit=1000, spaces=spaces)
            assert len(places) == len(visible)
            assert {place.key for place in places} == visible
            # One by one, the same in the same order.
            walked = []
            after = start
            while page := await list_places(conn, order, filters, after=after, limit=3, spaces=spaces):
                walked += page
                after = page[-1]
            assert walked == places


@pytest.mark.parametrize("repos", [None, (ALICE, BOB, CAROL, DAVE)])
async def test_granted_spaces_appear_in_search(
    database: Database, rows: MemoryRows, repos: tuple[str, ...] | None
) -> None:
    query = parse_query("tea")
    filters = Filters(repos=repos, superseded=True)
    for spaces, visible in ((PUBLIC_ONLY, expected(rows, "")), (GRANTED, expected(rows, "", SPACE))):
        async with database.transaction(readonly=True) as conn:
            candidates = await find_candidates(conn, query, filters, watermark=None, spaces=spaces)
        assert {candidate.key for candidate in candidates.memories} == visible
        assert candidates.corpus.documents == len(visible)
        assert candidates.corpus.frequencies["tea"] == len(visible)
        ranking = rank_candidates(
            query, candidates.memories, Judge(prepare_scorer(query.terms, candidates.corpus)), min_score=0, wanted=100
        )
        assert {key for hit in ranking.hits for key in (hit.key, *hit.duplicates)} == visible


@pytest.mark.parametrize("repos", [None, (ALICE, BOB, CAROL, DAVE)])
@pytest.mark.parametrize("spaces", [PUBLIC_ONLY, GRANTED])
async def test_words_are_counted_as_of_the_time_that_is_asked_about(
    database: Database, rows: MemoryRows, repos: tuple[str, ...] | None, spaces: ReadableSpaces
) -> None:
    query = parse_query("tea")
    filters = Filters(repos=repos, superseded=True, as_of=day(2))
    then = {
        key
        for key in expected(rows, "", *spaces.as_list())
        if min(rows.stored[key].memory().created_at, rows.stored[key].first_indexed_at) <= day(2)
    }
    async with database.transaction(readonly=True) as conn:
        candidates = await find_candidates(conn, query, filters, watermark=None, spaces=spaces)
    assert {candidate.key for candidate in candidates.memories} == then
    assert candidates.corpus.frequencies["tea"] == len(then)


async def test_equal_contents_of_different_spaces_do_not_collapse(database: Database, rows: MemoryRows) -> None:
    query = parse_query("green")
    async with database.transaction(readonly=True) as conn:
        candidates = await find_candidates(
            conn, query, Filters(repos=(ALICE,), superseded=True), watermark=None, spaces=GRANTED
        )
    ranking = rank_candidates(
        query, candidates.memories, Judge(prepare_scorer(query.terms, candidates.corpus)), min_score=0, wanted=100
    )
    assert {(hit.key.space, hit.key.rkey) for hit in ranking.hits} == {("", FIRST), (SPACE, FIRST), (SPACE, SECOND)}
    assert not any(hit.duplicates for hit in ranking.hits)


async def test_granted_spaces_appear_in_views_and_explanations(database: Database, rows: MemoryRows) -> None:
    private = Key(ALICE, SPACE, FIRST)
    query = parse_query("green tea")
    async with database.connection() as conn:
        assert await load_memories(conn, [private], as_of=None, spaces=PUBLIC_ONLY) == [None]
        assert await explain_candidate(conn, query, Filters(), private, spaces=PUBLIC_ONLY) is None
        [memory] = await load_memories(conn, [private], as_of=None, spaces=GRANTED)
        assert memory is not None
        assert memory.replacers == (SECOND,)
        # Only from its own Space.
        [public] = await load_memories(conn, [Key(ALICE, "", SECOND)], as_of=None, spaces=GRANTED)
        assert public is not None
        assert public.replacers == ()
        assert await explain_candidate(conn, query, Filters(), private, spaces=GRANTED) is not None


@pytest.mark.parametrize("spaces", [PUBLIC_ONLY, GRANTED])
async def test_one_memory_is_loaded_as_one_of_many(
    database: Database, rows: MemoryRows, spaces: ReadableSpaces
) -> None:
    keys = [*rows.stored, Key(ALICE, "", "3kzzzzzzzzz2z")]
    async with database.connection() as conn:
        many = await load_memories(conn, keys, as_of=None, spaces=spaces)
        assert [await load_memory(conn, key, spaces=spaces) for key in keys] == many
    assert None in many
    assert any(memory is not None and memory.replacers for memory in many)
    assert any(memory is not None and memory.ignored_targets for memory in many)


async def test_what_is_not_served_is_neither_shown_nor_explained(database: Database, rows: MemoryRows) -> None:
    query = parse_query("tea")
    hidden = [key for key in rows.stored if key.repo == DAVE]
    async with database.connection() as conn:
        assert await load_memories(conn, hidden, as_of=None, spaces=GRANTED) == [None] * 4
        for key in hidden:
            assert await explain_candidate(conn, query, Filters(), key, spaces=GRANTED) is None
            assert (
                await load_versions(conn, key, before=FIRST_VERSION_PLACE, limit=9, is_owner=True, spaces=GRANTED) == []
            )
            assert not (await find_replaced(conn, key, after=FIRST_REPLACED_PLACE, limit=9, spaces=GRANTED)).places
            assert not (await find_replacing(conn, key, after=FIRST_REPLACING_PLACE, limit=9, spaces=GRANTED)).places


async def test_a_cycle_in_a_granted_space_is_judged_as_of_any_time(database: Database, rows: MemoryRows) -> None:
    keys = [Key(BOB, SPACE, FIRST), Key(BOB, SPACE, SECOND)]
    async with database.connection() as conn:
        now = await load_memories(conn, keys, as_of=None, spaces=GRANTED)
        then = await load_memories(conn, keys[:1], as_of=day(3), spaces=GRANTED)
    assert [memory.superseded for memory in now if memory] == [True, False]
    assert [memory.superseded for memory in then if memory] == [False]


async def test_granted_spaces_appear_in_histories(database: Database, rows: MemoryRows) -> None:
    old, new = Key(ALICE, SPACE, FIRST), Key(ALICE, SPACE, SECOND)

    async def history(conn: Connection, spaces: ReadableSpaces) -> list[Any]:
        return [
            await load_versions(conn, old, before=FIRST_VERSION_PLACE, limit=9, is_owner=False, spaces=spaces),
            (await find_replaced(conn, new, after=FIRST_REPLACED_PLACE, limit=9, spaces=spaces)).places,
            (await find_replacing(conn, old, after=FIRST_REPLACING_PLACE, limit=9, spaces=spaces)).places,
        ]

    async with database.connection() as conn:
        assert await history(conn, PUBLIC_ONLY) == [[], (), ()]
        versions, replaced, replacing = await history(conn, GRANTED)
    assert [version.number for version in versions] == [1]
    assert [place.rkey for place in replaced] == [FIRST]
    assert [place.rkey for place in replacing] == [SECOND]


async def test_granted_spaces_appear_in_statistics(database: Database, rows: MemoryRows) -> None:
    async with database.connection() as conn:
        for spaces, visible in ((PUBLIC_ONLY, expected(rows, "")), (GRANTED, expected(rows, "", SPACE))):
            counts = await count_memories(conn, spaces=spaces)
            assert counts.records + counts.superseded == len(visible)
            assert await count_repos(conn, spaces=spaces) == len({key.repo for key in visible})
            of_carol = await count_memories_of(conn, CAROL, spaces=spaces)
            assert of_carol.records == sum(key.repo == CAROL for key in visible)
        assert await load_repo_sync(conn, CAROL) is None  # she has no public repo
        assert await load_repo_sync(conn, ALICE) is not None


async def test_totals_are_remembered_for_those_only_who_may_read_the_same(database: Database, rows: MemoryRows) -> None:
    totals = RecentTotals(database, lambda: 0.0)
    for _ in range(2):
        for spaces, visible in ((PUBLIC_ONLY, expected(rows, "")), (GRANTED, expected(rows, "", SPACE))):
            counts = (await totals.load(spaces=spaces)).counts
            assert counts.records + counts.superseded == len(visible)


async def test_public_only_leaves_granted_spaces_out(database: Database, rows: MemoryRows) -> None:
    response = await Api(database).get("listRecords", publicOnly=True, includeSuperseded=True)
    assert {record["uri"] for record in response["records"]} == {uri_of(key) for key in expected(rows, "")}


async def test_an_answer_tells_nothing_of_how_much_is_private(database: Database) -> None:
    rows = public_rows()
    await rows.write(database)
    lag = (await Api(database, now=day(300) + timedelta(seconds=90)).get("getStats"))["indexingLagSeconds"]
    assert lag == 90
