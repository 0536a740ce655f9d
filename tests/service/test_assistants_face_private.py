"""The assistants' face: what a viewer may not read changes no byte; what they may read, they see."""

from __future__ import annotations

from typing import Any

import pytest

from appview.keys import Key, uri_of
from memory.database import Database
from tests.assistants_client import Assistant
from tests.memory_rows import ALICE, BOB, CAROL, SPACE, day, text
from tests.service.test_readable_spaces import (
    FIRST,
    FOURTH,
    OTHER_SPACE,
    SECOND,
    THIRD,
    add_hidden,
    add_unreadable,
    public_rows,
)


def memory(did: str, rkey: str, space: str = "") -> tuple[str, dict[str, Any]]:
    return "get-memory", {"id": uri_of(Key(did, space, rkey))}


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    memory(ALICE, FIRST),
    memory(ALICE, SECOND),
    memory(ALICE, THIRD),
    memory(ALICE, FOURTH),
    memory(BOB, FIRST),
    memory(CAROL, FIRST),
    memory(ALICE, FIRST, SPACE),
    memory(CAROL, FIRST, SPACE),
    ("list-memories", {"userId": ALICE}),
    ("list-memories", {"userId": "alice.test", "filters": {"includeSuperseded": True}}),
    ("list-memories", {"userId": ALICE, "appId": ""}),
    ("list-memories", {"userId": ALICE, "appId": SPACE}),
    ("list-memories", {"userId": ALICE, "limit": 1}),
    ("list-memories", {"userId": ALICE, "filters": {"asOf": text(day(3.5)), "includeSuperseded": True}}),
    ("list-memories", {"userId": CAROL}),
    ("list-memories", {"userId": ALICE, "agentId": "spy"}),
    ("list-memories", {"filters": {"repo": [ALICE, BOB, CAROL], "kind": "secret"}}),
    ("list-memories", {"filters": {"repo": [ALICE, BOB, CAROL]}}),
    ("search-memories", {"query": "green tea", "userId": ALICE}),
    ("search-memories", {"query": "green tea", "userId": ALICE, "appId": SPACE}),
    ("search-memories", {"query": "tea", "userId": ALICE, "topK": 1}),
    ("search-memories", {"query": "tea", "userId": BOB, "threshold": 0.5}),
    ("search-memories", {"query": "tea", "userId": CAROL}),
    ("search-memories", {"query": '"tea for" -two', "userId": BOB, "filters": {"includeSuperseded": True}}),
    ("search-memories", {"query": "tea", "filters": {"repo": [ALICE, BOB, CAROL]}}),
    ("search-memories", {"query": "tea", "filters": {"repo": [ALICE, BOB, CAROL], "asOf": text(day(3.5))}}),
]


async def answers(assistant: Assistant) -> list[tuple[int, dict[str, str], bytes]]:
    """Status, headers and body of every request; each has an id of its own."""
    gathered: list[tuple[int, dict[str, str], bytes]] = []
    for method, body in REQUESTS:
        response = await assistant.send(method, body)
        headers = {name: value for name, value in response.headers.items() if name != "request-id"}
        gathered.append((response.status_code, headers, response.content))
    return gathered


@pytest.mark.parametrize("did", [None, ALICE])
@pytest.mark.parametrize("readable", [frozenset[str](), frozenset({OTHER_SPACE + "2"})])
async def test_unreadable_rows_change_no_byte_of_any_answer(
    database: Database, did: str | None, readable: frozenset[str]
) -> None:
    assistant = Assistant(database, did=did, spaces=readable)
    await public_rows().write(database)
    before = await answers(assistant)
    rows = public_rows()
    add_unreadable(rows)
    add_unreadable(rows, OTHER_SPACE)
    await rows.write(database)
    for request, was, now in zip(REQUESTS, before, await answers(assistant), strict=True):
        assert now == was, request


async def test_repos_that_are_not_served_change_no_byte_of_any_answer(database: Database) -> None:
    assistant = Assistant(database)
    await public_rows().write(database)
    before = await answers(assistant)
    rows = public_rows()
    add_hidden(rows)
    rows.repo(ALICE, space=SPACE, visible=False)
    await rows.write(database)
    for request, was, now in zip(REQUESTS, before, await answers(assistant), strict=True):
        assert now == was, request


async def test_the_requests_would_be_answered_otherwise_by_who_may_read_the_space(database: Database) -> None:
    await public_rows().write(database)
    member = Assistant(database, did=ALICE, spaces=frozenset({SPACE}))
    before = await answers(member)
    rows = public_rows()
    add_unreadable(rows)
    await rows.write(database)
    changed = [was != now for was, now in zip(before, await answers(member), strict=True)]
    assert sum(changed) > len(REQUESTS) / 2
