"""Requests of every kind that the OpenAPI document allows, and of many that it does not, sent to the application.

schemathesis makes them: what the examples say, the bounds of every parameter one by one, and random ones. Whatever
comes, the answer is of no fault here, has a status, a content type and headers that the document names, and a body as
the document says. What a schema forbids is refused. The seed is fixed: a run is as good as the one before. Others are
tried by `TEST_SEED`, and more requests by `TEST_SCHEMA_REQUESTS`.

Left out by design:

- That all is answered that the schemas allow. They cannot say what an at-uri or a page cursor of this index is, nor
  which parameters contradict each other.
- That credentials are needed where the document has some: all but the methods of tokens answer nobody in particular.
  Who is refused is told in test_access.py and test_access_tokens.py.
- That a resource is there once it is made: nothing is made here but tokens.
"""

from __future__ import annotations

import asyncio
import gzip
import os
import uuid
from collections import defaultdict
from collections.abc import Generator
from typing import Any, TypeAlias, cast
from urllib.parse import unquote, urlsplit

import asyncpg
import pytest
import requests
import schemathesis
from hypothesis import settings
from schemathesis.checks import CHECKS
from schemathesis.config import (
    ChecksConfig,
    CoveragePhaseConfig,
    GenerationConfig,
    PhasesConfig,
    ProjectConfig,
    ProjectsConfig,
    SchemathesisConfig,
)
from schemathesis.core.failures import FailureGroup
from schemathesis.core.transport import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memory.cluster import Cluster
from memory.database import open_database
from tests.api_client import Api
from tests.conftest import TEMPLATE
from tests.described import DOCUMENT, EXAMPLE_VERSION, READER, SIGNED_IN, fill_index, find_version

Case: TypeAlias = schemathesis.Case[Any]

SEED = int(os.environ.get("TEST_SEED", "5"))
# Of each operation and viewer; those at bounds are many more.
RANDOM_REQUESTS = int(os.environ.get("TEST_SCHEMA_REQUESTS", "20"))
VIEWERS = {"nobody": None, "somebody": READER}

# What is too large is told before it is looked into.
REFUSED = [400, 401, 403, 404, 405, 413, 414]

# Ids of tokens are random: none that is asked for is there. That one ends is told in test_access_tokens.py.
REVOKES = "POST /xrpc/dev.bastienrobert.memory.revokeAccessToken"
# No made-up delegation holds, and nobody here has an access token: test_open_space.py.
OF_SPACES = {
    f"{verb} /xrpc/dev.bastienrobert.memory.{name}" for verb, name in (("POST", "openSpace"), ("GET", "listGrants"))
}


def configured() -> SchemathesisConfig:
    project = ProjectConfig(
        generation=GenerationConfig(deterministic=True, database="none", with_security_parameters=False),
        phases=PhasesConfig(coverage=CoveragePhaseConfig(generate_duplicate_query_parameters=True)),
        checks=ChecksConfig.from_dict({"negative_data_rejection": {"expected-statuses": REFUSED}}),
    )
    return SchemathesisConfig(seed=SEED, projects=ProjectsConfig(default=project))


SCHEMA = schemathesis.openapi.from_dict(DOCUMENT, config=configured())
CHECKED = cast(
    "list[schemathesis.CheckFunction]",
    CHECKS.get_by_names(
        [
            "not_a_server_error",
            "status_code_conformance",
            "content_type_conformance",
            "response_headers_conformance",
            "response_schema_conformance",
            "negative_data_rejection",
            "unsupported_method",
            "allow_header_conformance",
        ]
    ),
)


class Filled:
    """The application on an index that has something of everything, for each viewer."""

    def __init__(self, runner: asyncio.Runner, apis: dict[str, Api], version_id: str) -> None:
        self._runner = runner
        self._apis = apis
        self._version_id = version_id
        self.asked: defaultdict[str, set[str]] = defaultdict(set)
        self.statuses: defaultdict[str, set[int]] = defaultdict(set)

    def send(self, case: Case, who: str) -> Response:
        """The answer to a request as it is: a client would not send some of them."""
        headers = {} if who == "nobody" else SIGNED_IN
        request = requests.Request(**case.as_transport_kwargs(base_url="http://api.test", headers=headers)).prepare()
        assert request.url is not None
        request.url = request.url.replace(EXAMPLE_VERSION, self._version_id)
        response = self._runner.run(ask(self._apis[who].app, request))
        self.asked[case.operation.label].add(who)
        self.statuses[case.operation.label].add(response.status_code)
        return response


async def ask(app: ASGIApp, request: requests.PreparedRequest) -> Response:
    """What the application answers."""
    url = urlsplit(request.url or "")
    body = cast("str | bytes | None", request.body) or b""
    sent: list[Message] = []
    coming: list[Message] = [{"type": "http.request", "body": body.encode() if isinstance(body, str) else body}]

    async def receive() -> Message:
        if not coming:
            await asyncio.Event().wait()  # a client that stays
        return coming.pop()

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": request.method,
        "path": unquote(url.path),
        "raw_path": url.path.encode(),
        "query_string": url.query.encode(),
        "headers": [(name.lower().encode(), str(value).encode("latin-1")) for name, value in request.headers.items()],
        "client": ("203.0.113.7", 4),
    }
    await app(scope, receive, send)
    start, *pieces = sent
    headers: dict[str, list[str]] = {}
    for name, value in start["headers"]:
        headers.setdefault(name.decode(), []).append(value.decode("latin-1"))
    content = b"".join(piece["body"] for piece in pieces)
    return Response(
        status_code=start["status"],
        headers=headers,
        content=gzip.decompress(content) if headers.get("content-encoding") == ["gzip"] else content,
        request=request,
        elapsed=0.0,
        verify=False,
    )


@pytest.fixture(scope="module")
def filled(cluster: Cluster) -> Generator[Filled]:
    name = f"test_{uuid.uuid4().hex}"
    opened = open_database(cluster.url(name), application_name="tests", connections=5)

    async def administer(statement: str) -> None:
        admin = await asyncpg.connect(cluster.url("postgres"))
        await admin.execute(statement)
        await admin.close()

    async def begin() -> tuple[dict[str, Api], str]:
        await administer(f"create database {name} template {TEMPLATE} strategy file_copy")
        database = await opened.__aenter__()
        await fill_index(database)
        apis = {who: Api(database, viewer=viewer) for who, viewer in VIEWERS.items()}
        return apis, await find_version(apis["nobody"])

    with asyncio.Runner() as runner:  # schemathesis asks in functions that are not async
        filled = Filled(runner, *runner.run(begin()))
        try:
            yield filled
        finally:
            runner.run(opened.__aexit__(None, None, None))
            runner.run(administer(f"drop database {name} with (force)"))
    # Requests that are all refused would show nothing of answers, and those that are all answered nothing of refusals.
    whole = {label for label, viewers in filled.asked.items() if viewers == set(VIEWERS)}
    assert {label for label in whole if 200 not in filled.statuses[label]} <= {REVOKES, *OF_SPACES}
    assert {label for label in whole if len(filled.statuses[label]) < 2} == set()


@pytest.mark.parametrize("who", VIEWERS)
@SCHEMA.parametrize()  # pyright: ignore[reportUntypedFunctionDecorator]
@settings(max_examples=RANDOM_REQUESTS)
def test_whatever_is_asked_is_answered_as_described(case: Case, filled: Filled, who: str) -> None:
    case.validate_response(filled.send(case, who), checks=CHECKED)


RUNS = b'{"version": "0"}'


@pytest.mark.parametrize(
    ("status", "content_type", "body", "request_id"),
    [
        (500, "application/json", b'{"error": "InternalServerError", "message": "x"}', "x"),
        (418, "application/json", RUNS, "x"),
        (200, "text/plain", RUNS, "x"),
        (200, "application/json", b'{"version": 0}', "x"),
        (200, "application/json", b'{"version"', "x"),
        (200, "application/json", RUNS, None),
    ],
)
async def test_answers_that_the_document_does_not_have_are_found(
    status: int, content_type: str, body: bytes, request_id: str | None
) -> None:
    async def answer(status: int, content_type: str, body: bytes, request_id: str | None) -> Response:
        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            headers = [(b"content-type", content_type.encode())]
            headers += [] if request_id is None else [(b"request-id", request_id.encode())]
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

        return await ask(app, requests.Request("GET", "http://api.test/xrpc/_health").prepare())

    case: Case = SCHEMA["/xrpc/_health"]["GET"].Case()
    case.validate_response(await answer(200, "application/json", RUNS, "x"), checks=CHECKED)
    with pytest.raises(FailureGroup):
        case.validate_response(await answer(status, content_type, body, request_id), checks=CHECKED)
