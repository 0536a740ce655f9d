"""`make demo` does what the README shows."""

from __future__ import annotations

import asyncio
import io
import shutil
import socket
import tempfile
from collections.abc import Generator
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


async def test_demo_prints_what_the_readme_shows(open_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    settings = load({"APPVIEW_PORT": str(port), "DATABASE_DATA_DIR": str(open_folder / "demo")})
    set_up_logging(io.StringIO())
    running = asyncio.create_task(demonstrate(settings))
    printed = ""
    while "indexer status" not in printed and not running.done():
        await asyncio.sleep(0)
        printed += capsys.readouterr().out
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    shown = README.read_text()
    for line in printed.replace(str(port), "8600").replace(str(open_folder), ".data").splitlines():
        if "commits verified in" not in line:  # it tells seconds
            assert line.strip() in shown


async def test_taken_port_is_named_with_its_fix_before_anything_is_started(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = load({"APPVIEW_PORT": str(port), "DATABASE_DATA_DIR": str(tmp_path / "demo")})
        with pytest.raises(Misconfigured, match="APPVIEW_PORT=8601 make demo"):
            await demonstrate(settings)
    assert not (tmp_path / "demo").exists()
