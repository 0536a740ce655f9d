"""Access tokens from their making to their end: over HTTP, with really signed service auth."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

import appview.store
from appview.access import Access
from appview.faces.xrpc import PREFIX
from appview.issuers import Issuers, LookUpBudget
from appview.store.access import MAX_ACCESS_TOKENS, add_access_token
from appview.tokens import make_access_token
from memory.database import Database
from memory.queries import load_queries
from tests.api_client import NAMESPACE, Api, Refused, checked, refused
from tests.builders import SigningKey
from tests.fakes.directory import document
from tests.fakes.identities import MARA, NOOR, PDS, START, World, world_at
from tests.memory_rows import ALICE, MemoryRows
from tests.service_tokens import ALGORITHMS, OWN_DID, Curve, claims, signed

STATEMENTS = Path(appview.store.__file__).parent / "sql" / "access.sql"
KEYS: dict[str, tuple[Curve, SigningKey]] = {
    MARA: ("k256", SigningKey("mara")),
    NOOR: ("p256", SigningKey("noor", "p256")),
}


class Client:
    """Mara's and Noor's apps."""

    def __init__(self, world: World, database: Database) -> None:
        self.world = world
        self.database = database
        self.calls = 0
        for did, (_, key) in KEYS.items():
            world.fake.documents[did] = document(did, handle="x.example", pds=PDS, key=key.did_key)

    @property
    def api(self) -> Api:
        """The API as it is at this time."""
        issuers = Issuers(self.world.resolver, LookUpBudget(lambda: 0.0))
        access = Access(self.database, issuers, own_did=OWN_DID, clock=self.world.clock)
        return Api(self.database, now=self.world.clock(), access=access)

    def service_auth(self, method: str, did: str = MARA) -> str:
        self.calls += 1
        curve, key = KEYS[did]
        said = claims(did, self.world.clock(), lxm=NAMESPACE + method, jti=f"call {self.calls}")
        return signed(key, ALGORITHMS[curve], said).decode()

    async def send(self, method: str, credential: str | None, body: dict[str, Any] | None = None) -> httpx.Response:
        """A POST if there is a body, with that credential."""
        headers = {} if credential is None else {"authorization": f"Bearer {credential}"}
        more: dict[str, Any] = {} if body is None else {"json": body}
        verb = "GET" if body is None else "POST"
        return await self.api.send(verb, PREFIX + NAMESPACE + method, headers=headers, **more)

    async def ask(self, method: str, body: dict[str, Any] | None = None, did: str = MARA) -> dict[str, Any]:
        response = await self.send(method, self.service_auth(method, did), body)
        assert response.status_code == 200, response.text
        return checked(method, response)

    async def refuse(self, method: str, body: dict[str, Any] | None = None, did: str = MARA) -> Refused:
        return refused(await self.send(method, self.service_auth(method, did), body))

    async def create(self, did: str = MARA, **body: Any) -> dict[str, Any]:
        return await self.ask("createAccessToken", {"name": "a laptop", **body}, did)

    async def reads(self, token: str) -> int:
        return (await self.send("listRecords", token)).status_code

    async def names(self, did: str = MARA) -> list[str]:
        return [token["name"] for token in (await self.ask("listAccessTokens", did=did))["tokens"]]


@pytest.fixture
async def client(database: Database) -> AsyncGenerator[Client]:
    async with world_at(database) as world:
        yield Client(world, database)


async def test_token_reads_until_it_expires(client: Client):
    made = await client.create(expiresInDays=2)
    assert made["token"]["createdAt"] == "2026-03-01T12:00:00.000000Z"
    assert made["token"]["expiresAt"] == "2026-03-03T12:00:00.000000Z"
    assert await client.reads(made["accessToken"]) == 200
    client.world.wait(timedelta(days=2) - timedelta(microseconds=1))
    assert await client.reads(made["accessToken"]) == 200
    client.world.wait(timedelta(microseconds=1))
    assert refused(await client.send("listRecords", made["accessToken"])).error == "InvalidToken"
    assert await client.names() == []


async def test_token_holds_for_thirty_days_unless_something_else_is_asked(client: Client):
    assert (await client.create())["token"]["expiresAt"] == "2026-03-31T12:00:00.000000Z"
    assert (await client.create(expiresInDays=90))["token"]["expiresAt"] == "2026-05-30T12:00:00.000000Z"


async def test_token_that_is_revoked_ends_at_once_and_alone(client: Client):
    first, second = await client.create(name="first"), await client.create(name="second")
    assert await client.ask("revokeAccessToken", {"id": first["token"]["id"]}) == {}
    assert await client.reads(first["accessToken"]) == 401
    assert await client.reads(second["accessToken"]) == 200
    assert await client.names() == ["second"]
    again = await client.refuse("revokeAccessToken", {"id": first["token"]["id"]})
    assert (again.status, again.error) == (400, "AccessTokenNotFound")


async def test_list_tells_all_but_the_tokens_newest_first(client: Client):
    made: list[dict[str, Any]] = []
    for name in ("first", "second", "第三"):
        client.world.wait(timedelta(seconds=1))
        made.append(await client.create(name=name))
    response = await client.send("listAccessTokens", client.service_auth("listAccessTokens"))
    assert response.json()["tokens"] == [each["token"] for each in reversed(made)]
    assert not any(each["accessToken"] in response.text for each in made)


async def test_tokens_of_one_viewer_are_nobody_elses(client: Client):
    made = await client.create()
    assert await client.names(NOOR) == []
    other = await client.refuse("revokeAccessToken", {"id": made["token"]["id"]}, NOOR)
    assert other.error == "AccessTokenNotFound"
    assert await client.reads(made["accessToken"]) == 200


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("createAccessToken", {"name": "another"}),
        ("listAccessTokens", None),
        ("revokeAccessToken", {"id": "x"}),
    ],
)
async def test_access_token_makes_sees_and_ends_none(client: Client, method: str, body: dict[str, Any] | None):
    token = (await client.create())["accessToken"]
    answer = refused(await client.send(method, token, body))
    assert (answer.status, answer.error) == (403, "ServiceAuthRequired")
    nobody = refused(await client.send(method, None, body))
    assert (nobody.status, nobody.error) == (401, "AuthenticationRequired")
    assert await client.names() == ["a laptop"]


async def test_service_auth_makes_one_token_a_time(client: Client):
    credential = client.service_auth("createAccessToken")
    assert (await client.send("createAccessToken", credential, {"name": "x"})).status_code == 200
    again = refused(await client.send("createAccessToken", credential, {"name": "x"}))
    assert (again.status, again.error) == (401, "JwtReplayed")
    assert await client.names() == ["x"]


async def test_service_auth_for_one_method_is_for_no_other(client: Client):
    answer = refused(await client.send("createAccessToken", client.service_auth("searchRecords"), {"name": "x"}))
    assert answer.error == "BadJwtLexiconMethod"
    assert await client.names() == []


@pytest.mark.parametrize(
    "body",
    [
        {"name": ""},
        {"name": "x" * 101},
        {"name": "👩‍👩‍👧‍👦" * 101},
        {"name": "👩‍👩‍👧‍👦" * 60},
        {"name": "a\0b"},
        {"name": 5},
        {"name": None},
        {"name": ["x"]},
        {"name": "x", "expiresInDays": 0},
        {"name": "x", "expiresInDays": 91},
        {"name": "x", "expiresInDays": 10**30},
        {"name": "x", "expiresInDays": 1.5},
        {"name": "x", "expiresInDays": True},
        {"name": "x", "expiresInDays": "30"},
        {"name": "x", "scope": "all"},
        {"expiresInDays": 30},
        {},
    ],
)
async def test_token_that_is_asked_for_wrongly_is_not_made(client: Client, body: dict[str, Any]):
    answer = await client.refuse("createAccessToken", body)
    assert (answer.status, answer.error) == (400, "InvalidRequest")
    assert await client.names() == []


async def test_procedure_is_posted(client: Client):
    got = await client.send("createAccessToken", client.service_auth("createAccessToken"))
    assert (refused(got).status, got.headers["allow"]) == (405, "POST")
    posted = await client.send("listAccessTokens", client.service_auth("listAccessTokens"), {})
    assert (refused(posted).status, posted.headers["allow"]) == (405, "GET, HEAD")


async def test_name_has_a_hundred_characters_as_people_count_them(client: Client):
    name = "é" * 50 + "日" * 50
    assert (await client.create(name=name))["token"]["name"] == name


async def test_viewer_has_a_bounded_number_of_tokens(client: Client):
    for _ in range(MAX_ACCESS_TOKENS - 1):
        await client.create()
    outcomes = await asyncio.gather(
        *(client.send("createAccessToken", client.service_auth("createAccessToken"), {"name": "x"}) for _ in range(8))
    )
    assert sorted(outcome.status_code for outcome in outcomes) == [200] + [400] * 7
    assert {refused(outcome).error for outcome in outcomes if outcome.status_code == 400} == {"TooManyAccessTokens"}
    assert len(await client.names()) == MAX_ACCESS_TOKENS
    assert (await client.create(NOOR))["token"]["name"] == "a laptop"
    client.world.wait(timedelta(days=30))
    assert (await client.create(name="when the others have expired"))["token"]["id"]


async def test_nothing_of_a_token_is_kept_but_its_id_and_a_hash(client: Client, database: Database):
    made = await client.create()
    async with database.connection() as conn:
        [row] = await conn.fetch("select access_tokens::text as whole, * from access_tokens")
    assert row["repo"] == MARA
    assert row["id"] == made["token"]["id"]
    assert len(row["token_sha256"]) == 32
    secret = made["accessToken"].removeprefix("memat_")
    assert not any(secret[at : at + 12] in row["whole"] for at in range(len(secret) - 12))


async def test_token_that_was_made_up_with_a_known_id_is_refused(client: Client, database: Database):
    kept = make_access_token(MARA, lambda count: b"a" * count)
    forged = make_access_token(MARA, lambda count: (b"a" if count == 12 else b"b") * count)
    assert kept.id == forged.id
    async with database.transaction() as conn:
        await add_access_token(conn, kept, "x", created_at=START, expires_at=START + timedelta(days=1))
    assert await client.reads(kept.text) == 200
    assert refused(await client.send("listRecords", forged.text)).error == "InvalidToken"


async def test_token_asks_nobody(client: Client):
    token = (await client.create())["accessToken"]
    before = len(client.world.fake.asked)
    client.world.wait(timedelta(days=3))
    assert await client.reads(token) == 200
    assert await client.reads(make_access_token("did:web:slow.example").text) == 401
    assert len(client.world.fake.asked) == before


async def test_page_cursor_is_good_for_the_token_that_it_was_made_for(client: Client, database: Database):
    rows = MemoryRows()
    for number in range(3):
        rows.put(ALICE, f"tea {number}")
    await rows.write(database)
    first, second = await client.create(), await client.create()

    async def page(token: str, query: str) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}"}
        return await client.api.send("GET", f"{PREFIX}{NAMESPACE}listRecords?limit=1{query}", headers=headers)

    client.world.wait(timedelta(days=20))
    cursor = (await page(first["accessToken"], "")).json()["cursor"]
    assert (await page(first["accessToken"], f"&cursor={cursor}")).status_code == 200
    assert refused(await page(second["accessToken"], f"&cursor={cursor}")).error == "InvalidCursor"


async def test_look_up_of_a_token_is_one_probe_of_the_primary_key(client: Client, database: Database):
    async with database.transaction() as conn:
        await conn.execute(
            "insert into access_tokens select 'did:plc:' || i / 50, i::text, sha256(i::text::bytea), 'x', now(), now() "
            "from generate_series(1, 20000) i"
        )
    [statement] = (each for each in load_queries(STATEMENTS) if each.name == "access_token")
    assert statement.parameters == ("repo", "id")
    async with database.connection() as conn:
        await conn.execute("analyze access_tokens")
        await conn.execute(f"prepare planned as {statement.sql}")
        rows = await conn.fetch("explain execute planned('did:plc:7', '351')")
    plan = "\n".join(row[0] for row in rows)
    assert "Index Scan using access_tokens_pkey" in plan, plan
    assert "Seq Scan" not in plan
