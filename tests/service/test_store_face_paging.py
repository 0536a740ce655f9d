"""Pages of stores, memories and versions: by cursor and by id, both ways, while others write."""

from __future__ import annotations

import random
from typing import Any

import pytest

from memory.database import Database
from memory.space import ReadableSpaces
from tests.memory_rows import ALICE, BOB, SPACE, MemoryRows, day
from tests.stores_api import IDS, StoresApi, store_path

MEMORIES = store_path(ALICE, "/memories")
VERSIONS = store_path(ALICE, "/memory_versions")
LISTS = ["memory_stores", MEMORIES, VERSIONS]


def many(count: int = 7) -> MemoryRows:
    """As many stores, and memories of one, some at the same time as others."""
    rows = MemoryRows()
    for number in range(count):
        rows.put(ALICE, f"number {number}", days=number // 2)
        rows.repo(f"did:plc:author{number:018}", first_indexed_at=day(number // 3))
    return rows


def ids(objects: list[dict[str, Any]]) -> list[str]:
    return [each["id"] for each in objects]


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8, 9, 100])
async def test_pages_by_cursor_have_everything_once_in_order(database: Database, path: str, limit: int):
    await many().write(database)
    api = StoresApi(database)
    whole = ids((await api.page(path, limit=100))["data"])
    assert len(whole) == len(set(whole)) == (8 if path == "memory_stores" else 7)
    pages = [ids(page["data"]) async for page in api.pages(path, limit=limit)]
    assert [each for page in pages for each in page] == whole
    assert all(len(page) == limit for page in pages[:-1])


@pytest.mark.parametrize("path", LISTS)
async def test_after_id_begins_behind_an_object_and_before_id_ends_in_front_of_it(database: Database, path: str):
    await many().write(database)
    api = StoresApi(database)
    whole = ids(await api.all(path))
    for position, each in enumerate(whole):
        after = await api.page(path, after_id=each, limit=2)
        assert ids(after["data"]) == whole[position + 1 : position + 3]
        assert after["has_more"] is (position + 3 < len(whole))
        before = await api.page(path, before_id=each, limit=2)
        assert ids(before["data"]) == whole[max(0, position - 2) : position]
        assert before["has_more"] is (position > 2)
        assert ids(await api.all(path, after_id=each, limit=2)) == whole[position + 1 :]


@pytest.mark.parametrize("path", LISTS)
async def test_pages_before_an_object_go_on_to_the_beginning(database: Database, path: str):
    await many().write(database)
    api = StoresApi(database)
    whole = ids(await api.all(path))
    pages = [ids(page["data"]) async for page in api.pages(path, before_id=whole[-1], limit=3)]
    assert [each for page in reversed(pages) for each in page] == whole[:-1]


async def test_pages_of_one_memorys_versions_go_both_ways(database: Database):
    rows = MemoryRows()
    key = rows.put(ALICE, "0", days=0)
    for number in range(1, 6):
        rows.put(ALICE, str(number), rkey=key.rkey, days=0, indexed_days=number)
    rows.put(ALICE, "another", days=2.5)
    await rows.write(database)
    api = StoresApi(database)
    asked = {"memory_id": IDS.of_memory(key), "limit": 2}
    whole = ids(await api.all(VERSIONS, **asked))
    assert len(whole) == 6
    assert ids((await api.page(VERSIONS, **asked, after_id=whole[2]))["data"]) == whole[3:5]
    assert ids((await api.page(VERSIONS, **asked, before_id=whole[4]))["data"]) == whole[2:4]
    [other] = set(ids(await api.all(VERSIONS))) - set(whole)
    answer = await api.refuse(VERSIONS, params={"memory_id": IDS.of_memory(key), "after_id": other})
    assert (answer.status, answer.param) == (400, "after_id")


async def test_a_page_is_empty_where_there_is_nothing(database: Database):
    rows = MemoryRows()
    rows.repo(ALICE)
    await rows.write(database)
    for path in (MEMORIES, VERSIONS):
        assert (await StoresApi(database).page(path))["data"] == []
    assert (await StoresApi(database).page("memory_stores", name="nobody"))["data"] == []


async def test_limit_is_20_if_it_is_not_given(database: Database):
    rows = MemoryRows()
    for number in range(21):
        rows.put(ALICE, f"number {number}", days=number)
    await rows.write(database)
    page = await StoresApi(database).page(MEMORIES)
    assert (len(page["data"]), page["has_more"]) == (20, True)


async def test_an_object_that_left_a_list_still_says_where_to_go_on(database: Database):
    """A memory that was replaced, or a store that was archived, while somebody went from page to page."""
    rows = many()
    await rows.write(database)
    api = StoresApi(database)
    memories, stores = ids(await api.all(MEMORIES)), ids(await api.all("memory_stores"))
    replaced = next(key for key in rows.stored if IDS.of_memory(key) == memories[3])
    rows.put(ALICE, "newer", days=50, supersedes=[replaced])
    archived = (await api.get(f"memory_stores/{stores[3]}"))["metadata"]["repo"]
    rows.repos[archived, ""] |= {"visible": False, "status": "deactivated", "status_changed_at": day(50)}
    await rows.write(database)
    assert ids(await api.all(MEMORIES, after_id=memories[3], limit=2)) == memories[4:]
    assert ids(await api.all("memory_stores", after_id=stores[3], limit=2)) == stores[4:]


async def test_what_stays_the_same_is_listed_exactly_once_whatever_is_written_meanwhile(database: Database, seed: int):
    draw = random.Random(seed)
    rows = MemoryRows()
    stable = {rows.put(ALICE, f"stable {number}", days=draw.uniform(0, 50)) for number in range(25)}
    moving = [rows.put(ALICE, f"moving {number}", days=draw.uniform(0, 50)) for number in range(25)]
    for number in range(20):
        rows.repo(f"did:plc:author{number:018}", first_indexed_at=day(draw.uniform(0, 20)))
    await rows.write(database)
    api = StoresApi(database)
    versions = set(ids(await api.all(VERSIONS, limit=100)))
    stores = set(ids(await api.all("memory_stores", limit=100)))
    walks = {path: api.pages(path, limit=3) for path in LISTS}
    seen: dict[str, list[str]] = {path: [] for path in LISTS}
    new = 0
    while walks:
        path = draw.choice(list(walks))
        page = await anext(walks[path], None)
        if page is None:
            expected = {"memory_stores": stores, VERSIONS: versions}.get(path, {IDS.of_memory(key) for key in stable})
            assert {each: seen[path].count(each) for each in expected} == dict.fromkeys(expected, 1)
            del walks[path]
            continue
        seen[path] += ids(page["data"])
        for _ in range(4):
            key = draw.choice(moving)
            if rows.stored[key].block is None:
                rows.put(ALICE, "again", rkey=key.rkey, days=draw.uniform(0, 90))
            elif draw.random() < 0.4:
                rows.delete(key, days=draw.uniform(60, 90))
            else:
                rows.put(ALICE, f"changed {new}", rkey=key.rkey, days=draw.uniform(0, 90), indexed_days=70)
            new += 1
        rows.put(ALICE, "new", days=draw.uniform(0, 90), indexed_days=80)
        rows.repo(f"did:plc:new{new:021}", first_indexed_at=day(draw.uniform(0, 90)))
        await rows.write(database)


async def test_stores_of_spaces_stand_among_public_ones(database: Database):
    rows = many()
    for number in range(5):
        rows.put(f"did:plc:author{number:018}", "between us", space=SPACE)
        rows.repo(f"did:plc:author{number:018}", space=SPACE, first_indexed_at=day(number // 2))
    rows.repo(BOB, space=SPACE, first_indexed_at=day(1))
    await rows.write(database)
    api = StoresApi(database, viewer=BOB, spaces=ReadableSpaces(frozenset({SPACE})))
    whole = ids((await api.page("memory_stores", limit=100))["data"])
    assert len(whole) == len(set(whole)) == 8 + 6
    assert ids(await api.all("memory_stores", limit=2)) == whole
    pages = [ids(page["data"]) async for page in api.pages("memory_stores", before_id=whole[-1], limit=3)]
    assert [each for page in reversed(pages) for each in page] == whole[:-1]
