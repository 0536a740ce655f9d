"""Spaces that may not be read cost the same: nothing that the database is asked tells one from another."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, cast

import pytest

from appview.access import Access
from appview.faces.assistants.face import PREFIX as ASSISTANTS
from appview.faces.xrpc import PREFIX
from appview.issuers import Issuers
from appview.tokens import AccessToken
from memory.database import Database
from memory.identifiers import COLLECTION
from memory.queries import Connection, Statement
from tests.api_client import NAMESPACE, NOW, Api
from tests.granted import HOUR, grant, hold
from tests.isolation_indexes import Known
from tests.memory_rows import ALICE, BOB, MemoryRows
from tests.service_tokens import OWN_DID

KINDS: Final = ("absent", "unindexed", "expired", "foreign")
SPACES: Final = {kind: f"at://did:plc:spaceaaaaaaaaaaaaaaaaaa/space/com.example.group/{kind}" for kind in KINDS}
READABLE: Final = "at://did:plc:spaceaaaaaaaaaaaaaaaaaa/space/com.example.group/own"

Asked = tuple[str, str, Mapping[str, Any]]


def asks(space: str) -> list[Asked]:
    """Every way to name a Space, or what is in it."""
    uri = f"{space}/{BOB}/{COLLECTION}/3kaaaaaaaaa2a"
    xrpc = PREFIX + NAMESPACE
    return [
        ("GET", f"{xrpc}listRecords", {"params": {"space": space}}),
        ("GET", f"{xrpc}listRecords", {"params": {"space": [READABLE, space]}}),
        ("GET", f"{xrpc}listRecords", {"params": {"space": space}, "headers": {"accept": "application/x-ndjson"}}),
        ("GET", f"{xrpc}searchRecords", {"params": {"q": "tea", "space": space}}),
        ("POST", f"{xrpc}searchRecords", {"json": {"q": "tea", "space": [space]}}),
        ("GET", f"{xrpc}searchRecords", {"params": {"q": "tea", "explainUri": uri}}),
        ("GET", f"{xrpc}getRecord", {"params": {"uri": uri}}),
        ("GET", f"{xrpc}getHistory", {"params": {"uri": uri}}),
        ("POST", f"{ASSISTANTS}get-memory", {"json": {"id": uri}}),
        ("POST", f"{ASSISTANTS}list-memories", {"json": {"userId": BOB, "appId": space}}),
        ("POST", f"{ASSISTANTS}search-memories", {"json": {"userId": BOB, "appId": space, "query": "tea"}}),
        ("POST", f"{ASSISTANTS}list-memories", {"json": {"userId": BOB, "filters": {"space": [space]}}}),
    ]


NAMES: Final = [f"{number} {path.rpartition('/')[2]}" for number, (_, path, _) in enumerate(asks(""))]


class Spy:
    """What the database was asked, by name and with all its parameters."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.heard: list[tuple[str, str]] = []
        for name in ("fetch", "fetchrow", "fetchval", "execute"):
            monkeypatch.setattr(Statement, name, self._listening(getattr(Statement, name)))

    def _listening(self, run: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def listen(statement: Statement, conn: Connection, **parameters: object) -> Any:
            self.heard.append((statement.name, repr(sorted(parameters.items()))))
            return await run(statement, conn, **parameters)

        return listen


async def fill(database: Database) -> AccessToken:
    """A token that may read one Space, and none of the four."""
    rows = MemoryRows()
    for space in ("", READABLE, *(SPACES[kind] for kind in KINDS if kind != "absent")):
        for number in range(5):
            rows.put(BOB, f"tea {number}", space=space, rkey=f"3kaaaaaaaaa2{'abcde'[number]}")
    await rows.write(database)
    token = await grant(database, ALICE, READABLE, SPACES["unindexed"], now=NOW)
    await grant(database, ALICE, SPACES["expired"], now=NOW - 2 * HOUR, token=token)
    await grant(database, ALICE, SPACES["foreign"], now=NOW)
    await grant(database, BOB, SPACES["foreign"], now=NOW)
    await hold(database, READABLE, SPACES["expired"], SPACES["foreign"])
    await hold(database, SPACES["unindexed"], fresh=False)
    return token


@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
async def test_same_is_asked_of_the_database_whichever_space_is_meant(
    database: Database, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """The same statements with the same parameters visit the same rows."""
    token = await fill(database)
    access = Access(database, cast("Issuers", Known()), own_did=OWN_DID, clock=lambda: NOW)
    api = Api(database, access=access)
    spy = Spy(monkeypatch)
    heard: dict[str, list[tuple[str, str]]] = {}
    answers: set[tuple[int, bytes]] = set()
    for kind in (*KINDS, *KINDS):
        spy.heard = []
        verb, path, more = asks(SPACES[kind])[number]
        headers = {"authorization": f"Bearer {token.text}", **more.get("headers", {})}
        answer = await api.send(verb, path, **{**more, "headers": headers})
        answers.add((answer.status_code, answer.content))
        assert heard.setdefault(kind, spy.heard) == spy.heard
    assert heard == dict.fromkeys(KINDS, heard["absent"])
    assert [name for name, _ in heard["absent"]][:2] == ["access_token", "readable_spaces"]
    assert len(answers) == 1
    [(status, _)] = answers
    assert status in (400, 403)


async def test_what_may_be_read_is_asked_for(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all of that would hold of a server that answers nothing."""
    token = await fill(database)
    access = Access(database, cast("Issuers", Known()), own_did=OWN_DID, clock=lambda: NOW)
    spy = Spy(monkeypatch)
    for verb, path, more in asks(READABLE):
        headers = {"authorization": f"Bearer {token.text}", **more.get("headers", {})}
        answer = await Api(database, access=access).send(verb, path, **{**more, "headers": headers})
        assert answer.status_code == 200, answer.text
        assert b"tea" in answer.content
    assert any(READABLE in parameters for _, parameters in spy.heard)
