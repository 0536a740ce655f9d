"""Rows about models of embeddings: which there are, which serves, and the walks that look for what lacks a vector."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from indexer.books import RecordKey
from memory.errors import Misconfigured
from memory.queries import Connection, Row, Statement, load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "embeddings.sql")

INDEX_BUILD_S: Final = 24 * 3600.0
FIRST_WALKS: Final = 2
"""Walks before a model may be complete: what was written while it was added shows in the second."""


@dataclass(frozen=True, slots=True)
class StoredModel:
    """A model, as the index knows it. `walks`: how often all memories were gone through for those without a vector."""

    model: str
    dimensions: int
    state: str  # filling, serving, standby, leaving
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


async def add_model(conn: Connection, model: str, dimensions: int, serve_at_share: float = 1.0) -> str:
    """Adds a model if it is new, or has it filled again; its state. The first one serves from the start, others fill.

    Raises Misconfigured if its vectors were of another length before.
    """
    parameters = {"model": model, "dimensions": dimensions, "serve_at_share": serve_at_share}
    state = await _SQL.add_model.fetchval(conn, **parameters)
    if state is None:
        raise other_dimensions(model, dimensions)
    return state


def other_dimensions(model: str, dimensions: int) -> Misconfigured:
    """The error of a model whose vectors are of another length than those that are stored under its name."""
    return Misconfigured(
        f"The model {model} gives {dimensions} dimensions now, and gave others when it was added: it is another model "
        "under the same name. Name it otherwise, or serve another and forget this one "
        f"(`python -m indexer reembed --drop {model}`).",
        setting="EMBEDDING_MODEL",
    )


async def serve_model(conn: Connection, model: str) -> bool:
    """Has searches go by this model; the one that served stays filled. False: there is none. Within a transaction."""
    kept = {row["model"]: row["state"] for row in await _SQL.lock_models.fetch(conn)}
    if kept.get(model, "leaving") == "leaving":
        return False
    await _SQL.stand_by.execute(conn, model=model)
    await _SQL.serve_model.execute(conn, model=model)
    return True


async def leave_model(conn: Connection, model: str) -> bool:
    """Has a model that does not serve be filled no longer, and be deleted; False: it serves, or there is none."""
    return await _SQL.leave_model.execute(conn, model=model) > 0


@dataclass(frozen=True, slots=True)
class DropStep:
    """Vectors that one step deleted. `ended`: the model is gone."""

    vectors: int
    ended: bool


async def drop_some(conn: Connection, model: str, count: int) -> DropStep | None:
    """Deletes so many vectors and requests of a model that is leaving; None: another process does just now.

    Within a transaction.
    """
    position = await _SQL.leaving_position.fetchrow(conn, model=model)
    if position is None:
        return None
    place = (position["walked_repo"], position["walked_space"])
    row = await _drop_slice(conn, model, place, count)
    if row is not None:
        await _SQL.move_walk.execute(conn, model=model, repo=row["repo"], space=row["space"], rkey="", walks=0)
        return DropStep(row["dropped"], ended=False)
    if await _SQL.drop_some_requests.execute(conn, model=model, count=count):
        return DropStep(0, ended=False)
    if place != ("", ""):  # what was not waited for
        await _SQL.move_walk.execute(conn, model=model, repo="", space="", rkey="", walks=0)
        return DropStep(0, ended=False)
    await _SQL.lock_leaving.fetch(conn, model=model)
    row = await _drop_slice(conn, model, place, count)
    ended = row is None and await _SQL.delete_model.execute(conn, model=model) > 0
    return DropStep(0 if row is None else row["dropped"], ended)


async def _drop_slice(conn: Connection, model: str, place: tuple[str, str], count: int) -> Row | None:
    return await _SQL.drop_some_embeddings.fetchrow(conn, model=model, repo=place[0], space=place[1], count=count)


async def drop_stray_requests(conn: Connection) -> None:
    """Deletes requests of models that are gone; goes through all of them."""
    await _SQL.drop_stray_requests.execute(conn)


async def store_calibration(conn: Connection, model: str, calibration: Mapping[str, Any]) -> None:
    """Keeps what was measured of a model."""
    await _SQL.store_calibration.execute(conn, model=model, calibration=json.dumps(calibration))


async def index_is_valid(conn: Connection, model: str, dimensions: int) -> bool | None:
    """Whether the index for searches over all authors is whole; None: there is none."""
    return (await _index(conn, model, dimensions))["valid"]


async def build_index(conn: Connection, model: str, dimensions: int) -> None:
    """Makes that index, beside whoever reads and writes; takes hours over millions of vectors. In no transaction."""
    row = await _index(conn, model, dimensions)
    # One that was broken off is in the way.
    for name in ("drop_index", "create_index"):
        await Statement(name, "an index for one model", row[name], ()).execute_for(conn, INDEX_BUILD_S)


async def drop_index(conn: Connection, model: str, dimensions: int) -> None:
    """Drops the index of a model that is not kept. In no transaction."""
    row = await _index(conn, model, dimensions)
    await Statement("drop_index", "an index for one model", row["drop_index"], ()).execute_for(conn, INDEX_BUILD_S)


async def _index(conn: Connection, model: str, dimensions: int) -> Row:
    row = await _SQL.index_statements.fetchrow(conn, model=model, dimensions=dimensions)
    if row is None:
        raise AssertionError("it selects constants")
    return row


async def try_lock_indexes(conn: Connection) -> bool:
    """Whether this session is now the one that builds and drops indexes."""
    return bool(await _SQL.try_lock_indexes.fetchval(conn))


async def unlock_indexes(conn: Connection) -> None:
    """It no longer is."""
    await _SQL.unlock_indexes.execute(conn)


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
    """How far a model is: contents that wait for vectors."""

    model: str
    dimensions: int
    state: str
    walks: int
    calibrated: bool
    waiting: int
    backlog: int  # of the waiting, what was there before the model, or came with whole repos; public
    backlog_of_spaces: int
    failing: int  # of the waiting, what was refused, or taken again and again

    @property
    def complete(self) -> bool:
        """Whether no content is known to lack a vector."""
        return self.walks >= FIRST_WALKS and self.waiting == 0

    def ready(self, *, with_spaces: bool) -> bool:
        """Whether nothing lacks a vector but what has just come, what is refused, and, on demand, Spaces."""
        backlog = self.backlog + (self.backlog_of_spaces if with_spaces else 0)
        return self.walks >= FIRST_WALKS and backlog == 0


async def load_coverage(conn: Connection) -> list[Coverage]:
    """How far each model is, the serving one first."""
    return [Coverage(**dict(row)) for row in await _SQL.coverage.fetch(conn)]


async def count_embedded(conn: Connection, model: str) -> tuple[int, int]:
    """How many memories there are, and how many of them have a vector of a model. Goes through all of them."""
    row = await _SQL.count_embedded.fetchrow(conn, model=model)
    if row is None:
        raise AssertionError("it selects counts")
    return row["memories"], row["embedded"]
