"""Models for queries, each opened when the first search goes by it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from memory.embedding import Absent, Embedder
from memory.errors import Misconfigured
from memory.query_embedding import NoVector, QueryVectors
from memory.telemetry import get_logger

OpenEmbedder = Callable[[str], Awaitable[Embedder | Absent]]
"""Opens the embedder whose vectors go by that name."""


class OpenedQueryModels:
    """The models that searches went by since the start: as a rule one, two after a change."""

    def __init__(self, open_embedder: OpenEmbedder, *, allow_private: bool) -> None:
        self._open_embedder = open_embedder
        self._allow_private = allow_private
        self._opened: dict[str, QueryVectors] = {}
        self._opening = asyncio.Lock()

    async def embed(self, model: str, wording: str, *, private: bool) -> Sequence[float] | NoVector:
        """The vector of a query by that model, or why there is none."""
        return await (await self._open(model)).find(wording, private=private)

    async def may_hang(self, model: str) -> bool:
        """Whether another process makes its vectors."""
        return (await self._open(model)).may_hang

    async def open(self, model: str) -> None:
        """Open a model that will be asked for; raise Misconfigured for settings that cannot be used."""
        self._opened[model] = QueryVectors(await self._open_embedder(model), allow_private=self._allow_private)

    async def aclose(self) -> None:
        """Close them."""
        for vectors in self._opened.values():
            await vectors.aclose()

    async def _open(self, model: str) -> QueryVectors:
        known = self._opened.get(model)
        if known is not None:
            return known
        async with self._opening:
            if model not in self._opened:
                self._opened[model] = QueryVectors(await self._try(model), allow_private=self._allow_private)
            return self._opened[model]

    async def _try(self, model: str) -> Embedder | Absent:
        try:
            return await self._open_embedder(model)
        except Misconfigured as failure:  # of a model that came to serve after the start, which has judged the settings
            get_logger().error("query_embedder_unusable", message=failure.message, setting=failure.setting)
            return Absent("its settings cannot be used")
