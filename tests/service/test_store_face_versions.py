"""The versions of memories: every field of the object, its operations, redaction, the list of them, and one."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any

from appview.keys import Key
from memory.database import Database
from tests.memory_rows import ALICE, BOB, MemoryRows
from tests.stores_api import IDS, StoresApi, store_id, store_path

FIELDS = [
    "id",
    "type",
    "memory_store_id",
    "memory_id",
    "path",
    "content_size_bytes",
    "content_sha256",
    "operation",
    "redacted",
    "created_at",
]
VERSIONS = store_path(ALICE, "/memory_versions")
EMPTY_SHA256 = sha256(b"").hexdigest()
FIRST, SECOND = "Likes tea, très fort.", "Likes coffee."


def updated() -> tuple[MemoryRows, Key]:
    """A memory that was changed once."""
    rows = MemoryRows()
    key = rows.put(ALICE, FIRST, days=1, scope="work")
    rows.put(ALICE, SECOND, rkey=key.rkey, days=1, indexed_days=2, scope="home")
    return rows, key


def deleted() -> tuple[MemoryRows, Key]:
    """The same, deleted."""
    rows, key = updated()
    rows.delete(key, days=3)
    return rows, key


async def listed(database: Database, rows: MemoryRows, **asked: Any) -> list[dict[str, Any]]:
    await rows.write(database)
    return await StoresApi(database).all(VERSIONS, **asked)


async def single(api: StoresApi, version: dict[str, Any]) -> dict[str, Any]:
    return await api.get(f"{VERSIONS}/{version['id']}")


async def test_a_version_has_exactly_the_fields_of_its_document(database: Database):
    current, overwritten = await listed(database, updated()[0])
    assert list(current) == FIELDS
    assert sorted(overwritten) == sorted([*FIELDS, "redacted_at"])
    api = StoresApi(database)
    assert sorted(await single(api, current)) == sorted([*FIELDS, "content"])
    assert sorted(await single(api, overwritten)) == sorted([*FIELDS, "redacted_at"])


async def test_version_id_is_a_prefix_and_32_digits_another_for_every_version(database: Database):
    rows, _ = deleted()
    rows.put(ALICE, FIRST, days=1, scope="work")
    versions = await listed(database, rows)
    assert len({each["id"] for each in versions}) == 4
    assert all(re.fullmatch("memver_[0-9a-f]{32}", each["id"]) for each in versions)
    api = StoresApi(database)
    assert [(await single(api, each))["id"] for each in versions] == [each["id"] for each in versions]


async def test_version_id_outlives_what_is_erased(database: Database):
    before = [each["id"] for each in await listed(database, updated()[0])]
    after = [each["id"] for each in await listed(database, deleted()[0])]
    assert after[1:] == before


async def test_version_type_is_memory_version(database: Database):
    assert {each["type"] for each in await listed(database, deleted()[0])} == {"memory_version"}


async def test_version_memory_store_id_is_its_stores(database: Database):
    assert {each["memory_store_id"] for each in await listed(database, deleted()[0])} == {store_id(ALICE)}


async def test_version_memory_id_is_its_memorys_there_or_deleted(database: Database):
    for rows, key in (updated(), deleted()):
        assert {each["memory_id"] for each in await listed(database, rows)} == {IDS.of_memory(key)}


async def test_version_path_is_that_of_the_time_and_redacted_afterwards(database: Database):
    rows, key = updated()
    assert [each["path"] for each in await listed(database, rows)] == [f"home/{key.rkey}", f"redacted/{key.rkey}"]
    own = await StoresApi(database, viewer=ALICE).all(VERSIONS)
    assert [each["path"] for each in own] == [f"home/{key.rkey}", f"work/{key.rkey}"]
    rows, key = deleted()
    assert {each["path"] for each in await listed(database, rows)} == {f"redacted/{key.rkey}"}


async def test_version_content_size_bytes_is_of_its_content_and_0_once_redacted(database: Database):
    assert [each["content_size_bytes"] for each in await listed(database, updated()[0])] == [len(SECOND), 0]
    own = await StoresApi(database, viewer=ALICE).all(VERSIONS)
    assert [each["content_size_bytes"] for each in own] == [len(SECOND), len(FIRST.encode())]
    assert [each["content_size_bytes"] for each in await listed(database, deleted()[0])] == [0, 0, 0]


async def test_version_content_sha256_is_of_its_content_and_of_nothing_once_redacted(database: Database):
    current, overwritten = await listed(database, updated()[0])
    assert current["content_sha256"] == sha256(SECOND.encode()).hexdigest()
    assert overwritten["content_sha256"] == EMPTY_SHA256
    own = await StoresApi(database, viewer=ALICE).all(VERSIONS)
    assert own[1]["content_sha256"] == sha256(FIRST.encode()).hexdigest()
    assert {each["content_sha256"] for each in await listed(database, deleted()[0])} == {EMPTY_SHA256}


async def test_version_redacted_is_false_only_of_what_may_be_read(database: Database):
    assert [each["redacted"] for each in await listed(database, updated()[0])] == [False, True]
    assert [each["redacted"] for each in await StoresApi(database, viewer=BOB).all(VERSIONS)] == [False, True]
    assert [each["redacted"] for each in await StoresApi(database, viewer=ALICE).all(VERSIONS)] == [False, False]
    assert [each["redacted"] for each in await listed(database, deleted()[0])] == [True, True, True]
    assert [each["redacted"] for each in await StoresApi(database, viewer=ALICE).all(VERSIONS)] == [True, True, True]


async def test_version_redacted_at_is_when_it_was_overwritten_or_deleted_and_absent_before(database: Database):
    current, overwritten = await listed(database, updated()[0])
    assert "redacted_at" not in current
    assert overwritten["redacted_at"] == "2026-01-03T00:00:00.000000Z"
    assert {each["redacted_at"] for each in await listed(database, deleted()[0])} == {"2026-01-04T00:00:00.000000Z"}


async def test_version_content_comes_in_single_retrieval_unless_redacted(database: Database):
    versions = await listed(database, updated()[0])
    assert all("content" not in each for each in versions)
    current, overwritten = versions
    api = StoresApi(database)
    assert (await single(api, current))["content"] == SECOND
    assert "content" not in await single(api, overwritten)
    own = StoresApi(database, viewer=ALICE)
    assert (await single(own, current))["content"] == SECOND
    assert (await single(own, overwritten))["content"] == FIRST
    for version in await listed(database, deleted()[0]):
        assert "content" not in await single(own, version)


async def test_version_created_at_is_when_it_was_observed(database: Database):
    rows = MemoryRows()
    rows.put(ALICE, FIRST, days=1, indexed_days=5)
    [version] = await listed(database, rows)
    assert version["created_at"] == "2026-01-06T00:00:00.000000Z"


async def test_operation_created_is_of_the_first_version_and_after_a_deletion(database: Database):
    rows, key = deleted()
    rows.put(ALICE, SECOND, rkey=key.rkey, days=4)
    versions = await listed(database, rows)
    assert [each["operation"] for each in versions] == ["created", "deleted", "updated", "created"]


async def test_operation_updated_is_of_another_content(database: Database):
    assert [each["operation"] for each in await listed(database, updated()[0])] == ["updated", "created"]


async def test_operation_deleted_is_a_tombstone_version(database: Database):
    rows, key = deleted()
    tombstone = (await listed(database, rows))[0]
    assert tombstone == {
        "id": tombstone["id"],
        "type": "memory_version",
        "memory_store_id": store_id(ALICE),
        "memory_id": IDS.of_memory(key),
        "path": f"redacted/{key.rkey}",
        "content_size_bytes": 0,
        "content_sha256": EMPTY_SHA256,
        "operation": "deleted",
        "redacted": True,
        "redacted_at": "2026-01-04T00:00:00.000000Z",
        "created_at": "2026-01-04T00:00:00.000000Z",
    }


async def test_the_owner_too_reads_no_content_that_is_kept_no_longer(database: Database):
    rows, _ = updated()
    await rows.write(database)
    async with database.connection() as conn:
        await conn.execute(
            "update memory_versions set record = null, cid = null, scope = null, content_bytes = 0,"
            " content_sha256 = sha256(''), redacted_at = overwritten_at where number = 1"
        )
    own = StoresApi(database, viewer=ALICE)
    overwritten = (await own.all(VERSIONS))[1]
    assert overwritten["redacted_at"] == "2026-01-03T00:00:00.000000Z"
    assert "content" not in await single(own, overwritten)


async def test_versions_of_a_store_come_latest_observed_first(database: Database):
    rows, key = updated()
    other = rows.put(ALICE, "Between.", days=1.5)
    rows.put(BOB, "Somebody else's.", days=1)
    versions = await listed(database, rows)
    memories = [IDS.of_memory(each) for each in (key, other, key)]
    assert [each["memory_id"] for each in versions] == memories


async def test_memory_id_filters_there_or_deleted(database: Database):
    for rows, key in (updated(), deleted()):
        rows.put(ALICE, "Another.", days=1.5)
        versions = await listed(database, rows, memory_id=IDS.of_memory(key))
        assert {each["memory_id"] for each in versions} == {IDS.of_memory(key)}
        assert len(versions) == len(rows.stored[key].versions)


async def test_versions_of_one_memory_come_by_their_numbers_even_where_clocks_differ(database: Database):
    rows = MemoryRows()
    key = rows.put(ALICE, "one", days=3)
    rows.put(ALICE, "two", rkey=key.rkey, days=3, indexed_days=2)
    rows.put(ALICE, "three", rkey=key.rkey, days=3, indexed_days=4)
    await rows.write(database)
    api = StoresApi(database)
    memory_id = IDS.of_memory(key)
    times = [each["created_at"] for each in await api.all(VERSIONS, memory_id=memory_id, limit=1)]
    assert times == [f"2026-01-0{number}T00:00:00.000000Z" for number in (5, 3, 4)]


async def test_a_version_is_found_in_its_own_store_only(database: Database):
    rows, _ = updated()
    rows.put(BOB, "Runs.", days=1)
    version = (await listed(database, rows))[0]
    assert (await StoresApi(database).refuse(store_path(BOB, f"/memory_versions/{version['id']}"))).status == 404
