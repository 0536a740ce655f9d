"""Rows of the index as its writer leaves them, for tests of what reads them.

    rows = MemoryRows()
    rows.repo(ALICE, handle="alice.test")
    old = rows.put(ALICE, "Likes green tea.", days=1)
    new = rows.put(ALICE, "Likes black tea.", days=2, supersedes=[old])
    await rows.write(database)

Everything derived (terms, masks, edges, versions, counts) is computed from the records by the project's own functions.
`write` replaces whatever was there, so that a test may add rows and write again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any

import asyncpg
import cbrrr

from appview.keys import Key, uri_of
from memory.database import Database
from memory.identifiers import COLLECTION, cid_text
from memory.masking import Mask, Node, evaluate, is_upward, order_key, targets
from memory.queries import Connection
from memory.record import Memory, interpret_record
from memory.terms import index_terms
from tests.builders import block_cid, tid

ALICE = "did:plc:aliceaaaaaaaaaaaaaaaaaaa"
BOB = "did:plc:bobbbbbbbbbbbbbbbbbbbbbb"
CAROL = "did:plc:carolccccccccccccccccccc"
SPACE = "at://did:plc:spaceaaaaaaaaaaaaaaaaaa/space/com.example.group/family"

START = datetime(2026, 1, 1, tzinfo=UTC)

_TABLES = (
    *("memories", "memory_edges", "memory_versions", "repos", "identities", "sources"),
    *("embeddings", "embedding_requests"),
)
_EMPTY_SHA256 = sha256(b"").digest()


def day(number: float) -> datetime:
    """So many days after the beginning of 2026."""
    return START + timedelta(days=number)


def text(moment: datetime) -> str:
    """A datetime as records and requests have it."""
    return moment.isoformat().replace("+00:00", "Z")


@dataclass(slots=True)
class Version:
    """One observed state."""

    operation: str
    observed_at: datetime
    block: bytes | None


@dataclass(slots=True)
class Stored:
    """One record key: its observed states, the last of which is current."""

    key: Key
    versions: list[Version] = field(default_factory=list)

    @property
    def block(self) -> bytes | None:
        return self.versions[-1].block

    @property
    def first_indexed_at(self) -> datetime:
        return self.versions[0].observed_at

    def memory(self) -> Memory:
        assert self.block is not None
        memory = interpret_record(self.key.rkey, self.block)
        assert isinstance(memory, Memory), memory
        return memory


class MemoryRows:
    """Some repos and their memories, to be written as rows."""

    def __init__(self) -> None:
        self.repos: dict[tuple[str, str], dict[str, Any]] = {}
        self.handles: dict[str, str] = {}
        self.stored: dict[Key, Stored] = {}
        self.frame_time: datetime | None = None
        self._count = 0

    def repo(
        self,
        did: str,
        *,
        space: str = "",
        handle: str | None = None,
        visible: bool = True,
        state: str = "active",
        reason: str | None = None,
        **columns: Any,
    ) -> None:
        """A repo; `put` makes one by itself that is visible and active."""
        self.repos[did, space] = {"visible": visible, "state": state, "reason": reason, **columns}
        if handle is not None:
            self.handles[did] = handle

    def put(
        self,
        did: str,
        content: str,
        *,
        space: str = "",
        rkey: str | None = None,
        days: float | None = None,
        indexed_days: float | None = None,
        supersedes: Sequence[Key | str] = (),
        occurred: tuple[str, str] | None = None,
        agent: str | None = None,
        client: str | None = None,
        **properties: Any,
    ) -> Key:
        """A record, or a new state of the one at `rkey`; created and seen `days` after START, else a day apart."""
        self._count += 1
        created_at = day(self._count if days is None else days)
        indexed_at = created_at if indexed_days is None else day(indexed_days)
        key = Key(did, space, rkey or tid(START + timedelta(seconds=self._count)))
        entries = [uri_of(entry) if isinstance(entry, Key) else entry for entry in supersedes]
        provenance = {name: value for name, value in (("agent", agent), ("client", client)) if value is not None}
        record = {"$type": COLLECTION, "content": content, "createdAt": text(created_at), **properties}
        record |= {"supersedes": entries} if entries else {}
        record |= {"provenance": provenance} if provenance else {}
        record |= {"occurredAt": {"from": occurred[0], "precision": occurred[1]}} if occurred else {}
        return self.put_record(key, record, indexed_at)

    def put_record(self, key: Key, record: dict[str, Any], indexed_at: datetime) -> Key:
        """A whole record as it is."""
        self.repos.setdefault((key.repo, key.space), {"visible": True, "state": "active", "reason": None})
        stored = self.stored.setdefault(key, Stored(key))
        there = bool(stored.versions) and stored.block is not None
        block = cbrrr.encode_dag_cbor(record, atjson_mode=True)
        stored.versions.append(Version("updated" if there else "created", indexed_at, block))
        stored.memory()
        return key

    def delete(self, key: Key, *, days: float) -> None:
        """The record is deleted; its versions are redacted."""
        self.stored[key].versions.append(Version("deleted", day(days), None))

    async def write(self, database: Database) -> None:
        """Replace the rows of the index by these."""
        async with database.transaction() as conn:
            for table in _TABLES:
                await conn.execute(f"delete from {table}")
            for table, rows in self._rows().items():
                if rows:
                    await _insert(conn, table, rows)

    def _rows(self) -> dict[str, list[dict[str, Any]]]:
        current: defaultdict[tuple[str, str], list[Stored]] = defaultdict(list)
        for stored in self.stored.values():
            if stored.block is not None:
                current[stored.key.repo, stored.key.space].append(stored)
        memories: list[dict[str, Any]] = []
        edges: list[dict[str, Any]] = []
        for of_repo in current.values():
            own_memories, own_edges = _derive(of_repo)
            memories += own_memories
            edges += own_edges
        versions = [row for stored in self.stored.values() for row in _version_rows(stored)]
        counts = _counts(memories)
        repos = [
            {
                "repo": did,
                "space": space,
                "rev": tid(START),
                "data_cid": "bafyreia",
                "memory_count": len(current[did, space]),
                **counts[did, space],
                "tracked_at": START,
                "first_indexed_at": START,
                "changed_at": START,
                "status": None,
                "status_changed_at": None,
                **row,
            }
            for (did, space), row in self.repos.items()
        ]
        identities = [{"repo": did, "handle": handle, "resolved_at": START} for did, handle in self.handles.items()]
        sources = (
            [{"source": "https://relay.test", "seq": 1, "frame_time": self.frame_time, "updated_at": START}]
            if self.frame_time is not None
            else []
        )
        return {
            "memories": memories,
            "memory_edges": edges,
            "memory_versions": versions,
            "repos": repos,
            "identities": identities,
            "sources": sources,
        }


def _derive(of_repo: Iterable[Stored]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """The rows of `memories` and `memory_edges` of one repo in one Space."""
    nodes: dict[str, Node] = {}
    values: dict[str, tuple[Stored, Memory]] = {}
    for stored in of_repo:
        memory = stored.memory()
        rkey = stored.key.rkey
        order = order_key(memory.created_at, memory.updated_at, rkey)
        effective_at = min(memory.created_at, stored.first_indexed_at)
        nodes[rkey] = Node(rkey, order, effective_at, targets(memory.supersedes, *stored.key))
        values[rkey] = (stored, memory)
    masks = evaluate(nodes)
    memories: list[dict[str, Any]] = []
    edges: list[dict[str, Any]] = []
    for rkey, (stored, memory) in values.items():
        mask, node, block = masks[rkey], nodes[rkey], stored.block
        assert block is not None
        content = memory.content.replace("\0", "\ufffd")
        terms = index_terms(content)
        memories.append(
            {
                **stored.key._asdict(),
                "cid": _cid(block),
                "rev": tid(START),
                "record": block,
                "content": content,
                "kind": _clean(memory.kind),
                "scope": _clean(memory.scope),
                "agent": _clean(memory.agent),
                "client": _clean(memory.client),
                "created_at": memory.created_at,
                "updated_at": memory.updated_at,
                "first_indexed_at": stored.first_indexed_at,
                "indexed_at": stored.versions[-1].observed_at,
                "effective_at": node.effective_at,
                "occurred_from": memory.occurred.start if memory.occurred else None,
                "occurred_to": memory.occurred.end if memory.occurred else None,
                "version": len(stored.versions),
                "content_bytes": len(memory.content.encode()),
                "terms": terms.tsvector,
                "term_count": terms.count,
                "masked_from": mask.masked_from,
                "masked_spans": _spans(mask),
                "component": mask.component,
            }
        )
        edges += [
            {
                **stored.key._asdict(),
                "target": target,
                "upward": target in nodes and is_upward(node.order, nodes[target].order),
                "ignored": target in masks and rkey in masks[target].ignored,
            }
            for target in node.targets
        ]
    return memories, edges


def _counts(memories: Iterable[dict[str, Any]]) -> defaultdict[tuple[str, str], dict[str, int]]:
    """What each repo counts as a memory store."""
    counts: defaultdict[tuple[str, str], dict[str, int]] = defaultdict(lambda: {"entry_count": 0, "entry_bytes": 0})
    for row in memories:
        if row["masked_from"] is None:
            counted = counts[row["repo"], row["space"]]
            counted["entry_count"] += 1
            counted["entry_bytes"] += row["content_bytes"]
    return counts


def _version_rows(stored: Stored) -> Iterable[dict[str, Any]]:
    deleted = stored.block is None
    last = len(stored.versions)
    for number, version in enumerate(stored.versions, start=1):
        after = stored.versions[number] if number < last else None
        memory = interpret_record(stored.key.rkey, version.block) if version.block is not None else None
        content = memory.content.encode() if isinstance(memory, Memory) and not deleted else b""
        yield {
            **stored.key._asdict(),
            "number": number,
            "operation": version.operation,
            "cid": _cid(version.block) if version.block is not None and not deleted else None,
            "scope": memory.scope if isinstance(memory, Memory) and not deleted else None,
            "content_bytes": len(content),
            "content_sha256": sha256(content).digest(),
            "record": version.block if after is not None and not deleted else None,
            "observed_at": version.observed_at,
            "overwritten_at": after.observed_at if after is not None else None,
            "redacted_at": stored.versions[-1].observed_at if deleted else None,
            "id_hash": _id_hash(stored.key, number, version),
        }


async def _insert(conn: Connection, table: str, rows: Sequence[dict[str, Any]]) -> None:
    columns = list(rows[0])
    values = ", ".join(
        f"${number}::text::tsvector" if column == "terms" else f"${number}"
        for number, column in enumerate(columns, start=1)
    )
    # executemany is what asyncpg has for many rows; the driver's own connection has it.
    many: Any = conn
    statement = f"insert into {table} ({', '.join(columns)}) values ({values})"
    await many.executemany(statement, [[row[column] for column in columns] for row in rows])


def _spans(mask: Mask) -> list[Any] | None:
    return None if mask.spans is None else [asyncpg.Range(*span) for span in mask.spans]


def _id_hash(key: Key, number: int, version: Version) -> bytes:
    cid = "" if version.block is None else _cid(version.block)
    return sha256(f"{uri_of(key)}#{number} {version.operation} {cid}".encode()).digest()[:16]


def _cid(block: bytes) -> str:
    return cid_text(bytes(block_cid(block)))


def _clean(text: str | None) -> str | None:
    return None if text is None else text.replace("\0", "\ufffd")
