"""One call of one method, and what answering it needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from appview.access import Viewer
from appview.page_cursor import PageCursors, Place, Question
from appview.parameters import Parameters
from memory.database import Database


@dataclass(frozen=True, slots=True)
class Resources:
    """What every answer is made with."""

    database: Database
    page_cursors: PageCursors
    clock: Callable[[], datetime]


@dataclass(frozen=True, slots=True)
class Call:
    """A viewer's valid request."""

    method: str
    viewer: Viewer
    parameters: Parameters
    resources: Resources

    def seal_cursor(self, place: Place) -> str:
        """The page cursor that leads on from `place`."""
        return self.resources.page_cursors.seal(self._question(), place)

    def open_cursor(self) -> Place:
        """The place that the request's page cursor holds, None on the first page. Raise InvalidCursor."""
        text = self.parameters.text("cursor")
        return None if text is None else self.resources.page_cursors.open(self._question(), text)

    def _question(self) -> Question:
        return Question(self.viewer.id, self.method, self.parameters.fingerprint())


Answer: TypeAlias = Callable[[Call], Awaitable[bytes]]
"""Makes the JSON text that answers a call. Raises Refusal, and Unavailable when the database is away."""

Stream: TypeAlias = Callable[[Call], AsyncIterator[bytes]]
"""Makes all that a call asks for, in pieces of whole lines, each the JSON text of one record. Raises as Answer does."""
