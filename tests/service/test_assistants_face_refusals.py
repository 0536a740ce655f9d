"""The assistants' face: what it refuses, in its own shape, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import httpx
import pytest

from appview.call import Turns
from appview.faces.assistants.bodies import NOBODY_NAMED
from appview.faces.assistants.face import CODES, PREFIX, AssistantsFace
from appview.faces.assistants.fields import GET, LIST, SEARCH, load_fields
from appview.keys import Key, uri_of
from appview.refusals import Refusal
from memory.database import Database
from tests.api_client import CATALOGUE, Api
from tests.assistants_client import URI, VALID, Assistant, refused
from tests.memory_rows import ALICE, BOB, CAROL, SPACE, MemoryRows


@pytest.fixture
async def rows(database: Database) -> MemoryRows:
    """One memory."""
    rows = MemoryRows()
    rows.put(ALICE, "green tea", rkey="3kaaaaaaaaa2a")
    await rows.write(database)
    return rows


@pytest.fixture
def anybody(database: Database, rows: MemoryRows) -> Assistant:
    """A client that is not signed in."""
    return Assistant(database)


@pytest.fixture
def nowhere() -> Assistant:
    """A client of a face without a database: what is refused here is refused before anything is looked up."""
    return Assistant(cast("Database", None))


@pytest.mark.parametrize("method", VALID)
async def test_what_is_refused_below_would_else_be_answered(anybody: Assistant, method: str) -> None:
    assert await anybody.ask(method, **VALID[method])


@pytest.mark.parametrize(
    ("method", "body"),
    [
        (LIST, {}),
        (SEARCH, {"query": "tea"}),
        (LIST, {"userId": None}),
        (SEARCH, {"query": "tea", "appId": "", "runId": "home", "agentId": "codex"}),
        (SEARCH, {"query": "tea", "user_id": ALICE, "userid": ALICE}),
        (LIST, {"filters": {"repo": None, "kind": ["fact"]}}),
    ],
)
async def test_without_a_viewer_somebody_must_be_named(nowhere: Assistant, method: str, body: dict[str, Any]) -> None:
    refusal = await nowhere.refuse(method, body)
    assert (refusal.status, refusal.code, refusal.message) == (400, "invalid_argument", NOBODY_NAMED)


def test_the_refusal_says_what_to_do_and_why() -> None:
    for told in ("userId", "DID", "handle", "sign in", "strangers"):
        assert told in NOBODY_NAMED


async def test_a_memory_that_is_named_needs_no_viewer(anybody: Assistant) -> None:
    assert (await anybody.get(URI))["userId"] == ALICE


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "", "application/jsonp"])
async def test_a_body_must_be_said_to_be_json(nowhere: Assistant, content_type: str) -> None:
    refusal = refused(await nowhere.send_text(LIST, '{"userId": "alice.test"}', content_type))
    assert (refusal.status, refusal.code) == (400, "invalid_argument")
    assert "application/json" in refusal.message


async def test_a_charset_may_stand_beside_the_type(anybody: Assistant) -> None:
    response = await anybody.send_text(LIST, f'{{"userId": "{ALICE}"}}', "application/json; charset=utf-8")
    assert response.status_code == 200


async def test_nothing_is_asked_in_the_url(nowhere: Assistant) -> None:
    refusal = await nowhere.refuse(f"{LIST}?userId={ALICE}", {"userId": ALICE})
    assert (refusal.status, refusal.code) == (400, "invalid_argument")
    assert "body" in refusal.message


@pytest.mark.parametrize("method", VALID)
@pytest.mark.parametrize("verb", ["GET", "PUT", "PATCH", "DELETE"])
async def test_only_post_is_answered(nowhere: Assistant, method: str, verb: str) -> None:
    response = await nowhere.api.send(verb, PREFIX + method, json=VALID[method])
    refusal = refused(response)
    assert (refusal.status, refusal.code) == (405, "unimplemented")
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize("path", ["", "x", "get-memory/", "get-memory/x", "../llm", "GET-MEMORY", "searchRecords"])
async def test_other_paths_are_not_found(nowhere: Assistant, path: str) -> None:
    refusal = refused(await nowhere.api.send("POST", "/api/v1/llm/" + path.replace("..", "%2e%2e"), json=VALID[GET]))
    assert (refusal.status, refusal.code) == (404, "not_found")


@pytest.mark.parametrize(
    "uri",
    [
        URI[:-1] + "b",
        f"at://{CAROL}/dev.bastienrobert.memory.record/3kaaaaaaaaa2a",
        f"at://{ALICE}/app.bsky.feed.post/3kaaaaaaaaa2a",
    ],
)
async def test_what_is_not_there_is_not_found(anybody: Assistant, uri: str) -> None:
    refusal = await anybody.refuse(GET, {"id": uri})
    assert (refusal.status, refusal.code) == (404, "not_found")


@pytest.mark.parametrize("method", VALID)
@pytest.mark.parametrize("space", [SPACE, "at://did:plc:nobodyaaaaaaaaaaaaaaaaa/space/com.example.group/none"])
async def test_a_space_that_cannot_be_read_is_refused_known_or_not(
    database: Database, rows: MemoryRows, method: str, space: str
) -> None:
    private = rows.put(ALICE, "secret tea", space=SPACE)
    await rows.write(database)
    named = Key(ALICE, space, private.rkey)
    body = {"id": uri_of(named)} if method == GET else VALID[method] | {"appId": space}
    for assistant in (Assistant(database), Assistant(database, did=ALICE)):
        refusal = await assistant.refuse(method, body)
        assert (refusal.status, refusal.code) == (403, "permission_denied")
        assert space not in refusal.message
        if method != GET:
            assert await assistant.refuse(method, VALID[method] | {"filters": {"space": [space]}}) == refusal


@pytest.mark.parametrize("method", [LIST, SEARCH])
async def test_a_token_is_good_for_the_same_question_alone(database: Database, rows: MemoryRows, method: str) -> None:
    rows.put(ALICE, "black tea")
    rows.put(ALICE, "white tea")
    await rows.write(database)
    anybody, bob = Assistant(database), Assistant(database, did=BOB)
    token = (await anybody.ask(method, **VALID[method], limit=1))["nextPageToken"]
    same = VALID[method] | {"pageToken": token}
    assert await anybody.ask(method, **same, limit=2)
    assert await anybody.ask(method, **same, colour="red")
    other = {LIST: SEARCH, SEARCH: LIST}[method]
    for assistant, asked, body in [
        (bob, method, same),
        (anybody, method, same | {"userId": BOB}),
        (anybody, method, same | {"runId": "home"}),
        (anybody, method, same | {"filters": {"includeSuperseded": True}}),
        (anybody, method, same | {"pageToken": token[:-2] + "AA"}),
        (anybody, other, VALID[other] | {"pageToken": token}),
    ]:
        refusal = await assistant.refuse(asked, body)
        assert (refusal.status, refusal.code) == (400, "invalid_argument")
        assert "pageToken" in refusal.message


async def test_credentials_that_do_not_hold_are_refused_not_overlooked(database: Database, rows: MemoryRows) -> None:
    response = await Api(database).send(
        "POST", PREFIX + LIST, json=VALID[LIST], headers={"authorization": "Bearer whatever"}
    )
    refusal = refused(response)
    assert (refusal.status, refusal.code) == (401, "unauthenticated")


async def test_too_many_requests_are_told_so(database: Database, rows: MemoryRows) -> None:
    transport = httpx.ASGITransport(app=Api(database, rate_limit=1).app, client=("203.0.113.7", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://api.test") as client:
        responses = [await client.post(PREFIX + LIST, json=VALID[LIST]) for _ in range(2)]
    assert responses[0].status_code == 200
    refusal = refused(responses[1])
    assert (refusal.status, refusal.code) == (429, "resource_exhausted")
    assert int(responses[1].headers["retry-after"]) > 0


async def test_a_search_without_a_place_to_wait_is_told_to_come_again(database: Database, rows: MemoryRows) -> None:
    response = await Api(database, searches=Turns(at_once=0, waiting=0)).send(
        "POST", PREFIX + SEARCH, json=VALID[SEARCH]
    )
    refusal = refused(response)
    assert (refusal.status, refusal.code) == (503, "unavailable")
    assert int(response.headers["retry-after"]) > 0


async def test_our_mistakes_are_told_without_their_text(anybody: Assistant, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        raise ValueError("green tea")

    monkeypatch.setattr("appview.faces.assistants.answers.load_memories", fail)
    refusal = await anybody.refuse(GET, VALID[GET])
    assert (refusal.status, refusal.code) == (500, "internal")
    assert "tea" not in refusal.message


def kinds(of: type[Refusal] = Refusal) -> Iterator[type[Refusal]]:
    for kind in of.__subclasses__():
        yield kind
        yield from kinds(kind)


def test_every_refusal_has_a_code() -> None:
    unknown = {kind.status for kind in kinds()} - {501} - set(CODES)  # 501 is what XRPC calls an unknown method
    assert unknown == set()


def test_labels_are_few(database: Database) -> None:
    face = AssistantsFace(resources=None, fields=load_fields(CATALOGUE))  # pyright: ignore[reportArgumentType]
    paths = [PREFIX + name for name in (*VALID, "x", "y", ALICE)]
    assert {face.label(path) for path in paths} == {"llm/" + name for name in (*VALID, "unknown")}
