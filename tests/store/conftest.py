"""Folders for the clusters of one module."""

from __future__ import annotations

import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.conftest import shared_memory
from tests.store.clusters import folder_in


@pytest.fixture(scope="module")
def data_dir() -> Generator[Path]:
    """Where the tests of this module keep one cluster, which they start and stop in turn."""
    folder = folder_in(shared_memory(), 0o711)
    yield folder / "postgres"
    shutil.rmtree(folder)


@pytest.fixture
def closed() -> Generator[Path]:
    """A folder that only we may enter."""
    folder = folder_in(None, 0o700)
    yield folder
    shutil.rmtree(folder)
