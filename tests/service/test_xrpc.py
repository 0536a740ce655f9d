"""The XRPC edge: methods, verbs, parameters, errors, cursors, limits; nothing of a request gets into logs."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import orjson
import pytest
from starlette.types import Message

from appview.http import MAX_BODY_BYTES, MAX_URL_BYTES
from appview.keys import uri_of
from memory.database import Database
from memory.errors import Unavailable
from memory.queries import Connection
from memory.telemetry import set_up_logging
from tests.api_client import NAMESPACE, Api, Refused, refused
from tests.memory_rows import ALICE, SPACE, MemoryRows

SEARCH = f"/xrpc/{NAMESPACE}searchRecords"
LIST = f"/xrpc/{NAMESPACE}listRecords"


async def filled(database: Database, count: int = 3) -> Api:
    """An API over a few memories of one author."""
    rows = MemoryRows()
    for number in range(count):
        rows.put(ALICE, f"memory {number}")
    await rows.write(database)
    return Api(database)


async def test_health_tells_the_version(database: Database) -> None:
    response = await Api(database).send("GET", "/xrpc/_health")
    assert (response.status_code, response.json()) == (200, {"version": "0.1.0"})


@pytest.mark.parametrize(
    "path", ["/xrpc", "/xrpc/", "/xrpc/nothing", f"/xrpc/{NAMESPACE}nothing", "/xrpc/a/b/c", "/xrpc/%00"]
)
async def test_an_unknown_method_is_not_implemented(database: Database, path: str) -> None:
    for verb in ("GET", "POST"):
        answer = refused(await Api(database).send(verb, path))
        assert (answer.status, answer.error) == (501, "MethodNotImplemented")


@pytest.mark.parametrize(
    ("verb", "path", "allowed"),
    [
        ("POST", LIST, "GET, HEAD"),
        ("DELETE", LIST, "GET, HEAD"),
        ("PUT", SEARCH, "GET, HEAD, POST"),
        ("POST", "/xrpc/_health", "GET, HEAD"),
    ],
)
async def test_the_wrong_verb_is_refused_with_the_right_one(
    database: Database, verb: str, path: str, allowed: str
) -> None:
    response = await Api(database).send(verb, path)
    assert refused(response).status == 405
    assert refused(response).error == "InvalidRequest"
    assert response.headers["allow"] == allowed


@pytest.mark.parametrize(
    ("method", "asked", "named"),
    [
        ("searchRecords", {}, "q"),
        ("getRecord", {}, "uri"),
        ("getHistory", {}, "uri"),
        ("listRecords", {"limit": "0"}, "limit"),
        ("listRecords", {"limit": "101"}, "limit"),
        ("listRecords", {"limit": "ten"}, "limit"),
        ("listRecords", {"limit": "1.0"}, "limit"),
        ("listRecords", {"limit": "+1"}, "limit"),
        ("listRecords", {"limit": "1_0"}, "limit"),
        ("listRecords", {"limit": "\u0661"}, "limit"),
        ("listRecords", {"limit": ""}, "limit"),
        ("listRecords", {"limit": "9" * 5000}, "limit"),
        ("listRecords", {"limit": ["1", "2"]}, "limit"),
        ("listRecords", {"order": "best"}, "order"),
        ("listRecords", {"includeSuperseded": "1"}, "includeSuperseded"),
        ("listRecords", {"includeSuperseded": "True"}, "includeSuperseded"),
        ("listRecords", {"asOf": "yesterday"}, "asOf"),
        ("listRecords", {"asOf": "2026-01-01"}, "asOf"),
        ("listRecords", {"asOf": "2026-01-01T00:00:00"}, "asOf"),
        ("listRecords", {"asOf": "2026-01-01T00:00:00-00:00"}, "asOf"),
        ("listRecords", {"createdAfter": "0000-01-01T00:00:00Z"}, "createdAfter"),
        ("listRecords", {"repo": ["alice"]}, "repo"),
        ("listRecords", {"repo": [""]}, "repo"),
        ("listRecords", {"repo": ["did:plc:a b"]}, "repo"),
        ("listRecords", {"kind": ["fact"] * 51}, "kind"),
        ("listRecords", {"kind": ["a\0b"]}, "kind"),
        ("listRecords", {"scope": ["x" * 513]}, "scope"),
        ("listRecords", {"scope": ["é" * 257]}, "scope"),
        ("listRecords", {"scopes": ["work"]}, "scopes"),
        ("listRecords", {"q": "tea"}, "q"),
        ("searchRecords", {"q": ""}, "q"),
        ("searchRecords", {"q": "x" * 1001}, "q"),
        ("searchRecords", {"q": "tea\0"}, "q"),
        ("searchRecords", {"q": ["tea", "coffee"]}, "q"),
        ("searchRecords", {"q": "e\u0301" * 1000 + "x"}, "q"),
        ("searchRecords", {"q": "tea", "mode": "psychic"}, "mode"),
        ("searchRecords", {"q": "tea", "minScore": "1001"}, "minScore"),
        ("searchRecords", {"q": "tea", "minScore": "-1"}, "minScore"),
        ("getRecord", {"uri": "at://alice.test/dev.bastienrobert.memory.record/3kaaaaaaaaa2a"}, "uri"),
        ("getRecord", {"uri": "https://example.test/"}, "uri"),
        ("getRecord", {"uri": f"at://{ALICE}/dev.bastienrobert.memory.record/3kaaaaaaaaa2a/"}, "uri"),
        ("getStats", {"repo": "not a name"}, "repo"),
    ],
)
async def test_a_bad_parameter_is_refused_by_name(
    database: Database, method: str, asked: dict[str, Any], named: str
) -> None:
    answer = await Api(database).refuse(method, **asked)
    assert (answer.status, answer.error) == (400, "InvalidRequest")
    assert named in answer.message


@pytest.mark.parametrize("query", ["kind=%ff", "kind=%C3%28", "&".join(["kind=a"] * 2000), "kind=\u00e9"])
async def test_a_query_string_that_cannot_be_read_is_refused(database: Database, query: str) -> None:
    answer = refused(await Api(database).send("GET", f"{LIST}?{query}")) if query != "kind=\u00e9" else None
    assert answer is None or (answer.status, answer.error) == (400, "InvalidRequest")


async def test_a_thousand_characters_are_not_too_many(database: Database) -> None:
    api = await filled(database)
    for q in ("x" * 1000, "e\u0301" * 1000, "\U0001f469\u200d\U0001f680" * 500):
        await api.get("searchRecords", q=q)


async def test_a_post_asks_the_same_as_a_get(database: Database) -> None:
    api = await filled(database)
    asked: dict[str, Any] = {"q": "memory", "repo": [ALICE], "limit": 2, "includeSuperseded": True}
    answer = await api.post("searchRecords", **asked)
    assert answer == await api.get("searchRecords", **asked)
    assert len(answer["records"]) == 2
    following = await api.get("searchRecords", **asked, cursor=answer["cursor"])
    assert len(following["records"]) == 1


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"", "application/json"),
        (b"[]", "application/json"),
        (b'"q"', "application/json"),
        (b"{", "application/json"),
        (b'{"q": "\xff"}', "application/json"),
        (b'{"q": "\\ud800"}', "application/json"),
        (b'{"q": 1}', "application/json"),
        (b'{"q": null}', "application/json"),
        (b'{"q": "tea", "limit": "5"}', "application/json"),
        (b'{"q": "tea", "limit": true}', "application/json"),
        (b'{"q": "tea", "limit": 5.0}', "application/json"),
        (b'{"q": "tea", "explain": 1}', "application/json"),
        (b'{"q": "tea", "kind": "fact"}', "application/json"),
        (b'{"q": "tea", "kind": [1]}', "application/json"),
        (b'{"q": "tea", "kind": ["a\\u0000"]}', "application/json"),
        (b'{"q": "tea", "unknown": 1}', "application/json"),
        (b"[" * 100_000, "application/json"),
        (b'{"q": "tea"}', "text/plain"),
        (b"q=tea", "application/x-www-form-urlencoded"),
    ],
)
async def test_a_bad_body_is_refused(database: Database, body: bytes, content_type: str) -> None:
    response = await Api(database).send("POST", SEARCH, content=body, headers={"content-type": content_type})
    assert (refused(response).status, refused(response).error) == (400, "InvalidRequest")


async def test_a_body_says_everything_once(database: Database) -> None:
    body = b'{"q": "tea", "repo": ["a.test"], "repo": ["b.test"]}'
    response = await Api(database).send("POST", SEARCH, content=body, headers={"content-type": "application/json"})
    assert (refused(response).status, refused(response).error) == (400, "InvalidRequest")


async def test_a_post_takes_its_parameters_in_the_body_only(database: Database) -> None:
    response = await Api(database).send("POST", f"{SEARCH}?limit=1", json={"q": "tea"})
    assert refused(response).status == 400


async def test_what_is_too_large_is_refused_unread(database: Database) -> None:
    body = orjson.dumps({"q": "tea", "cursor": "x" * MAX_BODY_BYTES})
    response = await Api(database).send("POST", SEARCH, content=body, headers={"content-type": "application/json"})
    assert (refused(response).status, refused(response).error) == (413, "PayloadTooLarge")
    response = await Api(database).send("GET", f"{SEARCH}?q={'x' * MAX_URL_BYTES}")
    assert (refused(response).status, refused(response).error) == (414, "InvalidRequest")


async def test_a_body_that_does_not_come_is_no_outage(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    log = io.StringIO()
    set_up_logging(log)
    monkeypatch.setattr("appview.http.BODY_TIMEOUT_S", 0)

    async def never() -> AsyncIterator[bytes]:
        yield b'{"q": '
        await asyncio.Event().wait()

    response = await Api(database).send("POST", SEARCH, content=never(), headers={"content-type": "application/json"})
    assert (refused(response).status, refused(response).error) == (408, "InvalidRequest")
    assert response.headers["connection"] == "close"
    assert "answer_unavailable" not in log.getvalue()


@pytest.mark.parametrize("path", ["/", SEARCH])
async def test_a_websocket_is_closed_before_it_is_open(database: Database, path: str) -> None:
    received: list[Message] = [{"type": "websocket.connect"}]
    sent: list[Message] = []

    async def receive() -> Message:
        return received.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": []}
    await Api(database).app(scope, receive, send)
    assert [message["type"] for message in sent] == ["websocket.close"]
    assert received == []


async def test_reads_are_open_to_every_origin(database: Database) -> None:
    api = await filled(database)
    for path in ("/xrpc/_health", LIST, "/xrpc/unknown", f"{LIST}?limit=0"):
        response = await api.send("GET", path, headers={"origin": "https://app.test"})
        assert response.headers["access-control-allow-origin"] == "*"
        exposed = response.headers["access-control-expose-headers"]
        assert {"ETag", "Retry-After", "RateLimit-Remaining", "Atproto-Repo-Rev"} <= set(exposed.split(", "))
    preflight = await api.send("OPTIONS", SEARCH, headers={"origin": "https://app.test"})
    assert preflight.status_code == 204
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert "Content-Type" in preflight.headers["access-control-allow-headers"]


@pytest.mark.parametrize("method", ["listRecords", "searchRecords"])
@pytest.mark.parametrize("space", [SPACE, "at://did:plc:unknown/space/com.example.x/y", "nonsense"])
async def test_every_space_is_unreadable_in_the_same_words(database: Database, method: str, space: str) -> None:
    rows = MemoryRows()
    rows.put(ALICE, "private", space=SPACE)
    await rows.write(database)
    asked = {"q": "private"} if method == "searchRecords" else {}
    answer = await Api(database).refuse(method, space=[space], **asked)
    assert answer == Refused(400, "SpaceNotReadable", "A Space that was asked for cannot be read by this viewer.")


@pytest.mark.parametrize("method", ["getRecord", "getHistory"])
async def test_a_record_in_an_unreadable_space_is_unreadable_whether_it_exists_or_not(
    database: Database, method: str
) -> None:
    rows = MemoryRows()
    key = rows.put(ALICE, "private", space=SPACE)
    await rows.write(database)
    api = Api(database)
    answers = [await api.refuse(method, uri=uri_of(key._replace(rkey=rkey))) for rkey in (key.rkey, "3kzzzzzzzzz2z")]
    assert answers[0] == answers[1]
    assert answers[0].error == "SpaceNotReadable"


async def cursor_of(api: Api, **asked: Any) -> str:
    answer = await api.get("listRecords", limit=1, **asked)
    return answer["cursor"]


@pytest.mark.parametrize(
    "tamper",
    [
        lambda cursor: cursor[:-1] + ("A" if cursor[-1] != "A" else "B"),
        lambda cursor: ("A" if cursor[0] != "A" else "B") + cursor[1:],
        lambda cursor: cursor[:20],
        lambda _: "",
        lambda _: "nonsense",
        lambda _: "\u00e9",
        lambda cursor: cursor + "AAAA",
    ],
)
async def test_a_cursor_that_was_not_made_here_is_refused(database: Database, tamper: Callable[[str], str]) -> None:
    api = await filled(database)
    answer = await api.refuse("listRecords", cursor=tamper(await cursor_of(api)))
    assert (answer.status, answer.error) == (400, "InvalidCursor")


async def test_a_cursor_goes_with_its_parameters_only(database: Database) -> None:
    api = await filled(database)
    cursor = await cursor_of(api, repo=[ALICE])
    assert (await api.get("listRecords", repo=[ALICE], limit=2, cursor=cursor))["records"]
    others: list[tuple[str, dict[str, Any]]] = [
        ("listRecords", {}),
        ("listRecords", {"repo": [ALICE], "order": "oldest"}),
        ("listRecords", {"repo": [ALICE], "kind": [""]}),
        ("searchRecords", {"repo": [ALICE], "q": "memory"}),
    ]
    for method, asked in others:
        assert (await api.refuse(method, cursor=cursor, **asked)).error == "InvalidCursor"


async def test_a_cursor_of_another_index_is_refused(database: Database) -> None:
    api = await filled(database)
    other = Api(database, key=b"another key")
    assert (await other.refuse("listRecords", cursor=await cursor_of(api))).error == "InvalidCursor"


class Failing:
    """A pool that fails as it is told to."""

    def __init__(self, failure: Exception) -> None:
        self.failure = failure

    def acquire(self) -> Awaitable[Connection]:
        raise self.failure

    async def release(self, connection: Connection, *, timeout: float) -> None: ...  # noqa: ASYNC109

    async def close(self) -> None: ...

    def terminate(self) -> None: ...


@pytest.mark.parametrize("failure", [OSError("refused"), Unavailable(), TimeoutError()])
async def test_a_database_that_is_away_is_said_to_be(failure: Exception) -> None:
    response = await Api(Database(Failing(failure))).send("GET", LIST)
    assert (refused(response).status, refused(response).error) == (503, "NotEnoughResources")
    assert response.headers["retry-after"] == "5"


async def test_a_mistake_of_ours_tells_nothing_and_logs_no_words() -> None:
    log = io.StringIO()
    set_up_logging(log)
    api = Api(Database(Failing(RuntimeError("the secret query"))))
    response = await api.send("POST", SEARCH, json={"q": "the secret query"})
    answer = refused(response)
    assert (answer.status, answer.error) == (500, "InternalServerError")
    assert "secret" not in response.text
    assert "answer_failed" in log.getvalue()
    assert "RuntimeError" in log.getvalue()
    assert "secret" not in log.getvalue()
