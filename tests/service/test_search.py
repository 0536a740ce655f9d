"""searchRecords: words, filters, masks, scores, duplicates, explanations, pages."""

from __future__ import annotations

from typing import Any

import pytest

from appview.keys import uri_of
from memory.database import Database
from tests.api_client import Api
from tests.memory_rows import ALICE, BOB, MemoryRows, day, text

EVERYWHERE: list[dict[str, Any]] = [{}, {"repo": [ALICE, BOB]}]


async def found(api: Api, q: str, **asked: Any) -> list[str]:
    """The contents that one page of a search finds, best first."""
    return [record["value"]["content"] for record in (await api.get("searchRecords", q=q, **asked))["records"]]


@pytest.fixture
async def api(database: Database) -> Api:
    """An API over a few memories in several languages."""
    rows = MemoryRows()
    rows.repo(ALICE, handle="alice.test")
    rows.put(ALICE, "Prefers green tea to coffee.", kind="preference", scope="home")
    rows.put(ALICE, "The tea house on the corner closes at six.", kind="fact")
    rows.put(ALICE, "Walks the dog along the green river every morning.")
    rows.put(BOB, "Trinkt lieber grünen Tee als Kaffee.", agent="claude-code")
    rows.put(BOB, "朝はコーヒーより緑茶が好きです。")
    rows.put(BOB, "Prefers tea, green or not.")
    await rows.write(database)
    return Api(database)


@pytest.mark.parametrize("where", EVERYWHERE)
@pytest.mark.parametrize(
    ("q", "expected"),
    [
        (
            "tea",
            {
                "Prefers green tea to coffee.",
                "The tea house on the corner closes at six.",
                "Prefers tea, green or not.",
            },
        ),
        (
            "TEA house",
            {
                "The tea house on the corner closes at six.",
                "Prefers green tea to coffee.",
                "Prefers tea, green or not.",
            },
        ),
        ("grunen", {"Trinkt lieber grünen Tee als Kaffee."}),
        ("緑茶", {"朝はコーヒーより緑茶が好きです。"}),
        ('"green tea"', {"Prefers green tea to coffee."}),
        ("tea -coffee", {"The tea house on the corner closes at six.", "Prefers tea, green or not."}),
        ('tea -"green tea"', {"The tea house on the corner closes at six.", "Prefers tea, green or not."}),
        (
            "prefer walking",
            {
                "Prefers green tea to coffee.",
                "Prefers tea, green or not.",
                "Walks the dog along the green river every morning.",
            },
        ),
        ("submarine", set()),
        ("-coffee", set()),
        ("?!", set()),
        ("%", set()),
    ],
)
async def test_words_phrases_and_exclusions_find_what_they_should(
    api: Api, q: str, expected: set[str], where: dict[str, Any]
) -> None:
    assert set(await found(api, q, **where)) == expected


@pytest.mark.parametrize("where", EVERYWHERE)
async def test_the_beginning_of_a_word_is_enough_while_one_types(api: Api, where: dict[str, Any]) -> None:
    assert await found(api, "mor", **where) == []
    assert await found(api, "mor", prefix=True, **where) == ["Walks the dog along the green river every morning."]
    assert len(await found(api, "t", prefix=True, **where)) >= 3


async def test_more_of_the_query_scores_higher(api: Api) -> None:
    answer = await api.get("searchRecords", q="green tea coffee", repo=[ALICE])
    contents = [record["value"]["content"] for record in answer["records"]]
    scores = [record["score"] for record in answer["records"]]
    assert contents[0] == "Prefers green tea to coffee."
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 500 > scores[-1] > 0


async def test_low_scores_are_left_out_on_request(api: Api) -> None:
    everything = await api.get("searchRecords", q="green tea coffee", repo=[ALICE])
    best = everything["records"][0]["score"]
    assert await found(api, "green tea coffee", repo=[ALICE], minScore=best) == ["Prefers green tea to coffee."]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"repo": ["alice.test"]}, 2),
        ({"repo": [BOB]}, 1),
        ({"repo": ["nobody.test"]}, 0),
        ({"kind": ["fact"]}, 1),
        ({"kind": [""]}, 1),
        ({"scope": ["home"]}, 1),
        ({"agent": ["claude-code"]}, 0),
        ({"createdAfter": text(day(2))}, 2),
        ({"createdBefore": text(day(2))}, 1),
        ({"occurredAfter": text(day(0))}, 0),
    ],
)
async def test_filters_apply_to_search(api: Api, asked: dict[str, Any], expected: int) -> None:
    assert len(await found(api, "tea", **asked)) == expected
    assert len(await found(api, "tea", **{"repo": [ALICE, BOB], **asked})) == expected


async def test_a_filter_makes_no_word_rarer(api: Api) -> None:
    [unfiltered] = [
        record
        for record in (await api.get("searchRecords", q="green tea", repo=[ALICE]))["records"]
        if record["value"].get("kind") == "preference"
    ]
    [filtered] = (await api.get("searchRecords", q="green tea", repo=[ALICE], kind=["preference"]))["records"]
    assert filtered["score"] == unfiltered["score"]


async def test_highlights_count_bytes_of_the_content(api: Api) -> None:
    [record] = (await api.get("searchRecords", q="緑茶"))["records"]
    content = record["value"]["content"].encode()
    lit = [content[piece["byteStart"] : piece["byteEnd"]].decode() for piece in record["highlights"]]
    assert lit == ["緑茶"]


@pytest.mark.parametrize("mode", ["hybrid", "lexical"])
async def test_the_answer_tells_the_mode_that_was_used(api: Api, mode: str) -> None:
    assert (await api.get("searchRecords", q="tea", mode=mode))["mode"] == "lexical"


async def test_semantic_search_is_refused_without_a_model(api: Api) -> None:
    refused = await api.refuse("searchRecords", q="tea", mode="semantic")
    assert (refused.status, refused.error) == (400, "ModeUnavailable")


@pytest.mark.parametrize("where", EVERYWHERE)
async def test_replaced_memories_are_suppressed_and_counted(database: Database, where: dict[str, Any]) -> None:
    rows = MemoryRows()
    old = rows.put(ALICE, "Favourite drink: green tea, green tea.", days=1)
    rows.put(ALICE, "Favourite drink: black tea.", days=2, supersedes=[old])
    rows.put(ALICE, "Likes rivers and tea.", days=3)
    await rows.write(database)
    api = Api(database)
    answer = await api.get("searchRecords", q="green tea", **where)
    assert "Favourite drink: green tea, green tea." not in [r["value"]["content"] for r in answer["records"]]
    assert answer["suppressed"] == 1
    assert "suppressedCapped" not in answer
    with_old = await api.get("searchRecords", q="green tea", includeSuperseded=True, **where)
    assert with_old["records"][0]["superseded"] is True
    assert with_old["suppressed"] == 0
    assert (await api.get("searchRecords", q="rivers", **where))["suppressed"] == 0


@pytest.mark.parametrize("where", EVERYWHERE)
async def test_suppressed_counts_only_what_passes_every_filter(database: Database, where: dict[str, Any]) -> None:
    rows = MemoryRows()
    old = rows.put(ALICE, "green tea, scope work", scope="work", days=1)
    rows.put(ALICE, "nothing", days=2, supersedes=[old])
    await rows.write(database)
    api = Api(database)
    assert (await api.get("searchRecords", q="tea", **where))["suppressed"] == 1
    assert (await api.get("searchRecords", q="tea", scope=["home"], **where))["suppressed"] == 0
    assert (await api.get("searchRecords", q='"tea green"', **where))["suppressed"] == 0
    assert (await api.get("searchRecords", q='"green tea"', **where))["suppressed"] == 1
    assert (await api.get("searchRecords", q="tea -work", **where))["suppressed"] == 0


async def test_more_than_a_hundred_suppressed_are_admitted(database: Database) -> None:
    rows = MemoryRows()
    for number in range(101):
        old = rows.put(ALICE, f"tea {number}", days=1)
        rows.put(ALICE, "something else", days=2, supersedes=[old])
    await rows.write(database)
    answer = await Api(database).get("searchRecords", q="tea")
    assert (answer["suppressed"], answer["suppressedCapped"]) == (100, True)


@pytest.mark.parametrize("where", EVERYWHERE)
async def test_a_search_of_the_past_finds_what_held_then(database: Database, where: dict[str, Any]) -> None:
    rows = MemoryRows()
    old = rows.put(ALICE, "Favourite drink: green tea.", days=1)
    rows.put(ALICE, "Favourite drink: black tea.", days=5, supersedes=[old])
    await rows.write(database)
    api = Api(database)
    assert await found(api, "tea", **where) == ["Favourite drink: black tea."]
    then = await api.get("searchRecords", q="tea", asOf=text(day(3)), **where)
    assert [record["value"]["content"] for record in then["records"]] == ["Favourite drink: green tea."]
    assert then["records"][0]["superseded"] is False
    assert then["suppressed"] == 0
    assert then["asOf"] == "2026-01-04T00:00:00.000000Z"
    assert await found(api, "tea", asOf=text(day(0.5)), **where) == []


@pytest.mark.parametrize("where", EVERYWHERE)
async def test_memories_of_the_future_make_no_word_of_the_past_more_common(
    database: Database, where: dict[str, Any]
) -> None:
    rows = MemoryRows()
    rows.put(ALICE, "green tea", days=1)
    rows.put(ALICE, "black tea and much else", days=1)
    await rows.write(database)
    api = Api(database)
    asked: dict[str, Any] = {"q": "green tea", "asOf": text(day(2)), "explain": True, **where}
    before = await api.get("searchRecords", **asked)
    for number in range(9):
        rows.put(ALICE, f"green {number}", days=3)
    await rows.write(database)
    after = await api.get("searchRecords", **asked)
    assert len(before["records"]) == 2
    assert [record["uri"] for record in after["records"]] == [record["uri"] for record in before["records"]]
    if where:  # over all authors, memories are counted as of now
        assert after == before


@pytest.mark.parametrize("where", EVERYWHERE)
async def test_equal_contents_of_one_author_collapse(database: Database, where: dict[str, Any]) -> None:
    rows = MemoryRows()
    first = rows.put(ALICE, "Same words, tea.", days=1)
    second = rows.put(ALICE, "Same words, tea.", days=2, kind="fact")
    other = rows.put(BOB, "Same words, tea.", days=3)
    await rows.write(database)
    records = (await Api(database).get("searchRecords", q="tea", **where))["records"]
    assert [(record["uri"], record.get("duplicates")) for record in records] == [
        (uri_of(other), None),
        (uri_of(second), [uri_of(first)]),
    ]


async def test_a_hundred_duplicates_are_named_and_more_admitted(database: Database) -> None:
    rows = MemoryRows()
    for _ in range(102):
        rows.put(ALICE, "Same words, tea.")
    await rows.write(database)
    [record] = (await Api(database).get("searchRecords", q="tea"))["records"]
    assert len(record["duplicates"]) == 100
    assert record["duplicatesCapped"] is True


@pytest.mark.parametrize("where", EVERYWHERE)
async def test_pages_show_every_hit_once(database: Database, where: dict[str, Any]) -> None:
    rows = MemoryRows()
    for number in range(33):
        rows.put(ALICE if number % 2 else BOB, f"tea {'green ' * (number % 5)}{number}")
    await rows.write(database)
    api = Api(database)
    whole = await found(api, "green tea", limit=100, **where)
    assert len(whole) == 33
    assert await api.contents("searchRecords", q="green tea", limit=7, **where) == whole


@pytest.mark.parametrize("where", EVERYWHERE)
async def test_all_pages_of_a_search_rank_by_the_same_statistics(database: Database, where: dict[str, Any]) -> None:
    rows = MemoryRows()
    for number in range(6):
        rows.put(ALICE, f"tea {'green ' * (number % 3)}{'tea ' * (number // 2)}{number}", kind="fact")
    for number in range(9):  # later than all that is found
        rows.put(ALICE, f"green {number}")
    await rows.write(database)
    asked: dict[str, Any] = {"q": "green tea", "kind": ["fact"], "explain": True, **where}
    whole = (await Api(database).get("searchRecords", **asked))["records"]
    assert len(whole) == 6
    pages = [page async for page in Api(database).pages("searchRecords", limit=1, **asked)]
    assert [record for page in pages for record in page["records"]] == whole


async def test_no_hit_comes_twice_while_the_index_changes(database: Database) -> None:
    rows = MemoryRows()
    keys = [rows.put(ALICE, f"tea and words of number {number}", days=number) for number in range(12)]
    await rows.write(database)
    api = Api(database)
    first = await api.get("searchRecords", q="tea green", limit=4)
    shown = [record["uri"] for record in first["records"]]
    # One that was shown now scores less, one that was not now scores more, a new one comes in, one goes.
    seen_key = next(key for key in keys if uri_of(key) == shown[0])
    unseen = [key for key in keys if uri_of(key) not in shown]
    rows.put(ALICE, "tea and a great many other words that nobody looks for at all", rkey=seen_key.rkey, days=20)
    rows.put(ALICE, "tea tea tea green green", days=21)
    rows.delete(unseen[0], days=22)
    old = rows.put(ALICE, "unrelated", days=23, supersedes=[unseen[1]])
    await rows.write(database)
    rest: list[str] = []
    cursor = first["cursor"]
    while cursor:
        page = await api.get("searchRecords", q="tea green", limit=4, cursor=cursor)
        rest += [record["uri"] for record in page["records"]]
        cursor = page.get("cursor")
    assert uri_of(old) not in rest
    assert sorted(shown + rest) == sorted(uri_of(key) for key in keys if key not in (unseen[0], unseen[1]))


async def test_a_search_ends_after_a_thousand_hits(database: Database) -> None:
    rows = MemoryRows()
    for number in range(1_003):
        rows.put(ALICE, f"tea {number}", days=number / 1000)
    await rows.write(database)
    api = Api(database)
    seen: set[str] = set()
    asked: dict[str, Any] = {"q": "tea", "limit": 100}
    for _ in range(10):
        page = await api.get("searchRecords", **asked)
        seen |= {record["uri"] for record in page["records"]}
        asked["cursor"] = page["cursor"]
    assert len(seen) == 1_000
    refused = await api.refuse("searchRecords", **asked)
    assert (refused.status, refused.error) == (400, "ResultWindowExceeded")
    assert "listRecords" in refused.message


async def test_a_page_ends_before_four_megabytes(database: Database) -> None:
    rows = MemoryRows()
    for number in range(6):
        rows.put(ALICE, f"tea {number}", padding="x" * 900_000)
    await rows.write(database)
    pages = [page async for page in Api(database).pages("searchRecords", q="tea")]
    assert [len(page["records"]) for page in pages] == [4, 2]


@pytest.mark.parametrize(
    "q",
    [
        "'; drop table memories; --",
        "\\' | !a:* & <-> \\",
        '"unbalanced',
        '""',
        "-" * 1000,
        "🙂 👩‍🚀",
        "ก" * 1000,
        "文" * 1000,
        "a\u0300" * 500,
        "\u202e\u200d",
        " ".join("abcdefghijklmnopqrstuvwxyz"),
        ":* :*A !!",
        "x" * 1000,
    ],
)
async def test_strange_queries_are_only_queries(api: Api, q: str) -> None:
    for where in EVERYWHERE:
        for prefix in (False, True):
            await api.get("searchRecords", q=q, prefix=prefix, **where)
    assert len(await found(api, "tea")) == 3


async def test_a_common_word_alone_does_not_recall_everywhere(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appview.store.search_all.TELLING_MATCHES", 3)
    rows = MemoryRows()
    rare = rows.put(ALICE, "green submarine")
    commons = [rows.put(ALICE, f"green {number}") for number in range(5)]
    await rows.write(database)
    api = Api(database)
    answer = await api.get("searchRecords", q="green submarine", explainUri=uri_of(commons[0]))
    assert [record["uri"] for record in answer["records"]] == [uri_of(rare)]
    assert answer["explanation"]["failedFilter"] == "commonWords"
    assert len(await found(api, "green")) == 6
    assert len(await found(api, "green submarine", repo=[ALICE])) == 6


@pytest.mark.parametrize("where", EVERYWHERE)
async def test_more_matches_than_are_ranked_are_admitted(
    database: Database, monkeypatch: pytest.MonkeyPatch, where: dict[str, Any]
) -> None:
    monkeypatch.setattr("appview.store.search.MAX_CANDIDATES", 3)
    monkeypatch.setattr("appview.store.search.MAX_CANDIDATES_OF_ALL", 3)
    rows = MemoryRows()
    for number in range(5):
        rows.put(ALICE, f"tea {number}")
    await rows.write(database)
    answer = await Api(database).get("searchRecords", q="tea", **where)
    assert [record["value"]["content"] for record in answer["records"]] == ["tea 4", "tea 3", "tea 2"]
    assert answer["matchesCapped"] is True
