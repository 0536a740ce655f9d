"""The network runs once; it is skipped, loudly, where its packages cannot be had, but for CI."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memory.database import Database
from tests.e2e.node import OutOfReach
from tests.e2e.servers import Network, running_network
from tests.e2e.world import World, open_world
from tests.proof import not_proven


@pytest.fixture(scope="session")
def network(tmp_path_factory: pytest.TempPathFactory) -> Generator[Network]:
    """Two PDSes and their directory."""
    with network_or_skipped(tmp_path_factory.mktemp("network")) as running:
        yield running


@contextmanager
def network_or_skipped(folder: Path, *, behind_proxies: bool = True) -> Generator[Network]:
    """A network, where its packages can be had."""
    try:
        with running_network(folder, behind_proxies=behind_proxies) as running:
            yield running
    except OutOfReach as failure:
        reason = f"NOT PROVEN ON A REAL PDS: npm is out of reach, and its packages are not here\n{failure}"
        not_proven(reason)


@pytest.fixture
async def world(network: Network, database: Database, database_url: str, tmp_path: Path) -> AsyncGenerator[World]:
    """A daemon that is started, and follows both PDSes."""
    async with open_world(network, database, database_url, tmp_path) as opened:
        await opened.daemon.start()
        yield opened
