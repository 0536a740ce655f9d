"""How answers travel: ETags, compression, and lists as lines."""

from __future__ import annotations

import asyncio
import gzip
import json
from hashlib import sha256
from typing import Any

import pytest

from appview.lexicon import problems
from appview.representation import MIN_COMPRESSED_BYTES
from appview.store.views import load_memories
from memory.database import Database
from memory.errors import Unavailable
from tests.api_client import CATALOGUE, NAMESPACE, Api
from tests.memory_rows import ALICE, BOB, MemoryRows, day, text

LIST = f"/xrpc/{NAMESPACE}listRecords"
SEARCH = f"/xrpc/{NAMESPACE}searchRecords"
STORE = f"/api/v1/cloud/memory_stores/memstore_{sha256(f'at://{ALICE}'.encode()).hexdigest()[:32]}"
LINES = {"accept": "application/x-ndjson"}


async def filled(database: Database, count: int = 30) -> tuple[Api, MemoryRows]:
    """An API over memories of two authors."""
    rows = MemoryRows()
    for number in range(count):
        rows.put(ALICE if number % 2 else BOB, f"tea number {number}", days=number / 100)
    await rows.write(database)
    return Api(database), rows


async def test_what_the_client_has_is_not_sent_again(database: Database) -> None:
    api, rows = await filled(database)
    first = await api.send("GET", LIST)
    tag = first.headers["etag"]
    for known in (tag, f'"other", {tag}'):
        again = await api.send("GET", LIST, headers={"if-none-match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert again.headers["access-control-allow-origin"] == "*"
    rows.put(ALICE, "one more", days=9)
    await rows.write(database)
    changed = await api.send("GET", LIST, headers={"if-none-match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag


async def test_errors_and_posts_have_no_etag(database: Database) -> None:
    api, _ = await filled(database)
    assert "etag" not in (await api.send("GET", f"{LIST}?limit=0")).headers
    assert "etag" not in (await api.send("POST", SEARCH, json={"q": "tea"})).headers


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip", "gzip"),
        ("br, GZIP;q=0.5", "gzip"),
        ("gzip, deflate, br, zstd", "zstd"),
        ("zstd;q=0, gzip", "gzip"),
        ("*", "gzip"),
        ("gzip;q=0", None),
        ("gzip; q=0.0, br", None),
        ("br", None),
        ("identity", None),
    ],
)
async def test_long_answers_are_compressed_for_those_who_take_it(
    database: Database, accepted: str, coding: str | None
) -> None:
    api, _ = await filled(database)
    response = await api.send("GET", LIST, headers={"accept-encoding": accepted})
    assert response.headers.get("content-encoding") == coding
    assert "Accept-Encoding" in response.headers["vary"]
    assert len(response.json()["records"]) == 25  # the client has decompressed it
    assert int(response.headers["content-length"]) < len(response.content) if coding else True


async def test_short_answers_are_sent_as_they_are(database: Database) -> None:
    response = await Api(database).send("GET", LIST, headers={"accept-encoding": "gzip"})
    assert len(response.content) < MIN_COMPRESSED_BYTES
    assert "content-encoding" not in response.headers


async def test_large_answers_are_compressed_whole(database: Database) -> None:
    rows = MemoryRows()
    for number in range(4):
        rows.put(ALICE, str(number), padding="x" * 400_000)
    await rows.write(database)
    sent = await ask(Api(database), LIST, {"accept-encoding": "gzip"})
    body = b"".join(message.get("body", b"") for message in sent)
    assert len(json.loads(gzip.decompress(body))["records"]) == 4


async def test_a_list_as_lines_gives_all_that_its_pages_give(database: Database) -> None:
    api, _ = await filled(database, 230)
    for asked in ("", "?order=oldest&includeSuperseded=true", f"?repo={ALICE}&asOf={text(day(1))}"):
        response = await api.send("GET", LIST + asked, headers=LINES)
        assert response.headers["content-type"] == "application/x-ndjson"
        lines, _ = read_lines(response.text)
        pages: list[Any] = []
        cursor = ""
        while True:
            join = "&" if asked else "?"
            page = (await api.send("GET", f"{LIST}{asked}{join}limit=100{cursor}")).json()
            pages += page["records"]
            if "cursor" not in page:
                break
            cursor = f"&cursor={page['cursor']}"
        assert lines == pages
        assert lines


async def test_lines_are_told_apart_from_pages_by_who_keeps_them(database: Database) -> None:
    api, _ = await filled(database, 3)
    response = await api.send("GET", LIST, headers=LINES)
    assert response.headers["vary"] == (await api.send("GET", LIST)).headers["vary"]


async def test_lines_wait_for_turns_of_their_own(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appview.call._STREAMED_PAGES_AT_ONCE", 0)
    monkeypatch.setattr("appview.routes.records._STREAMED_PAGE_TIMEOUT_S", 0)
    api, _ = await filled(database, 3)
    assert (await api.send("GET", LIST, headers=LINES)).status_code == 503
    assert (await api.send("GET", LIST)).status_code == 200


@pytest.mark.parametrize(
    ("verb", "path", "body"),
    [
        ("GET", f"{LIST}?kind=none", None),
        ("GET", f"{LIST}?asOf=2026-01-01T00:00:00Z", None),
        ("GET", "/api/v1/cloud/memory_stores?name=al", None),
        ("GET", f"{STORE}/memories?path_prefix=work/", None),
        ("POST", "/api/v1/llm/list-memories", {"userId": ALICE, "runId": "work"}),
    ],
)
async def test_lists_that_may_walk_far_wait_for_turns_of_their_own(
    database: Database, monkeypatch: pytest.MonkeyPatch, verb: str, path: str, body: dict[str, str] | None
) -> None:
    monkeypatch.setattr("appview.call._WALKS_AT_ONCE", 0)
    monkeypatch.setattr("appview.call._WALKS_WAITING", 0)
    busy, _ = await filled(database, 3)
    assert (await busy.send(verb, path, json=body)).status_code == 503
    for quick in (LIST, "/api/v1/cloud/memory_stores", f"{STORE}/memories"):
        assert (await busy.send("GET", quick)).status_code == 200
    monkeypatch.undo()
    assert (await Api(database).send(verb, path, json=body)).status_code == 200


async def test_lines_go_on_from_a_cursor(database: Database) -> None:
    api, _ = await filled(database, 10)
    page = (await api.send("GET", f"{LIST}?limit=4")).json()
    response = await api.send("GET", f"{LIST}?cursor={page['cursor']}", headers=LINES)
    assert len(response.text.splitlines()) == 6


async def test_every_hundred_lines_tell_from_where_the_list_can_be_resumed(database: Database) -> None:
    api, _ = await filled(database, 230)
    whole = await api.send("GET", LIST, headers=LINES)
    records, cursors = read_lines(whole.text)
    assert len(cursors) == 2
    for number, cursor in enumerate(cursors, start=1):
        response = await api.send("GET", f"{LIST}?cursor={cursor}", headers=LINES)
        assert read_lines(response.text)[0] == records[100 * number :]
    assert '"cursor"' not in (await api.send("GET", f"{LIST}?repo={ALICE}&kind=none", headers=LINES)).text


async def test_each_line_is_a_view_or_a_cursor(database: Database) -> None:
    api, _ = await filled(database, 120)
    records, _ = read_lines((await api.send("GET", LIST, headers=LINES)).text)
    view = CATALOGUE.definitions[f"{NAMESPACE}defs#recordView"]
    assert [problem for record in records for problem in problems(CATALOGUE, view, record)] == []


async def test_an_empty_list_has_no_lines(database: Database) -> None:
    response = await Api(database).send("GET", LIST, headers=LINES)
    assert (response.status_code, response.text) == (200, "")


async def test_a_bad_request_for_lines_is_refused_in_json(database: Database) -> None:
    response = await Api(database).send("GET", f"{LIST}?limit=0", headers=LINES)
    assert (response.status_code, response.json()["error"]) == (400, "InvalidRequest")
    response = await Api(database).send("GET", f"{LIST}?cursor=x", headers=LINES)
    assert (response.status_code, response.json()["error"]) == (400, "InvalidCursor")


def read_lines(text: str) -> tuple[list[Any], list[str]]:
    """The records and the cursors of a list as lines, which says nothing else."""
    lines = [json.loads(line) for line in text.splitlines()]
    records = [line for line in lines if "uri" in line]
    cursors = [line["cursor"] for line in lines if line.keys() == {"cursor"}]
    assert len(records) + len(cursors) == len(lines)
    return records, cursors


async def ask(
    api: Api, path: str, headers: dict[str, str], *, disconnect_after: int | None = None
) -> list[dict[str, Any]]:
    """What the application sends, message by message; the client may go after so many of them."""
    sent: list[dict[str, Any]] = []
    gone = asyncio.Event()

    async def receive() -> dict[str, Any]:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        sent.append(message)
        if len(sent) == disconnect_after:
            gone.set()
        await asyncio.sleep(0)

    scope = {
        "type": "http",
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    await api.app(scope, receive, send)
    return sent


async def test_lines_end_when_the_client_is_gone(database: Database) -> None:
    api, _ = await filled(database, 450)
    assert len(await ask(api, LIST, LINES)) == 7
    assert len(await ask(api, LIST, LINES, disconnect_after=2)) < 5


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (OSError("the secret"), "InternalServerError"),
        (Unavailable(), "NotEnoughResources"),
        (None, "NotEnoughResources"),
    ],
)
async def test_lines_that_break_off_say_so_and_stay_unfinished(
    database: Database, monkeypatch: pytest.MonkeyPatch, failure: Exception | None, error: str
) -> None:
    api, _ = await filled(database, 250)
    calls = 0

    async def failing(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if failure is None:
            monkeypatch.setattr("appview.routes.records._STREAMED_PAGE_TIMEOUT_S", 0)
        elif calls == 2:
            raise failure
        return await load_memories(*arguments, **named)

    monkeypatch.setattr("appview.answers.lists.load_memories", failing)
    sent = await ask(api, LIST, LINES)
    assert [message["type"] for message in sent] == ["http.response.start"] + ["http.response.body"] * 2
    assert sent[-1]["more_body"] is True
    lines = [json.loads(line) for line in (sent[1]["body"] + sent[2]["body"]).splitlines()]
    assert lines[-2].keys() == {"cursor"}
    assert lines[-1] == {"error": error, "message": "The list broke off here; it goes on from the last cursor."}
