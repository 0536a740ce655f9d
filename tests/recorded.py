"""The recorded firehose of real servers, and how tests replay it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from indexer.arrivals import Source, SourceKind
from indexer.quota import QuotaLimits
from indexer.recording import merge_by_seq, read_frames
from indexer.replay import PersistentWriter, Replay
from indexer.report import ReplayReport
from memory.database import Database
from memory.identity import PlcExport
from tests.builders import RepoBuilder

FOLDER = Path(__file__).parent / "recordings" / "firehose"
PDS1 = Source("http://localhost:2583", SourceKind.PDS)
PDS2 = Source("http://localhost:2584", SourceKind.PDS)
LIMITS = QuotaLimits(max_memories=100_000, max_bytes=2**28, max_edges=200_000)


@cache
def manifest() -> dict[str, Any]:
    """Describes every frame of every file."""
    return json.loads((FOLDER / "manifest.json").read_text())


@cache
def expected_memories() -> dict[str, Any]:
    """What the servers held at the end, valid or not, by DID."""
    return json.loads((FOLDER / "expected-memories.json").read_text())


def did(account: str) -> str:
    """The DID of one of the recorded people."""
    return manifest()["accounts"][account]


@cache
def export() -> PlcExport:
    """The directory's operations."""
    return PlcExport.read(FOLDER / "plc" / "export.jsonl")


@cache
def frames_of(*names: str) -> tuple[bytes, ...]:
    """The frames of these recordings, merged by seq."""
    return tuple(merge_by_seq([FOLDER / name for name in names]))


def tampered() -> list[tuple[dict[str, Any], bytes]]:
    """Each altered frame with what the manifest says of it."""
    return list(zip(manifest()["files"]["tampered.bin"], read_frames(FOLDER / "tampered.bin"), strict=True))


async def replay(
    database: Database,
    frames: Iterable[bytes],
    source: Source = PDS1,
    *,
    use_cursor: bool = True,
    batch_events: int = 500,
    limits: QuotaLimits = LIMITS,
    plc: PlcExport | None = None,
) -> ReplayReport:
    """Replays frames as `python -m indexer replay` does."""
    return await Replay(
        database,
        PersistentWriter(database, limits),
        source=source,
        export=plc or export(),
        admits=lambda _: True,
        batch_events=batch_events,
        use_cursor=use_cursor,
        progress=lambda _: None,
    ).run(frames)


def directory(authors: Iterable[RepoBuilder]) -> PlcExport:
    """A PLC directory that knows these authors, as an export gives them."""
    with NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("\n".join(author.export_line() for author in authors))
        file.flush()
        return PlcExport.read(Path(file.name))


TABLES = {
    "memories": "select * from memories order by repo, space, rkey",
    "edges": "select * from memory_edges order by repo, space, rkey, target",
    "versions": "select * from memory_versions order by repo, space, rkey, number",
    "invalid": "select * from invalid_records order by repo, space, rkey",
    # The directory is asked once more at the end of every replay, so a tombstone may come before the last commits.
    "repos": "select repo, space, state, reason, rev, commit_cid, data_cid, visible, status, memory_count,"
    " memory_bytes, edge_count, over_quota_count from repos where visible order by repo, space",
    "hidden": "select repo, space, visible, status, memory_count from repos where not visible order by repo, space",
    "identities": "select * from identities order by repo",
}


async def contents(database: Database, tables: Sequence[str] = tuple(TABLES)) -> dict[str, list[tuple[object, ...]]]:
    """All that an index holds, to compare two of them."""
    async with database.connection() as conn:
        return {table: [tuple(row) for row in await conn.fetch(TABLES[table])] for table in tables}
