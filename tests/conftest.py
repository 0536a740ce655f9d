"""What every test may ask for: a real Postgres (one clone of the migrated schema each), and seeds that are told.

`database` is a pool on a fresh database, `database_url` only its URL, for what opens its own connections.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
import uuid
from collections.abc import AsyncGenerator, Generator
from pathlib import Path

import asyncpg
import pytest
from hypothesis import HealthCheck, settings

from memory.cluster import Cluster
from memory.database import Database, open_database
from memory.embedded import Tuning, hold_cluster
from memory.schema import apply_migrations
from tests import kept_quiet

TEMPLATE = "template_memory"
SHARED_MEMORY = Path("/dev/shm")
SEED = pytest.StashKey[int]()

# A database lives as long as its test, not as long as one example: the examples bring fresh DIDs.
_ALLOWED = (HealthCheck.function_scoped_fixture, HealthCheck.too_slow)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True, suppress_health_check=_ALLOWED)
settings.register_profile("soak", deadline=None, print_blob=True, suppress_health_check=_ALLOWED, max_examples=10_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


def pytest_configure(config: pytest.Config) -> None:
    """After each test, all that was logged is searched for what is private."""
    kept_quiet.pytest_configure(config)


def shared_memory() -> Path | None:
    """A folder in memory, where there is room for clusters: cloning is the making of some hundred files."""
    roomy = SHARED_MEMORY.is_dir() and shutil.disk_usage(SHARED_MEMORY).free > 2**30
    return SHARED_MEMORY if roomy else None


@pytest.fixture(scope="session")
def cluster() -> Generator[Cluster]:
    """The embedded Postgres of this run, with the migrated template in it."""
    folder = Path(tempfile.mkdtemp(prefix="memory-appview-tests-", dir=shared_memory()))
    folder.chmod(0o711)  # as root, Postgres runs as another user
    try:
        with hold_cluster(folder / "postgres", Tuning(fsync=False)) as running:
            apply_migrations(running.url(TEMPLATE))
            yield running
    finally:
        shutil.rmtree(folder)


@pytest.fixture
async def database_url(cluster: Cluster) -> AsyncGenerator[str]:
    """The URL of a database of the test's own: migrated, empty, dropped at the end."""
    name = f"test_{uuid.uuid4().hex}"
    admin = await asyncpg.connect(cluster.url("postgres"))
    try:
        await admin.execute(f"create database {name} template {TEMPLATE} strategy file_copy")
        yield cluster.url(name)
        await admin.execute(f"drop database {name} with (force)")
    finally:
        await admin.close()


@pytest.fixture
async def database(database_url: str) -> AsyncGenerator[Database]:
    """A pool on `database_url`."""
    async with open_database(database_url, application_name="tests", connections=5) as opened:
        yield opened


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """A seed for this test: `TEST_SEED` if that is set, else a new one; printed when the test fails."""
    chosen = int(os.environ.get("TEST_SEED") or random.SystemRandom().getrandbits(32))
    request.node.stash[SEED] = chosen
    return chosen


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and SEED in item.stash:
        report.sections.append(("seed", f"repeat with TEST_SEED={item.stash[SEED]}"))
    return report
