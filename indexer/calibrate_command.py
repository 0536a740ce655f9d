"""`python -m indexer calibrate`: what the likenesses of a model mean, measured anew."""

from __future__ import annotations

import json
import sys
from typing import Final

from indexer.calibration import calibrate
from indexer.embed import OpenEmbedder, opened_models
from indexer.store import embedding_models
from memory.database import Database
from memory.embedding import Absent
from memory.errors import Misconfigured

HELP: Final = """\
Measures how like a question of chance is to a statement, and one that it answers, on 64 short pairs in eleven languages
that come along, and stores that with the model: scores of search by meaning go by it. Done by itself when a model is
added; needed again only when the server behind a model has changed. For the model that comes along it says what it
measures, and stores what its ranking was chosen with.

  python -m indexer calibrate                  # the model that serves
  python -m indexer calibrate --model bge-m3
"""


async def run(database: Database, open_embedder: OpenEmbedder, model: str | None) -> int:
    """Measures and stores; the exit status. Raises Misconfigured for a model that is not there or not to be had."""
    async with database.connection() as conn:
        kept = [each.model for each in await embedding_models.load_models(conn) if each.state != "leaving"]
    if model is None:
        model = next(iter(kept), None)
    if model not in kept:
        raise Misconfigured(f"There is no such model; there are: {', '.join(kept) or 'none'}.")
    async with opened_models(open_embedder) as models:
        embedder = await models.look_up(model)
        if isinstance(embedder, Absent):
            raise Misconfigured(
                f"The model {model} is not to be had here: {embedder.reason}.", setting="EMBEDDING_MODEL"
            )
        measured = await calibrate(embedder)
    async with database.connection() as conn:
        await embedding_models.store_calibration(conn, model, measured.stored())
    figures = {"chance": round(measured.chance, 4), "right": round(measured.right, 4)}
    sys.stdout.write(json.dumps({"model": model, "low": measured.low, "high": measured.high, **figures}) + "\n")
    return 0
