"""Whether there is a model for search by meaning, and it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from indexer.doctor.report import Check, failed, passed, warned
from memory.embedding import Absent, Embedder
from memory.errors import MemoryAppviewError, Misconfigured

OpenEmbedder = Callable[[], Awaitable[Embedder | Absent]]

PATIENCE_S: Final = 20.0
_NAME: Final = "meaning"
_WORD: Final = "memory"


async def check_embedder(open_embedder: OpenEmbedder, patience_s: float = PATIENCE_S) -> Check:
    """Whether the settings' model gives a vector of one plain word."""
    try:
        async with asyncio.timeout(patience_s):
            embedder = await open_embedder()
            if isinstance(embedder, Absent):
                return warned(
                    _NAME,
                    f"search is by words only, because {embedder.reason}",
                    "Name a server of embeddings in EMBEDDING_URL and EMBEDDING_MODEL, with EMBEDDING_BACKEND=server; "
                    "or leave it so with EMBEDDING_BACKEND=none.",
                )
            try:
                [vector] = await embedder.embed_passages([_WORD])
            finally:
                await embedder.aclose()
    except TimeoutError:
        return failed(_NAME, "the embedder does not answer in time", "See that the server of EMBEDDING_URL runs.")
    except MemoryAppviewError as failure:
        setting = failure.setting if isinstance(failure, Misconfigured) else "EMBEDDING_URL"
        return failed(_NAME, failure.message, f"Mend {setting}, or what it leads to.")
    return passed(_NAME, f"{embedder.model} answers, with {len(vector)} dimensions")
