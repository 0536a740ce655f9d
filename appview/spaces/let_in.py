"""Whom authorities let in of late: they are counted apart from strangers, of whom anybody can be any number."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

CAPACITY: Final = 100_000
KEPT_FOR: Final = timedelta(days=1)
"""Long enough for whoever comes back the next morning."""


class LetIn:
    """Remembers the last `capacity` pairs of an authority and a viewer, each for a day."""

    def __init__(self, *, clock: Callable[[], datetime], capacity: int = CAPACITY) -> None:
        self._clock = clock
        self._capacity = capacity
        self._since: OrderedDict[tuple[str, str], datetime] = OrderedDict()

    def remember(self, authority: str, viewer: str) -> None:
        """The authority has just given a credential for the viewer."""
        pair = authority, viewer
        self._since[pair] = self._clock()
        self._since.move_to_end(pair)
        if len(self._since) > self._capacity:
            self._since.popitem(last=False)

    def knows(self, authority: str, viewer: str) -> bool:
        """Whether it has within a day."""
        since = self._since.get((authority, viewer))
        return since is not None and self._clock() - since < KEPT_FOR
