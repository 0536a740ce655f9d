"""What tests of services share: the other side of a daemon, and a server that is asked as strangers ask it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from dataclasses import replace
from functools import partial

import pytest

from memory import handles
from memory.cluster import Cluster
from memory.outbound import Limits
from tests.conftest import TEMPLATE
from tests.deadline import DEADLINE_S
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


@pytest.fixture
def patient_look_ups(monkeypatch: pytest.MonkeyPatch) -> None:
    """No look-up is given up while a test holds the directory, however long it is about what it does meanwhile."""
    monkeypatch.setattr("memory.resolver.Limits", partial(Limits, total_s=DEADLINE_S))
    monkeypatch.setattr(handles, "_LIMITS", replace(handles._LIMITS, total_s=DEADLINE_S))


@pytest.fixture(scope="session")
def demo_url(cluster: Cluster) -> Generator[str]:
    """Where `python -m appview serve` answers from the memories of the demo."""
    with served_demo(cluster, TEMPLATE) as url:
        yield url
