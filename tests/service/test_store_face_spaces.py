"""What a viewer may not read changes no byte of this face's answers; what they may read, they see."""

from __future__ import annotations

import random
from typing import Any

import orjson

from appview.faces.stores.ids import IdKind, Ids
from appview.store.stores import StoreKey
from memory.database import Database
from memory.space import ReadableSpaces
from tests.memory_rows import ALICE, BOB, CAROL, SPACE, MemoryRows, day
from tests.stores_api import ID_KEY, IDS, StoresApi, memory_path, store_id, store_path

GRANTED = ReadableSpaces(frozenset({SPACE}))
RKEY = "3kaaaaaaaaa2a"


def public_rows() -> MemoryRows:
    rows = MemoryRows()
    rows.repo(ALICE, handle="alice.test", first_indexed_at=day(0))
    first = rows.put(ALICE, "tea", rkey=RKEY, days=1, scope="home")
    rows.put(ALICE, "more tea", days=2, supersedes=[first])
    rows.put(ALICE, "more tea!", rkey=RKEY, days=1, indexed_days=3)
    rows.delete(rows.put(ALICE, "gone", days=4), days=5)
    rows.repo(CAROL, handle="carol.test", visible=False, status="deactivated", status_changed_at=day(3))
    return rows


def add_unreadable(rows: MemoryRows, draw: random.Random) -> None:
    """The same repos and keys in a Space, and authors who have nothing public."""
    for did in (ALICE, BOB, CAROL, "did:plc:alicf"):
        rows.repo(did, space=SPACE, first_indexed_at=day(draw.uniform(0, 9)))
        old = rows.put(did, "secret", space=SPACE, rkey=RKEY, days=draw.uniform(0, 9), scope="home")
        rows.put(did, "secret, too", space=SPACE, days=draw.uniform(0, 9), supersedes=[old])
        rows.put(did, "changed", space=SPACE, rkey=RKEY, days=1, indexed_days=draw.uniform(3, 9))


async def answers(api: StoresApi) -> list[tuple[int, bytes]]:
    """Status and body of many questions, but for what is random in them."""
    questions: list[tuple[str, dict[str, Any]]] = [
        ("memory_stores", {}),
        ("memory_stores", {"include_archived": True, "limit": 1}),
        ("memory_stores", {"include_archived": True, "name": "ali"}),
        ("memory_stores", {"name": "did:plc:"}),
        ("memory_stores", {"name": "alice.test/family"}),
        ("memory_stores", {"before_id": store_id(ALICE)}),
        ("memory_stores", {"before_id": store_id(ALICE, SPACE)}),
        (store_path(ALICE), {}),
        (store_path(CAROL), {}),
        (store_path(BOB), {}),
        (store_path(ALICE, space=SPACE), {}),
        (store_path(ALICE, "/memories", space=SPACE), {}),
        (store_path(ALICE, "/memories"), {"include_superseded": True}),
        (store_path(ALICE, "/memory_versions"), {}),
        (store_path(ALICE, "/memory_versions"), {"limit": 2}),
    ]
    gathered: list[tuple[int, bytes]] = []
    for path, asked in questions:
        response = await api.send("GET", path, params={name: str(value).lower() for name, value in asked.items()})
        body = response.json()
        body.pop("request_id", None)
        gathered.append((response.status_code, orjson.dumps(body)))
    return gathered


async def test_unreadable_rows_change_no_byte(database: Database, seed: int):
    rows = public_rows()
    await rows.write(database)
    api = StoresApi(database)
    before = await answers(api)
    add_unreadable(rows, random.Random(seed))
    await rows.write(database)
    assert await answers(api) == before
    assert await answers(StoresApi(database, viewer=BOB)) != before, "cursors are the viewer's own"


async def test_readable_rows_are_shown_each_in_its_own_store(database: Database, seed: int):
    rows = public_rows()
    add_unreadable(rows, random.Random(seed))
    await rows.write(database)
    api = StoresApi(database, viewer=BOB, spaces=GRANTED)
    stores = await api.all("memory_stores", limit=2)
    assert len(stores) == 1 + 4
    named = {each["name"]: each for each in stores}
    assert sorted(named) == sorted(
        ["alice.test", "alice.test/family", "carol.test/family", f"{BOB}/family", "did:plc:alicf/family"]
    )
    shared = named["alice.test/family"]
    assert shared["id"] == store_id(ALICE, SPACE) != store_id(ALICE)
    assert shared["entry_count"] == 1
    assert [each["name"] for each in await api.all("memory_stores", name="ALICE.test/FAM")] == ["alice.test/family"]
    for store in stores:
        path = f"memory_stores/{store['id']}"
        memories = await api.all(f"{path}/memories", include_superseded=True)
        versions = await api.all(f"{path}/memory_versions")
        assert {each["memory_store_id"] for each in (*memories, *versions)} == {store["id"]}
        space = store["metadata"].get("space", "")
        for memory in memories:
            whole = await api.get(f"{path}/memories/{memory['id']}")
            assert whole["metadata"]["uri"].startswith(space or f"at://{ALICE}/")
            assert (await api.all(f"{path}/memory_versions", memory_id=memory["id"]))[0]["memory_id"] == memory["id"]
        for version in versions:
            assert (await api.get(f"{path}/memory_versions/{version['id']}"))["id"] == version["id"]


async def test_ids_of_one_store_find_nothing_in_another(database: Database, seed: int):
    rows = public_rows()
    add_unreadable(rows, random.Random(seed))
    await rows.write(database)
    api = StoresApi(database, viewer=BOB, spaces=GRANTED)
    public, shared = (next(key for key in rows.stored if key[:2] == (ALICE, space)) for space in ("", SPACE))
    assert (await api.get(memory_path(shared)))["id"] == IDS.of_memory(shared)
    for key, space in ((public, SPACE), (shared, "")):
        path = store_path(ALICE, f"/memories/{IDS.of_memory(key)}", space=space)
        assert (await api.refuse(path)).status == 404


async def test_unkeyed_hashes_find_nothing_in_a_space(database: Database, seed: int):
    rows = public_rows()
    add_unreadable(rows, random.Random(seed))
    await rows.write(database)
    api = StoresApi(database, viewer=BOB, spaces=GRANTED)
    hashes = IDS.read(IdKind.STORE, store_id(ALICE, SPACE))
    assert hashes is not None
    assert (await api.refuse(f"memory_stores/memstore_{hashes.keyed.hex()}")).status == 404
    foreign = Ids(ID_KEY[::-1] + b"x").of_store(StoreKey(ALICE, SPACE))
    assert (await api.refuse(f"memory_stores/{foreign}")).status == 404


async def test_the_owner_of_a_repo_in_a_space_reads_what_they_overwrote(database: Database, seed: int):
    rows = public_rows()
    add_unreadable(rows, random.Random(seed))
    await rows.write(database)
    path = store_path(ALICE, "/memory_versions", space=SPACE)
    others = await StoresApi(database, viewer=BOB, spaces=GRANTED).all(path)
    own = await StoresApi(database, viewer=ALICE, spaces=GRANTED).all(path)
    assert [each["redacted"] for each in own] == [False] * 3
    assert sorted(each["redacted"] for each in others) == [False, False, True]


async def test_answers_with_content_of_spaces_are_kept_by_nobody(database: Database, seed: int):
    rows = public_rows()
    add_unreadable(rows, random.Random(seed))
    await rows.write(database)
    response = await StoresApi(database, viewer=BOB, spaces=GRANTED).send("GET", store_path(ALICE, space=SPACE))
    assert response.headers["cache-control"] == "private, no-store"
