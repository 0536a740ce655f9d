"""What all faces share: who asks, how often, and what every answer tells beside its body."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import httpx
import pytest

from appview.access import Access, Credential, Viewer
from appview.issuers import Issuers
from appview.refusals import InvalidToken
from appview.service import App
from appview.tokens import AccessToken, make_access_token
from memory.database import Database
from memory.space import ReadableSpaces
from tests.api_client import NAMESPACE, NOW, Api, refused
from tests.memory_rows import ALICE, BOB, MemoryRows

SPACE = "at://did:plc:aaaaaaaaaaaaaaaaaaaaaaaa/space/com.example.team/notes"
LIST = f"/xrpc/{NAMESPACE}listRecords"
SIGNED_IN = {"authorization": "Bearer token"}
NOBODY_ELSE = ReadableSpaces.public_only()


def anna(*spaces: str) -> Viewer:
    return Viewer(ALICE, ReadableSpaces(frozenset(spaces)), ALICE)


def refusing_all(database: Database) -> Access:
    """Nobody has a credential that holds; nobody is looked up."""
    return Access(database, cast("Issuers", None), own_did="did:web:memory.test", clock=lambda: NOW)


async def ask(api: Api, path: str, *, host: str = "203.0.113.7", **headers: str) -> httpx.Response:
    """One request from somewhere on the network."""
    transport = httpx.ASGITransport(app=api.app, client=(host, 4))
    async with httpx.AsyncClient(transport=transport, base_url="http://api.test") as client:
        return await client.get(path, headers=headers)


async def test_every_answer_has_an_id_of_its_own(database: Database) -> None:
    api = Api(database)
    ids = {(await api.send("GET", path)).headers["request-id"] for path in (LIST, LIST, "/xrpc/unknown")}
    assert len(ids) == 3


async def test_credentials_that_do_not_hold_are_never_taken_for_none(database: Database) -> None:
    response = await Api(database).send("GET", LIST, headers=SIGNED_IN)
    assert (refused(response).status, refused(response).error) == (401, "AuthenticationRequired")
    assert response.headers["www-authenticate"] == "Bearer"


async def test_two_credentials_are_refused(database: Database) -> None:
    api = Api(database, access=refusing_all(database))
    for first in ("Bearer a", ""):
        response = await api.send("GET", LIST, headers=[("authorization", first), ("authorization", "Bearer b")])
        assert (refused(response).status, refused(response).error) == (400, "InvalidRequest")


async def test_empty_credentials_are_not_taken_for_none(database: Database) -> None:
    for empty in ("", "  "):
        response = await Api(database, access=refusing_all(database)).send(
            "GET", LIST, headers={"authorization": empty}
        )
        assert (refused(response).status, refused(response).error) == (401, "AuthenticationRequired")


async def test_strangers_are_limited_by_network_and_told_so(database: Database) -> None:
    api = Api(database, rate_limit=2)
    left = [(await ask(api, LIST)).headers["ratelimit-remaining"] for _ in range(2)]
    assert left == ["1", "0"]
    response = await ask(api, LIST)
    assert (refused(response).status, refused(response).error) == (429, "RateLimitExceeded")
    assert response.headers["retry-after"] == "300"
    assert (await ask(api, LIST, host="203.0.113.8")).status_code == 200


async def test_the_signed_in_are_limited_by_themselves(database: Database) -> None:
    api = Api(database, rate_limit=1, viewer=anna())
    assert (await ask(api, LIST)).status_code == 200
    assert (await ask(api, LIST)).status_code == 429
    assert (await ask(api, LIST, **SIGNED_IN)).status_code == 200
    assert (await ask(api, LIST, host="203.0.113.8", **SIGNED_IN)).status_code == 429


async def test_credentials_that_do_not_hold_are_limited_too(database: Database) -> None:
    api = Api(database, rate_limit=2)
    statuses = [(await ask(api, LIST, **SIGNED_IN)).status_code for _ in range(3)]
    assert statuses == [401, 401, 429]
    assert (await ask(api, LIST)).status_code == 200


async def test_this_machine_is_not_limited(database: Database) -> None:
    api = Api(database, rate_limit=1)
    responses = [await ask(api, LIST, host="127.0.0.1") for _ in range(3)]
    assert [response.status_code for response in responses] == [200] * 3
    assert "ratelimit-limit" not in responses[0].headers


async def test_answers_to_the_signed_in_are_kept_by_nobody_else(database: Database) -> None:
    api = Api(database, viewer=anna())
    assert (await api.send("GET", LIST, headers=SIGNED_IN)).headers["cache-control"] == "private"
    response = await api.send("GET", LIST)
    assert "cache-control" not in response.headers
    assert "Authorization" in response.headers["vary"]


@pytest.mark.parametrize(("spaces", "coding"), [((), "zstd"), ((SPACE,), None)])
async def test_what_may_be_private_is_never_compressed(
    database: Database, spaces: tuple[str, ...], coding: str | None
) -> None:
    rows = MemoryRows()
    for number in range(30):
        rows.put(ALICE, f"tea number {number}")
    await rows.write(database)
    response = await Api(database, viewer=anna(*spaces)).send("GET", LIST, headers=SIGNED_IN)
    assert response.headers.get("content-encoding") == coding


async def test_viewers_learn_how_far_their_own_repo_is_indexed(database: Database) -> None:
    rows = MemoryRows()
    rows.put(ALICE, "tea")
    await rows.write(database)
    async with database.connection() as conn:
        await conn.execute("update repos set rev = '3kabcdefghi2z' where repo = $1", ALICE)
    api = Api(database, viewer=anna())
    assert (await api.send("GET", LIST, headers=SIGNED_IN)).headers["atproto-repo-rev"] == "3kabcdefghi2z"
    assert "atproto-repo-rev" not in (await api.send("GET", LIST)).headers
    stranger = Api(database, viewer=Viewer("did:web:x.test", NOBODY_ELSE, "did:web:x.test"))
    assert "atproto-repo-rev" not in (await stranger.send("GET", LIST, headers=SIGNED_IN)).headers


async def test_what_is_known_is_not_sent_again_but_its_headers_are(database: Database) -> None:
    api = Api(database, rate_limit=9)
    tag = (await ask(api, LIST)).headers["etag"]
    response = await ask(api, LIST, **{"if-none-match": tag})
    assert (response.status_code, response.content) == (304, b"")
    assert response.headers["ratelimit-remaining"] == "7"
    assert response.headers["access-control-allow-origin"] == "*"


class AliceOnly:
    """Tokens hold that say they are Alice's."""

    def __init__(self) -> None:
        self.judged: list[str] = []

    async def viewer(self, credential: Credential, address: str, lxm: str, *, acts: bool) -> Viewer:
        token = credential.shown
        assert isinstance(token, AccessToken)
        self.judged.append(token.did)
        if token.did != ALICE:
            raise InvalidToken
        return anna()


def token_of(did: str) -> dict[str, str]:
    return {"authorization": f"Bearer {make_access_token(did).text}"}


async def test_refusals_of_one_account_lock_out_nobody_who_asks_through_the_same_pds(database: Database) -> None:
    door = AliceOnly()
    api = Api(database, rate_limit=100, access=cast("Access", door))
    statuses = [(await ask(api, LIST, **token_of(BOB))).status_code for _ in range(120)]
    assert statuses == [401] * 10 + [429] * 110
    assert door.judged == [BOB] * 10
    assert (await ask(api, LIST, **token_of(ALICE))).status_code == 200


async def test_refusals_of_many_accounts_are_limited_by_network(database: Database) -> None:
    api = Api(database, rate_limit=5, access=cast("Access", AliceOnly()))
    statuses = [(await ask(api, LIST, **token_of(f"did:web:{n}.test"))).status_code for n in range(7)]
    assert statuses == [401] * 5 + [429] * 2


async def test_requests_with_two_credentials_are_counted_for_whom_the_first_names(database: Database) -> None:
    api = Api(database, rate_limit=100, access=refusing_all(database))
    doubled = [*token_of(BOB).items(), *token_of(ALICE).items()]
    transport = httpx.ASGITransport(app=api.app, client=("203.0.113.7", 4))
    async with httpx.AsyncClient(transport=transport, base_url="http://api.test") as client:
        responses = [await client.get(LIST, headers=doubled) for _ in range(12)]
    assert [response.status_code for response in responses] == [400] * 10 + [429] * 2
    assert [response.headers["ratelimit-remaining"] for response in responses[:3]] == ["99", "98", "97"]
    answers = cast("App", api.app).metrics.answers
    assert [answers.labels(f"{NAMESPACE}listRecords", status)._value.get() for status in (400, 429)] == [10, 2]


class AnyDid:
    """All tokens hold."""

    def __init__(self) -> None:
        self.judged = 0

    async def viewer(self, credential: Credential, address: str, lxm: str, *, acts: bool) -> Viewer:
        did = credential.claimed_did
        assert did is not None
        self.judged += 1
        return Viewer(did, NOBODY_ELSE, did)


def did_number(number: int) -> str:
    return f"did:web:n{number}.test"


async def test_many_accounts_of_one_network_are_limited_together(database: Database) -> None:
    door = AnyDid()
    api = Api(database, rate_limit=2, access=cast("Access", door))
    statuses = [(await ask(api, LIST, **token_of(did_number(n)))).status_code for n in range(22)]
    assert statuses == [200] * 20 + [429] * 2
    assert door.judged == 20  # who is refused is not looked at
    refusal = await ask(api, LIST, **token_of(did_number(50)))
    assert (refusal.headers["ratelimit-limit"], refusal.headers["ratelimit-remaining"]) == ("20", "0")
    assert refusal.headers["retry-after"] == "300"
    # The same accounts elsewhere, and whoever is not signed in there, have what they had.
    assert (await ask(api, LIST, host="203.0.113.8", **token_of(did_number(0)))).status_code == 200
    assert (await ask(api, LIST)).status_code == 200


async def test_who_is_refused_for_others_sake_keeps_a_limit_of_their_own(database: Database) -> None:
    api = Api(database, rate_limit=2, access=cast("Access", AnyDid()))
    for number in range(20):
        await ask(api, LIST, **token_of(did_number(number)))
    for _ in range(5):
        assert (await ask(api, LIST, **token_of(ALICE))).status_code == 429
    elsewhere = [(await ask(api, LIST, host="203.0.113.8", **token_of(ALICE))).status_code for _ in range(3)]
    assert elsewhere == [200, 200, 429]


async def test_who_is_beyond_their_own_limit_takes_nothing_from_their_neighbours(database: Database) -> None:
    api = Api(database, rate_limit=2, access=cast("Access", AnyDid()))
    statuses = [(await ask(api, LIST, **token_of(ALICE))).status_code for _ in range(40)]
    assert statuses == [200] * 2 + [429] * 38
    others = [(await ask(api, LIST, **token_of(did_number(n)))).status_code for n in range(19)]
    assert others == [200] * 18 + [429]


async def test_signed_in_are_told_whichever_limit_is_nearer(database: Database) -> None:
    api = Api(database, rate_limit=3, access=cast("Access", AnyDid()))
    told = [(await ask(api, LIST, **token_of(did_number(n)))).headers for n in range(30)]
    left = [(headers["ratelimit-limit"], headers["ratelimit-remaining"]) for headers in told]
    assert left[:28] == [("3", "2")] * 28
    assert left[28:] == [("30", "1"), ("30", "0")]


async def test_many_accounts_of_one_network_have_so_many_answers_under_way(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appview.rates.MAX_AT_ONCE", 1)
    api = Api(database, rate_limit=9, access=cast("Access", AnyDid()))
    slow = [Reader(api, **token_of(did_number(n))) for n in range(5)]
    for each in slow:
        await each.begun.wait()
    refusal = await ask(api, LIST, **token_of(ALICE))
    assert (refused(refusal).status, refusal.headers["retry-after"]) == (429, "1")
    assert (await ask(api, LIST, host="203.0.113.8", **token_of(ALICE))).status_code == 200
    assert [await each.read_all() for each in slow] == [200] * 5
    assert (await ask(api, LIST, **token_of(ALICE))).status_code == 200


async def test_who_is_beyond_the_limit_is_not_looked_at(database: Database) -> None:
    door = AliceOnly()
    api = Api(database, rate_limit=1, access=cast("Access", door))
    statuses = [(await ask(api, LIST, **token_of(ALICE))).status_code for _ in range(3)]
    assert (statuses, door.judged) == ([200, 429, 429], [ALICE])


async def test_answers_with_secrets_are_kept_by_nobody(database: Database) -> None:
    api = Api(database, viewer=anna())
    path = f"/xrpc/{NAMESPACE}createAccessToken"
    response = await api.send("POST", path, json={"name": "tea", "expiresInDays": 1}, headers=SIGNED_IN)
    assert (response.status_code, response.headers["cache-control"]) == (200, "private, no-store")


class Reader:
    """A client that reads a piece of an answer when it is told to."""

    def __init__(self, api: Api, host: str = "203.0.113.7", **headers: str) -> None:
        self.messages: list[Any] = []
        self.begun = asyncio.Event()
        self.reads = asyncio.Semaphore(0)
        pairs = [(name.encode(), text.encode()) for name, text in headers.items()]
        scope = {
            "type": "http",
            "method": "GET",
            "path": LIST,
            "query_string": b"",
            "headers": pairs,
            "client": (host, 4),
        }
        self.answering = asyncio.ensure_future(api.app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, object]:
        return {"type": "http.request", "body": b""}

    async def _send(self, message: Any) -> None:
        self.messages.append(message)
        self.begun.set()
        await self.reads.acquire()

    async def read_all(self) -> int:
        """The status of the answer, when all of it is read."""
        for _ in range(1000):
            self.reads.release()
        await self.answering
        return self.messages[0]["status"]


async def test_one_client_has_so_many_answers_under_way(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appview.rates.MAX_AT_ONCE", 1)
    api = Api(database, rate_limit=9)
    slow = Reader(api)
    await slow.begun.wait()
    refusal = await ask(api, LIST)
    assert (refused(refusal).status, refusal.headers["retry-after"]) == (429, "1")
    assert (await ask(api, LIST, host="203.0.113.8")).status_code == 200
    assert await slow.read_all() == 200
    assert (await ask(api, LIST)).status_code == 200


async def test_answer_that_breaks_off_is_not_under_way(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appview.rates.MAX_AT_ONCE", 1)
    api = Api(database, rate_limit=9)
    slow = Reader(api)
    await slow.begun.wait()
    slow.answering.cancel()
    await asyncio.wait([slow.answering])
    assert (await ask(api, LIST)).status_code == 200


async def test_large_answer_is_sent_as_it_is_read(database: Database) -> None:
    rows = MemoryRows()
    for number in range(4):
        rows.put(ALICE, str(number), padding="x" * 400_000)
    await rows.write(database)
    slow = Reader(Api(database))
    assert await slow.read_all() == 200
    bodies = [message["body"] for message in slow.messages[1:]]
    assert max(map(len, bodies)) == 131_072
    assert [message.get("more_body", False) for message in slow.messages[1:]] == [True] * (len(bodies) - 1) + [False]
    [length] = [int(value) for name, value in slow.messages[0]["headers"] if name == b"content-length"]
    assert sum(map(len, bodies)) == length > 1_600_000
