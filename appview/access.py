"""Who asks, and which Spaces they may read: the one place that decides it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from appview.refusals import SpaceNotReadable
from memory.space import ReadableSpaces


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who asks. `id` tells viewers apart in page cursors; nobody in particular has ''."""

    id: str
    spaces: ReadableSpaces


ANYBODY: Final = Viewer("", ReadableSpaces.public_only())
"""A viewer without credentials: reads what is public."""


def require_readable(spaces: ReadableSpaces, asked: Iterable[str]) -> None:
    """Raise SpaceNotReadable unless every Space that was asked for may be read.

    The same for unknown, unindexed, expired and foreign Spaces: nothing tells them apart.
    """
    if not all(space in spaces for space in asked):
        raise SpaceNotReadable
