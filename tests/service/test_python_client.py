"""The Python client, against the real API."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NotRequired, get_origin, get_type_hints

import httpx
import pytest

import memory_client
from appview.access import Viewer
from memory.database import Database
from memory.space import ReadableSpaces
from memory_client import AsyncMemoryClient, MemoryApiError, MemoryClient
from tests.api_client import CATALOGUE, NAMESPACE, Api
from tests.memory_rows import ALICE, BOB, MemoryRows, day

VIEWS = {
    "recordView": memory_client.Record,
    "supersession": memory_client.Supersession,
    "byteSlice": memory_client.ByteSlice,
    "armScore": memory_client.ArmScore,
    "scores": memory_client.Scores,
    "explanation": memory_client.Explanation,
    "versionView": memory_client.Version,
    "tally": memory_client.Tally,
    "count": memory_client.Count,
    "repoSync": memory_client.RepoSync,
    "grantView": memory_client.Grant,
}
ANSWERS = {
    "searchRecords": memory_client.SearchPage,
    "listRecords": memory_client.RecordPage,
    "getHistory": memory_client.HistoryPage,
    "getStats": memory_client.Stats,
    "openSpace": memory_client.OpenedSpace,
}


def client(api: Api, access_token: str | None = None) -> AsyncMemoryClient:
    transport = httpx.ASGITransport(app=api.app)
    return AsyncMemoryClient("http://api.test", access_token=access_token, transport=transport)


@pytest.fixture
async def rows(database: Database) -> MemoryRows:
    """Forty memories of Alice, the second of which replaces the first, and one of Bob."""
    rows = MemoryRows()
    rows.repo(ALICE, handle="alice.test")
    old = rows.put(ALICE, "Likes green tea.", days=1, kind="preference")
    rows.put(ALICE, "Likes black tea.", days=2, kind="preference", scope="home", supersedes=[old])
    for number in range(38):
        rows.put(ALICE, f"Tea number {number}.", days=3 + number, kind="fact", scope="work")
    rows.put(BOB, "Bob brews tea.", days=5)
    await rows.write(database)
    return rows


def contents(records: list[memory_client.Record]) -> list[str]:
    return [record["value"]["content"] for record in records]


async def test_search_finds_the_best_first(rows: MemoryRows, database: Database) -> None:
    async with client(Api(database)) as memories:
        page = await memories.search_records("black tea", repo="alice.test", kind=["preference", ""], explain=True)
    assert contents(page["records"]) == ["Likes black tea."]
    assert page["mode"] == "lexical"
    assert page["suppressed"] == 0
    [record] = page["records"]
    assert "score" in record
    assert "scores" in record
    assert record["supersedes"][0]["effect"] == "masks"


async def test_filters_reach_the_api_by_their_names(rows: MemoryRows, database: Database) -> None:
    async with client(Api(database)) as memories:
        list_records = memories.list_records
        since = await list_records(repo=ALICE, created_after=day(38), created_before="2026-02-09T00:00:00Z")
        past = await list_records(repo=[ALICE, BOB], as_of=day(1.5), public_only=True)
        masked = await list_records(kind="preference", include_superseded=True, order="oldest", limit=1)
        home = await list_records(scope=["home"])
    assert contents(since["records"]) == ["Tea number 35."]
    assert contents(past["records"]) == ["Likes green tea."]
    assert contents(masked["records"]) == ["Likes green tea."]
    assert contents(home["records"]) == ["Likes black tea."]


async def test_pages_are_gone_through_to_the_end(rows: MemoryRows, database: Database) -> None:
    async with client(Api(database)) as memories:
        listed = [record["uri"] async for record in memories.iter_records(repo=ALICE, limit=7)]
        found = [record["uri"] async for record in memories.iter_hits("tea", repo=ALICE, limit=7)]
    assert len(listed) == len(set(listed)) == 39
    assert sorted(found) == sorted(listed)


async def test_history_and_one_record(rows: MemoryRows, database: Database) -> None:
    async with client(Api(database)) as memories:
        [newest] = (await memories.list_records(scope="home"))["records"]
        old = await memories.get_record(newest["supersedes"][0]["uri"])
        pages = [page async for page in memories.iter_history_pages(old["uri"], limit=1)]
    assert old["superseded"]
    assert old["supersededBy"] == [newest["uri"]]
    assert len(pages) == 2
    assert [version["operation"] for page in pages for version in page["versions"]] == ["created"]
    assert contents([record for page in pages for record in page["replacedBy"]]) == ["Likes black tea."]


async def test_statistics_of_everybody_and_of_one_author(rows: MemoryRows, database: Database) -> None:
    async with client(Api(database)) as memories:
        everybody, alice = await asyncio.gather(memories.get_stats(), memories.get_stats("alice.test"))
    assert (everybody["records"], alice["records"], alice["superseded"]) == (40, 39, 1)
    assert "sync" not in everybody
    assert "sync" in alice
    assert alice["sync"]["state"] == "active"


async def test_why_something_was_not_recalled(rows: MemoryRows, database: Database) -> None:
    async with client(Api(database)) as memories:
        [home] = (await memories.list_records(scope="home"))["records"]
        old = home["supersedes"][0]["uri"]
        explained = (await memories.search_records("green", repo=ALICE, explain_uri=old)).get("explanation")
    assert explained is not None
    assert (explained["recalled"], explained.get("failedFilter"), explained["maskedBy"]) == (
        False,
        "superseded",
        [home["uri"]],
    )


@pytest.mark.parametrize(
    ("ask", "status", "error"),
    [
        (lambda memories: memories.get_record(f"at://{ALICE}/{NAMESPACE}record/3zzzzzzzzzz2a"), 400, "RecordNotFound"),
        (lambda memories: memories.search_records("tea", mode="semantic"), 400, "ModeUnavailable"),
        (lambda memories: memories.list_records(limit=0), 400, "InvalidRequest"),
        (lambda memories: memories.list_records(cursor="made up"), 400, "InvalidCursor"),
    ],
)
async def test_refusals_are_raised_with_their_names(
    rows: MemoryRows, database: Database, ask: Callable[[AsyncMemoryClient], Any], status: int, error: str
) -> None:
    async with client(Api(database)) as memories:
        with pytest.raises(MemoryApiError) as caught:
            await ask(memories)
    assert (caught.value.status, caught.value.error) == (status, error)
    assert caught.value.message
    assert caught.value.retry_after_s is None


async def test_access_token_says_who_asks(rows: MemoryRows, database: Database) -> None:
    alice = Viewer(ALICE, ReadableSpaces.public_only(), ALICE)
    async with client(Api(database, viewer=alice), access_token="memat_alice") as memories:
        assert (await memories.get_stats())["records"] == 40
    async with client(Api(database), access_token="memat_nobody") as memories:
        with pytest.raises(MemoryApiError) as caught:
            await memories.get_stats()
    assert (caught.value.status, caught.value.error) == (401, "AuthenticationRequired")
    assert "memat" not in str(caught.value)


def answering(status: int, **answer: Any) -> MemoryClient:
    transport = httpx.MockTransport(lambda _: httpx.Response(status, **answer))
    return MemoryClient("http://api.test", transport=transport)


@pytest.mark.parametrize(
    ("status", "answer", "error", "retry_after_s"),
    [
        (502, {"text": "<html>"}, "InvalidResponse", None),
        (200, {"text": "not JSON"}, "InvalidResponse", None),
        (200, {"json": ["no", "object"]}, "InvalidResponse", None),
        (200, {"text": "[" * 100_000}, "InvalidResponse", None),
        (302, {"headers": {"Location": "http://elsewhere.test"}}, "InvalidResponse", None),
        (429, {"json": {"error": "Slow", "message": "m"}, "headers": {"Retry-After": "7"}}, "Slow", 7),
        (503, {"json": {"error": "Away", "message": "m"}, "headers": {"Retry-After": "soon"}}, "Away", None),
    ],
)
def test_what_is_no_answer_is_raised(status: int, answer: dict[str, Any], error: str, retry_after_s: int | None):
    with answering(status, **answer) as memories, pytest.raises(MemoryApiError) as caught:
        memories.get_stats()
    assert (caught.value.status, caught.value.error, caught.value.retry_after_s) == (status, error, retry_after_s)


def test_queries_stand_in_no_url() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json={"records": []})

    with MemoryClient("http://api.test", transport=httpx.MockTransport(answer)) as memories:
        memories.search_records("my secret")
    [request] = asked
    assert (request.method, request.url.query) == ("POST", b"")
    assert "authorization" not in request.headers


def test_time_without_a_zone_is_refused_before_it_is_sent() -> None:
    with answering(200, json={}) as memories, pytest.raises(ValueError, match="as_of"):
        memories.list_records(as_of=datetime(2026, 1, 1))  # noqa: DTZ001
    with answering(200, json={"records": []}) as memories:
        assert memories.list_records(as_of=datetime(2026, 1, 1, tzinfo=UTC)) == {"records": []}


def test_one_after_the_other_does_what_many_at_a_time_do(demo_url: str) -> None:
    with MemoryClient(demo_url) as memories:
        records = list(memories.iter_records(repo="mara.test", limit=5))
        hits = list(memories.iter_hits("where does Mara live", repo="mara.test", limit=5))
        record = memories.get_record(records[0]["uri"])
        [history] = memories.iter_history_pages(hits[0]["uri"], limit=100)
        stats = memories.get_stats("mara.test")
    assert len({record["uri"] for record in records}) == len(records) == stats["records"]
    assert hits[0]["value"]["content"].startswith("Mara moved to Ghent")
    assert record == records[0]
    assert len(history["replaced"]) > 2


def shape(typed: Any) -> tuple[set[str], set[str]]:
    """The required and the other keys of a TypedDict."""
    hints = get_type_hints(typed, include_extras=True)
    optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
    return hints.keys() - optional, optional


def described(output: Any) -> tuple[set[str], set[str]]:
    """The same of a lexicon's object."""
    return set(output.required), output.properties.keys() - output.required


@pytest.mark.parametrize("view", VIEWS)
def test_views_are_those_of_the_lexicons(view: str) -> None:
    assert shape(VIEWS[view]) == described(CATALOGUE.definitions[f"{NAMESPACE}defs#{view}"])


@pytest.mark.parametrize("method", ANSWERS)
def test_answers_are_those_of_the_lexicons(method: str) -> None:
    assert shape(ANSWERS[method]) == described(CATALOGUE.methods[NAMESPACE + method].output)


def test_parameters_are_those_of_the_lexicons() -> None:
    asked: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, json={"grants": []})

    with MemoryClient("http://api.test", transport=httpx.MockTransport(answer)) as memories:
        everything: Any = dict.fromkeys(get_type_hints(memory_client.SearchOptions), "1")
        memories.search_records("tea", cursor="1", **everything)
        everything = dict.fromkeys(get_type_hints(memory_client.ListOptions), "1")
        memories.list_records(cursor="1", **everything)
        memories.get_record("1")
        memories.get_history("1", limit=1, cursor="1")
        memories.get_stats("1")
        memories.open_space("1", "1")
        memories.close_space("1")
        memories.list_grants()
    for request in asked:
        sent = json.loads(request.content) if request.content else dict(request.url.params)
        assert sent.keys() == CATALOGUE.methods[request.url.path.removeprefix("/xrpc/")].parameters.properties.keys()
    assert len(asked) == 8


def test_both_clients_have_the_same_methods_and_parameters() -> None:
    for name, method in inspect.getmembers(MemoryClient, inspect.isfunction):
        if not name.startswith("_"):
            twin = inspect.signature(getattr(AsyncMemoryClient, name))
            assert inspect.signature(method).parameters == twin.parameters, name
