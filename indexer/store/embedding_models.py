"""Rows about models of embeddings: which there are, which serves, and the walks that look for what lacks a vector."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from indexer.books import RecordKey
from memory.queries import Connection, Statement, load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "embeddings.sql")

INDEX_BUILD_S: Final = 24 * 3600.0
FIRST_WALKS: Final = 2
"""Walks before a model may be complete: what was written while it was added shows in the second."""


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model, as the index knows it. `walks`: how often all memories were gone through for those without a vector."""

    model: str
    dimensions: int
    state: str  # filling, serving, standby
    added_at: datetime
    serve_at_share: float
    walks: int
    calibration: Mapping[str, Any] | None
    calibrated_at: datetime | None


async def load_models(conn: Connection) -> list[StoredModel]:
    """All models, the serving one first."""
    return [
        StoredModel(
            row["model"],
            row["dimensions"],
            row["state"],
            row["added_at"],
            row["serve_at_share"],
            row["walks"],
            None if row["calibration"] is None else json.loads(row["calibration"]),
            row["calibrated_at"],
        )
        for row in await _SQL.models.fetch(conn)
    ]


async def add_model(conn: Connection, model: str, dimensions: int, serve_at_share: float = 1.0) -> None:
    """Adds a model, if it is new: the first one serves from the start, others fill."""
    await _SQL.add_model.execute(conn, model=model, dimensions=dimensions, serve_at_share=serve_at_share)


async def serve_model(conn: Connection, model: str) -> None:
    """Has searches go by this model; the one that served stays filled. Within a transaction."""
    await _SQL.lock_models.fetch(conn)
    await _SQL.stand_by.execute(conn, model=model)
    await _SQL.serve_model.execute(conn, model=model)


async def forget_model(conn: Connection, model: str) -> bool:
    """Has a model that does not serve be filled no longer; False: it serves, or there is none."""
    return await _SQL.forget_model.execute(conn, model=model) > 0


async def drop_some(conn: Connection, count: int) -> int:
    """Deletes so many vectors and requests of models that are not kept; says how many it found."""
    vectors = await _SQL.drop_some_embeddings.execute(conn, count=count)
    return vectors + await _SQL.drop_some_requests.execute(conn, count=count)


async def store_calibration(conn: Connection, model: str, calibration: Mapping[str, Any]) -> None:
    """Keeps what was measured of a model."""
    await _SQL.store_calibration.execute(conn, model=model, calibration=json.dumps(calibration))


async def keep_index(conn: Connection, model: str, dimensions: int) -> None:
    """Makes the index for searches over all authors, unless it is there; takes hours over millions of vectors."""
    row = await _SQL.index_statements.fetchrow(conn, model=model, dimensions=dimensions)
    assert row is not None
    if row["valid"]:
        return
    # An index that was broken off is in the way.
    for name in ("drop_index", "create_index"):
        await Statement(name, "an index for one model", row[name], ()).execute_for(conn, INDEX_BUILD_S)


async def drop_index(conn: Connection, model: str, dimensions: int) -> None:
    """Drops the index of a model that is not kept."""
    row = await _SQL.index_statements.fetchrow(conn, model=model, dimensions=dimensions)
    assert row is not None
    await Statement("drop_index", "an index for one model", row["drop_index"], ()).execute_for(conn, INDEX_BUILD_S)


@dataclass(frozen=True, slots=True)
class WalkStep:
    """One step of a walk: memories gone through, of which some were asked for. `ended`: those were the last."""

    walked: int
    asked: int
    ended: bool


async def walk(conn: Connection, model: str, count: int) -> WalkStep | None:
    """Looks at the next memories for those without a vector, and asks for theirs; None: another worker does just now.

    Within a transaction.
    """
    position = await _SQL.walk_position.fetchrow(conn, model=model)
    if position is None:
        return None
    row = await _SQL.walk.fetchrow(
        conn,
        model=model,
        repo=position["walked_repo"],
        space=position["walked_space"],
        rkey=position["walked_rkey"],
        count=count,
    )
    walked, asked = (0, 0) if row is None else (row["walked"], row["asked"])
    ended = row is None or walked < count
    place: RecordKey = ("", "", "") if row is None or ended else (row["repo"], row["space"], row["rkey"])
    await _SQL.move_walk.execute(
        conn, model=model, repo=place[0], space=place[1], rkey=place[2], walks=1 if ended else 0
    )
    return WalkStep(walked, asked, ended)


@dataclass(frozen=True, slots=True)
class Coverage:
    """How far a model is: contents that wait for vectors, and those of them that failed again and again."""

    model: str
    dimensions: int
    state: str
    walks: int
    waiting: int
    failing: int

    @property
    def complete(self) -> bool:
        """Whether no content is known to lack a vector."""
        return self.walks >= FIRST_WALKS and self.waiting == 0


async def load_coverage(conn: Connection) -> list[Coverage]:
    """How far each model is, the serving one first."""
    return [Coverage(**dict(row)) for row in await _SQL.coverage.fetch(conn)]


async def count_embedded(conn: Connection, model: str) -> tuple[int, int]:
    """How many memories there are, and how many of them have a vector of a model. Goes through all of them."""
    row = await _SQL.count_embedded.fetchrow(conn, model=model)
    assert row is not None
    return row["memories"], row["embedded"]
