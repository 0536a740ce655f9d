"""Rows about embeddings: models, vectors, and the contents that wait for theirs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

from indexer.books import RecordKey
from indexer.store.records import record_columns
from memory.embedding import Vector, vector_text
from memory.queries import Connection, load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "embeddings.sql")


class Lane(IntEnum):
    """In which order requests are taken. Each lane has its turn now and then, however full the ones before it are."""

    LIVE = 0
    BACKLOG = 1  # was there before the model, or came with a whole repo
    DOUBTFUL = 2  # was refused, or taken again and again by workers that died: one at a time, less and less often


async def are_kept(conn: Connection) -> bool:
    """Whether there is any model. Right for memories that the transaction has written before it asks: nobody else gives
    those a vector until it ends.
    """
    return bool(await _SQL.any_model.fetchval(conn))


async def request(conn: Connection, contents: Sequence[tuple[RecordKey, str]], lane: Lane) -> None:
    """Has contents (key, CID) wait for a vector of each model; in the transaction that stores them."""
    columns = record_columns(key for key, _ in contents)
    await _SQL.request_embeddings.execute(conn, **columns, cids=[cid for _, cid in contents], lane=lane)


async def forget(conn: Connection, keys: Iterable[RecordKey]) -> None:
    """Deletes vectors, and what waits for some, at these keys; in the transaction that changed the memories."""
    await _SQL.forget_embeddings.execute(conn, **record_columns(keys))


@dataclass(frozen=True, slots=True)
class Request:
    """A content that waits for its vectors; it was taken for the `attempts`th time."""

    key: RecordKey
    cid: str
    attempts: int


@dataclass(frozen=True, slots=True, repr=False)
class Embedded:
    """A content's vectors, one for each passage."""

    request: Request
    vectors: Sequence[Vector]


@dataclass(frozen=True, slots=True)
class Turn:
    """How requests are taken: up to `count`, of each repo up to `each`, from the repo after `after` on."""

    count: int
    each: int
    after: tuple[str, str]
    with_spaces: bool
    lease_s: float


async def claim(conn: Connection, model: str, lane: Lane, turn: Turn) -> list[Request]:
    """Takes requests, which nobody else gets until the lease ends: the newest of each repo, repos in their order."""
    rows = await _SQL.claim.fetch(
        conn,
        model=model,
        lane=lane,
        after_repo=turn.after[0],
        after_space=turn.after[1],
        with_spaces=turn.with_spaces,
        count=turn.count,
        each=turn.each,
        lease_s=turn.lease_s,
    )
    return sorted(
        (Request((row["repo"], row["space"], row["rkey"]), row["cid"], row["attempts"]) for row in rows),
        key=lambda request: request.key,
    )


async def load_contents(conn: Connection, requests: Sequence[Request]) -> dict[RecordKey, str]:
    """The contents that requests mean; of those that are gone or others by now, none."""
    rows = await _SQL.claimed_contents.fetch(conn, **_columns(requests))
    return {(row["repo"], row["space"], row["rkey"]): row["content"] for row in rows}


async def store(conn: Connection, model: str, embedded: Sequence[Embedded]) -> set[RecordKey]:
    """Stores vectors of contents that are still those, whose requests end with it; says which were."""
    passages = [(each.request.key, chunk, vector) for each in embedded for chunk, vector in enumerate(each.vectors)]
    rows = await _SQL.store_embeddings.fetch(
        conn,
        **_columns([each.request for each in embedded]),
        model=model,
        vector_repos=[key[0] for key, _, _ in passages],
        vector_spaces=[key[1] for key, _, _ in passages],
        vector_rkeys=[key[2] for key, _, _ in passages],
        chunks=[chunk for _, chunk, _ in passages],
        vectors=[vector_text(vector) for _, _, vector in passages],
    )
    return {(row["repo"], row["space"], row["rkey"]) for row in rows}


async def drop_stale(conn: Connection, model: str, requests: Sequence[Request]) -> None:
    """Ends requests for contents that are gone or others by now."""
    await _SQL.drop_requests.execute(conn, **_columns(requests), model=model)


async def give_back(conn: Connection, model: str, requests: Sequence[Request], lane: Lane = Lane.LIVE) -> None:
    """Lets requests be taken again at once, in this lane or a slower one; that they were taken does not count."""
    await _SQL.give_back.execute(conn, **_columns(requests), model=model, lane=lane)


async def postpone(
    conn: Connection, model: str, requests: Sequence[Request], wait_s: float, *, doubtful: bool = False
) -> None:
    """Keeps requests from being taken for so long, or for as long as they are held if that is longer."""
    columns = _columns(requests)
    await _SQL.postpone_requests.execute(conn, **columns, model=model, wait_s=wait_s, doubtful=doubtful)


def _columns(requests: Sequence[Request]) -> dict[str, object]:
    return {**record_columns(each.key for each in requests), "cids": [each.cid for each in requests]}
