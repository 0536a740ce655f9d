"""The vectors of what is searched for: never for long, and never at the cost of an answer.

A search goes on by words alone where there is no vector; it says so, and why.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from enum import StrEnum
from typing import Final

from memory.embed_server import ServerEmbedder
from memory.embedding import Absent, Embedder, TextRefused, Vector, clean_query
from memory.errors import MemoryAppviewError, Misconfigured
from memory.telemetry import get_logger

WAITING_AT_MOST: Final = 32
DEADLINE_S: Final = 1.0
CACHED_AT_MOST: Final = 2_000
CACHED_BYTES: Final = 64 * 1024 * 1024

_FAILURES_BEFORE_PAUSE: Final = 3
_PAUSE_S: Final = 5.0
_NUMBER_BYTES: Final = 32  # a float of Python in a list


class NoVector(StrEnum):
    """Why a query has no vector."""

    ABSENT = "absent"  # there is no embedder
    PRIVATE = "private"  # it may not leave the machine
    BUSY = "busy"  # too many wait already
    SLOW = "slow"  # the embedder took too long
    FAILED = "failed"  # the embedder failed, or has failed so often that it is left alone for a while


class QueryVectors:
    """Asks an embedder for the vectors of queries, and remembers those that anybody may read the answers of."""

    def __init__(
        self,
        embedder: Embedder | Absent,
        *,
        allow_private: bool = False,
        waiting_at_most: int = WAITING_AT_MOST,
        deadline_s: float = DEADLINE_S,
        cached_at_most: int = CACHED_AT_MOST,
        cached_bytes: int = CACHED_BYTES,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._embedder = embedder
        self._allow_private = allow_private
        self._waiting_at_most = waiting_at_most
        self._deadline_s = deadline_s
        self._cache = _Cache(cached_at_most, cached_bytes)
        self._monotonic = monotonic
        self._waiting = 0
        self._failures = 0
        self._paused_until = -1.0

    @property
    def model(self) -> str | None:
        """The name of the model whose vectors these are; None: there is none."""
        return None if isinstance(self._embedder, Absent) else self._embedder.model

    @property
    def may_hang(self) -> bool:
        """Whether another process makes them; a model in this one is slow only where many wait for it."""
        return not isinstance(self._embedder, Absent) and _is_elsewhere(self._embedder)

    async def find(self, text: str, *, private: bool) -> Vector | NoVector:
        """The vector of a query, or why there is none. `private`: it is asked of a Space; it is not remembered."""
        embedder = self._embedder
        if isinstance(embedder, Absent):
            return NoVector.ABSENT
        if private and embedder.leaves_machine and not self._allow_private:
            return NoVector.PRIVATE
        query = clean_query(text)
        known = None if private else self._cache.get(query)
        if known is not None:
            return known
        if self._monotonic() < self._paused_until:
            return NoVector.FAILED
        if self._waiting >= self._waiting_at_most:
            return NoVector.BUSY
        found = await self._ask(embedder, query)
        if not private and not isinstance(found, NoVector):
            self._cache.put(query, found)
        return found

    async def aclose(self) -> None:
        """Close the embedder."""
        if not isinstance(self._embedder, Absent):
            await self._embedder.aclose()

    async def _ask(self, embedder: Embedder, query: str) -> Vector | NoVector:
        self._waiting += 1
        try:
            async with asyncio.timeout(self._deadline_s):
                vector = await embedder.embed_query(query)
        except TimeoutError:
            if _is_elsewhere(embedder):
                self._note_failure(None)
            return NoVector.SLOW
        except TextRefused:
            return NoVector.FAILED
        except MemoryAppviewError as failure:
            self._note_failure(failure)
            return NoVector.FAILED
        finally:
            self._waiting -= 1
        if self._failures >= _FAILURES_BEFORE_PAUSE:
            get_logger().info("query_embedder_back")
        self._failures = 0
        return vector

    def _note_failure(self, failure: MemoryAppviewError | None) -> None:
        self._failures += 1
        if self._failures < _FAILURES_BEFORE_PAUSE:
            return
        self._paused_until = self._monotonic() + _PAUSE_S
        if self._failures == _FAILURES_BEFORE_PAUSE:
            get_logger().warning(
                "query_embedder_failing",
                message="It does not answer in time." if failure is None else failure.message,
                setting=failure.setting if isinstance(failure, Misconfigured) else None,
            )


def _is_elsewhere(embedder: Embedder) -> bool:
    return embedder.leaves_machine or isinstance(embedder, ServerEmbedder)


class _Cache:
    """The vectors of the queries that were asked last."""

    def __init__(self, count: int, size_bytes: int) -> None:
        self._count = count
        self._size_bytes = size_bytes
        self._held: OrderedDict[str, Vector] = OrderedDict()
        self._held_bytes = 0

    def get(self, query: str) -> Vector | None:
        vector = self._held.get(query)
        if vector is not None:
            self._held.move_to_end(query)
        return vector

    def put(self, query: str, vector: Vector) -> None:
        if query in self._held:
            return
        self._held[query] = vector
        self._held_bytes += _size(query, vector)
        while self._held and (len(self._held) > self._count or self._held_bytes > self._size_bytes):
            self._held_bytes -= _size(*self._held.popitem(last=False))


def _size(query: str, vector: Vector) -> int:
    return len(query.encode()) + _NUMBER_BYTES * len(vector)
