"""Spaces that may not be read cost the same: nothing that the database is asked, and no row that it visits, tells one
from another.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlsplit

import asyncpg
import pytest

from appview.access import Access
from appview.faces.assistants.face import PREFIX as ASSISTANTS
from appview.faces.stores.endpoints import PREFIX as STORES
from appview.faces.xrpc import PREFIX
from appview.keys import Key
from appview.store.stores import StoreKey
from appview.tokens import AccessToken
from memory.database import Database, open_database
from memory.identifiers import COLLECTION
from memory.queries import Connection, Statement
from tests.api_client import NAMESPACE, NOW, Api
from tests.granted import HOUR, grant, hold
from tests.isolation import IDS, KEYS, VIEWERS
from tests.isolation_indexes import KNOWN
from tests.memory_rows import BOB, MemoryRows
from tests.service_tokens import ALGORITHMS, OWN_DID, SEARCH, claims, signed

# What is wrong with each: nobody ever opened it; it was not synced lately; its grant has ended; others read it, and the
# viewer's other app; its deletion is known, or was told and not acted on yet; nothing was written in it.
KINDS: Final = ("absent", "unindexed", "expired", "foreign", "deleted", "told", "empty")
SPACES: Final = {kind: f"at://did:plc:spaceaaaaaaaaaaaaaaaaaa/space/com.example.group/{kind}" for kind in KINDS}
READABLE: Final = "at://did:plc:spaceaaaaaaaaaaaaaaaaaa/space/com.example.group/own"
VIEWER: Final = VIEWERS[0]
RKEY: Final = "3kaaaaaaaaa2a"
CONNECTIONS: Final = 2
OF_IDS: Final = frozenset({"public_hash", "space_hash", "hash"})  # of whatever id was sent: nobody else knows them

CREDENTIALS: Final = ("access token", "service auth", "nobody")

Asked = tuple[str, str, Mapping[str, Any]]
Heard = tuple[str, str]


@pytest.fixture
async def database(database_url: str) -> AsyncGenerator[Database]:
    """Where Postgres goes to rows by indexes, as it does where there are many, so that it counts which ones."""
    admin = await asyncpg.connect(database_url)
    await admin.execute(f"alter database {urlsplit(database_url).path[1:]} set enable_seqscan = off")
    await admin.close()
    async with open_database(database_url, application_name="tests", connections=CONNECTIONS) as opened:
        yield opened


def named(space: str) -> list[Asked]:
    """Every way to name a Space, or what is in it."""
    uri = f"{space}/{BOB}/{COLLECTION}/{RKEY}"
    xrpc = PREFIX + NAMESPACE
    return [
        ("GET", f"{xrpc}listRecords", {"params": {"space": space}}),
        ("GET", f"{xrpc}listRecords", {"params": {"space": space, "repo": BOB, "order": "occurred"}}),
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


def by_ids(space: str) -> list[Asked]:
    """Every way to ask for it by an id: which nobody knows who was never shown it, but for one that is made up."""
    store = f"{STORES}memory_stores/{IDS.of_store(StoreKey(BOB, space))}"
    memory = IDS.of_memory(Key(BOB, space, RKEY))
    own = f"{STORES}memory_stores/{IDS.of_store(StoreKey(BOB, READABLE))}"
    return [
        ("GET", store, {}),
        ("GET", f"{store}/memories", {}),
        ("GET", f"{store}/memories/{memory}", {}),
        ("GET", f"{store}/memory_versions", {}),
        ("GET", f"{store}/memory_versions", {"params": {"memory_id": memory}}),
        ("GET", f"{store}/memory_versions/memver_{'0' * 32}", {}),
        ("GET", f"{own}/memories/{memory}", {}),
        ("GET", f"{own}/memories", {"params": {"after_id": memory}}),
        ("GET", f"{own}/memory_versions", {"params": {"memory_id": memory}}),
        ("GET", f"{STORES}memory_stores", {"params": {"after_id": store.rpartition("/")[2]}}),
        ("GET", f"{STORES}memory_stores/memstore_{sha256(f'{space}/{BOB}'.encode()).hexdigest()[:32]}", {}),
    ]


def asks(space: str) -> list[Asked]:
    return [*named(space), *by_ids(space)]


NAMES: Final = [f"{number} {path.split('/')[-1]}" for number, (_, path, _) in enumerate(asks(""))]


class Spy:
    """What the database was asked, by name and with all its parameters but the hashes of ids that were sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.heard: list[Heard] = []
        for name in ("fetch", "fetchrow", "fetchval", "execute"):
            monkeypatch.setattr(Statement, name, self._listening(getattr(Statement, name)))

    def _listening(self, run: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def listen(statement: Statement, conn: Connection, **parameters: object) -> Any:
            told = {name: value for name, value in parameters.items() if name not in OF_IDS}
            self.heard.append((statement.name, repr(sorted(told.items()))))
            return await run(statement, conn, **parameters)

        return listen


async def fill(database: Database) -> AccessToken:
    """A token that may read one Space, and none of the others."""
    rows = MemoryRows()
    for space in ("", READABLE, *(SPACES[kind] for kind in KINDS if kind not in ("absent", "empty"))):
        for number in range(5):
            rows.put(BOB, f"tea {number}", space=space, rkey=f"3kaaaaaaaaa2{'abcde'[number]}")
    await rows.write(database)
    granted = (SPACES[kind] for kind in ("unindexed", "deleted", "told"))
    token = await grant(database, VIEWER, READABLE, *granted, now=NOW)
    await grant(database, VIEWER, SPACES["expired"], now=NOW - 2 * HOUR, token=token)
    await grant(database, VIEWER, SPACES["foreign"], now=NOW)
    await grant(database, BOB, SPACES["foreign"], SPACES["empty"], now=NOW)
    await hold(database, READABLE, *(SPACES[kind] for kind in ("expired", "foreign", "told", "empty")))
    await hold(database, SPACES["unindexed"], fresh=False)
    await hold(database, SPACES["deleted"], state="deleted")
    async with database.transaction() as conn:
        authority = READABLE.split("/")[2]
        await conn.execute(
            "insert into space_inbox (repo, space, kind) values ($1, $2, 'deleted')", authority, SPACES["told"]
        )
    async with database.connection() as conn:
        # So that Postgres plans each statement alike, whenever it is asked.
        for row in await conn.fetch(
            "select relname from pg_class where relkind = 'r' and relnamespace = 'public'::regnamespace"
        ):
            await conn.execute(f"alter table {row['relname']} set (autovacuum_enabled = false)")
        await conn.execute("analyze")
    return token


def headers_of(credential: str, token: AccessToken, path: str) -> dict[str, str]:
    match credential:
        case "access token":
            text = token.text
        case "service auth":
            lxm = path.removeprefix(PREFIX) if path.startswith(PREFIX) else SEARCH
            text = signed(KEYS[VIEWER], ALGORITHMS["k256"], claims(VIEWER, NOW, lxm=lxm)).decode()
        case _:
            return {}
    return {"authorization": f"Bearer {text}"}


def api_on(database: Database) -> Api:
    return Api(database, access=Access(database, KNOWN, own_did=OWN_DID, clock=lambda: NOW))


async def send(api: Api, asked: Asked, headers: Mapping[str, str]) -> tuple[int, bytes]:
    verb, path, more = asked
    answer = await api.send(verb, path, **{**more, "headers": {**more.get("headers", {}), **headers}})
    return answer.status_code, answer.content.replace(answer.headers["request-id"].encode(), b"")


async def visits(database: Database) -> dict[str, tuple[int, ...]]:
    """How often each table and each index was gone through by now, and how many rows were visited in it."""
    async with AsyncExitStack() as stack:
        # Each connection tells of itself when it is idle.
        for conn in [await stack.enter_async_context(database.connection()) for _ in range(CONNECTIONS)]:
            await conn.fetchval("select pg_stat_force_next_flush()")
    async with database.connection() as conn:
        await conn.fetchval("select pg_stat_clear_snapshot()")
        tables = await conn.fetch(
            "select relname, coalesce(seq_scan, 0), coalesce(seq_tup_read, 0), coalesce(idx_scan, 0),"
            " coalesce(idx_tup_fetch, 0) from pg_stat_user_tables"
        )
        indexes = await conn.fetch(
            "select indexrelname, idx_scan, idx_tup_read, idx_tup_fetch from pg_stat_user_indexes"
        )
    return {row[0]: tuple(row)[1:] for row in (*tables, *indexes)}


async def visited(
    database: Database, ask: Callable[[], Awaitable[tuple[int, bytes]]]
) -> tuple[tuple[int, bytes], dict[str, tuple[int, ...]]]:
    """An answer, and what was visited for it."""
    before = await visits(database)
    answer = await ask()
    after = await visits(database)
    return answer, {
        name: tuple(now - then for now, then in zip(counts, before[name], strict=True))
        for name, counts in after.items()
        if counts != before[name]
    }


@pytest.mark.parametrize("credential", CREDENTIALS)
@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
async def test_same_is_asked_and_visited_whichever_space_is_meant(
    database: Database, monkeypatch: pytest.MonkeyPatch, number: int, credential: str
) -> None:
    """The same statements with the same parameters visit as many rows, and the same is answered."""
    token, api = await fill(database), api_on(database)
    for kind in KINDS:  # each connection learns the types of what it is asked, once
        await send(api, asks(SPACES[kind])[number], headers_of(credential, token, asks("")[number][1]))
    spy = Spy(monkeypatch)
    heard: dict[str, list[Heard]] = {}
    rows: dict[str, dict[str, tuple[int, ...]]] = {}
    answers: set[tuple[int, bytes]] = set()
    for kind in (*KINDS, *reversed(KINDS)):
        spy.heard = []
        asked = asks(SPACES[kind])[number]
        headers = headers_of(credential, token, asked[1])
        answer, went = await visited(database, lambda asked=asked, headers=headers: send(api, asked, headers))
        answers.add(answer)
        assert heard.setdefault(kind, spy.heard) == spy.heard
        assert rows.setdefault(kind, went) == went
    assert heard == dict.fromkeys(KINDS, heard["absent"])
    assert rows == dict.fromkeys(KINDS, rows["absent"])
    if credential == "access token":
        assert [name for name, _ in heard["absent"]][:2] == ["access_token", "readable_spaces"]
        assert rows["absent"]["grants"]
    assert len(answers) == 1
    [(status, _)] = answers
    assert status in (400, 403, 404)


async def test_what_may_be_read_is_asked_for_and_visited(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else all of that would hold of a server that answers nothing, or of one whose visits nobody counts."""
    token, api = await fill(database), api_on(database)
    spy = Spy(monkeypatch)
    for asked in named(READABLE):
        headers = headers_of("access token", token, asked[1])
        answer, went = await visited(database, lambda asked=asked, headers=headers: send(api, asked, headers))
        assert answer[0] == 200, answer
        assert b"tea" in answer[1]
        assert any(went["memories"])
    assert any(READABLE in parameters for _, parameters in spy.heard)
    for asked in by_ids(READABLE)[:5]:
        answer, went = await visited(
            database, lambda asked=asked: send(api, asked, headers_of("access token", token, asked[1]))
        )
        assert answer[0] == 200, answer
        assert any(went["repos"])
