"""Clients that know nothing of us read the index: an app through its user's PDS, curl, any HTTP or OpenAPI client."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import textwrap
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, Generator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
import schemathesis

from indexer.store import leases
from memory.database import Database
from memory.identifiers import COLLECTION, NAMESPACE
from tests.builders import memory
from tests.e2e.accounts import Account, new_account
from tests.e2e.api import Service, ask_as_app, ask_by_oauth, serving
from tests.e2e.conftest import network_or_skipped
from tests.e2e.daemon import Daemon, environment, until
from tests.e2e.node import ROOT
from tests.e2e.servers import Network
from tests.openapi_client import Answered, Asked, OpenApiClient
from tests.proof import not_proven

GET: Final = f"/xrpc/{NAMESPACE}getRecord"


SEARCH: Final = f"/xrpc/{NAMESPACE}searchRecords"
LIST: Final = f"/xrpc/{NAMESPACE}listRecords"
CREATE: Final = f"/xrpc/{NAMESPACE}createAccessToken"


def commands_of(document: str) -> list[str]:
    """What stands indented in a document of ours, block by block."""
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", (ROOT / "docs" / document).read_text(), re.MULTILINE)
    return [textwrap.dedent(block).strip() for block in blocks]


def shown(answer: Any) -> list[str]:
    """The at-uris of a page."""
    return [record["uri"] for record in answer["records"]]


def json_values(text: str) -> list[Any]:
    """JSON values with or without space between them."""
    decoder, values = json.JSONDecoder(), list[Any]()
    while text := text.strip():
        value, end = decoder.raw_decode(text)
        values.append(value)
        text = text[end:]
    return values


def uri_of(account: Account, rkey: str) -> str:
    return f"at://{account.did}/{COLLECTION}/{rkey}"


@pytest.fixture(scope="module")
def open_network(tmp_path_factory: pytest.TempPathFactory) -> Generator[Network]:
    """Two PDSes that are met without a proxy between."""
    with network_or_skipped(tmp_path_factory.mktemp("open-network"), behind_proxies=False) as running:
        yield running


@dataclass(frozen=True, slots=True)
class Index:
    """A daemon and the API beside it, and the PDSes that they follow."""

    network: Network
    service: Service

    async def account(self, pds: int = 0) -> Account:
        """Someone new at one of the PDSes."""
        return await new_account(self.network.pdses[pds])

    async def shows(self, account: Account, rkey: str) -> str:
        """Waits until anybody sees a memory; its at-uri."""
        uri = uri_of(account, rkey)

        async def is_shown() -> bool:
            async with self.service.client() as client:
                return (await client.get(GET, params={"uri": uri})).is_success

        await until(is_shown, f"{uri} in the index")
        return uri

    async def told(self, token: str, path: str, body: object = None) -> tuple[int, str | None]:
        """The status, and the name of the error, of a request with a credential."""
        async with self.service.client(token) as client:
            answer = await (client.get(path) if body is None else client.post(path, json=body))
        return answer.status_code, answer.json().get("error")

    async def run(self, account: Account, *commands: str, **variables: str) -> list[Any]:
        """What commands of the documents print, with this service and the account's PDS for those that they name."""
        text = "\n".join(["set -euo pipefail", *commands])
        for name, here in (
            ("did:web:memory.example", self.service.did),
            ("https://memory.example", self.service.url),
            ("https://pds.example", account.pds.url),
        ):
            text = text.replace(name, here)
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", text),
            env={**os.environ, "ACCESS_JWT": account.token, **variables},
            stdout=PIPE,
            stderr=PIPE,
        )
        output, errors = await process.communicate()
        assert process.returncode == 0, errors.decode()
        return json_values(output.decode())


@pytest.fixture
async def index(open_network: Network, database: Database, database_url: str, tmp_path: Path) -> AsyncGenerator[Index]:
    """An index that follows both PDSes from now on."""
    settings = environment(
        database_url=database_url,
        plc_url=open_network.plc_url,
        pds_urls=[pds.url for pds in open_network.pdses],
    )
    async with database.transaction() as conn:
        for pds in open_network.pdses:
            await leases.set_cursor(conn, pds.url, pds.last_seq(), datetime.now(UTC))
    daemon = Daemon(settings, tmp_path / "daemon.log")
    await daemon.start()
    try:
        async with serving(settings, tmp_path) as service:
            yield Index(open_network, service)
        daemon.assert_alive()
    finally:
        await daemon.kill()


async def test_app_reads_through_its_users_pds(index: Index) -> None:
    alice, bob = await index.account(), await index.account(1)
    cello = await index.shows(bob, await bob.create(memory("Plays the cello.")))
    own, found, listed, got, made, held, refused, unknown = await ask_as_app(
        alice,
        index.service,
        ["write", memory("Likes green tea.")],
        ["searchRecords", {"q": "cello", "repo": [bob.did]}],
        ["listRecords", {"repo": [alice.did, bob.did], "limit": 2}],
        ["getRecord", {"uri": cello}],
        ["createAccessToken", {}, {"name": "laptop"}],
        ["listAccessTokens", {}],
        ["getRecord", {"uri": "at://did:plc:nobody"}],
        ["getRecord", {"uri": f"{cello}x"}],
    )
    # Once the rev of its own repo has caught up with its write, the app sees what it wrote.
    assert [record["uri"] for record in own["data"]["records"]] == [own["uri"]]
    assert all(answer["headers"]["atproto-repo-rev"] >= own["rev"] for answer in (own, found, listed, got))
    assert [record["value"]["content"] for record in found["data"]["records"]] == ["Plays the cello."]
    assert {record["uri"] for record in listed["data"]["records"]} == {own["uri"], cello}
    assert got["data"]["value"]["content"] == "Plays the cello."
    # A procedure is good once for each token that the PDS signs, and it signs one for each call.
    assert [token["id"] for token in held["data"]["tokens"]] == [made["data"]["token"]["id"]]
    assert (refused["status"], refused["error"]) == (400, "InvalidRequest")
    assert (unknown["status"], unknown["error"]) == (400, "RecordNotFound")


def rpc_scope(service: Service, method: str) -> str:
    """What an app asks a PDS for to call one method of a service; what a DID and `#` need in it, as in a query."""
    return f"atproto rpc:{NAMESPACE}{method}?aud={quote(f'{service.did}#memory_appview', safe=':')}"


async def test_oauth_app_reads_through_its_users_pds_what_its_scope_names(index: Index) -> None:
    alice = await index.account()
    tea = await index.shows(alice, await alice.create(memory("Likes green tea.")))
    granted, found, refused, unmade = await ask_by_oauth(
        alice,
        index.network.plc_url,
        scope := rpc_scope(index.service, "searchRecords"),
        index.service,
        ["searchRecords", {"q": "green tea", "repo": [alice.did]}],
        ["listRecords", {"repo": [alice.did]}],
        ["createAccessToken", {}, {"name": "laptop"}],
    )
    assert granted == {"did": alice.did, "scope": scope}
    assert shown(found["data"]) == [tea]
    assert found["headers"]["atproto-repo-rev"], "the index knows for whom the PDS asks"
    for answer in (refused, unmade):
        assert (answer["status"], answer["error"]) == (403, "ScopeMissingError")


@pytest.mark.parametrize("scope", ["atproto transition:generic", f"atproto rpc:{NAMESPACE}listAccessTokens?aud=*"])
async def test_oauth_app_manages_access_tokens_with_a_scope_for_it(index: Index, scope: str) -> None:
    alice = await index.account()
    ask = ["listAccessTokens", {}]
    granted, held = await ask_by_oauth(alice, index.network.plc_url, scope, index.service, ask)
    assert granted == {"did": alice.did, "scope": scope}
    assert held["data"] == {"tokens": []}


async def test_oauth_app_without_a_scope_for_it_is_refused_by_the_pds(index: Index) -> None:
    alice = await index.account()
    ask = ["searchRecords", {"q": "tea"}]
    granted, refused = await ask_by_oauth(alice, index.network.plc_url, "atproto", index.service, ask)
    assert granted["scope"] == "atproto"
    assert (refused["status"], refused["error"]) == (403, "ScopeMissingError")


async def test_commands_of_the_documents_work(index: Index) -> None:
    if missing := [program for program in ("bash", "curl", "jq") if shutil.which(program) is None]:
        not_proven(f"NOT PROVEN WITH CURL: this machine has no {', '.join(missing)}")
    alice = await index.account()
    tea = await index.shows(alice, await alice.create(memory("Likes green tea.")))
    proxied, direct, created, ended = commands_of("access.md")

    listed, found, read, secret, token_id = await index.run(
        alice, proxied, direct, created, 'echo "$MADE" | jq .accessToken,.token.id'
    )
    assert [shown(each) for each in (listed, found, read)] == [[tea]] * 3

    async with index.service.client(secret) as client:
        answer = await client.get(SEARCH, params={"q": "green tea"})
        assert shown(answer.json()) == [tea]
        assert answer.headers["atproto-repo-rev"]
    (_, held, revoked) = await index.run(alice, direct, ended, MADE=json.dumps({"token": {"id": token_id}}))
    assert [token["name"] for token in held["tokens"]] == ["laptop"]
    assert revoked == {}
    async with index.service.client(secret) as client:
        answer = await client.get(SEARCH, params={"q": "green tea"})
    assert (answer.status_code, answer.json()["error"]) == (401, "InvalidToken")


async def test_service_auth_of_a_pds_holds_for_what_it_names_and_no_more(index: Index) -> None:
    alice = await index.account()
    did = index.service.did
    await index.shows(alice, await alice.create(memory("Likes green tea.")))
    search = await alice.service_auth(did, f"{NAMESPACE}searchRecords")
    assert await index.told(search, f"{SEARCH}?q=tea") == (200, None)
    assert await index.told(search, f"{SEARCH}?q=tea") == (200, None), "reads may use it until it expires"
    assert await index.told(search, LIST) == (401, "BadJwtLexiconMethod")
    assert await index.told(await alice.service_auth(f"{did}#memory_appview", f"{NAMESPACE}listRecords"), LIST) == (
        200,
        None,
    )
    assert await index.told(await alice.service_auth(did, None), LIST) == (401, "BadJwtLexiconMethod")
    assert await index.told(await alice.service_auth("did:web:elsewhere.test", f"{NAMESPACE}listRecords"), LIST) == (
        401,
        "BadJwtAudience",
    )
    assert await index.told(alice.token, LIST) == (401, "BadJwtType"), "the PDS's own session"
    create = await alice.service_auth(did, f"{NAMESPACE}createAccessToken")
    assert await index.told(create, CREATE, {"name": "laptop"}) == (200, None)
    assert await index.told(create, CREATE, {"name": "laptop"}) == (401, "JwtReplayed")


async def test_service_auth_holds_before_the_index_has_met_the_account(index: Index) -> None:
    alice = await index.account()
    token = await alice.service_auth(index.service.did, f"{NAMESPACE}listRecords")
    assert await index.told(token, LIST) == (200, None)


async def test_generic_openapi_client_reads_every_face(index: Index) -> None:
    alice = await index.account()
    tea = await index.shows(alice, await alice.create(memory("Likes green tea.")))
    schema = await asyncio.to_thread(schemathesis.openapi.from_url, f"{index.service.url}/openapi.json")

    async def ask(method: str, path: str, **given: Any) -> Any:
        case = schema[path][method].Case(**given)
        return (await asyncio.to_thread(case.call_and_validate)).json()

    assert shown(await ask("GET", SEARCH, query={"q": "green tea"})) == [tea]
    stores = await ask("GET", "/api/v1/cloud/memory_stores", query={"name": alice.handle})
    assert [store["metadata"]["repo"] for store in stores["data"]] == [alice.did]
    body = {"query": "green tea", "userId": alice.did}
    found = await ask("POST", "/api/v1/llm/search-memories", body=body, media_type="application/json")
    assert [each["id"] for each in found["memories"]] == [tea]


async def test_openapi_client_makes_sees_and_ends_a_token_with_service_auth(index: Index) -> None:
    alice = await index.account()
    client = await asyncio.to_thread(OpenApiClient, index.service.url)

    async def call(method: str, verb: str, body: dict[str, Any] | None = None) -> Asked:
        credential = await alice.service_auth(index.service.did, NAMESPACE + method)
        return Asked(f"/xrpc/{NAMESPACE}{method}", verb, body=body, credentials={"serviceAuth": credential})

    async def answers(*calls: Asked) -> list[Answered]:
        return await asyncio.to_thread(client.ask, calls)

    (made,) = await answers(await call("createAccessToken", "post", {"name": "laptop"}))
    token_id, with_token = made.body["token"]["id"], {"accessToken": made.body["accessToken"]}
    read = Asked(LIST, "get", credentials=with_token)
    held, shown_to_it, unmade, ended, refused = await answers(
        await call("listAccessTokens", "get"),
        read,
        Asked(CREATE, "post", body={"name": "x"}, credentials=with_token),
        await call("revokeAccessToken", "post", {"id": token_id}),
        read,
    )
    assert [token["id"] for token in held.body["tokens"]] == [token_id]
    assert [answer.status for answer in (shown_to_it, ended, refused)] == [200, 200, 401]
    # As the document says that no access token does there, the client does not present any.
    assert (unmade.status, unmade.body["error"]) == (401, "AuthenticationRequired")


async def test_doctor_finds_the_service_well(index: Index, tmp_path: Path) -> None:
    doctor = Daemon(index.service.settings, tmp_path / "doctor.log")
    report = json.loads(await doctor.command("doctor", "--json"))
    (check,) = (check for check in report["checks"] if check["name"].startswith("service "))
    assert check["state"] == "ok"
    assert index.service.did in check["what"]
