"""The process that asks hosts lives as long as the daemon, is started again when it ends, and never outlives it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE
from contextlib import suppress
from pathlib import Path

import pytest

from indexer.companion import Companion
from tests.architecture.sources import ROOT
from tests.deadline import until

# In the place of `python -m indexer`: says that it began, and ends when its standard input does, or as it is told.
STAND_IN = """
import os, sys
with open(os.environ["BEGAN"], "a") as began:
    began.write(f"{os.getpid()}\\n")
if "--fail" in sys.argv:
    sys.exit(3)
sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a package `indexer` stands in for ours, for processes that are started there."""
    (tmp_path / "indexer").mkdir()
    (tmp_path / "indexer" / "__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "indexer" / "__main__.py").write_text(STAND_IN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def companion(folder: Path, *arguments: str) -> Companion:
    environment = {**os.environ, "BEGAN": str(folder / "began"), "PYTHONPATH": str(folder)}
    return Companion(arguments or ("repair",), environment, back_off_first_s=0.01)


async def begun(folder: Path) -> list[int]:
    try:
        return [int(line) for line in (folder / "began").read_text(encoding="utf-8").splitlines()]
    except FileNotFoundError:
        return []


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_companion_gives_way_to_whoever_keeps_it():
    """Asked of a process of its own: what gave way cannot take it back."""
    told = subprocess.run(
        [sys.executable, "-c", "import os; from indexer.companion import give_way; give_way(); print(os.nice(0))"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(told.stdout) == min(os.nice(0) + 10, 19)


async def test_companion_ends_with_who_keeps_it(folder: Path):
    keeping = asyncio.create_task(companion(folder).keep(lambda: None))
    [pid] = await until(lambda: begun(folder))
    keeping.cancel()
    with suppress(asyncio.CancelledError):
        await keeping
    assert not is_alive(pid)


async def test_companion_that_ends_is_told_of_and_started_again(folder: Path):
    ends: list[None] = []
    keeping = asyncio.create_task(companion(folder, "repair", "--fail").keep(lambda: ends.append(None)))
    await until(lambda: begun(folder), lambda pids: len(pids) >= 3)
    assert len(ends) >= 2
    keeping.cancel()
    with suppress(asyncio.CancelledError):
        await keeping


async def test_companion_does_not_outlive_a_daemon_that_is_killed(folder: Path):
    keeper = (
        "import asyncio, os\n"
        "from indexer.companion import Companion\n"
        f"os.chdir({str(folder)!r})\n"
        f"environment = {{**os.environ, 'BEGAN': {str(folder / 'began')!r}, 'PYTHONPATH': {str(folder)!r}}}\n"
        "asyncio.run(Companion(('repair',), environment).keep(lambda: None))\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", keeper, env={**os.environ, "PYTHONPATH": str(ROOT)}, cwd=ROOT, stdin=PIPE
    )
    [pid] = await until(lambda: begun(folder))
    process.send_signal(signal.SIGKILL)
    await process.wait()

    async def is_gone() -> bool:
        return not is_alive(pid)

    await until(is_gone)
