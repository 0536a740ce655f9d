"""A server that is asked as strangers ask it."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from memory.cluster import Cluster
from tests.conftest import TEMPLATE
from tests.demo_server import served_demo


@pytest.fixture(scope="session")
def demo_url(cluster: Cluster) -> Generator[str]:
    """Where `python -m appview serve` answers from the memories of the demo."""
    with served_demo(cluster, TEMPLATE) as url:
        yield url
