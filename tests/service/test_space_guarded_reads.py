"""Reads that are guarded where it is easy to forget: handles, entries, cursors, tags, and the heads of answers."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Final

import httpx
import pytest

from appview.faces.assistants.face import PREFIX as ASSISTANTS
from appview.faces.stores.endpoints import PREFIX as STORES
from appview.faces.xrpc import PREFIX
from appview.keys import Key, uri_of
from memory.database import Database
from memory.identifiers import NAMESPACE
from tests.granted import HOUR, grant, hold
from tests.memory_rows import ALICE, BOB, CAROL, SPACE, MemoryRows
from tests.opening import Door, doors
from tests.private_rows import FIRST, SECOND, Answer, answer_of
from tests.stores_api import store_path

XRPC: Final = PREFIX + NAMESPACE
PRIVATE: Final = Key(ALICE, SPACE, FIRST)
PUBLIC: Final = Key(ALICE, "", SECOND)

Request = tuple[str, str, dict[str, Any]]

BY_HANDLE: Final[list[Request]] = [
    ("GET", XRPC + "listRecords", {"repo": "carol.test"}),
    ("GET", XRPC + "listRecords", {"repo": "carol.test", "order": "occurred", "includeSuperseded": "true"}),
    ("GET", XRPC + "searchRecords", {"q": "tea", "repo": "carol.test", "explain": "true"}),
    ("GET", XRPC + "getStats", {"repo": "carol.test"}),
    ("GET", XRPC + "getStats", {"repo": CAROL}),
    ("GET", STORES + "memory_stores", {"name": "carol.test"}),
    ("GET", STORES + "memory_stores", {"name": "car", "include_archived": "true"}),
    ("GET", STORES + store_path(CAROL), {}),
    ("POST", ASSISTANTS + "list-memories", {"userId": "carol.test"}),
    ("POST", ASSISTANTS + "search-memories", {"query": "tea", "userId": "carol.test"}),
]
OF_BOTH: Final[list[Request]] = [
    ("GET", XRPC + "getRecord", {"uri": uri_of(PUBLIC)}),
    ("GET", XRPC + "getHistory", {"uri": uri_of(PUBLIC)}),
    ("GET", XRPC + "listRecords", {"repo": ALICE, "includeSuperseded": "true"}),
    ("GET", XRPC + "searchRecords", {"q": "tea", "repo": ALICE, "explain": "true", "explainUri": uri_of(PUBLIC)}),
    ("GET", XRPC + "searchRecords", {"q": "tea", "explainUri": uri_of(PRIVATE)}),
    ("POST", ASSISTANTS + "get-memory", {"id": uri_of(PUBLIC)}),
    ("POST", ASSISTANTS + "list-memories", {"userId": ALICE, "filters": {"includeSuperseded": True}}),
    ("GET", STORES + store_path(ALICE, "/memories"), {"include_superseded": "true"}),
    ("GET", STORES + store_path(ALICE, "/memory_versions"), {}),
]
FACES: Final[list[Request]] = [
    ("GET", XRPC + "listRecords", {}),
    ("GET", XRPC + "getStats", {"repo": ALICE}),
    ("POST", XRPC + "searchRecords", {"q": "tea"}),
    ("GET", XRPC + "getRecord", {"uri": uri_of(PRIVATE)}),
    ("GET", XRPC + "getHistory", {"uri": uri_of(PRIVATE)}),
    ("GET", XRPC + "getRecord", {"uri": uri_of(Key(ALICE, SPACE, "3kzzzzzzzzz2z"))}),
    ("GET", XRPC + "listRecords", {"limit": "0"}),
    ("GET", STORES + "memory_stores", {}),
    ("GET", STORES + store_path(ALICE, "/memories", space=SPACE), {}),
    ("GET", STORES + store_path(BOB, space=SPACE), {}),
    ("POST", ASSISTANTS + "list-memories", {"userId": ALICE}),
    ("POST", ASSISTANTS + "get-memory", {"id": uri_of(PRIVATE)}),
]


@pytest.fixture
async def door(database: Database) -> AsyncGenerator[Door]:
    async with doors(database) as made:
        yield made


async def ask(door: Door, request: Request, token: str | None = None, **headers: str) -> httpx.Response:
    verb, path, asked = request
    if token is not None:
        headers |= {"authorization": f"Bearer {token}"}
    more: dict[str, Any] = {"json": asked} if verb == "POST" else {"params": asked}
    return await door.api.send(verb, path, headers=headers, **more)


async def answers(door: Door, requests: list[Request], token: str | None = None) -> list[Answer]:
    """What each is answered, but for ids that are random."""
    told: list[Answer] = []
    for request in requests:
        response = await ask(door, request, token)
        status, headers, body = answer_of(response)
        told.append((status, headers, body.replace(response.headers["request-id"].encode(), b"")))
    return told


def public_rows() -> MemoryRows:
    """Alice's, one of which says that it replaces something in the Space, and then something that was never there."""
    rows = MemoryRows()
    rows.repo(ALICE, handle="alice.test")
    rows.put(ALICE, "tea at home", days=1)
    rows.put(
        ALICE,
        "black tea",
        rkey=PUBLIC.rkey,
        days=3,
        supersedes=[PRIVATE, Key(ALICE, SPACE, "3kzzzzzzzzz2z")],
    )
    return rows


def with_private(rows: MemoryRows) -> MemoryRows:
    rows.repo(CAROL, space=SPACE, handle="carol.test")
    rows.put(CAROL, "carol's tea", space=SPACE, days=2)
    rows.put(ALICE, "green tea", space=SPACE, rkey=FIRST, days=2)
    # And the other way: it says that it replaces what is public.
    rows.put(ALICE, "white tea", space=SPACE, rkey=SECOND, days=4, supersedes=[PUBLIC])
    return rows


@pytest.mark.parametrize("requests", [BY_HANDLE, OF_BOTH, FACES], ids=["handles", "entries", "faces"])
async def test_what_is_in_a_space_changes_nothing_for_strangers(
    door: Door, database: Database, requests: list[Request]
):
    """Nor do the handles of those who have nothing public, nor entries from one place into the other."""
    app = await door.token()
    await public_rows().write(database)
    before = await answers(door, requests), await answers(door, requests, app)
    await with_private(public_rows()).write(database)
    await hold(database, SPACE)
    member = (await grant(database, door.mara.did, SPACE, now=door.world.clock())).text
    assert (await answers(door, requests), await answers(door, requests, app)) == before
    assert await answers(door, requests, member) != before[1]


async def member(door: Door, database: Database, count: int = 30) -> str:
    """An access token that may read the Space, in which there are that many of Alice's."""
    rows = with_private(public_rows())
    for number in range(count):
        rows.put(ALICE, f"tea number {number} " + "leaf " * 60, space=SPACE, days=5 + number)
    await rows.write(database)
    await hold(database, SPACE)
    return (await grant(database, door.mara.did, SPACE, now=door.world.clock())).text


@pytest.mark.parametrize(
    ("request_", "told", "asked_by"),
    [
        (("GET", XRPC + "listRecords", {"limit": "2"}), "cursor", "cursor"),
        (("GET", XRPC + "searchRecords", {"q": "tea", "limit": "2"}), "cursor", "cursor"),
        (("GET", STORES + store_path(ALICE, "/memories"), {"limit": "1"}), "next_page", "page"),
        (("POST", ASSISTANTS + "list-memories", {"userId": ALICE, "pageSize": 2}), "nextPageToken", "pageToken"),
    ],
)
async def test_cursor_of_one_app_is_none_of_another(
    door: Door, database: Database, request_: Request, told: str, asked_by: str
):
    """Nor of a stranger, nor of nobody. It goes on for the app itself, and ends with its grant."""
    token = await member(door, database)
    verb, path, asked = request_
    first = await ask(door, request_, token)
    assert first.status_code == 200
    on = (verb, path, asked | {asked_by: first.json()[told]})
    assert (await ask(door, on, token)).status_code == 200
    for other in (await door.token(), await door.token(door.lukas), None):
        assert (await ask(door, on, other)).status_code == 400
    await door.send("closeSpace", token, {"space": SPACE})
    after = await ask(door, on, token)
    assert b"leaf" not in after.content


@pytest.mark.parametrize("request_", [each for each in FACES if each[0] == "GET"], ids=lambda each: each[1])
async def test_tag_of_what_may_be_read_no_more_is_worth_nothing(door: Door, database: Database, request_: Request):
    """It tells nobody that what they had is still so."""
    token = await member(door, database)
    response = await ask(door, request_, token)
    tag = response.headers.get("etag")
    if tag is None:
        assert response.status_code != 200
        return
    assert (await ask(door, request_, token, **{"if-none-match": tag})).status_code == 304
    for other in (await door.token(), None):
        assert (await ask(door, request_, other, **{"if-none-match": tag})).status_code != 304
    await door.send("closeSpace", token, {"space": SPACE})
    assert (await ask(door, request_, token, **{"if-none-match": tag})).status_code != 304


@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize("request_", FACES, ids=lambda each: each[1])
async def test_nobody_keeps_what_may_be_of_a_space(door: Door, database: Database, request_: Request, lines: bool):
    """Whatever is answered to who may read one, errors and what is public included; and its length tells nothing."""
    token = await member(door, database)
    accept = "application/x-ndjson" if lines else "*/*"
    told = await ask(door, request_, token, **{"accept-encoding": "gzip", "accept": accept})
    assert told.headers["cache-control"] == "private, no-store"
    assert "content-encoding" not in told.headers
    if told.status_code == 200:
        assert "authorization" in told.headers["vary"].lower()


async def test_what_is_public_is_compressed_for_who_reads_no_space(door: Door, database: Database):
    """Else the test above would show nothing."""
    await member(door, database)
    rows = public_rows()
    for number in range(30):
        rows.put(BOB, f"tea number {number} " + "leaf " * 60, days=5 + number)
    await rows.write(database)
    told = await ask(door, FACES[0], await door.token(), **{"accept-encoding": "gzip"})
    assert told.headers["content-encoding"] == "gzip"
    assert "no-store" not in told.headers["cache-control"]


async def test_grant_that_ends_takes_every_face_along(door: Door, database: Database):
    token = await member(door, database)
    before = await answers(door, FACES, token)
    assert sum(SPACE.encode() in body for _, _, body in before) >= 6
    door.world.wait(2 * HOUR)
    nobodys = await door.token()
    assert await answers(door, FACES, token) == await answers(door, FACES, nobodys)
