"""The assistants' face: every row of the schema's field table, by name, type, presence and meaning."""

from __future__ import annotations

import json
from typing import Any

import pytest

from appview.keys import Key, uri_of
from memory.database import Database
from tests.assistants_client import FIELDS, Assistant
from tests.memory_rows import ALICE, BOB, SPACE, MemoryRows

FULL = "3kaaaaaaaaa2a"
BARE = "3kaaaaaaaaa2b"


@pytest.fixture
async def rows(database: Database) -> MemoryRows:
    """A memory that says all that one can, and one that says as little as one may."""
    rows = MemoryRows()
    rows.repo(ALICE, handle="alice.test")
    rows.put(
        ALICE,
        "Prefers green tea.",
        rkey=FULL,
        days=1.5,
        kind="preference",
        scope="home",
        agent="claude-code",
        client="https://app.test/client.json",
        occurred=("2020-05-17T00:00:00+09:00", "year"),
        updatedAt="2026-01-03T01:00:00.123456789+01:00",
    )
    rows.put(BOB, "Tea.", rkey=BARE, days=2)
    await rows.write(database)
    return rows


@pytest.fixture
def assistant(database: Database, rows: MemoryRows) -> Assistant:
    """Who asks about both."""
    return Assistant(database)


async def everywhere(assistant: Assistant, rkey: str, did: str) -> list[dict[str, Any]]:
    """The memory with that key, out of the three methods."""
    uri = uri_of(Key(did, "", rkey))
    shown = [await assistant.get(uri), *await assistant.list(userId=did), *await assistant.search("tea", userId=did)]
    assert len(shown) == 3
    return shown


async def full(assistant: Assistant) -> list[dict[str, Any]]:
    return await everywhere(assistant, FULL, ALICE)


async def bare(assistant: Assistant) -> list[dict[str, Any]]:
    return await everywhere(assistant, BARE, BOB)


async def test_id_is_a_string_that_names_the_memory_alone(assistant: Assistant) -> None:
    for memory in await full(assistant):
        assert memory["id"] == f"at://{ALICE}/dev.bastienrobert.memory.record/{FULL}"
        assert (await assistant.get(memory["id"]))["id"] == memory["id"]
    for memory in await bare(assistant):
        assert memory["id"] == f"at://{BOB}/dev.bastienrobert.memory.record/{BARE}"


async def test_memory_is_the_text_as_its_author_wrote_it(assistant: Assistant) -> None:
    assert {memory["memory"] for memory in await full(assistant)} == {"Prefers green tea."}
    assert {memory["memory"] for memory in await bare(assistant)} == {"Tea."}


async def test_memory_is_whole_whatever_characters_it_has(database: Database) -> None:
    rows = MemoryRows()
    written = 'tea \u0000 "quoted" \\ 緑茶 👩\u200d👩\u200d👧 ' + "x" * 2000
    key = rows.put(ALICE, written)
    await rows.write(database)
    assert (await Assistant(database).get(uri_of(key)))["memory"] == written


async def test_user_id_is_the_did_of_the_author_and_always_there(assistant: Assistant) -> None:
    assert {memory["userId"] for memory in await full(assistant)} == {ALICE}
    assert {memory["userId"] for memory in await bare(assistant)} == {BOB}


async def test_agent_id_is_the_agent_of_the_provenance_and_absent_without_one(assistant: Assistant) -> None:
    assert {memory["agentId"] for memory in await full(assistant)} == {"claude-code"}
    assert all("agentId" not in memory for memory in await bare(assistant))


async def test_app_id_is_absent_of_public_memories(assistant: Assistant) -> None:
    assert all("appId" not in memory for memory in [*await full(assistant), *await bare(assistant)])


async def test_app_id_is_the_uri_of_the_space(database: Database, rows: MemoryRows) -> None:
    key = rows.put(ALICE, "Secret tea.", space=SPACE)
    await rows.write(database)
    member = Assistant(database, did=ALICE, spaces=frozenset({SPACE}))
    shown = [await member.get(uri_of(key)), *await member.list(appId=SPACE), *await member.search("tea", appId=SPACE)]
    assert [memory["appId"] for memory in shown] == [SPACE] * 3
    assert {memory["id"] for memory in shown} == {uri_of(key)}


async def test_run_id_is_the_scope_and_absent_without_one(assistant: Assistant) -> None:
    assert {memory["runId"] for memory in await full(assistant)} == {"home"}
    assert all("runId" not in memory for memory in await bare(assistant))


async def test_metadata_holds_strings_only_and_what_the_other_fields_cannot_say(assistant: Assistant) -> None:
    for memory in await full(assistant):
        metadata = memory["metadata"]
        assert metadata.pop("cid").startswith("bafyrei")
        assert metadata == {
            "uri": memory["id"],
            "handle": "alice.test",
            "kind": "preference",
            "scope": "home",
            "occurredFrom": "2020-05-17T00:00:00+09:00",
            "occurredPrecision": "year",
            "client": "https://app.test/client.json",
        }


async def test_metadata_leaves_out_what_a_memory_does_not_say(assistant: Assistant) -> None:
    for memory in await bare(assistant):
        assert sorted(memory["metadata"]) == ["cid", "uri"]


async def test_metadata_names_the_author_by_handle_only_if_it_was_verified(assistant: Assistant) -> None:
    assert {memory["metadata"].get("handle") for memory in await full(assistant)} == {"alice.test"}
    assert {memory["metadata"].get("handle") for memory in await bare(assistant)} == {None}


async def test_metadata_tells_when_and_how_exactly_something_happened(database: Database) -> None:
    rows = MemoryRows()
    span = {"from": "2020-01-01T00:00:00Z", "to": "2021-01-01T00:00:00Z", "precision": "month"}
    moment = {"from": "2020-01-01T12:00:00-05:00"}
    keys = [rows.put(ALICE, "Drank tea.", occurredAt=stated) for stated in (span, moment)]
    await rows.write(database)
    first, second = [(await Assistant(database).get(uri_of(key)))["metadata"] for key in keys]
    assert (first["occurredFrom"], first["occurredTo"], first["occurredPrecision"]) == (
        *list(span.values())[:2],
        "month",
    )
    assert (second["occurredFrom"], second["occurredPrecision"]) == (moment["from"], "instant")
    assert "occurredTo" not in second


async def test_metadata_tells_where_a_memory_came_from(database: Database) -> None:
    rows = MemoryRows()
    key = rows.put(ALICE, "Tea.", provenance={"sourceUri": "https://chat.test/1"})
    await rows.write(database)
    assert (await Assistant(database).get(uri_of(key)))["metadata"]["sourceUri"] == "https://chat.test/1"


async def test_metadata_tells_both_directions_of_replacements_as_json(database: Database) -> None:
    rows = MemoryRows()
    old = rows.put(ALICE, "Likes green tea.")
    new = rows.put(ALICE, "Likes black tea.", supersedes=[old, "elsewhere"])
    await rows.write(database)
    assistant = Assistant(database)
    replaced = (await assistant.get(uri_of(old)))["metadata"]
    assert json.loads(replaced["supersededBy"]) == [uri_of(new)]
    assert "supersedes" not in replaced
    for memory in [await assistant.get(uri_of(new)), *await assistant.search("black", userId=ALICE)]:
        assert json.loads(memory["metadata"]["supersedes"]) == [
            {"uri": uri_of(old), "effect": "masks"},
            {"uri": "elsewhere", "effect": "unresolved"},
        ]
        assert "supersededBy" not in memory["metadata"]


async def test_metadata_says_when_more_replace_a_memory_than_it_names(database: Database) -> None:
    rows = MemoryRows()
    old = rows.put(ALICE, "Likes green tea.")
    for number in range(101):
        rows.put(ALICE, f"Likes tea number {number}.", supersedes=[old])
    await rows.write(database)
    metadata = (await Assistant(database).get(uri_of(old)))["metadata"]
    assert len(json.loads(metadata["supersededBy"])) == 100
    assert metadata["supersededByCapped"] == "true"


async def test_metadata_names_the_equal_memories_that_a_hit_stands_for(database: Database) -> None:
    rows = MemoryRows()
    keys = [rows.put(ALICE, "Likes tea.", days=number) for number in range(102)]
    await rows.write(database)
    [hit] = await Assistant(database).search("tea", userId=ALICE)
    duplicates = json.loads(hit["metadata"]["duplicates"])
    assert len(duplicates) == 100
    assert {hit["id"], *duplicates} < {uri_of(key) for key in keys}
    assert hit["metadata"]["duplicatesCapped"] == "true"


async def test_metadata_says_what_was_revised_after_the_time_that_is_asked_about(assistant: Assistant) -> None:
    for time, marked in (("2026-01-02T12:00:00Z", True), ("2026-01-04T00:00:00Z", False)):
        [memory] = await assistant.list(userId=ALICE, filters={"asOf": time})
        assert ("revisedAfterAsOf" in memory["metadata"]) is marked


async def test_score_is_a_number_up_to_one_that_only_searches_tell(assistant: Assistant) -> None:
    for answer in ([await assistant.get(uri_of(Key(ALICE, "", FULL)))], await assistant.list(userId=ALICE)):
        assert [memory.get("score") for memory in answer] == [None]
    [hit] = await assistant.search("tea", userId=ALICE)
    assert type(hit["score"]) is float
    assert 0 < hit["score"] <= 1


async def test_score_is_higher_for_what_has_more_of_the_query(database: Database) -> None:
    rows = MemoryRows()
    for content in ("green tea and coffee", "green tea and water", "tea or nothing at all"):
        rows.put(ALICE, content)
    await rows.write(database)
    hits = await Assistant(database).search("green tea coffee", userId=ALICE)
    assert [hit["memory"] for hit in hits] == ["green tea and coffee", "green tea and water", "tea or nothing at all"]
    assert sorted({hit["score"] for hit in hits}, reverse=True) == [hit["score"] for hit in hits]


async def test_created_at_is_when_it_was_first_stated_in_utc(assistant: Assistant) -> None:
    assert {memory["createdAt"] for memory in await full(assistant)} == {"2026-01-02T12:00:00.000000Z"}
    assert {memory["createdAt"] for memory in await bare(assistant)} == {"2026-01-03T00:00:00.000000Z"}


async def test_updated_at_is_when_its_author_says_that_it_was_revised_and_absent_else(assistant: Assistant) -> None:
    assert {memory["updatedAt"] for memory in await full(assistant)} == {"2026-01-03T00:00:00.123456Z"}
    assert all("updatedAt" not in memory for memory in await bare(assistant))


async def test_updated_at_is_not_made_up_of_what_was_observed(database: Database) -> None:
    rows = MemoryRows()
    key = rows.put(ALICE, "Likes tea.", rkey=FULL, days=1)
    rows.put(ALICE, "Likes coffee.", rkey=FULL, days=1, indexed_days=5)
    await rows.write(database)
    assert "updatedAt" not in await Assistant(database).get(uri_of(key))


async def test_a_memory_has_no_other_fields_than_the_schema(assistant: Assistant) -> None:
    names = {name for memory in await full(assistant) for name in memory}
    assert names == set(FIELDS) - {"appId"}


async def test_answers_have_one_memory_or_a_list(assistant: Assistant) -> None:
    assert set(await assistant.ask("get-memory", id=uri_of(Key(ALICE, "", FULL)))) == {"memory"}
    assert set(await assistant.ask("list-memories", userId=ALICE)) == {"memories"}
    assert set(await assistant.ask("search-memories", query="tea", userId=ALICE)) == {"memories"}
    assert await assistant.ask("search-memories", query="submarine", userId=ALICE) == {"memories": []}


async def test_answers_are_json_that_is_not_kept_or_guessed_at(assistant: Assistant) -> None:
    response = await assistant.send("list-memories", {"userId": ALICE})
    assert response.headers["content-type"].startswith("application/json")
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["access-control-allow-origin"] == "*"
    assert "etag" not in response.headers


async def test_replaced_memories_are_shown_by_id_but_neither_listed_nor_found(database: Database) -> None:
    rows = MemoryRows()
    old = rows.put(ALICE, "Likes green tea.", days=1)
    new = rows.put(ALICE, "Likes black tea.", days=2, supersedes=[old])
    await rows.write(database)
    assistant = Assistant(database)
    assert (await assistant.get(uri_of(old)))["memory"] == "Likes green tea."
    assert [memory["id"] for memory in await assistant.list(userId=ALICE)] == [uri_of(new)]
    assert [memory["id"] for memory in await assistant.search("tea", userId=ALICE)] == [uri_of(new)]


async def test_a_deleted_memory_is_not_found(database: Database, rows: MemoryRows) -> None:
    key = Key(ALICE, "", FULL)
    rows.delete(key, days=9)
    await rows.write(database)
    refusal = await Assistant(database).refuse("get-memory", {"id": uri_of(key)})
    assert (refusal.status, refusal.code) == (404, "not_found")
