"""The vectors of what was deleted are gone from the files too, those of indexes included."""

from __future__ import annotations

import asyncio
import struct

import pytest

from indexer.embed import ModelCare
from memory.cluster import Cluster
from memory.database import Database
from memory.embedding import Vector
from memory.queries import Connection
from tests.builders import memory
from tests.embedding_double import Double, add, models_of, work_off, worker_of
from tests.feed import Feed, rkey
from tests.store.test_erasure import erased

CONTENTS = [f"Number {number}." for number in range(40)]


async def bytes_of(conn: Connection, vector: Vector) -> set[bytes]:
    """As a vector stands in the table and, at unit length by Postgres' arithmetic, in the index."""
    text = "[" + ",".join(f"{number:.6g}" for number in vector) + "]"
    sent = await conn.fetchrow(
        "select halfvec_send($1::text::halfvec) as table, halfvec_send(l2_normalize($1::text::halfvec)) as index", text
    )
    assert sent is not None
    return {struct.pack(f"<{len(vector)}H", *struct.unpack(f">{len(vector)}H", each[4:])) for each in sent}


async def in_files(cluster: Cluster, database: Database, double: Double, contents: list[str]) -> dict[str, set[str]]:
    """Table and index → the contents whose vectors stand in its files."""
    async with database.connection() as conn:
        await conn.execute("checkpoint")
        vectors = {content: await bytes_of(conn, double.vector(content)) for content in contents}
        relations = await conn.fetch(
            "select relname, pg_relation_filepath(oid) as path from pg_class"
            " where relname = 'embeddings' or relname like 'embeddings_nearest%'"
        )
    found: dict[str, set[str]] = {}
    for row in relations:
        file = await asyncio.to_thread((cluster.data / row["path"]).read_bytes)
        name = "table" if row["relname"] == "embeddings" else "index"
        found[name] = {content for content, shapes in vectors.items() if any(shape in file for shape in shapes)}
    return found


@pytest.mark.parametrize("rewritten", [True, False])
async def test_no_file_holds_the_vectors_of_what_was_deleted(cluster: Cluster, database: Database, *, rewritten: bool):
    double, feed = Double(gives=16), Feed(database)
    alice = feed.account("alice")
    await add(database, double)
    await ModelCare(database, models_of(double)).look()
    await feed.send(*(alice.create(rkey(number), memory(content)) for number, content in enumerate(CONTENTS)))
    await work_off(database, worker_of(database, double))
    every = set(CONTENTS)
    assert await in_files(cluster, database, double, CONTENTS) == {"table": every, "index": every}
    await feed.send(*(alice.delete(rkey(number)) for number in range(0, 40, 2)))
    left = set(CONTENTS[1::2])
    if rewritten:
        await erased(database)
        assert await in_files(cluster, database, double, CONTENTS) == {"table": left, "index": left}
    else:
        await erased(database, rewritten_bytes_max=0)
        assert (await in_files(cluster, database, double, CONTENTS))["index"] == left
