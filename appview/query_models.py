"""Models for queries, each opened when the first search goes by it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from memory.embedding import Absent, Embedder
from memory.query_embedding import NoVector, QueryVectors

OpenEmbedder = Callable[[str], Awaitable[Embedder | Absent]]
"""Opens the embedder whose vectors go by that name."""


class OpenedModels:
    """The models that searches went by since the start: as a rule one, two after a change."""

    def __init__(self, open_embedder: OpenEmbedder, *, allow_private: bool) -> None:
        self._open_embedder = open_embedder
        self._allow_private = allow_private
        self._opened: dict[str, QueryVectors] = {}
        self._opening = asyncio.Lock()

    async def embed(self, model: str, wording: str, *, private: bool) -> Sequence[float] | NoVector:
        """The vector of a query by that model, or why there is none."""
        vectors = self._opened.get(model) or await self._open(model)
        return await vectors.find(wording, private=private)

    async def aclose(self) -> None:
        """Close them."""
        for vectors in self._opened.values():
            await vectors.aclose()

    async def _open(self, model: str) -> QueryVectors:
        async with self._opening:
            if model not in self._opened:
                embedder = await self._open_embedder(model)
                self._opened[model] = QueryVectors(embedder, allow_private=self._allow_private)
            return self._opened[model]
