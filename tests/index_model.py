"""What an index of memories holds, once more: plain Python over the current contents of repos, nothing incremental.

A repo takes writes (rkey → record or None) and keeps what was observed of each key. Masks are asked anew of what is
there, by `tests.masking_model`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from memory.identifiers import COLLECTION
from tests.masking_model import ModelMemory, World, component, ignores, is_masked, there_at

Record = Mapping[str, object]


@dataclass
class ModelVersion:
    """An observed state."""

    operation: str
    cid: str | None  # null once redacted
    current: bool


@dataclass
class ModelKey:
    """One record key: what stands there, and all that was observed."""

    cid: str | None = None
    record: Record | None = None  # the current record, valid or not
    valid: bool = False
    first_indexed_at: datetime | None = None
    versions: list[ModelVersion] = field(default_factory=list[ModelVersion])


class ModelRepo:
    """One author's memories."""

    def __init__(self, did: str) -> None:
        self.did = did
        self.keys: dict[str, ModelKey] = {}

    def write(self, rkey: str, cid: str | None, record: Record | None, valid: bool, at: datetime) -> None:
        """Puts a record, or deletes with a null one."""
        key = self.keys.setdefault(rkey, ModelKey())
        if record is not None and key.cid == cid:
            return
        lineage = bool(key.versions) and key.versions[-1].operation != "deleted"
        if record is None:
            for version in key.versions:
                version.cid, version.current = None, False
            if lineage:
                key.versions.append(ModelVersion("deleted", None, False))
        else:
            for version in key.versions:
                version.current = False
            if valid:
                key.versions.append(ModelVersion("updated" if lineage else "created", cid, True))
                if not key.valid:
                    key.first_indexed_at = at
        key.cid, key.record, key.valid = cid, record, record is not None and valid

    @property
    def memories(self) -> dict[str, Record]:
        """The current, valid records."""
        return {rkey: key.record for rkey, key in self.keys.items() if key.valid and key.record is not None}

    @property
    def invalid(self) -> list[str]:
        """The rkeys of current, invalid records, in order."""
        return sorted(rkey for rkey, key in self.keys.items() if key.record is not None and not key.valid)

    def effective_at(self, rkey: str) -> datetime:
        """min(createdAt, first indexed)."""
        key = self.keys[rkey]
        assert key.record is not None
        assert key.first_indexed_at is not None
        return min(_time(key.record["createdAt"]), key.first_indexed_at)

    def world(self) -> World:
        """The memories as masking sees them; times become ranks, so that only their order can matter."""
        memories = self.memories
        ages = _ranks(_time(record.get("updatedAt", record["createdAt"])) for record in memories.values())
        times = _ranks(self.effective_at(rkey) for rkey in memories)
        return {
            rkey: ModelMemory(
                rkey,
                ages[_time(record.get("updatedAt", record["createdAt"]))],
                times[self.effective_at(rkey)],
                frozenset(self._targets(rkey, record)),
            )
            for rkey, record in memories.items()
        }

    def masked_at(self, time: datetime | None) -> set[str]:
        """The rkeys that are masked as of `time`, among those that are there; null: now."""
        world = self.world()
        if time is not None:
            ranks = _ranks(self.effective_at(rkey) for rkey in self.memories)
            world = there_at(world, sum(1 for moment in ranks if moment <= time) - 1)
        return {rkey for rkey in world if is_masked(world, rkey)}

    def cyclic(self) -> set[str]:
        """The rkeys in some cycle."""
        world = self.world()
        return {rkey for rkey in world if component(world, rkey)}

    def replaced_by(self, rkey: str) -> set[str]:
        """The rkeys of the current memories that replace `rkey`, those of ignored edges left out."""
        world = self.world()
        return {other for other, memory in world.items() if rkey in memory.replaces and not ignores(world, other, rkey)}

    def _targets(self, rkey: str, record: Record) -> set[str]:
        prefix = f"at://{self.did}/{COLLECTION}/"
        entries = record.get("supersedes", [])
        assert isinstance(entries, list)
        return {entry.removeprefix(prefix) for entry in entries if entry.startswith(prefix)} - {rkey}


def _time(text: object) -> datetime:
    assert isinstance(text, str)
    return datetime.fromisoformat(text)


def _ranks(times: Iterable[datetime]) -> dict[datetime, int]:
    return {moment: rank for rank, moment in enumerate(sorted(set(times)))}
