"""listRecords and getRecord: filters, order, pages, masks, `asOf`."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from appview.keys import uri_of
from memory.database import Database
from tests.api_client import Api
from tests.memory_rows import ALICE, BOB, CAROL, MemoryRows, day, text

NEWEST_FIRST = ["five", "four", "three", "two", "one"]


async def test_newest_in_effect_comes_first(database: Database) -> None:
    rows = MemoryRows()
    for content in reversed(NEWEST_FIRST):
        rows.put(ALICE, content)
    await rows.write(database)
    assert await Api(database).contents("listRecords") == NEWEST_FIRST
    assert await Api(database).contents("listRecords", order="oldest") == NEWEST_FIRST[::-1]
    assert await Api(database).contents("listRecords", repo=[ALICE], order="oldest") == NEWEST_FIRST[::-1]


async def test_a_claim_of_the_future_never_leads(database: Database) -> None:
    rows = MemoryRows()
    rows.put(ALICE, "from the future", days=3000, indexed_days=1)
    rows.put(ALICE, "later", days=2)
    await rows.write(database)
    assert await Api(database).contents("listRecords") == ["later", "from the future"]


@pytest.mark.parametrize("order", ["newest", "oldest", "occurred"])
@pytest.mark.parametrize("of", [{}, {"repo": [ALICE, BOB]}])
async def test_pages_show_every_record_exactly_once(database: Database, order: str, of: dict[str, list[str]]) -> None:
    rows = MemoryRows()
    for number in range(23):
        # Several share each time: the key must tell them apart.
        dated: Any = {"occurred": (f"202{number % 3}-01-01T00:00:00Z", "year")} if number % 4 else {}
        rows.put(ALICE if number % 2 else BOB, str(number), days=number // 5, **dated)
    await rows.write(database)
    api = Api(database)
    whole = await api.contents("listRecords", order=order, limit=100, **of)
    assert sorted(whole, key=int) == [str(number) for number in range(23)]
    for limit in (1, 4, 23):
        assert await api.contents("listRecords", order=order, limit=limit, **of) == whole


async def test_memories_without_an_occurrence_sort_last(database: Database) -> None:
    rows = MemoryRows()
    rows.put(ALICE, "undated, newer", days=9)
    rows.put(ALICE, "in 2019", days=1, occurred=("2019-05-17T00:00:00Z", "year"))
    rows.put(ALICE, "undated, older", days=8)
    rows.put(ALICE, "in May 2020", days=2, occurred=("2020-05-17T00:00:00Z", "month"))
    await rows.write(database)
    expected = ["in May 2020", "in 2019", "undated, newer", "undated, older"]
    assert await Api(database).contents("listRecords", order="occurred", limit=1) == expected
    assert await Api(database).contents("listRecords", order="occurred", limit=1, repo=[ALICE]) == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"repo": [BOB]}, ["c", "d"]),
        ({"repo": ["bob.test"]}, ["c", "d"]),
        ({"repo": ["BOB.test", ALICE]}, ["a", "b", "c", "d"]),
        ({"repo": [CAROL]}, []),
        ({"repo": ["nobody.test"]}, []),
        ({"kind": ["fact"]}, ["a"]),
        ({"kind": [""]}, ["b", "d"]),
        ({"kind": ["", "fact"]}, ["a", "b", "d"]),
        ({"kind": ["something-new"]}, ["c"]),
        ({"scope": ["work"]}, ["b"]),
        ({"scope": [""]}, ["a", "c", "d"]),
        ({"agent": ["codex", "claude-code"]}, ["a", "b"]),
        ({"client": ["https://app.test/client.json"]}, ["b"]),
        ({"createdAfter": text(day(2))}, ["b", "c", "d"]),
        ({"createdBefore": text(day(2))}, ["a"]),
        ({"createdAfter": text(day(2)), "createdBefore": text(day(3))}, ["b"]),
        ({"repo": [ALICE], "kind": ["fact"], "scope": ["work"]}, []),
    ],
)
async def test_filters_keep_what_they_name(database: Database, asked: dict[str, Any], expected: list[str]) -> None:
    rows = MemoryRows()
    rows.repo(BOB, handle="bob.test")
    rows.put(ALICE, "a", days=1, kind="fact", agent="codex")
    rows.put(ALICE, "b", days=2, scope="work", agent="claude-code", client="https://app.test/client.json")
    rows.put(BOB, "c", days=3, kind="something-new")
    rows.put(BOB, "d", days=4)
    await rows.write(database)
    for order in ("newest", "oldest", "occurred"):
        assert sorted(await Api(database).contents("listRecords", order=order, **asked)) == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"occurredAfter": "2019-06-01T00:00:00Z"}, ["at noon", "in 2019"]),
        ({"occurredAfter": "2020-01-01T00:00:00Z"}, ["at noon"]),
        ({"occurredBefore": "2019-01-01T00:00:00Z"}, []),
        ({"occurredBefore": "2019-01-01T00:00:00.000001Z"}, ["in 2019"]),
        ({"occurredAfter": "2021-03-04T12:00:00Z"}, ["at noon"]),
        ({"occurredAfter": "2021-03-04T12:00:00.000001Z"}, []),
        ({"occurredBefore": "2021-03-04T12:00:00Z"}, ["in 2019"]),
        ({"occurredAfter": "2019-12-31T00:00:00Z", "occurredBefore": "2021-01-01T00:00:00Z"}, ["in 2019"]),
    ],
)
async def test_occurrences_pass_by_overlap(database: Database, asked: dict[str, str], expected: list[str]) -> None:
    rows = MemoryRows()
    rows.put(ALICE, "in 2019", occurred=("2019-05-17T00:00:00Z", "year"))
    rows.put(ALICE, "at noon", occurred=("2021-03-04T12:00:00Z", "instant"))
    rows.put(ALICE, "undated")
    await rows.write(database)
    assert sorted(await Api(database).contents("listRecords", **asked)) == expected


async def test_replaced_memories_leave_the_list_but_not_the_index(database: Database) -> None:
    rows = MemoryRows()
    old = rows.put(ALICE, "green tea", days=1)
    new = rows.put(ALICE, "black tea", days=2, supersedes=[old])
    await rows.write(database)
    api = Api(database)
    assert await api.contents("listRecords") == ["black tea"]
    assert await api.contents("listRecords", includeSuperseded=True) == ["black tea", "green tea"]
    record = await api.get("getRecord", uri=uri_of(old))
    assert record["superseded"] is True
    assert record["supersededBy"] == [uri_of(new)]
    replacer = await api.get("getRecord", uri=uri_of(new))
    assert replacer["supersedes"] == [{"uri": uri_of(old), "effect": "masks"}]
    assert replacer["superseded"] is False


async def test_the_past_is_answered_as_it_stood(database: Database) -> None:
    rows = MemoryRows()
    old = rows.put(ALICE, "green tea", days=1)
    rows.put(ALICE, "black tea", days=3, supersedes=[old])
    rows.put(ALICE, "revised", days=1, updatedAt=text(day(5)))
    await rows.write(database)
    api = Api(database)
    then = await api.get("listRecords", asOf=text(day(2)))
    assert [record["value"]["content"] for record in then["records"]] == ["revised", "green tea"]
    assert then["asOf"] == "2026-01-03T00:00:00.000000Z"
    assert [record.get("revisedAfterAsOf") for record in then["records"]] == [True, None]
    assert [record["superseded"] for record in then["records"]] == [False, False]
    assert [record["supersededBy"] for record in then["records"]] == [[], []]
    assert await api.contents("listRecords", asOf=text(day(3))) == ["black tea", "revised"]
    assert await api.contents("listRecords", asOf=text(day(0.5))) == []


@pytest.mark.parametrize("order", ["newest", "oldest", "occurred"])
@pytest.mark.parametrize("of", [{}, {"repo": [ALICE]}])
async def test_the_past_has_no_memories_of_the_future(database: Database, order: str, of: dict[str, list[str]]) -> None:
    rows = MemoryRows()
    for number in range(4):
        occurred = ("2020-01-01T00:00:00Z", "day") if number % 2 else None
        rows.put(ALICE, str(number), days=number, occurred=occurred)
    await rows.write(database)
    contents = await Api(database).contents("listRecords", order=order, asOf=text(day(1)), **of)
    assert sorted(contents) == ["0", "1"]


async def test_as_of_an_indexing_time_includes_what_was_indexed_then(database: Database) -> None:
    rows = MemoryRows()
    key = rows.put(ALICE, "just now", days=9, indexed_days=1 + 1 / 86_400_000_000)
    await rows.write(database)
    api = Api(database)
    seen = (await api.get("getRecord", uri=uri_of(key)))["indexedAt"]
    assert await api.contents("listRecords", asOf=seen) == ["just now"]
    assert await api.contents("listRecords", asOf=text(day(1))) == []


async def test_a_cycle_is_judged_anew_as_of_another_time(database: Database) -> None:
    rows = MemoryRows()
    first, second, third = (f"3kaaaaaaaaa2{letter}" for letter in "abc")
    uri = f"at://{ALICE}/dev.bastienrobert.memory.record/"
    rows.put(ALICE, "first", rkey=first, days=1, supersedes=[uri + third])
    rows.put(ALICE, "second", rkey=second, days=2, supersedes=[uri + first])
    rows.put(ALICE, "third", rkey=third, days=3, supersedes=[uri + second])
    await rows.write(database)
    api = Api(database)
    now = await api.get("listRecords", includeSuperseded=True, order="oldest")
    assert [record["superseded"] for record in now["records"]] == [True, True, False]
    assert [record["supersedes"][0]["effect"] for record in now["records"]] == ["cycle", "masks", "masks"]
    assert [record["supersededBy"] for record in now["records"]] == [[uri + second], [uri + third], []]
    then = await api.get("listRecords", includeSuperseded=True, order="oldest", asOf=text(day(2)))
    assert [record["superseded"] for record in then["records"]] == [True, False]
    assert [record["supersedes"][0]["effect"] for record in then["records"]] == ["missing", "masks"]
    assert [record["supersededBy"] for record in then["records"]] == [[uri + second], []]


async def test_two_that_replace_each_other_swap_when_the_newer_was_not_there(database: Database) -> None:
    rows = MemoryRows()
    one, two = "3kaaaaaaaaa2a", "3kaaaaaaaaa2b"
    uri = f"at://{ALICE}/dev.bastienrobert.memory.record/"
    rows.put(ALICE, "one", rkey=one, days=1, supersedes=[uri + two])
    rows.put(ALICE, "two", rkey=two, days=2, supersedes=[uri + one])
    await rows.write(database)
    api = Api(database)
    assert await api.contents("listRecords") == ["two"]
    assert await api.contents("listRecords", asOf=text(day(1))) == ["one"]
    old = (await api.get("listRecords", asOf=text(day(1))))["records"][0]
    assert (old["supersededBy"], old["supersedes"]) == ([], [{"uri": uri + two, "effect": "missing"}])


async def test_every_entry_shows_its_effect_in_its_order(database: Database) -> None:
    collection = "dev.bastienrobert.memory.record"
    rows = MemoryRows()
    there = rows.put(ALICE, "there")
    elsewhere = rows.put(BOB, "of another")
    own = "3kaaaaaaaaa2z"
    entries = {
        f"at://{ALICE}/{collection}/3kbbbbbbbbb2z": "missing",
        "no uri": "unresolved",
        f"at://alice.test/{collection}/{there.rkey}": "unresolved",
        f"at://{ALICE}/app.bsky.feed.post/3kbbbbbbbbb2z": "otherCollection",
        f"at://{ALICE}/space/com.example.group/a/{ALICE}/{collection}/{there.rkey}": "otherSpace",
        uri_of(elsewhere): "otherRepo",
        f"at://{ALICE}/{collection}/{own}": "self",
        uri_of(there): "masks",
    }
    key = rows.put(ALICE, "merges", rkey=own, supersedes=[*entries, uri_of(there)])
    await rows.write(database)
    record = await Api(database).get("getRecord", uri=uri_of(key))
    assert [(entry["uri"], entry["effect"]) for entry in record["supersedes"]] == [
        *entries.items(),
        (uri_of(there), "masks"),
    ]


async def test_the_value_is_the_record_as_it_was_written(database: Database) -> None:
    rows = MemoryRows()
    link = "bafyreidfayvfuwqa7qlnopdjiqrxzs6blmoeu4rujcjtnci5beludirz2a"
    properties: dict[str, Any] = {
        "unknown": {"deep": [1, None, True, {"$bytes": "AQID"}, {"$link": link}]},
        "large": 2**63 - 1,
        "small": -(2**63),
        "nul": "a\0b",
    }
    key = rows.put(ALICE, "with\0nul", kind="k\0", **properties)
    await rows.write(database)
    record = await Api(database).get("getRecord", uri=uri_of(key))
    assert record["value"] == {
        "$type": "dev.bastienrobert.memory.record",
        "content": "with\0nul",
        "createdAt": text(day(1)),
        "kind": "k\0",
        **properties,
    }
    assert await Api(database).contents("listRecords", kind=["k\ufffd"]) == ["with\0nul"]


async def test_the_deepest_valid_record_is_served(database: Database) -> None:
    rows = MemoryRows()
    deep: Any = []
    for _ in range(510):
        deep = [deep]
    key = rows.put(ALICE, "deep", deep=deep)
    await rows.write(database)
    response = await Api(database).send("GET", f"/xrpc/dev.bastienrobert.memory.getRecord?uri={uri_of(key)}")
    assert response.status_code == 200
    assert "[" * 511 + "]" * 511 in response.text


async def test_a_view_names_author_handle_version_and_times(database: Database) -> None:
    rows = MemoryRows()
    rows.repo(ALICE, handle="alice.test")
    key = rows.put(ALICE, "one", days=1)
    rows.put(ALICE, "two", rkey=key.rkey, days=1, indexed_days=2)
    await rows.write(database)
    record = await Api(database).get("getRecord", uri=uri_of(key))
    assert (record["repo"], record["handle"], record["version"]) == (ALICE, "alice.test", 2)
    assert record["indexedAt"] == "2026-01-03T00:00:00.000000Z"
    assert "space" not in record


async def test_a_repo_that_is_not_visible_is_as_if_absent(database: Database) -> None:
    rows = MemoryRows()
    rows.repo(ALICE, handle="alice.test", visible=False)
    key = rows.put(ALICE, "hidden")
    rows.put(BOB, "shown")
    await rows.write(database)
    api = Api(database)
    assert await api.contents("listRecords") == ["shown"]
    for order in ("newest", "oldest", "occurred"):
        assert await api.contents("listRecords", order=order) == ["shown"]
        assert await api.contents("listRecords", order=order, repo=["alice.test", ALICE]) == []
    assert (await api.refuse("getRecord", uri=uri_of(key))).error == "RecordNotFound"


@pytest.mark.parametrize(
    "uri",
    [
        f"at://{ALICE}/dev.bastienrobert.memory.record/3kzzzzzzzzz2z",
        f"at://{CAROL}/dev.bastienrobert.memory.record/3kzzzzzzzzz2z",
        f"at://{ALICE}/app.bsky.feed.post/3kzzzzzzzzz2z",
    ],
)
async def test_an_unknown_record_is_not_found(database: Database, uri: str) -> None:
    rows = MemoryRows()
    rows.put(ALICE, "another")
    await rows.write(database)
    refused = await Api(database).refuse("getRecord", uri=uri)
    assert (refused.status, refused.error) == (400, "RecordNotFound")


async def test_a_page_ends_before_four_megabytes(database: Database) -> None:
    rows = MemoryRows()
    for number in range(8):
        rows.put(ALICE, str(number), padding="x" * 900_000)
    await rows.write(database)
    pages = [page async for page in Api(database).pages("listRecords", limit=100)]
    assert [len(page["records"]) for page in pages] == [4, 4]
    assert [record["value"]["content"] for page in pages for record in page["records"]] == list("76543210")


async def test_a_record_that_fills_a_page_by_itself_is_served(database: Database) -> None:
    rows = MemoryRows()
    rows.put(ALICE, "small")
    # In JSON six times its size.
    rows.put(ALICE, "large", padding="\x01" * 990_000)
    await rows.write(database)
    pages = [page async for page in Api(database).pages("listRecords")]
    assert [[record["value"]["content"] for record in page["records"]] for page in pages] == [["large"], ["small"]]


async def test_a_hundred_replacers_are_named_and_more_admitted(database: Database) -> None:
    rows = MemoryRows()
    target = rows.put(ALICE, "popular", days=1)
    for number in range(101):
        rows.put(ALICE, str(number), days=2, supersedes=[target])
    await rows.write(database)
    record = await Api(database).get("getRecord", uri=uri_of(target))
    assert len(record["supersededBy"]) == 100
    assert record["supersededByCapped"] is True


async def test_an_unchanged_record_appears_once_while_others_come_and_go(database: Database) -> None:
    rows = MemoryRows()
    keys = [rows.put(ALICE, f"kept {number}", days=number) for number in range(10)]
    doomed = rows.put(ALICE, "doomed", days=4.5)
    await rows.write(database)
    api = Api(database)
    first = await api.get("listRecords", limit=3)
    rows.delete(doomed, days=20)
    rows.put(ALICE, "newer", days=11)
    rows.put(ALICE, "older", days=2.5)
    await rows.write(database)
    rest: list[str] = []
    cursor = first["cursor"]
    while cursor:
        page = await api.get("listRecords", limit=3, cursor=cursor)
        rest += [record["uri"] for record in page["records"]]
        cursor = page.get("cursor")
    seen = [record["uri"] for record in first["records"]] + rest
    assert len(seen) == len(set(seen))
    assert {uri_of(key) for key in keys} <= set(seen)


async def test_a_list_reaches_from_the_first_to_the_last_instant(database: Database) -> None:
    rows = MemoryRows()
    rows.put(ALICE, "first", days=0, indexed_days=1, createdAt="0001-01-01T00:00:00Z")
    rows.put(ALICE, "last", occurred=("9999-12-31T23:59:59.999999Z", "instant"))
    await rows.write(database)
    for order in ("newest", "oldest", "occurred"):
        assert sorted(await Api(database).contents("listRecords", order=order, limit=1)) == ["first", "last"]
        assert len(await Api(database).contents("listRecords", order=order, limit=1, repo=[ALICE])) == 2


async def test_a_time_with_an_offset_is_the_instant_it_names(database: Database) -> None:
    rows = MemoryRows()
    rows.put(ALICE, "a", days=1)
    await rows.write(database)
    local = (day(1) + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%S+02:00")
    assert await Api(database).contents("listRecords", createdAfter=local) == ["a"]
    assert await Api(database).contents("listRecords", createdBefore=local) == []
