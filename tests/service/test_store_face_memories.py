"""The memories of a store: every field of the object, the list of them, and one."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

import pytest

from appview.keys import Key, uri_of
from memory.database import Database
from tests.memory_rows import ALICE, BOB, MemoryRows
from tests.stores_api import IDS, StoresApi, memory_path, store_id, store_path

LISTED = [
    "id",
    "type",
    "memory_store_id",
    "path",
    "content_size_bytes",
    "content_sha256",
    "version",
    "metadata",
    "created_at",
    "updated_at",
]
MEMORIES = store_path(ALICE, "/memories")
NUL_AND_MORE = "Très fort \0 \U0001f375"


async def shown(database: Database, rows: MemoryRows, key: Key) -> dict[str, Any]:
    await rows.write(database)
    return await StoresApi(database).get(memory_path(key))


def one(**properties: Any) -> tuple[MemoryRows, Key]:
    rows = MemoryRows()
    return rows, rows.put(ALICE, NUL_AND_MORE, days=1, **properties)


async def test_a_memory_has_exactly_the_fields_of_its_document(database: Database):
    rows, key = one()
    assert sorted(await shown(database, rows, key)) == sorted([*LISTED, "content"])
    [listed] = await StoresApi(database).all(MEMORIES)
    assert list(listed) == LISTED


async def test_memory_id_is_a_prefix_and_32_digits_another_for_every_memory(database: Database):
    rows, key = one()
    rows.put(BOB, NUL_AND_MORE, rkey=key.rkey, days=1)
    rows.put(ALICE, NUL_AND_MORE, days=1)
    await rows.write(database)
    api = StoresApi(database)
    listed = [*await api.all(MEMORIES), *await api.all(store_path(BOB, "/memories"))]
    assert len({each["id"] for each in listed}) == 3
    assert all(re.fullmatch("mem_[0-9a-f]{32}", each["id"]) for each in listed)
    assert (await api.get(memory_path(key)))["id"] == "mem_" + sha256(uri_of(key).encode()).hexdigest()[:32]


async def test_memory_type_is_memory(database: Database):
    assert (await shown(database, *one()))["type"] == "memory"


async def test_memory_store_id_is_its_stores(database: Database):
    assert (await shown(database, *one()))["memory_store_id"] == store_id(ALICE)


@pytest.mark.parametrize(("scope", "first"), [(None, "default"), ("", "default"), ("work", "work"), ("a/b ü", "a/b ü")])
async def test_memory_path_is_the_scope_and_the_rkey(database: Database, scope: str | None, first: str):
    rows, key = one(**({} if scope is None else {"scope": scope}))
    assert (await shown(database, rows, key))["path"] == f"{first}/{key.rkey}"


async def test_memory_content_size_bytes_is_of_the_content_as_utf_8(database: Database):
    size = (await shown(database, *one()))["content_size_bytes"]
    assert type(size) is int
    assert size == len(NUL_AND_MORE.encode())


async def test_memory_content_sha256_is_of_the_content_as_utf_8(database: Database):
    assert (await shown(database, *one()))["content_sha256"] == sha256(NUL_AND_MORE.encode()).hexdigest()


async def test_memory_version_starts_at_1_and_grows_by_each_update(database: Database):
    rows, key = one()
    version = (await shown(database, rows, key))["version"]
    assert type(version) is int
    assert version == 1
    rows.put(ALICE, "Changed.", rkey=key.rkey, days=1, indexed_days=2)
    assert (await shown(database, rows, key))["version"] == 2
    rows.delete(key, days=3)
    rows.put(ALICE, "Anew.", rkey=key.rkey, days=4)
    assert (await shown(database, rows, key))["version"] == 4


async def test_memory_metadata_is_pairs_of_strings(database: Database):
    rows, key = one()
    bare = (await shown(database, rows, key))["metadata"]
    assert sorted(bare) == ["cid", "superseded", "uri"]
    rows, key = one(kind="fact", scope="work", agent="codex")
    metadata = (await shown(database, rows, key))["metadata"]
    assert metadata == {
        "kind": "fact",
        "scope": "work",
        "agent": "codex",
        "uri": uri_of(key),
        "cid": metadata["cid"],
        "superseded": "false",
    }
    assert metadata["cid"].startswith("bafyrei")
    rows.put(ALICE, "Newer.", days=2, supersedes=[key])
    assert (await shown(database, rows, key))["metadata"]["superseded"] == "true"


async def test_memory_content_is_whole_in_single_retrieval_and_absent_from_lists(database: Database):
    rows, key = one()
    assert (await shown(database, rows, key))["content"] == NUL_AND_MORE
    [listed] = await StoresApi(database).all(MEMORIES)
    assert "content" not in listed


async def test_memory_created_at_is_what_the_record_says(database: Database):
    rows = MemoryRows()
    key = rows.put(ALICE, "late", days=1, indexed_days=5)
    assert (await shown(database, rows, key))["created_at"] == "2026-01-02T00:00:00.000000Z"


async def test_memory_updated_at_is_what_the_record_says_else_created_at(database: Database):
    assert (await shown(database, *one()))["updated_at"] == "2026-01-02T00:00:00.000000Z"
    rows, key = one(updatedAt="2026-02-03T04:05:06.789+01:00")
    assert (await shown(database, rows, key))["updated_at"] == "2026-02-03T03:05:06.789000Z"


async def test_memories_come_latest_in_effect_first_without_those_that_are_replaced(database: Database):
    rows = MemoryRows()
    first = rows.put(ALICE, "first", days=1, rkey="3kaaaaaaaaa2z")
    second = rows.put(ALICE, "second", days=2, supersedes=[first])
    third = rows.put(ALICE, "third", days=3, rkey="3kaaaaaaaaa2a")
    await rows.write(database)
    api = StoresApi(database)

    async def listed(**asked: Any) -> list[str]:
        return [each["id"] for each in await api.all(MEMORIES, **asked)]

    assert await listed() == [IDS.of_memory(key) for key in (third, second)]
    assert await listed(include_superseded=True) == [IDS.of_memory(key) for key in (third, second, first)]
    assert (await api.get(memory_path(first)))["content"] == "first"


async def test_path_prefix_is_a_plain_prefix_of_the_path(database: Database):
    rows = MemoryRows()
    scopes = {"work": "a", "work/tea": "b", "100%": "c", "1000": "d", "": "e", "Work": "f"}
    for scope, letter in scopes.items():
        rows.put(ALICE, letter, scope=scope, days=1)
    bare = rows.put(ALICE, "g", days=1)
    await rows.write(database)
    api = StoresApi(database)

    async def below(prefix: str) -> int:
        return len(await api.all(MEMORIES, path_prefix=prefix))

    assert [await below(prefix) for prefix in ("work", "work/", "work/tea/", "Work/")] == [2, 2, 1, 1]
    assert [await below(prefix) for prefix in ("100%", "1", "_ork", "default/", "")] == [1, 2, 0, 2, 7]
    assert await below(f"default/{bare.rkey}") == 1


async def test_a_page_of_memories_with_huge_kinds_ends_early_and_goes_on(database: Database):
    rows = MemoryRows()
    for number in range(6):
        rows.put(ALICE, f"number {number}", days=number, kind="k" * 900_000)
    await rows.write(database)
    api = StoresApi(database)
    pages = [page async for page in api.pages(MEMORIES)]
    assert [len(page["data"]) for page in pages] == [4, 2]
    assert len({each["id"] for page in pages for each in page["data"]}) == 6
    backward = [page async for page in api.pages(MEMORIES, before_id=pages[1]["last_id"])]
    assert [len(page["data"]) for page in backward] == [4, 1]


async def test_a_deleted_memory_is_not_found(database: Database):
    rows, key = one()
    rows.put(ALICE, "stays", days=1)
    rows.delete(key, days=2)
    await rows.write(database)
    assert (await StoresApi(database).refuse(memory_path(key))).status == 404


async def test_a_memory_is_found_in_its_own_store_only(database: Database):
    rows, key = one()
    rows.put(BOB, "Runs.", days=1)
    await rows.write(database)
    answer = await StoresApi(database).refuse(store_path(BOB, f"/memories/{IDS.of_memory(key)}"))
    assert (answer.status, answer.type) == (404, "not_found_error")


async def test_deeply_nested_records_are_shown(database: Database):
    value: Any = "deep"
    for _ in range(400):
        value = [value]
    rows, key = one(more=value)
    assert (await shown(database, rows, key))["content"] == NUL_AND_MORE
