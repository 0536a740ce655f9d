"""Tests that need what a machine may not have."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def not_proven(reason: str) -> NoReturn:
    """Skips, and says why; in CI, where everything has to be there, it fails."""
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
