"""A repo at one of its revs, and what an index that holds it whole has in its tables: by the plain model, in full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from indexer.arrivals import FetchedHead
from indexer.quota import QuotaLimits
from memory.database import Database
from memory.identifiers import cid_text
from memory.queries import Row
from memory.record import Memory, interpret_record
from tests.feed import LONG_AGO
from tests.index_model import ModelRepo


@dataclass(frozen=True)
class Snapshot:
    """A state of the repo; it is what a fetch takes for the contents."""

    head: FetchedHead
    records: Mapping[str, tuple[bytes, bytes]]  # rkey → binary CID and block

    def leaves(self) -> Iterator[tuple[str, bytes]]:
        for key, (cid, _) in sorted(self.records.items()):
            yield key, cid

    def block(self, cid: bytes) -> bytes:
        return next(block for each, block in self.records.values() if each == cid)

    @property
    def cids(self) -> dict[str, str]:
        return {key: cid_text(cid) for key, (cid, _) in self.records.items()}

    def memories(self) -> dict[str, Memory]:
        """Those that are valid, in order of rkey."""
        found = {key: interpret_record(key, block) for key, (_, block) in sorted(self.records.items())}
        return {key: memory for key, memory in found.items() if isinstance(memory, Memory)}

    def invalid(self) -> list[str]:
        """The rkeys of the records that fail the lexicon, in order."""
        return sorted(self.records.keys() - self.memories().keys())

    def kept_invalid(self, limits: QuotaLimits) -> list[str]:
        """Those of them that a quota lets in: the first few before the first memory that it keeps out."""
        kept_out = list(self.memories())[len(self.longest_run(limits)) :]
        before = [key for key in self.invalid() if not kept_out or key < kept_out[0]]
        return before[: limits.max_invalid]

    def longest_run(self, limits: QuotaLimits) -> list[str]:
        """The rkeys of the memories that a quota lets in."""
        run: list[str] = []
        record_bytes = 0
        for key in self.memories():
            record_bytes += len(self.records[key][1])
            if len(run) == limits.max_memories or record_bytes > limits.max_bytes:
                break
            run.append(key)
        return run


@dataclass(frozen=True)
class Holdings:
    """Every row of one repo."""

    memories: list[Row]
    invalid: list[Row]
    edges: list[Row]
    versions: list[Row]
    parked: int


async def read_holdings(database: Database, did: str) -> Holdings:
    async with database.connection() as conn:
        return Holdings(
            await conn.fetch("select * from memories where repo = $1 order by rkey", did),
            await conn.fetch("select rkey, cid from invalid_records where repo = $1", did),
            await conn.fetch("select * from memory_edges where repo = $1", did),
            await conn.fetch("select * from memory_versions where repo = $1 order by rkey, number", did),
            await conn.fetchval("select count(*) from parked_commits where repo = $1", did),
        )


def assert_held(held: Holdings, row: Row, snapshot: Snapshot, did: str, limits: QuotaLimits) -> bool:
    """The tables are those of a repo at that rev; whether all is held that the quota lets in."""
    assert (row["commit_cid"], row["data_cid"]) == (snapshot.head.commit_cid, snapshot.head.data_cid)
    cids, memories = snapshot.cids, snapshot.memories()
    there, fits = list(memories)[: len(held.memories)], snapshot.longest_run(limits)
    invalid, kept = snapshot.invalid()[: len(held.invalid)], snapshot.kept_invalid(limits)
    assert {each["rkey"]: each["cid"] for each in held.memories} == {key: cids[key] for key in there}
    assert {each["rkey"]: each["cid"] for each in held.invalid} == {key: cids[key] for key in invalid}
    assert len(there) <= len(fits)
    assert len(invalid) <= len(kept)
    assert row["over_quota_count"] == len(cids) - len(there) - len(invalid)
    assert (row["memory_count"], row["invalid_count"]) == (len(there), len(invalid))
    assert row["memory_bytes"] == sum(len(each["record"]) for each in held.memories)
    assert row["edge_count"] == len(held.edges)
    _assert_masks(held, _model(did, {key: memories[key] for key in there}, cids), there)
    _assert_versions(held.versions, cids, there)
    return (len(there), len(invalid)) == (len(fits), len(kept))


def _model(did: str, memories: Mapping[str, Memory], cids: Mapping[str, str]) -> ModelRepo:
    model = ModelRepo(did)
    for key, memory in memories.items():
        record: dict[str, object] = {"createdAt": iso(memory.created_at), "supersedes": list(memory.supersedes)}
        if memory.updated_at is not None:
            record["updatedAt"] = iso(memory.updated_at)
        model.write(key, cids[key], record, True, LONG_AGO)
    return model


def _assert_masks(held: Holdings, model: ModelRepo, there: Sequence[str]) -> None:
    assert {row["rkey"] for row in held.memories if row["masked_from"]} == model.masked_at(None)
    assert {row["rkey"] for row in held.memories if row["component"]} == model.cyclic()
    for key in there:
        replacers = {row["rkey"] for row in held.edges if row["target"] == key and not row["ignored"]}
        assert replacers == model.replaced_by(key)


def _assert_versions(versions: Sequence[Row], cids: Mapping[str, str], there: Sequence[str]) -> None:
    """What is current is the last version of its key; what was deleted is erased."""
    for key in {row["rkey"] for row in versions} | set(there):
        seen = [row for row in versions if row["rkey"] == key]
        assert [row["number"] for row in seen] == list(range(1, len(seen) + 1))
        alive = False
        for row in seen:
            assert (row["operation"] == "created") == (not alive)
            alive = row["operation"] != "deleted"
        last_deleted = max((row["number"] for row in seen if row["operation"] == "deleted"), default=0)
        for row in seen:
            assert (row["redacted_at"] is not None) == (row["number"] <= last_deleted)
            assert (row["cid"] is None) == (row["number"] <= last_deleted)
        if key in there:
            assert (seen[-1]["cid"], seen[-1]["record"]) == (cids[key], None)
        elif key not in cids:
            assert not alive


def iso(moment: datetime) -> str:
    """A datetime as records have it."""
    return moment.isoformat().replace("+00:00", "Z")
