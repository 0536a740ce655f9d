"""`python -m appview` as its users call it: what it says when it cannot serve."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

import pytest

from tests.doctor_servers import free_port

ROOT = Path(__file__).parents[2]


async def served(*arguments: str, **environment: str) -> tuple[int | None, str]:
    """How `serve` ended, and what stderr says."""
    inherited = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "appview", "serve", *arguments),
        cwd=ROOT,
        env=inherited | environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await process.communicate()
    return process.returncode, errors.decode()


@pytest.mark.parametrize(
    ("environment", "words"),
    [({"APPVIEW_PORT": "much"}, "APPVIEW_PORT cannot be used"), ({"APPVIEW_PROT": "1"}, "APPVIEW_PROT is no setting")],
)
async def test_bad_setting_is_an_error_in_one_line(environment: dict[str, str], words: str):
    status, errors = await served(**environment)
    assert status == 2
    assert errors.startswith(f"error: {words}")
    assert errors.count("\n") == 1


async def test_taken_port_is_an_error_in_one_line(database_url: str):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        status, errors = await served("--port", str(taken.getsockname()[1]), DATABASE_URL=database_url)
    assert status == 2
    assert errors.startswith("error: Port ")
    assert errors.count("\n") == 1


async def test_database_that_does_not_answer_is_an_error_in_one_line():
    url = "postgresql://nobody@127.0.0.1:1/nothing"
    status, errors = await served("--port", str(free_port()), DATABASE_URL=url)
    assert (status, errors) == (1, "error: The database of DATABASE_URL does not answer.\n")
