"""`make demo` does what the README shows."""

from __future__ import annotations

import asyncio
import io
import re
import shutil
import socket
import tempfile
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

from deploy.demo import demonstrate
from memory.errors import Misconfigured
from memory.settings import load
from memory.telemetry import set_up_logging
from tests.doctor_servers import free_port

README = Path(__file__).parents[2] / "README.md"


@pytest.fixture
def open_folder() -> Generator[Path]:
    """A folder that the user of the embedded Postgres may enter, also when this runs as root."""
    folder = Path(tempfile.mkdtemp(prefix="memory-appview-demo-"))
    folder.chmod(0o711)
    yield folder
    shutil.rmtree(folder)


async def play(folder: Path, capsys: pytest.CaptureFixture[str], given: Mapping[str, str]) -> str:
    """What the demo prints until it only serves, as on the port and in the folder that it has by default."""
    port = free_port()
    settings = load({"APPVIEW_PORT": str(port), "DATABASE_DATA_DIR": str(folder / "demo"), **given})
    set_up_logging(io.StringIO())
    running = asyncio.create_task(demonstrate(settings))
    printed = ""
    while "indexer status" not in printed and not running.done():
        await asyncio.sleep(0)
        printed += capsys.readouterr().out
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    return printed.replace(str(port), "8600").replace(str(folder), ".data")


async def test_demo_prints_what_the_readme_shows(open_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = without_measures(await play(open_folder, capsys, {}))
    shown = without_measures(README.read_text())
    assert [line for line in told.splitlines() if line.strip() not in shown] == []
    assert told.count("by words not found, by meaning number 1") == 2


def without_measures(text: str) -> str:
    """Times are the machine's, and scores may differ by a digit where the model was built for another one."""
    return re.sub(r"[\d.]+ s\b|\d+ of 1000", "…", text)


async def test_demo_goes_on_by_words_where_there_is_no_model(
    open_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = await play(open_folder, capsys, {"EMBEDDING_BACKEND": "none"})
    assert "Search is by words alone, because EMBEDDING_BACKEND is none" in printed
    assert "The same search, as of June" in printed
    assert "by meaning" not in printed.partition("Search is by words alone")[2]


async def test_taken_port_is_named_with_its_fix_before_anything_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = load({"APPVIEW_PORT": str(port), "DATABASE_DATA_DIR": str(tmp_path / "demo")})
        with pytest.raises(Misconfigured, match="APPVIEW_PORT=8601 make demo"):
            await demonstrate(settings)
    assert not (tmp_path / "demo").exists()
