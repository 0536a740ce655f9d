"""searchRecords by meaning: what shares no word is found, and every filter, mask and Space holds in that arm too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from appview.access import Viewer
from appview.answers import arms, search
from appview.call import Turns
from appview.faces.assistants.face import PREFIX
from appview.faces.assistants.fields import SEARCH
from appview.keys import Key, uri_of
from appview.store import semantic
from appview.store.search import Matches, find_matches
from memory.database import Database
from memory.embedding import Embedder
from memory.query_embedding import NoVector
from memory.space import ReadableSpaces
from memory.tasks import TaskGroup
from tests.api_client import Api
from tests.deadline import DEADLINE_S
from tests.meaning import embed_all, embedded_model, query_models
from tests.memory_rows import ALICE, BOB, SPACE, MemoryRows, day, text

HOT = "which hot beverage does she like"
TEA = "Prefers green tea to coffee."
WHERE: list[dict[str, Any]] = [{}, {"repo": [ALICE, BOB]}, {"repo": ALICE}]


@pytest.fixture
async def embedder() -> AsyncGenerator[Embedder]:
    async with embedded_model() as opened:
        yield opened


@pytest.fixture
def rows() -> MemoryRows:
    """Two people's memories; one of them was replaced."""
    rows = MemoryRows()
    rows.repo(ALICE, handle="alice.test")
    old = rows.put(ALICE, "Prefers a strong espresso after lunch.", kind="preference", scope="home")
    rows.put(ALICE, TEA, kind="preference", scope="home", supersedes=[old])
    rows.put(ALICE, "Her sister Ana moved to Lisbon in spring.", kind="fact")
    rows.put(
        ALICE,
        "The build of the mobile app takes eleven minutes.",
        kind="fact",
        occurred=("2026-02-01T00:00:00Z", "day"),
    )
    rows.put(ALICE, "Walks the dog along the river every morning.")
    rows.put(BOB, "Trinkt lieber Wein als Bier.", agent="claude-code")
    rows.put(BOB, "朝はコーヒーより緑茶が好きです。")
    return rows


async def serve(database: Database, rows: MemoryRows, embedder: Embedder, **more: Any) -> Api:
    """An API over these, each with its vector."""
    await rows.write(database)
    await embed_all(database, embedder)
    return Api(database, query_models=query_models(embedder), **more)


@pytest.fixture
async def api(database: Database, rows: MemoryRows, embedder: Embedder) -> Api:
    return await serve(database, rows, embedder)


def contents(answer: dict[str, Any]) -> list[str]:
    return [record["value"]["content"] for record in answer["records"]]


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
async def test_what_shares_no_word_is_found(api: Api, where: dict[str, Any], mode: str) -> None:
    assert (await api.get("searchRecords", q=HOT, mode="lexical", **where))["records"] == []
    answer = await api.get("searchRecords", q=HOT, mode=mode, **where)
    assert answer["mode"] == mode
    assert contents(answer)[0] == TEA


async def test_another_language_is_found(api: Api) -> None:
    assert contents(await api.get("searchRecords", q="Does he like green tea?", repo=BOB))[0].startswith("朝")


async def test_words_and_meaning_together_outrank_either(api: Api) -> None:
    answer = await api.get("searchRecords", q="green tea or another hot beverage", repo=ALICE, explain=True)
    best = answer["records"][0]
    assert best["value"]["content"] == TEA
    assert best["scores"]["lexical"]["rank"] == best["scores"]["semantic"]["rank"] == 1
    fused = [float(record["scores"]["fused"]) for record in answer["records"]]
    assert fused == sorted(fused, reverse=True)
    assert all(0 <= record["score"] <= 1000 for record in answer["records"])


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"kind": "fact"}, False),
        ({"kind": "preference"}, True),
        ({"scope": "home"}, True),
        ({"scope": ""}, False),
        ({"agent": "claude-code"}, False),
        ({"createdAfter": text(day(2))}, True),
        ({"createdBefore": text(day(2))}, False),
        ({"occurredAfter": text(day(0))}, False),
        ({"publicOnly": True}, True),
    ],
)
@pytest.mark.parametrize("where", WHERE)
async def test_filters_hold_by_meaning(api: Api, asked: dict[str, Any], expected: bool, where: dict[str, Any]) -> None:
    found = contents(await api.get("searchRecords", q=HOT, mode="semantic", **asked, **where))
    assert (TEA in found) is expected


@pytest.mark.parametrize("where", WHERE)
async def test_phrases_and_exclusions_are_filters_by_meaning_too(api: Api, where: dict[str, Any]) -> None:
    assert contents(await api.get("searchRecords", q=f'{HOT} "green tea"', mode="semantic", **where)) == [TEA]
    assert TEA not in contents(await api.get("searchRecords", q=f"{HOT} -coffee", mode="semantic", **where))
    assert TEA not in contents(await api.get("searchRecords", q=f'{HOT} -"green tea"', **where))


@pytest.mark.parametrize("where", WHERE)
async def test_replaced_memories_are_suppressed_by_meaning(api: Api, where: dict[str, Any]) -> None:
    espresso = "Prefers a strong espresso after lunch."
    answer = await api.get(
        "searchRecords", q="how does she take her coffee shots", mode="semantic", minScore=0, **where
    )
    assert espresso not in contents(answer)
    assert answer["suppressed"] == 1
    before = await api.get("searchRecords", q=HOT, mode="semantic", asOf=text(day(1.5)), **where)
    assert contents(before) == [espresso]
    everything = await api.get("searchRecords", q=HOT, mode="semantic", includeSuperseded=True, **where)
    assert {espresso, TEA} <= set(contents(everything))


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
async def test_pages_show_every_hit_once(api: Api, where: dict[str, Any], mode: str) -> None:
    whole = contents(await api.get("searchRecords", q="what she likes to drink", mode=mode, minScore=0, **where))
    paged = await api.contents("searchRecords", q="what she likes to drink", mode=mode, limit=1, minScore=0, **where)
    assert len(whole) > 2
    assert paged == whole


async def test_a_memory_that_was_found_by_meaning_alone_is_explained(api: Api, rows: MemoryRows) -> None:
    uri = next(uri_of(key) for key, stored in rows.stored.items() if stored.memory().content == TEA)
    answer = await api.get("searchRecords", q=HOT, repo=ALICE, explainUri=uri)
    assert answer["explanation"]["recalled"]
    assert set(answer["explanation"]["scores"]) == {"semantic", "fused"}
    assert answer["explanation"]["score"] == answer["records"][0]["score"]
    failed = await api.get("searchRecords", q=HOT, repo=ALICE, kind="fact", explainUri=uri)
    assert failed["explanation"]["failedFilter"] == "kind"
    assert failed["explanation"]["scores"]["semantic"]["raw"] == answer["explanation"]["scores"]["semantic"]["raw"]


async def test_low_scores_are_left_out_on_request(api: Api) -> None:
    best = (await api.get("searchRecords", q=HOT))["records"][0]["score"]
    assert contents(await api.get("searchRecords", q=HOT, minScore=best)) == [TEA]
    assert best > 0


@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
async def test_without_a_least_score_what_is_a_little_alike_is_left_out(api: Api, mode: str) -> None:
    all_alike = (await api.get("searchRecords", q=HOT, mode=mode, minScore=0))["records"]
    left = (await api.get("searchRecords", q=HOT, mode=mode))["records"]
    assert left == [record for record in all_alike if record["score"] >= 200]
    assert 0 < len(left) < len(all_alike)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("mode", ["hybrid", "lexical", "semantic"])
async def test_what_stands_behind_many_equal_or_replaced_ones_is_found(
    database: Database,
    embedder: Embedder,
    monkeypatch: pytest.MonkeyPatch,
    where: dict[str, Any],
    mode: str,
) -> None:
    monkeypatch.setattr(search, "MIN_RANKED", 5)
    rows = MemoryRows()
    rows.put(BOB, "Drinks tea.")
    for number in range(20):
        rows.put(ALICE, "Drinks tea.")
        rows.put(ALICE, "Sleeps.", supersedes=[rows.put(ALICE, f"Drinks tea {number}.")])
    last = "The tea that she drinks on Sundays in the garden is brewed by her neighbour, at noon."
    rows.put(ALICE, last)
    api = await serve(database, rows, embedder)
    pages = [page async for page in api.pages("searchRecords", q="drinks tea", mode=mode, limit=2, **where)]
    records = [record for page in pages for record in page["records"]]
    assert last in [record["value"]["content"] for record in records]
    [equal] = [each for each in records if each["repo"] == ALICE and each["value"]["content"] == "Drinks tea."]
    assert len(equal["duplicates"]) == (19 if where or mode != "semantic" else semantic.COPIES - 1)


@pytest.mark.parametrize("by_index", [False, True])
async def test_nobody_silences_the_others_in_a_search_over_all(
    database: Database, rows: MemoryRows, embedder: Embedder, monkeypatch: pytest.MonkeyPatch, by_index: bool
) -> None:
    loud = "did:plc:loudaaaaaaaaaaaaaaaaaaaa"
    for _ in range(110):
        rows.put(loud, "Which hot beverage does she like?")
        rows.put(loud, "Sleeps.", supersedes=[rows.put(loud, "Which hot beverage does she like best?")])
    if by_index:
        monkeypatch.setattr(semantic, "MAX_COMPARED", 0)
        monkeypatch.setattr(semantic, "MAX_COMPARED_ANYWAY", 0)
    api = await serve(database, rows, embedder)
    assert TEA in contents(await api.get("searchRecords", q=HOT, mode="semantic", minScore=0))


class _Unable:
    """Models that answer the same whatever they are asked."""

    def __init__(self, answer: Sequence[float] | NoVector) -> None:
        self._answer = answer
        self.is_elsewhere = False

    async def embed(self, model: str, wording: str, *, private: bool) -> Sequence[float] | NoVector:
        return self._answer

    async def may_hang(self, model: str) -> bool:
        return self.is_elsewhere


class _Gated(_Unable):
    """One that answers when it is told to."""

    def __init__(self) -> None:
        super().__init__(NoVector.SLOW)
        self.asked, self.answers = asyncio.Event(), asyncio.Event()

    async def embed(self, model: str, wording: str, *, private: bool) -> Sequence[float] | NoVector:
        self.asked.set()
        await self.answers.wait()
        return self._answer


async def test_a_model_in_this_process_makes_the_vector_while_words_are_looked_for(
    database: Database, rows: MemoryRows, embedder: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    await serve(database, rows, embedder)
    models = _Gated()

    async def look(*arguments: Any, **named: Any) -> Matches:
        matches = await find_matches(*arguments, **named)
        await models.asked.wait()
        models.answers.set()
        return matches

    monkeypatch.setattr(arms, "find_matches", look)
    async with asyncio.timeout(DEADLINE_S):  # for ever, if it were waited for before
        answer = await Api(database, query_models=models).get("searchRecords", q="tea")
    assert (answer["mode"], contents(answer)) == ("lexical", [TEA])


async def test_a_model_that_may_hang_keeps_nobody_from_a_turn(
    database: Database, rows: MemoryRows, embedder: Embedder
) -> None:
    await serve(database, rows, embedder)
    models = _Gated()
    models.is_elsewhere = True
    api = Api(database, query_models=models, searches=Turns(at_once=1, waiting=0))
    async with TaskGroup() as tasks:
        waits = tasks.create_task(api.get("searchRecords", q="tea"))
        await models.asked.wait()
        assert contents(await api.get("searchRecords", q="tea", mode="lexical")) == [TEA]
        models.answers.set()
    assert contents(waits.result()) == [TEA]


@pytest.mark.parametrize("is_elsewhere", [True, False])
@pytest.mark.parametrize(
    ("models", "error"),
    [
        (None, "ModeUnavailable"),
        (_Unable(NoVector.ABSENT), "ModeUnavailable"),
        (_Unable(NoVector.PRIVATE), "ModeUnavailable"),
        (_Unable(NoVector.BUSY), "NotEnoughResources"),
        (_Unable(NoVector.SLOW), "NotEnoughResources"),
        (_Unable(NoVector.FAILED), "NotEnoughResources"),
        (_Unable([1.0, 0.0]), "NotEnoughResources"),  # another model goes by that name now
    ],
)
async def test_without_a_vector_the_search_is_by_words_and_says_so(
    database: Database, rows: MemoryRows, embedder: Embedder, models: _Unable | None, error: str, *, is_elsewhere: bool
) -> None:
    await serve(database, rows, embedder)
    if models is not None:
        models.is_elsewhere = is_elsewhere
    api = Api(database, query_models=models)
    answer = await api.get("searchRecords", q="tea")
    assert (answer["mode"], contents(answer)) == ("lexical", [TEA])
    assert (await api.refuse("searchRecords", q="tea", mode="semantic")).error == error


async def test_before_there_is_a_model_the_search_is_by_words(
    database: Database, rows: MemoryRows, embedder: Embedder
) -> None:
    await rows.write(database)
    api = Api(database, query_models=query_models(embedder))
    answer = await api.get("searchRecords", q="tea")
    assert (answer["mode"], contents(answer)) == ("lexical", [TEA])


async def test_memories_that_wait_for_their_vectors_are_found_by_words(
    database: Database, rows: MemoryRows, embedder: Embedder
) -> None:
    api = await serve(database, rows, embedder)
    async with database.connection() as conn:
        await conn.execute("delete from embeddings where repo = $1", ALICE)
    answer = await api.get("searchRecords", q="tea", explain=True)
    assert answer["mode"] == "hybrid"
    assert TEA in contents(answer)
    [of_alice] = [record for record in answer["records"] if record["repo"] == ALICE]
    assert set(of_alice["scores"]) == {"lexical", "fused"}


async def test_assistants_find_what_shares_no_word(api: Api) -> None:
    found = await api.send("POST", f"{PREFIX}{SEARCH}", json={"query": HOT, "userId": ALICE})
    assert [memory["memory"] for memory in found.json()["memories"]] == [TEA]


ASKED: list[dict[str, Any]] = [{}, {"repo": ALICE}, {"repo": [ALICE, BOB]}, {"repo": BOB}]


@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
async def test_unreadable_memories_change_no_byte_by_meaning(
    database: Database, rows: MemoryRows, embedder: Embedder, mode: str
) -> None:
    api = await serve(database, rows, embedder)

    async def answers() -> list[bytes]:
        more = [{**asked, "q": q, "mode": mode, "explain": True} for asked in ASKED for q in (HOT, "green tea")]
        return [
            (await api.send("GET", "/xrpc/dev.bastienrobert.memory.searchRecords", params=each)).content
            for each in more
        ]

    before = await answers()
    for number in range(40):
        rows.put(ALICE, f"Drinks hot cocoa number {number}.", space=SPACE)
        rows.put(BOB, f"Likes hot beverages, {number} of them.", space=SPACE)
    rows.repo("did:plc:hiddenaaaaaaaaaaaaaaaaaa", visible=False)
    rows.put("did:plc:hiddenaaaaaaaaaaaaaaaaaa", "Loves hot chocolate above all beverages.")
    await rows.write(database)
    await embed_all(database, embedder)
    async with database.connection() as conn:
        assert await conn.fetchval("select count(*) from embeddings") == 7 + 81
    assert await answers() == before


@pytest.mark.parametrize("asked", [{}, {"repo": BOB}, {"space": SPACE}])
async def test_a_readable_space_is_searched_by_meaning(
    database: Database, rows: MemoryRows, embedder: Embedder, asked: dict[str, Any]
) -> None:
    secret = rows.put(BOB, "Hides the hot chocolate behind the books.", space=SPACE)
    viewer = Viewer("viewer", ReadableSpaces(frozenset({SPACE})))
    api = await serve(database, rows, embedder, viewer=viewer)
    found = await api.send(
        "GET",
        "/xrpc/dev.bastienrobert.memory.searchRecords",
        params={"q": "where is the hot chocolate hidden", **asked},
        headers={"Authorization": "Bearer x"},
    )
    assert found.json()["records"][0]["uri"] == uri_of(Key(*secret))
    assert found.headers["Cache-Control"] == "private, no-store"
    assert (
        uri_of(secret)
        not in (
            await api.send(
                "GET", "/xrpc/dev.bastienrobert.memory.searchRecords", params={"q": "where is the hot chocolate hidden"}
            )
        ).text
    )
