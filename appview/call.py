"""One call of one method, and what answering it needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Protocol, TypeAlias

from appview.access import Viewer
from appview.issuers import Issuers
from appview.page_cursor import PageCursors, Place, Question
from appview.parameters import Parameters
from appview.rates import Rates
from appview.refusals import TooBusy
from appview.spaces.exchange import Exchange
from appview.store.stats import RecentTotals
from memory.database import Database
from memory.query_embedding import NoVector
from memory.sealed import SealingKeys

# Of fourteen connections, with four searches of two each.
_WALKS_AT_ONCE: Final = 2
_WALKS_WAITING: Final = 100  # most take milliseconds
_STREAMED_PAGES_AT_ONCE: Final = 2


class Turns:
    """Turns at what is heavy: so many at a time, a few who wait, in order; others are sent away at once."""

    def __init__(self, *, at_once: int, waiting: int) -> None:
        self._free = asyncio.Semaphore(at_once)
        self._places = at_once + waiting
        self._taken = 0

    @asynccontextmanager
    async def turn(self) -> AsyncGenerator[None]:
        """Waits for a turn and lends it. Raise TooBusy if as many wait already as may."""
        if self._taken >= self._places:
            raise TooBusy
        self._taken += 1
        try:
            async with self._free:
                yield
        finally:
            self._taken -= 1


class QueryModels(Protocol):
    """What makes vectors of queries."""

    async def embed(self, model: str, wording: str, *, private: bool) -> Sequence[float] | NoVector:
        """The vector of a query by a model, of unit length, or why there is none; `private`: it is put to Spaces."""
        ...

    async def may_hang(self, model: str) -> bool:
        """Whether its vectors may be long in coming, since another process makes them."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class SpaceOpening:
    """What opens Spaces.

    `viewers` counts by viewer, and by viewer and host; `authorities` by authority, and strangers by host.
    """

    issuers: Issuers
    exchange: Exchange
    keys: SealingKeys
    viewers: Rates
    authorities: Rates


@dataclass(frozen=True, slots=True)
class Resources:
    """What every answer is made with. Searches take turns, so that they leave connections and time to other answers.

    So do lists that may have to walk past all memories to find a page, and pages of streams, of which one request may
    ask for thousands.
    """

    database: Database
    page_cursors: PageCursors
    clock: Callable[[], datetime]
    searches: Turns
    totals: RecentTotals
    walks: Turns = field(default_factory=lambda: Turns(at_once=_WALKS_AT_ONCE, waiting=_WALKS_WAITING))
    streams: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_STREAMED_PAGES_AT_ONCE))
    query_models: QueryModels | None = None  # None: searches are lexical
    search_model: str | None = None  # instead of the one that serves
    opening: SpaceOpening | None = None  # None: no Space can be opened

    def walk(self, *, narrowed: bool) -> AbstractAsyncContextManager[None]:
        """A turn at a list, if it is `narrowed` by what no index helps with. Raise TooBusy."""
        return self.walks.turn() if narrowed else nullcontext()


@dataclass(frozen=True, slots=True)
class Call:
    """A viewer's valid request."""

    method: str
    viewer: Viewer
    parameters: Parameters
    resources: Resources
    address: str = ""  # the network that it comes from; empty: this very machine

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
