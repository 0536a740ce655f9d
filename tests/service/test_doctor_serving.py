"""`doctor` meets the API at its public URL: the real one, and servers that get something wrong."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from time import monotonic
from typing import Final

import pytest
import uvicorn
from starlette.types import ASGIApp

from appview.did_document import did_document
from appview.service import open_app
from indexer.doctor.network import Answer, Endpoint, Limits, Network, NoAnswer, Step, look_up
from indexer.doctor.report import Check, State
from indexer.doctor.serving import check_service
from memory.service_did import service_did
from memory.settings import load
from tests.doctor_servers import NETWORK, fix_of, free_port

LOCAL: Final = Network(look_up)
DOCUMENT: Final = "/.well-known/did.json"
METHOD: Final = "/xrpc/dev.bastienrobert.memory.getStats"
NEXT: Final = json.dumps({"error": "BadJwtLexiconMethod", "message": "It is for another method."})


def clock() -> datetime:
    return datetime.now(UTC)


def document_at(url: str) -> str:
    did = service_did(url)
    assert did is not None
    return json.dumps(did_document(did, url))


@asynccontextmanager
async def served(app: ASGIApp, listener: socket.socket) -> AsyncGenerator[None]:
    """An application that answers at a socket."""
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="off"))
    serving = asyncio.create_task(server.serve([listener]))
    try:
        yield
    finally:
        server.should_exit = True
        await serving


async def check_real_api(database_url: str, *, known_at: str = "", in_spaces: bool = False) -> Check:
    """Of an API whose own public URL is `known_at`, else the one where it is asked."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        url = f"http://localhost:{port}"
        settings = load({"DATABASE_URL": database_url, "APPVIEW_PUBLIC_URL": known_at or url})
        async with open_app(settings, port=port, clock=clock, monotonic=monotonic) as app, served(app, listener):
            return await check_service(LOCAL, url, clock, in_spaces=in_spaces)


async def check_server(
    answers: Mapping[str, tuple[int, str]], network: Network = LOCAL, *, in_spaces: bool = False
) -> Check:
    """Of a server that gives these answers; `{url}`, `{did}` and `{document}` in them are its own."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
        status, body = answers.get(path, (404, ""))
        for name, own in (("{document}", document_at(url)), ("{url}", url), ("{did}", f"did:web:localhost%3A{port}")):
            body = body.replace(name, own)
        writer.write(f"HTTP/1.1 {status} As Told\r\n\r\n{body}".encode())
        writer.close()

    async with await asyncio.start_server(converse, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        url = f"http://localhost:{port}"
        return await check_service(network, url, clock, in_spaces=in_spaces)


@pytest.mark.parametrize("in_spaces", [False, True])
async def test_without_a_public_url_there_is_a_note(in_spaces: bool):
    check = await check_service(NETWORK, None, clock, in_spaces=in_spaces)
    assert check.state is State.OK
    assert check.what.startswith("APPVIEW_PUBLIC_URL is not set")
    assert ("Spaces is found by sweeps only" in check.what) == in_spaces


@pytest.mark.parametrize("url", ["http://memory.example", "https://memory.example:8443", "https://203.0.113.7"])
async def test_url_that_has_no_did_is_warned_of(url: str):
    check = await check_service(NETWORK, url, clock)
    assert (check.name, check.state) == (f"service {url}", State.WARNING)
    assert fix_of(check).startswith("Give APPVIEW_PUBLIC_URL as https, a name and no port")


@pytest.mark.parametrize("in_spaces", [False, True])
async def test_api_that_is_what_its_url_says_passes(database_url: str, in_spaces: bool):
    check = await check_real_api(database_url, in_spaces=in_spaces)
    assert check.state is State.OK, check
    assert check.what.startswith(f"did:web:localhost%3A{check.name.rpartition(':')[2]} is found there, after ")


async def test_api_that_was_started_with_another_url_fails(database_url: str):
    check = await check_real_api(database_url, known_at="https://memory.example")
    assert check.state is State.FAILED
    assert check.what.startswith("what /.well-known/did.json answers is no DID document of did:web:localhost%3A")
    assert "Start `python -m appview serve` anew with APPVIEW_PUBLIC_URL=http://localhost:" in fix_of(check)


async def test_api_that_was_started_with_a_url_without_a_did_fails(database_url: str):
    check = await check_real_api(database_url, known_at="http://memory.example")
    assert check.what == "no DID document: /.well-known/did.json answers 404"
    assert fix_of(check).startswith("Let what listens there hand /.well-known/did.json on to the API (APPVIEW_PORT).")


@pytest.mark.parametrize("body", ["", "<html>", "[]", "{}", '{"id": "did:web:elsewhere.example", "service": []}'])
async def test_answer_that_is_no_document_of_the_service_fails(body: str):
    check = await check_server({DOCUMENT: (200, body), METHOD: (401, NEXT)})
    assert check.state is State.FAILED
    assert "is no DID document of did:web:localhost%3A" in check.what
    assert fix_of(check).startswith("Start `python -m appview serve` anew with APPVIEW_PUBLIC_URL=http://localhost:")


@pytest.mark.parametrize(
    "services",
    [
        "",
        '{"id": "#other", "type": "MemoryAppView", "serviceEndpoint": "{url}"}',
        '{"id": "#memory_appview", "type": "MemoryAppView", "serviceEndpoint": "{url}/elsewhere"}',
        '{"id": "#memory_appview", "type": "MemoryAppView", "serviceEndpoint": "https://memory.example"}',
        '{"id": "did:web:memory.example#memory_appview", "type": "MemoryAppView", "serviceEndpoint": "{url}"}',
    ],
)
async def test_document_that_leads_elsewhere_fails(services: str):
    body = '{"id": "{did}", "service": [' + services + "]}"
    check = await check_server({DOCUMENT: (200, body), METHOD: (401, NEXT)})
    assert check.state is State.FAILED
    assert check.what.startswith("its DID document does not say that #memory_appview is at http://localhost:")
    assert fix_of(check).startswith("Start `python -m appview serve` anew with APPVIEW_PUBLIC_URL=http://localhost:")


@pytest.mark.parametrize("name", ["#memory_appview", "{did}#memory_appview"])
async def test_document_may_spell_the_service_in_full(name: str):
    body = '{"id": "{did}", "service": [{"id": "' + name + '", "type": "Any", "serviceEndpoint": "{url}"}]}'
    assert (await check_server({DOCUMENT: (200, body), METHOD: (401, NEXT)})).state is State.OK


@pytest.mark.parametrize(
    ("fragment", "state"),
    [
        ("#atproto_space_syncer", State.OK),
        ("{did}#atproto_space_syncer", State.OK),
        ("#atproto_space_host", State.FAILED),
        ("did:web:elsewhere.example#atproto_space_syncer", State.FAILED),
    ],
)
async def test_document_has_to_lead_hosts_of_spaces_here_where_there_are_spaces(fragment: str, state: State):
    body = (
        '{"id": "{did}", "service": [{"id": "#memory_appview", "type": "Any", "serviceEndpoint": "{url}"},'
        ' {"id": "' + fragment + '", "type": "Any", "serviceEndpoint": "{url}"}]}'
    )
    answers = {DOCUMENT: (200, body), METHOD: (401, NEXT)}
    check = await check_server(answers, in_spaces=True)
    assert check.state is state
    if state is State.FAILED:
        assert check.what.startswith("its DID document does not say that #atproto_space_syncer is at http://localhost:")
    assert (await check_server(answers)).state is State.OK


async def test_server_that_takes_tokens_for_another_service_fails():
    refusal = json.dumps({"error": "BadJwtAudience", "message": "It is for another service."})
    check = await check_server({DOCUMENT: (200, "{document}"), METHOD: (401, refusal)})
    assert check.state is State.FAILED
    assert check.what.startswith("it refuses tokens for did:web:localhost%3A")
    assert fix_of(check).startswith("Start `python -m appview serve` anew with the same APPVIEW_PUBLIC_URL")


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, '{"memories": 1}'),
        (200, NEXT),
        (400, '{"error": "InvalidRequest"}'),
        (404, "<html>"),
        (502, "[]"),
        (401, "{"),
    ],
)
async def test_proxy_that_hands_no_credentials_on_fails(status: int, body: str):
    check = await check_server({DOCUMENT: (200, "{document}"), METHOD: (status, body)})
    assert (check.state, check.what) == (State.FAILED, f"credentials do not come through: it answers {status}")
    assert fix_of(check) == "Let the proxy in front of the API hand on /xrpc/ with the header Authorization."


async def test_well_behaved_server_passes():
    """So that the tests above fail for what they say."""
    assert (await check_server({DOCUMENT: (200, "{document}"), METHOD: (401, NEXT)})).state is State.OK


async def test_endless_document_fails():
    check = await check_server({DOCUMENT: (200, " " * 70_000), METHOD: (401, NEXT)})
    assert (check.state, check.what) == (State.FAILED, "its answer is longer than 65,536 bytes")
    assert fix_of(check).startswith("See what listens on port ")


async def test_body_that_never_ends_fails_after_its_time():
    async def keep_open(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n{")
            await reader.read()
        except OSError:
            pass  # they left
        finally:
            writer.close()

    quick = Network(look_up, limits=Limits(http_s=0.05))
    async with await asyncio.start_server(keep_open, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        check = await check_service(quick, f"http://localhost:{port}", clock)
    assert check.what == "silence for 0.05 s"


async def test_url_where_nobody_listens_fails():
    port = free_port()
    check = await check_service(LOCAL, f"http://localhost:{port}", clock)
    assert (check.state, check.what) == (State.FAILED, f"no connection to port {port}")
    assert fix_of(check).startswith("Start the API and what stands in front of it")


async def test_name_that_leads_nowhere_fails():
    check = await check_service(NETWORK, "https://nowhere.test", clock)
    assert (check.state, check.what) == (State.FAILED, "its name stands for no address")
    assert fix_of(check).startswith("Make a DNS record (A, AAAA) of nowhere.test that leads to this machine")


@pytest.mark.parametrize(
    ("step", "fix"),
    [
        (Step.TLS, "Let a proxy with a certificate listen on port 443 of memory.example"),
        (Step.CERTIFICATE, "Renew the certificate of memory.example, for this name"),
    ],
)
async def test_tls_that_does_not_hold_fails(step: Step, fix: str):
    class Failing(Network):
        async def read(
            self, endpoint: Endpoint, path: str, headers: Mapping[str, str] | None = None
        ) -> tuple[Answer, bytes]:
            raise NoAnswer(step, "it went wrong")

    check = await check_service(Failing(), "https://memory.example", clock)
    assert (check.state, check.what) == (State.FAILED, "it went wrong")
    assert fix_of(check).startswith(fix)
