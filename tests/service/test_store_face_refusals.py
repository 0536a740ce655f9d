"""Whatever this face is sent, it answers in its own shape, and never with a failure."""

from __future__ import annotations

import random
from typing import Any
from urllib.parse import quote

import pytest

from appview.faces.stores.face import error_type
from memory.database import Database
from tests.api_client import Api
from tests.memory_rows import ALICE, BOB, MemoryRows
from tests.stores_api import IDS, PREFIX, StoresApi, refused, store_id, store_path

MEMORIES = store_path(ALICE, "/memories")
VERSIONS = store_path(ALICE, "/memory_versions")
MEMORY = f"{MEMORIES}/mem_{'0' * 32}"
STORE_ID = store_id(ALICE)
LONG = "x" * 20_000


async def refusal(database: Database, path: str, query: str) -> tuple[int, str, str | None]:
    rows = MemoryRows()
    rows.put(ALICE, "tea", days=1)
    rows.put(BOB, "tea", days=1)
    await rows.write(database)
    answer = await StoresApi(database).refuse(f"{path}?{query}")
    return answer.status, answer.type, answer.param


@pytest.mark.parametrize("path", ["memory_stores", MEMORIES, VERSIONS])
@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=101", "limit"),
        ("limit=-1", "limit"),
        ("limit=ten", "limit"),
        ("limit=", "limit"),
        ("limit=1.5", "limit"),
        ("limit=1_0", "limit"),
        ("limit=%D9%A1", "limit"),
        ("limit=" + "9" * 400, "limit"),
        ("limit=5&limit=6", "limit"),
        ("page=", "page"),
        ("page=nonsense", "page"),
        ("page=%00", "page"),
        ("page=%E2%98%95", "page"),
        (f"page={LONG}", "page"),
        ("page=a&after_id=b", "after_id"),
        ("after_id=", "after_id"),
        ("after_id=%00", "after_id"),
        ("after_id=mem_XYZ", "after_id"),
        ("before_id=memstore_" + "0" * 31, "before_id"),
        ("before_id=" + "0" * 32, "before_id"),
        ("unknown=1", "unknown"),
        ("Limit=1", "Limit"),
        ("limit[]=1", "limit[]"),
        ("%00=1", "\0"),
        (f"{LONG}=1", "x" * 60),
        ("created_at=2026-01-01T00:00:00Z", "created_at"),
        ("include_archive=true", "include_archive"),
    ],
)
async def test_what_a_parameter_may_not_be_is_refused_and_it_is_named(
    database: Database, path: str, query: str, param: str
):
    assert await refusal(database, path, query) == (400, "invalid_request_error", param)


@pytest.mark.parametrize(
    ("path", "query", "param"),
    [
        ("memory_stores", "include_archived=1", "include_archived"),
        ("memory_stores", "include_archived=True", "include_archived"),
        ("memory_stores", "include_archived=true&include_archived=true", "include_archived"),
        ("memory_stores", "name=%00", "name"),
        ("memory_stores", f"name={'x' * 2_562}", "name"),
        ("memory_stores", "created_at[gte]=yesterday", "created_at[gte]"),
        ("memory_stores", "created_at[gte]=2026-01-01", "created_at[gte]"),
        ("memory_stores", "created_at[gte]=2026-01-01T00:00:00+02:00", "created_at[gte]"),
        ("memory_stores", "created_at[lte]=2026-02-30T00:00:00Z", "created_at[lte]"),
        (
            "memory_stores",
            "created_at[gte]=2026-01-02T00:00:00Z&created_at[lte]=2026-01-01T00:00:00Z",
            "created_at[lte]",
        ),
        ("memory_stores", f"after_id=memstore_{'0' * 32}", "after_id"),
        ("memory_stores", f"before_id=memstore_{'0' * 32}", "before_id"),
        ("memory_stores", f"before_id={STORE_ID}&after_id={STORE_ID}", "before_id"),
        ("memory_stores", f"after_id=mem_{'0' * 32}", "after_id"),
        (MEMORIES, f"after_id=mem_{'0' * 32}", "after_id"),
        (MEMORIES, f"after_id={STORE_ID}", "after_id"),
        (MEMORIES, "path_prefix=%00", "path_prefix"),
        (MEMORIES, f"path_prefix={'x' * 527}", "path_prefix"),
        (MEMORIES, "include_superseded=yes", "include_superseded"),
        (MEMORIES, "memory_id=mem_" + "0" * 32, "memory_id"),
        (VERSIONS, "memory_id=mem_" + "0" * 32, "memory_id"),
        (VERSIONS, "memory_id=", "memory_id"),
        (VERSIONS, f"memory_id={STORE_ID}", "memory_id"),
        (VERSIONS, f"before_id=memver_{'0' * 32}", "before_id"),
        (store_path(ALICE), "limit=1", "limit"),
        (MEMORY, "include_superseded=true", "include_superseded"),
    ],
)
async def test_what_a_path_does_not_take_is_refused_and_named(database: Database, path: str, query: str, param: str):
    assert await refusal(database, path, query) == (400, "invalid_request_error", param)


@pytest.mark.parametrize("query", ["%FF=1", "name=%FF", "&".join(f"a{number}=1" for number in range(200))])
async def test_a_query_that_is_no_bounded_utf_8_is_refused(database: Database, query: str):
    assert await refusal(database, "memory_stores", query) == (400, "invalid_request_error", None)


async def test_objects_of_another_store_anchor_nothing(database: Database):
    rows = MemoryRows()
    rows.put(ALICE, "tea", days=1)
    foreign = rows.put(BOB, "tea", days=1)
    await rows.write(database)
    api = StoresApi(database)
    [version] = await api.all(store_path(BOB, "/memory_versions"))
    for path, asked in (
        (MEMORIES, {"after_id": IDS.of_memory(foreign)}),
        (VERSIONS, {"before_id": version["id"]}),
        (VERSIONS, {"memory_id": IDS.of_memory(foreign)}),
    ):
        answer = await api.refuse(path, params=asked)
        assert (answer.status, answer.param) == (400, next(iter(asked)))


async def test_a_cursor_goes_on_with_its_own_list_filters_and_viewer_only(database: Database):
    rows = MemoryRows()
    for number in range(3):
        rows.put(ALICE, f"tea {number}", days=number)
        rows.put(BOB, f"tea {number}", days=number)
    await rows.write(database)
    api = StoresApi(database)
    cursor = (await api.page(MEMORIES, limit=1))["next_page"]
    assert (await api.page(MEMORIES, limit=2, page=cursor))["data"]
    stranger = StoresApi(database, viewer=BOB)
    for asker, path, more in (
        (api, store_path(BOB, "/memories"), {}),
        (api, VERSIONS, {}),
        (api, "memory_stores", {}),
        (api, MEMORIES, {"include_superseded": "true"}),
        (api, MEMORIES, {"path_prefix": "default/"}),
        (stranger, MEMORIES, {}),
    ):
        answer = await asker.refuse(path, params={"page": cursor, **more})
        assert (answer.status, answer.type, answer.param) == (400, "invalid_request_error", "page")
    other_key = StoresApi(database, key=b"q" * 32)
    assert (await other_key.refuse(MEMORIES, params={"page": cursor})).param == "page"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "memory_store",
        "memory_stores/",
        f"memory_stores/{STORE_ID}/",
        f"{MEMORIES}/",
        f"{MEMORIES}/x/y",
        f"{MEMORIES}/mem_{'0' * 32}",
        f"{MEMORIES}/{STORE_ID}",
        f"{MEMORIES}/mem_{'0' * 31}g",
        f"{MEMORIES}/%00",
        f"{VERSIONS}/memver_{'0' * 32}",
        f"{VERSIONS}/memver_{'A' * 32}",
        f"memory_stores/{STORE_ID}/unknown",
        f"memory_stores/memstore_{'0' * 32}",
        f"memory_stores/memstore_{'0' * 32}/memories",
        f"memory_stores/memstore_{'0' * 32}/memory_versions",
        f"memory_stores/{STORE_ID.upper()}",
        f"memory_stores/{quote(ALICE)}",
        "memory_stores/%F0%9F%8D%B5",
        "memory_stores/%FF",
        f"memory_stores/{'x' * 5_000}",
    ],
)
async def test_what_is_not_there_is_not_found(database: Database, path: str):
    rows = MemoryRows()
    rows.put(ALICE, "tea", days=1)
    await rows.write(database)
    answer = await StoresApi(database).refuse(path)
    assert (answer.status, answer.type, answer.param) == (404, "not_found_error", None)


@pytest.mark.parametrize("path", ["memory_stores", store_path(ALICE), MEMORIES, MEMORY, VERSIONS, "unknown"])
@pytest.mark.parametrize("verb", ["POST", "PUT", "PATCH", "DELETE"])
async def test_writes_are_told_where_memories_are_written(database: Database, verb: str, path: str):
    api = StoresApi(database)
    response = await api.send(verb, path, content=b"{}")
    assert response.headers["allow"] == "GET, HEAD"
    answer = await api.refuse(path, verb, content=b"\xff" * 1_000)
    assert (answer.status, answer.type) == (405, "invalid_request_error")
    assert "own repo" in answer.message
    assert "dev.bastienrobert.memory.record" in answer.message


async def test_head_answers_as_get_does(database: Database):
    rows = MemoryRows()
    rows.put(ALICE, "tea", days=1)
    await rows.write(database)
    api = StoresApi(database)
    for path in ("memory_stores", MEMORIES):
        assert (await api.send("HEAD", path)).status_code == 200
    assert (await api.send("HEAD", "memory_stores?limit=0")).status_code == 400


async def test_urls_that_are_too_long_and_bursts_are_refused_in_the_same_shape(database: Database):
    answer = await StoresApi(database).refuse("memory_stores?name=" + "x" * 40_000)
    assert (answer.status, answer.type) == (414, "invalid_request_error")
    hasty = Api(database, rate_limit=1)
    by_proxy = {"Forwarded": "for=203.0.113.7"}
    responses = [await hasty.send("GET", PREFIX + "memory_stores", headers=by_proxy) for _ in range(2)]
    assert responses[0].status_code == 200
    answer = refused(responses[1])
    assert (answer.status, answer.type) == (429, "rate_limit_error")


async def test_credentials_that_do_not_hold_are_an_authentication_error(database: Database):
    response = await StoresApi(database).api.send(
        "GET", PREFIX + "memory_stores", headers={"Authorization": "Bearer nonsense"}
    )
    assert (response.status_code, response.json()["error"]["type"]) == (401, "authentication_error")


async def test_a_database_that_is_away_is_an_api_error(database: Database):
    await database.pool.close()
    answer = await StoresApi(database).refuse("memory_stores")
    assert (answer.status, answer.type) == (503, "api_error")


def test_every_status_has_the_type_of_its_document():
    expected = {400: "invalid_request_error", 405: "invalid_request_error", 413: "invalid_request_error"}
    expected |= {401: "authentication_error", 403: "permission_error", 404: "not_found_error"}
    expected |= {429: "rate_limit_error", 500: "api_error", 503: "api_error"}
    assert {status: error_type(status) for status in expected} == expected


async def test_request_ids_tell_requests_apart(database: Database):
    api = StoresApi(database)
    bodies = [(await api.send("GET", "memory_stores/nothing")).json() for _ in range(2)]
    assert bodies[0]["request_id"] != bodies[1]["request_id"]


async def test_random_questions_are_answered_or_refused_and_never_fail(database: Database, seed: int):
    draw = random.Random(seed)
    rows = MemoryRows()
    key = rows.put(ALICE, "tea", days=1)
    await rows.write(database)
    api = StoresApi(database)
    page = (await api.page(VERSIONS))["data"][0]["id"]
    names = ["limit", "page", "after_id", "before_id", "name", "path_prefix", "memory_id", "include_superseded", "x"]
    names += ["created_at[gte]", "created_at[lte]", "include_archived", "\0", "", "limit "]
    values: list[Any] = [STORE_ID, IDS.of_memory(key), page, "true", "1", "-1", "", "\0", "%", "\\", "'", "ä" * 300]
    values += ["9" * 30, "2026-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "[]", "\U0010ffff"]
    paths = [
        "memory_stores",
        store_path(ALICE),
        MEMORIES,
        VERSIONS,
        f"{MEMORIES}/{IDS.of_memory(key)}",
        VERSIONS + "/x",
    ]
    for _ in range(400):
        asked = [(draw.choice(names), draw.choice(values)) for _ in range(draw.randint(0, 3))]
        path = draw.choice(paths)
        response = await api.send("GET", path, params=asked)
        assert response.status_code in (200, 400, 404), (path, asked, response.text)
