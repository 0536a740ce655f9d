"""Memory stores: every field of the object, its status, and the list of them."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from memory.database import Database
from memory.space import ReadableSpaces
from tests.memory_rows import ALICE, BOB, CAROL, SPACE, MemoryRows, day, text
from tests.stores_api import StoresApi, store_id, store_path

FIELDS = [
    "id",
    "type",
    "name",
    "description",
    "status",
    "entry_count",
    "total_size",
    "metadata",
    "archived_at",
    "created_at",
    "updated_at",
]


def two_stores() -> MemoryRows:
    rows = MemoryRows()
    rows.repo(ALICE, handle="alice.test", first_indexed_at=day(0.5))
    old = rows.put(ALICE, "Likes green tea.", days=1)
    rows.put(ALICE, "Likes black tea: très fort", days=2, supersedes=[old])
    rows.put(ALICE, "Has a cat.", days=3)
    rows.put(BOB, "Runs.", days=1)
    return rows


def archive(rows: MemoryRows, did: str, days: float = 9) -> None:
    rows.repo(did, handle=rows.handles.get(did), visible=False, status="deactivated", status_changed_at=day(days))


async def store(database: Database, rows: MemoryRows, did: str = ALICE) -> dict[str, Any]:
    await rows.write(database)
    return await StoresApi(database).get(store_path(did))


async def test_a_store_has_exactly_the_fields_of_its_document(database: Database):
    assert list(await store(database, two_stores())) == FIELDS


async def test_store_id_is_a_prefix_and_32_digits_another_for_every_store(database: Database):
    await two_stores().write(database)
    ids = [each["id"] for each in await StoresApi(database).all("memory_stores")]
    assert len(set(ids)) == 2
    assert all(re.fullmatch("memstore_[0-9a-f]{32}", each) for each in ids)
    assert (await StoresApi(database).get(f"memory_stores/{ids[0]}"))["id"] == ids[0]


async def test_store_type_is_memory_store(database: Database):
    assert (await store(database, two_stores()))["type"] == "memory_store"


async def test_store_name_is_the_handle_else_the_did(database: Database):
    rows = two_stores()
    assert (await store(database, rows))["name"] == "alice.test"
    assert (await store(database, rows, BOB))["name"] == BOB


async def test_store_description_is_empty(database: Database):
    assert (await store(database, two_stores()))["description"] == ""


async def test_store_entry_count_counts_the_memories_that_none_masks(database: Database):
    found = await store(database, two_stores())
    assert type(found["entry_count"]) is int
    assert found["entry_count"] == 2 == len(await StoresApi(database).all(store_path(ALICE, "/memories")))


async def test_store_total_size_sums_their_contents_as_utf_8(database: Database):
    found = await store(database, two_stores())
    assert type(found["total_size"]) is int
    assert found["total_size"] == len("Likes black tea: très fort".encode()) + len("Has a cat.")
    listed = await StoresApi(database).all(store_path(ALICE, "/memories"))
    assert found["total_size"] == sum(each["content_size_bytes"] for each in listed)


async def test_store_metadata_is_pairs_of_strings(database: Database):
    assert (await store(database, two_stores()))["metadata"] == {"repo": ALICE}
    rows = MemoryRows()
    rows.put(ALICE, "between us", space=SPACE)
    await rows.write(database)
    api = StoresApi(database, viewer=BOB, spaces=ReadableSpaces(frozenset({SPACE})))
    assert (await api.get(store_path(ALICE, space=SPACE)))["metadata"] == {"repo": ALICE, "space": SPACE}


async def test_store_archived_at_is_null_until_the_account_is_deactivated(database: Database):
    rows = two_stores()
    assert (await store(database, rows))["archived_at"] is None
    archive(rows, ALICE)
    assert (await store(database, rows))["archived_at"] == "2026-01-10T00:00:00.000000Z"


async def test_store_created_at_is_when_it_was_first_indexed(database: Database):
    assert (await store(database, two_stores()))["created_at"] == "2026-01-01T12:00:00.000000Z"


async def test_store_updated_at_is_its_last_change(database: Database):
    rows = two_stores()
    assert (await store(database, rows))["updated_at"] == "2026-01-04T00:00:00.000000Z"
    gone = rows.put(ALICE, "soon gone", days=5)
    rows.delete(gone, days=6)
    assert (await store(database, rows))["updated_at"] == "2026-01-07T00:00:00.000000Z"
    archive(rows, ALICE)
    assert (await store(database, rows))["updated_at"] == "2026-01-10T00:00:00.000000Z"
    empty = MemoryRows()
    empty.repo(ALICE, first_indexed_at=day(1))
    assert (await store(database, empty))["updated_at"] == "2026-01-02T00:00:00.000000Z"


async def test_status_active_is_of_an_account_that_is_served(database: Database):
    assert (await store(database, two_stores()))["status"] == "active"


async def test_status_archived_is_of_a_deactivated_account_and_shows_nothing_of_it(database: Database):
    rows = two_stores()
    key = next(key for key in rows.stored if key.repo == ALICE)
    archive(rows, ALICE)
    found = await store(database, rows)
    assert (found["status"], found["entry_count"], found["total_size"]) == ("archived", 0, 0)
    api = StoresApi(database)
    for more in ("/memories", "/memory_versions", "/memories/mem_" + "0" * 32, "/memory_versions/memver_" + "0" * 32):
        assert (await api.refuse(store_path(ALICE, more))).status == 404, more
    assert (await api.refuse(f"{store_path(ALICE)}/memories/mem_{key.rkey}")).status == 404


async def test_archived_stores_are_listed_on_request(database: Database):
    rows = two_stores()
    archive(rows, ALICE)
    await rows.write(database)
    api = StoresApi(database)
    assert [each["id"] for each in await api.all("memory_stores")] == [store_id(BOB)]
    assert [each["id"] for each in await api.all("memory_stores", include_archived=False)] == [store_id(BOB)]
    both = await api.all("memory_stores", include_archived=True)
    assert {each["id"]: each["status"] for each in both} == {store_id(ALICE): "archived", store_id(BOB): "active"}


async def test_suspended_taken_down_and_deleted_accounts_have_no_store(database: Database):
    for status in ("suspended", "takendown", "deleted", "throttled", None):
        rows = two_stores()
        rows.repo(ALICE, handle="alice.test", visible=False, status=status, status_changed_at=day(9))
        await rows.write(database)
        api = StoresApi(database)
        assert [each["id"] for each in await api.all("memory_stores", include_archived=True)] == [store_id(BOB)]
        assert await api.all("memory_stores", include_archived=True, name="alice") == []
        for more in ("", "/memories", "/memory_versions"):
            answer = await api.refuse(store_path(ALICE, more))
            assert (answer.status, answer.type) == (404, "not_found_error"), (status, more)


async def test_what_was_purged_or_never_indexed_is_no_store(database: Database):
    rows = two_stores()
    rows.repo(CAROL, state="pending", reason="denied", data_cid=None)
    await rows.write(database)
    api = StoresApi(database)
    assert (await api.refuse(store_path(CAROL))).status == 404
    assert len(await api.all("memory_stores", include_archived=True)) == 2


async def test_stores_come_newest_first(database: Database):
    rows = MemoryRows()
    for number, did in enumerate((BOB, CAROL, ALICE)):
        rows.repo(did, first_indexed_at=day(number))
    await rows.write(database)
    listed = await StoresApi(database).all("memory_stores")
    assert [each["metadata"]["repo"] for each in listed] == [ALICE, CAROL, BOB]


async def test_name_filters_by_a_prefix_in_any_case(database: Database):
    rows = MemoryRows()
    rows.repo(ALICE, handle="alice.example.com")
    rows.repo(BOB, handle="alicia.example.com")
    rows.repo(CAROL)
    rows.repo("did:web:Carol.example.com")
    await rows.write(database)
    api = StoresApi(database)

    async def named(name: str) -> set[str]:
        return {each["metadata"]["repo"] for each in await api.all("memory_stores", name=name)}

    assert await named("ali") == await named("ALI") == {ALICE, BOB}
    assert await named("alice") == await named("Alice.Example.com") == {ALICE}
    assert await named("example.com") == set()
    assert await named("did:plc:carol") == await named(CAROL.upper()) == {CAROL}
    assert await named("did:plc:alice") == set(), "its name is its handle"
    assert await named("did:web:carol") == {"did:web:Carol.example.com"}
    assert await named("%") == await named("_lice") == await named("alice\\") == set()
    assert len(await named("")) == 4


async def test_names_that_very_many_have_are_filtered_alike(database: Database):
    rows = MemoryRows()
    for number in range(1_005):
        rows.repo(f"did:plc:author{number:018}", handle=f"author{number}.test", first_indexed_at=day(number / 10))
    rows.repo(ALICE, handle="alice.test")
    await rows.write(database)
    api = StoresApi(database)
    page = await api.page("memory_stores", name="author", limit=2)
    assert [each["name"] for each in page["data"]] == ["author1004.test", "author1003.test"]
    assert len(await api.all("memory_stores", name="author", limit=100)) == 1_005
    assert len(await api.all("memory_stores", name="author10", limit=3)) == 1 + 5 + 10
    assert len(await api.all("memory_stores", limit=100)) == 1_006


async def test_creation_filters_have_both_ends_inside(database: Database):
    rows = MemoryRows()
    moments = [day(1), day(1) + timedelta(microseconds=1), day(2)]
    for did, moment in zip((ALICE, BOB, CAROL), moments, strict=True):
        rows.repo(did, first_indexed_at=moment)
    await rows.write(database)
    api = StoresApi(database)

    async def between(**asked: str) -> list[str]:
        return [each["metadata"]["repo"] for each in await api.all("memory_stores", **asked)]

    assert await between(created_at__gte=text(day(1))) == [CAROL, BOB, ALICE]
    assert await between(created_at__gte="2026-01-02T00:00:00.000001Z") == [CAROL, BOB]
    assert await between(created_at__lte=text(day(1))) == [ALICE]
    assert await between(created_at__gte=text(day(1.5)), created_at__lte="2026-01-03T01:00:00+01:00") == [CAROL]
    assert await between(created_at__gte=text(day(3))) == []
