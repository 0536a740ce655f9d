"""getHistory and getStats."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import orjson
import pytest

from appview.access import Viewer
from appview.faces.xrpc import PREFIX
from appview.keys import Key, uri_of
from memory.database import Database
from memory.space import ReadableSpaces
from tests.api_client import NAMESPACE, Api, checked, in_query
from tests.memory_rows import ALICE, BOB, MemoryRows, day

EMPTY_SHA256 = sha256(b"").hexdigest()


async def test_versions_come_latest_first_and_tell_nothing_of_what_was_overwritten(database: Database) -> None:
    rows = MemoryRows()
    key = rows.put(ALICE, "first words", days=1, scope="home")
    rows.put(ALICE, "second words", rkey=key.rkey, days=1, indexed_days=2, scope="work")
    await rows.write(database)
    history = await Api(database).get("getHistory", uri=uri_of(key))
    current, overwritten = history["versions"]
    assert current == {
        "version": 2,
        "operation": "updated",
        "observedAt": "2026-01-03T00:00:00.000000Z",
        "current": True,
        "cid": history["record"]["cid"],
        "scope": "work",
        "contentBytes": 12,
        "contentSha256": sha256(b"second words").hexdigest(),
    }
    assert overwritten == {
        "version": 1,
        "operation": "created",
        "observedAt": "2026-01-02T00:00:00.000000Z",
        "current": False,
        "redactedAt": "2026-01-03T00:00:00.000000Z",
        "contentBytes": 0,
        "contentSha256": EMPTY_SHA256,
    }
    assert history["record"]["value"]["content"] == "second words"


def asking(database: Database, did: str) -> Api:
    """The API as this account sees it."""
    return Api(database, viewer=Viewer(did, ReadableSpaces.public_only(), did=did))


async def history_of(api: Api, key: Key, **asked: int | str) -> dict[str, Any]:
    """A history, for whoever asks."""
    path, signed = PREFIX + NAMESPACE + "getHistory", {"authorization": "Bearer x"}
    response = await api.send("GET", path, params=in_query({"uri": uri_of(key), **asked}), headers=signed)
    assert response.status_code == 200, response.text
    return checked("getHistory", response)


async def test_authors_see_what_they_have_overwritten_while_it_is_kept(database: Database) -> None:
    rows = MemoryRows()
    key = rows.put(ALICE, "first words", days=1, scope="home")
    rows.put(ALICE, "second words", rkey=key.rkey, days=1, indexed_days=2, scope="work")
    rows.put(ALICE, "third words", rkey=key.rkey, days=1, indexed_days=3)
    await rows.write(database)
    async with database.connection() as conn:  # as the upkeep does when its time is over
        await conn.execute("update memory_versions set record = null, redacted_at = overwritten_at where number = 1")
    current, kept, erased = (await history_of(asking(database, ALICE), key))["versions"]
    assert "value" not in current  # it is in `record`
    assert "redactedAt" not in kept
    assert (kept["value"]["content"], kept["scope"], kept["contentBytes"]) == ("second words", "work", 12)
    assert kept["contentSha256"] == sha256(b"second words").hexdigest()
    assert (erased["contentSha256"], "value" in erased, "cid" in erased) == (EMPTY_SHA256, False, False)
    others = await history_of(asking(database, BOB), key)
    assert others == await Api(database).get("getHistory", uri=uri_of(key))
    assert b"second words" not in orjson.dumps(others)


async def test_authors_do_not_see_what_they_have_deleted(database: Database) -> None:
    rows = MemoryRows()
    key = rows.put(ALICE, "one", days=1)
    rows.put(ALICE, "two", rkey=key.rkey, days=1, indexed_days=2)
    rows.delete(key, days=3)
    await rows.write(database)
    assert await history_of(asking(database, ALICE), key) == await history_of(asking(database, BOB), key)


async def test_pages_of_overwritten_versions_end_before_four_megabytes(database: Database) -> None:
    rows = MemoryRows()
    key = rows.put(ALICE, "0", days=1, padding="x" * 900_000)
    for number in range(1, 10):
        rows.put(ALICE, str(number), rkey=key.rkey, days=1, indexed_days=1 + number, padding="x" * 900_000)
    await rows.write(database)
    api = asking(database, ALICE)
    shown: list[list[str]] = []
    cursor: dict[str, str] = {}
    while True:
        page = await history_of(api, key, **cursor)
        assert len(orjson.dumps(page)) < 4_200_000
        shown.append([version["value"]["content"] if "value" in version else "-" for version in page["versions"]])
        if "cursor" not in page:
            break
        cursor = {"cursor": page["cursor"]}
    assert shown == [["-", "8", "7", "6"], ["5", "4", "3", "2"], ["1", "0"]]


async def test_a_deleted_memory_keeps_a_history_without_content(database: Database) -> None:
    rows = MemoryRows()
    key = rows.put(ALICE, "regretted", days=1)
    rows.delete(key, days=2)
    await rows.write(database)
    api = Api(database)
    history = await api.get("getHistory", uri=uri_of(key))
    assert "record" not in history
    assert [version["operation"] for version in history["versions"]] == ["deleted", "created"]
    for version in history["versions"]:
        assert (version["contentBytes"], version["contentSha256"]) == (0, EMPTY_SHA256)
        assert version["redactedAt"] == "2026-01-03T00:00:00.000000Z"
        assert "cid" not in version
        assert "scope" not in version
    assert (await api.refuse("getRecord", uri=uri_of(key))).error == "RecordNotFound"


async def test_a_memory_that_was_created_again_goes_on_counting(database: Database) -> None:
    rows = MemoryRows()
    key = rows.put(ALICE, "one", days=1)
    rows.delete(key, days=2)
    rows.put(ALICE, "two", rkey=key.rkey, days=3)
    await rows.write(database)
    history = await Api(database).get("getHistory", uri=uri_of(key))
    assert [(version["version"], version["current"]) for version in history["versions"]] == [
        (3, True),
        (2, False),
        (1, False),
    ]
    assert history["record"]["version"] == 3


async def chain(database: Database, length: int) -> list[Key]:
    """Memories that each replace the one before."""
    rows = MemoryRows()
    keys: list[Key] = []
    for number in range(length):
        keys.append(rows.put(ALICE, f"link {number}", days=number, supersedes=keys[-1:]))
    await rows.write(database)
    return keys


def uris(records: list[dict[str, Any]]) -> list[str]:
    return [record["uri"] for record in records]


async def test_replacements_are_followed_in_both_directions(database: Database) -> None:
    keys = await chain(database, 5)
    history = await Api(database).get("getHistory", uri=uri_of(keys[2]))
    assert uris(history["replaced"]) == [uri_of(keys[1]), uri_of(keys[0])]
    assert uris(history["replacedBy"]) == [uri_of(keys[3]), uri_of(keys[4])]
    assert "cursor" not in history
    assert "relatedCapped" not in history


async def test_a_merge_shows_all_that_it_replaced(database: Database) -> None:
    rows = MemoryRows()
    parts = [rows.put(ALICE, f"part {number}", days=number) for number in range(3)]
    merged = rows.put(ALICE, "merged", days=5, supersedes=[*parts, "nonsense", Key(BOB, "", parts[0].rkey)])
    await rows.write(database)
    history = await Api(database).get("getHistory", uri=uri_of(merged))
    assert uris(history["replaced"]) == [uri_of(key) for key in reversed(parts)]


async def test_a_cycle_does_not_go_round_for_ever(database: Database) -> None:
    rows = MemoryRows()
    one, two, three = (Key(ALICE, "", f"3kaaaaaaaaa2{letter}") for letter in "abc")
    rows.put(ALICE, "one", rkey=one.rkey, days=1, supersedes=[three])
    rows.put(ALICE, "two", rkey=two.rkey, days=2, supersedes=[one])
    rows.put(ALICE, "three", rkey=three.rkey, days=3, supersedes=[two])
    await rows.write(database)
    api = Api(database)
    newest = await api.get("getHistory", uri=uri_of(three))
    assert (uris(newest["replaced"]), uris(newest["replacedBy"])) == ([uri_of(two), uri_of(one)], [])
    oldest = await api.get("getHistory", uri=uri_of(one))
    assert (uris(oldest["replaced"]), uris(oldest["replacedBy"])) == ([], [uri_of(two), uri_of(three)])


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6, 100])
async def test_pages_run_through_all_three_lists(database: Database, limit: int) -> None:
    keys = await chain(database, 5)
    whole: dict[str, list[Any]] = {"versions": [], "replaced": [], "replacedBy": []}
    pages = 0
    async for page in Api(database).pages("getHistory", uri=uri_of(keys[2]), limit=limit):
        assert sum(len(page[name]) for name in whole) <= limit
        assert ("record" in page) is (pages == 0)
        for name, entries in whole.items():
            entries += page[name]
        pages += 1
    assert pages == -(-5 // limit)
    assert [version["version"] for version in whole["versions"]] == [1]
    assert uris(whole["replaced"]) == [uri_of(keys[1]), uri_of(keys[0])]
    assert uris(whole["replacedBy"]) == [uri_of(keys[3]), uri_of(keys[4])]


async def test_a_history_page_ends_before_four_megabytes(database: Database) -> None:
    rows = MemoryRows()
    keys: list[Key] = []
    for number in range(9):
        keys.append(rows.put(ALICE, str(number), days=number, supersedes=keys[-1:], padding="x" * 900_000))
    await rows.write(database)
    api = Api(database)
    pages = [page async for page in api.pages("getHistory", uri=uri_of(keys[4]))]
    assert [(len(page["replaced"]), len(page["replacedBy"])) for page in pages] == [(3, 0), (1, 3), (0, 1)]


async def test_a_walk_is_bounded_and_says_so(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appview.store.history.MAX_RELATED", 3)
    keys = await chain(database, 6)
    api = Api(database)
    history = await api.get("getHistory", uri=uri_of(keys[5]))
    assert uris(history["replaced"])[:3] == [uri_of(key) for key in (keys[4], keys[3], keys[2])]
    assert history["relatedCapped"] is True
    assert "relatedCapped" not in await api.get("getHistory", uri=uri_of(keys[3]))


@pytest.mark.parametrize("visible", [True, False])
async def test_an_unknown_or_hidden_memory_has_no_history(database: Database, visible: bool) -> None:
    rows = MemoryRows()
    rows.repo(ALICE, visible=visible)
    key = rows.put(ALICE, "there")
    await rows.write(database)
    asked = key._replace(rkey="3kzzzzzzzzz2z") if visible else key
    assert (await Api(database).refuse("getHistory", uri=uri_of(asked))).error == "RecordNotFound"


async def test_statistics_count_what_is_in_effect(database: Database) -> None:
    rows = MemoryRows()
    rows.frame_time = day(364)
    old = rows.put(ALICE, "a", kind="fact", scope="home")
    rows.put(ALICE, "b", kind="fact", supersedes=[old], agent="codex")
    rows.put(BOB, "c", kind="preference", scope="home")
    rows.put(BOB, "d")
    await rows.write(database)
    assert await Api(database).get("getStats") == {
        "repos": 2,
        "records": 3,
        "superseded": 1,
        "kinds": {
            "values": [
                {"value": "", "records": 1},
                {"value": "fact", "records": 1},
                {"value": "preference", "records": 1},
            ],
            "distinct": 3,
        },
        "scopes": {"values": [{"value": "", "records": 2}, {"value": "home", "records": 1}], "distinct": 2},
        "agents": {"values": [{"value": "", "records": 2}, {"value": "codex", "records": 1}], "distinct": 2},
        "indexedThrough": "2026-12-31T00:00:00.000000Z",
        "indexingLagSeconds": 86_400,
    }


async def test_statistics_of_one_author_tell_how_far_the_index_follows(database: Database) -> None:
    rows = MemoryRows()
    rows.repo(ALICE, handle="alice.test", state="desynchronized", reason="prevDataMismatch")
    rows.put(ALICE, "a", kind="fact")
    rows.put(BOB, "b")
    await rows.write(database)
    api = Api(database)
    for name in (ALICE, "alice.test", "Alice.Test"):
        stats = await api.get("getStats", repo=name)
        assert (stats["repos"], stats["records"], stats["kinds"]["values"]) == (1, 1, [{"value": "fact", "records": 1}])
        sync = stats["sync"]
        assert (sync["repo"], sync["handle"]) == (ALICE, "alice.test")
        assert (sync["state"], sync["reason"]) == ("desynchronized", "prevDataMismatch")
    for name in ("did:plc:unknown", "nobody.test"):
        stats = await api.get("getStats", repo=name)
        assert (stats["repos"], stats["records"], "sync" in stats) == (0, 0, False)


async def test_statistics_of_an_empty_index_are_zeros(database: Database) -> None:
    nothing = {"values": [], "distinct": 0}
    assert await Api(database).get("getStats") == {
        "repos": 0,
        "records": 0,
        "superseded": 0,
        "kinds": nothing,
        "scopes": nothing,
        "agents": nothing,
    }


async def test_statistics_name_fifty_values_and_count_the_others(database: Database) -> None:
    rows = MemoryRows()
    for number in range(60):
        rows.put(ALICE, "a", scope=f"scope {number:02}", kind="k" * 2_000)
    await rows.write(database)
    stats = await Api(database).get("getStats")
    assert (len(stats["scopes"]["values"]), stats["scopes"]["distinct"]) == (50, 60)
    assert stats["kinds"]["values"] == [{"value": "k" * 512, "records": 60}]
