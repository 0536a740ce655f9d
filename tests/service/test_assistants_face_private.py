"""The assistants' face: what a viewer may not read changes no byte; what they may read, they see."""

from __future__ import annotations

from typing import Any

import pytest

from appview.keys import Key, uri_of
from memory.database import Database
from tests.assistants_client import Assistant
from tests.memory_rows import ALICE, BOB, CAROL, SPACE, day, text
from tests.private_rows import (
    FIRST,
    FOURTH,
    OTHER_SPACE,
    SECOND,
    THIRD,
    Answer,
    answer_of,
    changed_answers,
    rows_and_hidden,
    rows_and_unreadable,
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


async def answers(assistant: Assistant) -> list[Answer]:
    """What each request is answered."""
    return [answer_of(await assistant.send(method, body)) for method, body in REQUESTS]


@pytest.mark.parametrize("did", [None, ALICE])
@pytest.mark.parametrize("readable", [frozenset[str](), frozenset({OTHER_SPACE + "2"})])
async def test_unreadable_rows_change_no_byte_of_any_answer(
    database: Database, did: str | None, readable: frozenset[str]
) -> None:
    assistant = Assistant(database, did=did, spaces=readable)
    changed = await changed_answers(database, rows_and_unreadable(), lambda: answers(assistant))
    assert [REQUESTS[place] for place in changed] == []


async def test_repos_that_are_not_served_change_no_byte_of_any_answer(database: Database) -> None:
    assistant = Assistant(database)
    changed = await changed_answers(database, rows_and_hidden(), lambda: answers(assistant))
    assert [REQUESTS[place] for place in changed] == []


async def test_the_requests_would_be_answered_otherwise_by_who_may_read_the_space(database: Database) -> None:
    member = Assistant(database, did=ALICE, spaces=frozenset({SPACE}))
    changed = await changed_answers(database, rows_and_unreadable(SPACE), lambda: answers(member))
    assert len(changed) > len(REQUESTS) / 2
