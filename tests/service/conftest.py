"""What tests of services share: the other side of a daemon, and a server that is asked as strangers ask it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator

import pytest

from memory.cluster import Cluster
from tests.conftest import TEMPLATE
from tests.demo_server import served_demo
from tests.fakes.directory import Directory, directory
from tests.fakes.relay import Relay, relay


@pytest.fixture
async def fake() -> AsyncGenerator[Relay]:
    """A relay, or a PDS, that sends what it is told to."""
    async with relay() as listening:
        yield listening


@pytest.fixture
async def plc() -> AsyncGenerator[Directory]:
    """The directory of identities."""
    async with directory() as listening:
        yield listening


@pytest.fixture(scope="session")
def demo_url(cluster: Cluster) -> Generator[str]:
    """Where `python -m appview serve` answers from the memories of the demo."""
    with served_demo(cluster, TEMPLATE) as url:
        yield url
