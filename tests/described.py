"""The OpenAPI document, the requests that it gives as examples, and an index that has what they ask for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any, cast

import httpx
from jsonschema_rs import Draft202012Validator

from appview.access import Viewer
from appview.call import SpaceOpening
from appview.faces.stores.openapi import MEMORY_EXAMPLE, STORE_EXAMPLE, VERSION_EXAMPLE
from appview.issuers import Issuers
from appview.openapi import openapi_document
from appview.rates import Rates
from appview.service import routes_of
from appview.spaces.delegation import Delegation
from appview.spaces.exchange import Exchange, Opened
from memory.database import Database
from memory.dpop import ProofKey
from memory.sealed import SealingKeys
from memory.space import ReadableSpaces
from memory.space_credential import SpaceCredential
from tests.api_client import CATALOGUE, NOW, Api, in_query
from tests.builders import SigningKey
from tests.fakes.space_host_tokens import delegation_token
from tests.granted import HOUR, grant, hold
from tests.memory_rows import ALICE, BOB, SPACE, MemoryRows, day

DOCUMENT = cast("dict[str, Any]", openapi_document(CATALOGUE, routes_of(CATALOGUE), version="0", url=None))

randbytes = Random(5).randbytes

SIGNED_IN = {"authorization": "Bearer token"}
READER = Viewer(ALICE, ReadableSpaces(frozenset({SPACE})), ALICE)
"""Somebody who is signed in, and may read a Space too."""

EXAMPLE_TOKEN = "0123456789abcdef"
EXAMPLE_DELEGATION = "delegation.token.of-the-viewer"
OF_ACCESS_TOKENS = [{"accessToken": []}]
EXAMPLE_VERSION = str(VERSION_EXAMPLE["id"])


@dataclass(frozen=True, slots=True)
class Example:
    """A request of the document."""

    path: str
    verb: str
    name: str
    query: dict[str, Any]
    in_path: dict[str, Any]
    body: dict[str, Any] | None

    @property
    def operation(self) -> dict[str, Any]:
        """What the document says of it."""
        return DOCUMENT["paths"][self.path][self.verb]

    async def send(
        self, api: Api, *, real: dict[str, str] | None = None, headers: dict[str, str] | None = None
    ) -> httpx.Response:
        """Send it; `real` has ids that there are, for those of the document that cannot be there."""

        def mend(text: str) -> str:
            for shown, there in (real or {}).items():
                text = text.replace(shown, there)
            return text

        if self.body is not None:
            headers = {"content-type": "application/json", **(headers or {})}
            return await api.send(self.verb.upper(), self.path, content=mend(json.dumps(self.body)), headers=headers)
        path = mend(self.path.format(**self.in_path))
        return await api.send(self.verb.upper(), path, params=in_query(self.query), headers=headers)


def examples() -> Iterator[Example]:
    """All requests of the document; an operation that takes nothing is one by itself."""
    for path, item in DOCUMENT["paths"].items():
        for verb, operation in item.items():
            if "requestBody" in operation:
                for name, example in operation["requestBody"]["content"]["application/json"]["examples"].items():
                    yield Example(path, verb, name, {}, {}, example["value"])
                continue
            parameters = operation.get("parameters", [])
            for name in {name: None for each in parameters for name in each.get("examples", ())} or ["nothing"]:
                query, in_path = (
                    {
                        each["name"]: each["examples"][name]["value"]
                        for each in parameters
                        if each["in"] == place and name in each.get("examples", ())
                    }
                    for place in ("query", "path")
                )
                yield Example(path, verb, name, query, in_path, None)


async def example_api(database: Database, example: Example) -> Api:
    """The API as whoever the example is about is seen by it: with an access token that has a Space, if it takes those
    only. Spaces are opened for whatever is signed by nobody."""
    token = None
    if example.operation["security"] == OF_ACCESS_TOKENS:
        token = (await grant(database, ALICE, SPACE, now=NOW, lasts=2 * HOUR)).id
        await hold(database, SPACE)
    viewer = Viewer(ALICE, ReadableSpaces.public_only(), ALICE, token)
    counting = Rates(limit=0, clock=lambda: NOW)
    keys = SealingKeys({"k": bytes(range(32))}, random_bytes=randbytes)
    opening = SpaceOpening(
        cast("Issuers", Trusting()), cast("Exchange", Giving()), keys, viewers=counting, authorities=counting
    )
    return Api(database, viewer=viewer, opening=opening)


class Trusting:
    """Believes whatever is signed."""

    async def require_signature(self, token: object, address: str) -> None:
        pass


class Giving:
    """Lets everybody read everything."""

    async def host_of(self, delegation: Delegation) -> str:
        return "https://spaces.test"

    def has_let_in(self, delegation: Delegation) -> bool:
        return True

    async def open(self, delegation: Delegation) -> Opened:
        assert delegation.viewer == ALICE
        return Opened(SpaceCredential("x.y.z", ProofKey.generate(randbytes)), NOW + 2 * HOUR)


def real_delegation() -> str:
    """In the place of the example's, which can hold nowhere."""
    return delegation_token(SigningKey("alice"), ALICE, SPACE, NOW, "f00d")


def validator(schema: dict[str, Any]) -> Draft202012Validator:
    """A schema of the document, with what it refers to."""
    return Draft202012Validator({**schema, "components": {"schemas": DOCUMENT["components"]["schemas"]}})


def check_answer(operation: dict[str, Any], response: httpx.Response) -> None:
    """AssertionError or ValidationError names what the document does not say of an answer."""
    described = operation["responses"][str(response.status_code)]
    for name, reference in described["headers"].items():
        header = DOCUMENT["components"]["headers"][reference["$ref"].rpartition("/")[2]]
        assert name in response.headers or not header["required"], name
    content_type = response.headers["content-type"].partition(";")[0]
    validator(described["content"][content_type]["schema"]).validate(response.json())


async def fill_index(database: Database) -> None:
    """Replace the index by one that has what the examples ask for, and something of everything else."""
    rows = MemoryRows()
    rows.repo(ALICE, handle="alice.test")
    first = rows.put(ALICE, "Drinks coffee.", days=1)
    rows.put(
        ALICE,
        "Prefers green tea to coffee.",
        rkey="3kaaaaaaaaa2a",
        days=3,
        supersedes=[first, "nonsense"],
        agent="claude-code",
        kind="preference",
        scope="home",
    )
    rows.put(ALICE, "Tea at five.", days=4, occurred=("2026-01-03T17:00:00Z", "day"))
    rows.put(ALICE, "Tea with the family.", space=SPACE, days=5)
    author = cast("dict[str, str]", STORE_EXAMPLE["metadata"])["repo"]
    rows.repo(author, handle="alice.example.com")
    rkey = str(MEMORY_EXAMPLE["path"]).rpartition("/")[2]
    rows.put(author, str(MEMORY_EXAMPLE["content"]), rkey=rkey, days=6, kind="preference", scope="home")
    rows.put(author, "Likes black tea.", days=7)
    rows.delete(rows.put(author, "Likes no tea.", days=8), days=9)
    rows.put(BOB, "Likes milk.", days=2)
    rows.repo(BOB, visible=False, status="deactivated", status_changed_at=day(9))
    await rows.write(database)


async def find_version(api: Api) -> str:
    """The id of the version of the memory that is the document's example, which differs by index."""
    path = f"/api/v1/cloud/memory_stores/{STORE_EXAMPLE['id']}/memory_versions"
    answer = (await api.send("GET", path, params={"memory_id": str(MEMORY_EXAMPLE["id"])})).json()
    return answer["data"][0]["id"]
