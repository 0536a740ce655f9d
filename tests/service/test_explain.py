"""`explain` and `explainUri` of searchRecords: why a memory was recalled, or was not."""

from __future__ import annotations

from typing import Any

import pytest

from appview.keys import Key, uri_of
from memory.database import Database
from tests.api_client import Api
from tests.memory_rows import ALICE, BOB, SPACE, MemoryRows, day, text

EVERYWHERE: list[dict[str, Any]] = [{}, {"repo": [ALICE, BOB]}]


async def test_explain_tells_rank_and_raw_score(explained: tuple[Api, dict[str, Key]]) -> None:
    api, _ = explained
    answer = await api.get("searchRecords", q="green tea", explain=True)
    scores = [record["scores"] for record in answer["records"]]
    assert [score["lexical"]["rank"] for score in scores] == list(range(1, len(scores) + 1))
    assert all(float(score["lexical"]["raw"]) > 0 for score in scores)
    assert sorted((float(score["fused"]) for score in scores), reverse=True) == [float(s["fused"]) for s in scores]
    assert "scores" not in (await api.get("searchRecords", q="green tea"))["records"][0]


@pytest.fixture
async def explained(database: Database) -> tuple[Api, dict[str, Key]]:
    """Memories that a search leaves out for different reasons."""
    rows = MemoryRows()
    rows.repo(BOB, handle="bob.test")
    keys = {
        "recalled": rows.put(ALICE, "green tea", days=1, kind="fact", scope="home", agent="codex"),
        "old": rows.put(ALICE, "green tea and green tea", days=2),
        "same": rows.put(ALICE, "green tea", days=0.5),
        "other": rows.put(ALICE, "rivers", days=3),
        "bob": rows.put(BOB, "green tea", days=4),
    }
    keys["new"] = rows.put(ALICE, "black tea", days=5, supersedes=[keys["old"]])
    await rows.write(database)
    return Api(database), keys


@pytest.mark.parametrize(
    ("name", "asked", "failed"),
    [
        ("recalled", {}, None),
        ("recalled", {"repo": [ALICE]}, None),
        ("recalled", {"repo": ["bob.test"]}, "repo"),
        ("recalled", {"scope": ["work"]}, "scope"),
        ("recalled", {"scope": ["work"], "kind": ["preference"]}, "scope"),
        ("recalled", {"kind": ["preference"]}, "kind"),
        ("recalled", {"agent": ["claude-code"]}, "agent"),
        ("recalled", {"client": ["https://app.test/"]}, "client"),
        ("recalled", {"createdAfter": text(day(2))}, "createdAfter"),
        ("recalled", {"createdBefore": text(day(1))}, "createdBefore"),
        ("recalled", {"occurredAfter": text(day(1))}, "occurredAfter"),
        ("recalled", {"occurredBefore": text(day(1))}, "occurredBefore"),
        ("recalled", {"asOf": text(day(0.75))}, "asOf"),
        ("recalled", {"q": '"tea green"'}, "phrase"),
        ("recalled", {"q": "tea -green"}, "exclusion"),
        ("recalled", {"q": 'tea -"green tea"'}, "exclusion"),
        ("recalled", {"q": "submarine"}, "q"),
        ("recalled", {"q": "-submarine"}, "q"),
        ("recalled", {"q": "green tea submarine rivers black", "minScore": 1000}, "minScore"),
        ("old", {}, "superseded"),
        ("old", {"includeSuperseded": True}, None),
        ("old", {"asOf": text(day(3))}, None),
        ("same", {}, "duplicate"),
        ("other", {}, "q"),
        ("other", {"q": "rivers"}, None),
        ("new", {}, None),
    ],
)
async def test_an_explanation_names_the_first_filter_that_failed(
    explained: tuple[Api, dict[str, Key]], name: str, asked: dict[str, Any], failed: str | None
) -> None:
    api, keys = explained
    for where in [{}] if "repo" in asked else EVERYWHERE:
        parameters = {"q": "green tea", **where, **asked}
        answer = await api.get("searchRecords", explainUri=uri_of(keys[name]), **parameters)
        explanation = answer["explanation"]
        assert explanation.get("failedFilter") == failed
        assert explanation["recalled"] is (failed is None)
        assert explanation["recalled"] is (uri_of(keys[name]) in [record["uri"] for record in answer["records"]])


async def test_an_explanation_tells_what_masks_and_where_it_would_rank(explained: tuple[Api, dict[str, Key]]) -> None:
    api, keys = explained
    answer = await api.get("searchRecords", q="green tea", repo=[ALICE], explainUri=uri_of(keys["old"]))
    explanation = answer["explanation"]
    assert explanation["maskedBy"] == [uri_of(keys["new"])]
    assert explanation["scores"]["lexical"]["rank"] == 1
    assert explanation["score"] >= answer["records"][0]["score"]


@pytest.mark.parametrize(
    "uri",
    [
        f"at://{ALICE}/dev.bastienrobert.memory.record/3kzzzzzzzzz2z",
        f"at://{ALICE}/app.bsky.feed.post/3kzzzzzzzzz2z",
    ],
)
async def test_an_unknown_record_cannot_be_explained(database: Database, uri: str) -> None:
    assert (await Api(database).refuse("searchRecords", q="tea", explainUri=uri)).error == "RecordNotFound"


async def test_an_unreadable_record_cannot_be_explained(database: Database) -> None:
    rows = MemoryRows()
    rows.repo(BOB, visible=False)
    hidden = rows.put(BOB, "tea")
    private = rows.put(ALICE, "tea", space=SPACE)
    await rows.write(database)
    api = Api(database)
    assert (await api.refuse("searchRecords", q="tea", explainUri=uri_of(hidden))).error == "RecordNotFound"
    assert (await api.refuse("searchRecords", q="tea", explainUri=uri_of(private))).error == "SpaceNotReadable"
