"""The assistants' face: what each field of a body asks for."""

from __future__ import annotations

from typing import Any

import pytest

from appview.answers.search import WINDOW
from appview.faces.assistants.fields import FILTERS
from appview.keys import uri_of
from memory.database import Database
from tests.assistants_client import Assistant
from tests.memory_rows import ALICE, BOB, CAROL, SPACE, MemoryRows, day, text

OTHER_SPACE = "at://did:plc:otheraaaaaaaaaaaaaaaaaa/space/com.example.group/work"


@pytest.fixture
async def rows(database: Database) -> MemoryRows:
    """Public memories of two authors, written."""
    rows = MemoryRows()
    rows.repo(ALICE, handle="alice.test")
    rows.repo(BOB, handle="bob.test")
    rows.put(ALICE, "tea at home", days=1, kind="fact", scope="home", agent="codex")
    rows.put(ALICE, "tea at work", days=2, kind="preference", scope="work", client="https://app.test")
    rows.put(ALICE, "tea anywhere", days=3, agent="claude-code", occurred=("2020-05-01T00:00:00Z", "month"))
    rows.put(BOB, "tea of another", days=4)
    await rows.write(database)
    return rows


@pytest.fixture
def anybody(database: Database, rows: MemoryRows) -> Assistant:
    """A client that is not signed in."""
    return Assistant(database)


async def both(assistant: Assistant, **body: Any) -> set[str]:
    """The texts that a body finds, which must be the same ones by a list and by a search."""
    listed = {memory["memory"] for memory in await assistant.list(**body)}
    assert {memory["memory"] for memory in await assistant.search("tea", **body)} == listed
    return listed


ALICES = {"tea at home", "tea at work", "tea anywhere"}


@pytest.mark.parametrize("user_id", [ALICE, "alice.test", "ALICE.Test"])
async def test_user_id_names_an_author_by_did_or_handle(anybody: Assistant, user_id: str) -> None:
    assert await both(anybody, userId=user_id) == ALICES


@pytest.mark.parametrize("user_id", [CAROL, "nobody.test"])
async def test_an_unknown_author_has_no_memories(anybody: Assistant, user_id: str) -> None:
    assert await both(anybody, userId=user_id) == set()


async def test_whoever_is_signed_in_means_their_own_memories_unless_they_name_others(
    database: Database, rows: MemoryRows
) -> None:
    bob = Assistant(database, did=BOB)
    assert await both(bob) == {"tea of another"}
    assert await both(bob, userId=None) == {"tea of another"}
    assert await both(bob, userId=ALICE) == ALICES


async def test_agent_id_asks_for_what_one_agent_wrote(anybody: Assistant) -> None:
    assert await both(anybody, userId=ALICE, agentId="codex") == {"tea at home"}
    assert await both(anybody, userId=ALICE, agentId="") == {"tea at work"}


async def test_run_id_asks_for_one_label(anybody: Assistant) -> None:
    assert await both(anybody, userId=ALICE, runId="work") == {"tea at work"}
    assert await both(anybody, userId=ALICE, runId="") == {"tea anywhere"}


@pytest.fixture
async def member(database: Database, rows: MemoryRows) -> Assistant:
    """Alice, with memories in two Spaces, of which she may read one here."""
    rows.put(ALICE, "secret tea", space=SPACE, days=5)
    rows.put(ALICE, "other secret tea", space=OTHER_SPACE, days=6)
    rows.put(BOB, "bob's secret tea", space=SPACE, days=7)
    await rows.write(database)
    return Assistant(database, did=ALICE, spaces=frozenset({SPACE}))


async def test_without_app_id_all_is_searched_that_may_be_read(member: Assistant) -> None:
    assert await both(member) == {*ALICES, "secret tea"}
    assert await both(member, userId=BOB) == {"tea of another", "bob's secret tea"}


async def test_app_id_asks_for_one_space_alone(member: Assistant) -> None:
    assert await both(member, appId=SPACE) == {"secret tea"}
    assert await both(member, appId=SPACE, userId=BOB) == {"bob's secret tea"}


async def test_an_empty_app_id_asks_for_public_memories_alone(member: Assistant) -> None:
    assert await both(member, appId="") == ALICES


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"repo": ["bob.test"]}, {"tea of another"}),
        ({"repo": [ALICE, BOB]}, {*ALICES, "tea of another"}),
        ({"space": []}, set()),
        ({"publicOnly": True}, ALICES),
        ({"publicOnly": False}, ALICES),
        ({"scope": ["home", "work"]}, {"tea at home", "tea at work"}),
        ({"scope": [""]}, {"tea anywhere"}),
        ({"kind": ["fact"]}, {"tea at home"}),
        ({"kind": "fact"}, {"tea at home"}),
        ({"kind": ["", "fact"]}, {"tea at home", "tea anywhere"}),
        ({"agent": ["codex", "claude-code"]}, {"tea at home", "tea anywhere"}),
        ({"client": ["https://app.test"]}, {"tea at work"}),
        ({"createdAfter": text(day(2))}, {"tea at work", "tea anywhere"}),
        ({"createdBefore": text(day(2))}, {"tea at home"}),
        ({"occurredAfter": "2020-05-15T00:00:00Z"}, {"tea anywhere"}),
        ({"occurredAfter": "2020-06-15T00:00:00Z"}, set()),
        ({"occurredBefore": "2020-05-15T00:00:00Z"}, {"tea anywhere"}),
        ({"occurredBefore": "2020-04-15T00:00:00Z"}, set()),
        ({"asOf": text(day(2))}, {"tea at home", "tea at work"}),
        ({"includeSuperseded": True}, ALICES),
        ({"kind": ["fact"], "agent": ["claude-code"]}, set()),
        ({"kind": None, "scope": ["home"]}, {"tea at home"}),
        ({}, ALICES),
        (None, ALICES),
    ],
)
async def test_filters_go_by_the_names_and_meanings_of_xrpc(
    database: Database, rows: MemoryRows, filters: dict[str, Any] | None, found: set[str]
) -> None:
    assert await both(Assistant(database, did=ALICE), filters=filters) == found


def test_every_filter_is_tried_above() -> None:
    [mark] = test_filters_go_by_the_names_and_meanings_of_xrpc.pytestmark  # pyright: ignore[reportFunctionMemberAccess]
    assert {name for filters, _ in mark.args[1] for name in filters or {}} == set(FILTERS)


async def test_filters_bring_replaced_memories_back(database: Database, rows: MemoryRows) -> None:
    [old] = [key for key, stored in rows.stored.items() if stored.memory().content == "tea at home"]
    rows.put(ALICE, "no tea at home", days=9, supersedes=[old])
    await rows.write(database)
    assistant = Assistant(database)
    assert "tea at home" not in await both(assistant, userId=ALICE)
    assert "tea at home" in await both(assistant, userId=ALICE, filters={"includeSuperseded": True})
    assert "tea at home" in await both(assistant, userId=ALICE, filters={"asOf": text(day(8))})


@pytest.mark.parametrize(
    "body",
    [
        {"userId": ALICE, "filters": {"repo": [ALICE]}},
        {"userId": "alice.test", "filters": {"repo": "alice.test"}},
        {"userId": ALICE, "runId": "home", "filters": {"scope": ["home"]}},
        {"userId": ALICE, "agentId": "codex", "filters": {"agent": ["codex", "codex"]}},
        {"userId": ALICE, "appId": "", "runId": "home", "filters": {"publicOnly": True}},
    ],
)
async def test_two_spellings_that_say_the_same_are_one(anybody: Assistant, body: dict[str, Any]) -> None:
    assert "tea at home" in await both(anybody, **body)


async def test_filters_may_name_the_authors(anybody: Assistant) -> None:
    assert await both(anybody, filters={"repo": ["alice.test", BOB]}) == {*ALICES, "tea of another"}
    assert await both(anybody, filters={"repo": []}) == set()


async def test_fields_that_nobody_knows_are_ignored(anybody: Assistant) -> None:
    more = {"rerank": True, "org_id": "x", "nested": {"deep": [1, None, {"kind": "fact"}]}, "nul": "\0"}
    assert await both(anybody, userId=ALICE, **more) == ALICES


async def test_null_counts_as_absent(anybody: Assistant) -> None:
    nothing = dict.fromkeys(("agentId", "appId", "runId", "filters", "pageToken", "page", "limit", "topK", "pageSize"))
    nothing |= dict.fromkeys(("threshold", "id", "memoryId"))
    assert await both(anybody, userId=ALICE, **nothing) == ALICES


@pytest.mark.parametrize("name", ["id", "memoryId"])
async def test_a_memory_goes_by_either_name(anybody: Assistant, rows: MemoryRows, name: str) -> None:
    uri = uri_of(next(iter(rows.stored)))
    assert (await anybody.ask("get-memory", **{name: uri}))["memory"]["id"] == uri
    assert (await anybody.ask("get-memory", id=uri, memoryId=uri))["memory"]["id"] == uri


@pytest.mark.parametrize("name", ["pageSize", "limit"])
async def test_lists_take_the_size_of_a_page_by_either_name(anybody: Assistant, name: str) -> None:
    assert [memory["memory"] for memory in await anybody.list(userId=ALICE, **{name: 2})] == [
        "tea anywhere",
        "tea at work",
    ]


@pytest.mark.parametrize("name", ["topK", "limit"])
async def test_searches_take_the_number_of_hits_by_either_name(anybody: Assistant, name: str) -> None:
    [best] = await anybody.search("tea work", userId=ALICE, **{name: 1})
    assert best["memory"] == "tea at work"


async def test_without_a_size_lists_have_25_and_searches_10(database: Database) -> None:
    rows = MemoryRows()
    for number in range(30):
        rows.put(ALICE, f"tea number {number}")
    await rows.write(database)
    assistant = Assistant(database)
    assert len(await assistant.list(userId=ALICE)) == 25
    assert len(await assistant.search("tea", userId=ALICE)) == 10


@pytest.mark.parametrize("name", ["pageToken", "page"])
@pytest.mark.parametrize(("method", "body"), [("list-memories", {}), ("search-memories", {"query": "tea"})])
async def test_a_token_by_either_name_leads_on(
    anybody: Assistant, method: str, body: dict[str, Any], name: str
) -> None:
    first = await anybody.ask(method, **body, userId=ALICE, limit=2)
    second = await anybody.ask(method, **body, userId=ALICE, limit=2, **{name: first["nextPageToken"]})
    assert "nextPageToken" not in second
    assert {memory["memory"] for memory in [*first["memories"], *second["memories"]]} == ALICES
    assert len(first["memories"]) == 2


@pytest.mark.parametrize(("method", "body"), [("list-memories", {}), ("search-memories", {"query": "tea"})])
async def test_pages_show_every_memory_once(database: Database, method: str, body: dict[str, Any]) -> None:
    rows = MemoryRows()
    expected = [rows.put(ALICE, f"tea number {number}") for number in range(23)]
    await rows.write(database)
    pages = [page async for page in Assistant(database).pages(method, **body, userId=ALICE, limit=5)]
    assert [len(page) for page in pages] == [5, 5, 5, 5, 3]
    ids = [memory["id"] for page in pages for memory in page]
    assert len(ids) == len(set(ids))
    assert set(ids) == {uri_of(key) for key in expected}


async def test_a_page_that_would_be_too_large_ends_early_and_leads_on(database: Database) -> None:
    rows = MemoryRows()
    long_client = "https://app.test/" + "x" * 900_000
    for number in range(6):
        rows.put(ALICE, f"tea number {number}", provenance={"sourceUri": long_client})
    await rows.write(database)
    assistant = Assistant(database)
    for method, body in (("list-memories", {}), ("search-memories", {"query": "tea"})):
        pages = [page async for page in assistant.pages(method, **body, userId=ALICE, limit=6)]
        assert len(pages) == 2
        assert len({memory["id"] for page in pages for memory in page}) == 6


async def test_threshold_leaves_out_lower_scores_and_no_others(database: Database) -> None:
    rows = MemoryRows()
    for number in range(1, 8):
        rows.put(ALICE, " ".join("green black white red cold hot iced".split()[:number]) + " tea")
    await rows.write(database)
    assistant = Assistant(database)
    query = "green black white red cold hot iced tea"
    scores = [hit["score"] for hit in await assistant.search(query, userId=ALICE)]
    assert len(set(scores)) == 7
    for threshold in [0, 0.0, *scores]:
        hits = await assistant.search(query, userId=ALICE, threshold=threshold)
        assert [hit["score"] for hit in hits] == [score for score in scores if score >= threshold]
    lowest = scores[-1]
    assert len(await assistant.search(query, userId=ALICE, threshold=lowest + 1e-9)) == 6
    assert await assistant.search("unrelated", userId=ALICE, threshold=1) == []


async def test_every_threshold_means_exactly_the_score_that_is_shown(database: Database) -> None:
    rows = MemoryRows()
    rows.put(ALICE, "green tea and a very long tale of how it came to be so")
    rows.put(ALICE, "coffee")
    await rows.write(database)
    assistant = Assistant(database)
    [hit] = await assistant.search("green tea", userId=ALICE)
    assert await assistant.search("green tea", userId=ALICE, threshold=hit["score"]) == [hit]
    assert await assistant.search("green tea", userId=ALICE, threshold=hit["score"] + 0.0005) == []


async def test_queries_have_phrases_and_exclusions(anybody: Assistant) -> None:
    assert [hit["memory"] for hit in await anybody.search('"tea at" -work', userId=ALICE)] == ["tea at home"]


async def test_a_search_ends_after_its_window_and_says_how_to_go_on(database: Database) -> None:
    rows = MemoryRows()
    for number in range(WINDOW + 1):
        rows.put(ALICE, f"tea number {number}")
    await rows.write(database)
    assistant = Assistant(database)
    token: dict[str, str] = {}
    for _ in range(WINDOW // 100):
        answer = await assistant.ask("search-memories", query="tea", userId=ALICE, topK=100, **token)
        assert len(answer["memories"]) == 100
        token = {"pageToken": answer["nextPageToken"]}
    refusal = await assistant.refuse("search-memories", {"query": "tea", "userId": ALICE, **token})
    assert (refusal.status, refusal.code) == (400, "out_of_range")
    assert "list-memories" in refusal.message


async def test_a_search_says_when_more_matched_than_were_ranked(
    database: Database, rows: MemoryRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    assistant = Assistant(database)
    assert "matchesCapped" not in await assistant.ask("search-memories", query="tea", userId=ALICE)
    monkeypatch.setattr("appview.store.search.MAX_CANDIDATES", 2)
    assert (await assistant.ask("search-memories", query="tea", userId=ALICE))["matchesCapped"] is True
