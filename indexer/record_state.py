"""The state of one record key within a batch: what is held, what the ops leave, and the versions between. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from hashlib import sha256

from indexer.interpret import InvalidMemory, StoredMemory

EMPTY_SHA256 = sha256(b"").digest()


class Operation(StrEnum):
    """How a version came about."""

    CREATED = "created"
    UPDATED = "updated"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class HeldRecord:
    """What the tables hold at one record key."""

    cid: str | None  # of the current valid memory
    version: int | None  # its number
    effective_at: datetime | None
    first_indexed_at: datetime | None
    record_bytes: int
    targets: tuple[str, ...]  # rkeys that it replaces
    replaced: bool  # some current memory points here
    component: str | None
    last_number: int  # of the newest version; 0 = never seen
    last_operation: Operation | None
    invalid_cid: str | None  # of the current invalid record
    content_bytes: int = 0
    masked: bool = False


NOTHING_HELD = HeldRecord(None, None, None, None, 0, (), False, None, 0, None, None)


@dataclass(slots=True)
class NewVersion:
    """A row for `memory_versions`."""

    number: int
    operation: Operation
    observed_at: datetime
    entry: StoredMemory | None  # null: a tombstone, or redacted
    overwritten_at: datetime | None = None
    redacted_at: datetime | None = None
    named_cid: str = ""  # what its id is made of: of the state that was seen, though it may be erased since


@dataclass(slots=True)
class RecordState:
    """One record key: begins as it is held, and takes ops in order."""

    held: HeldRecord
    entry: StoredMemory | InvalidMemory | None = None  # null: as held, or absent (see `changed`)
    rev: str | None = None
    indexed_at: datetime | None = None
    first_indexed_at: datetime | None = None
    changed: bool = False
    overwritten_at: datetime | None = None  # when the held version's content was replaced
    redacted_at: datetime | None = None  # when every version up to the tombstone was erased
    versions: list[NewVersion] = field(default_factory=list[NewVersion])
    withheld: StoredMemory | InvalidMemory | None = None  # what this batch put here, and the quota keeps out

    @property
    def cid(self) -> str | None:
        """Of what stands at this key now, valid or not."""
        if self.changed:
            return self.entry.cid if self.entry else None
        return self.held.cid or self.held.invalid_cid

    @property
    def present(self) -> bool:
        return self.cid is not None

    @property
    def memory(self) -> StoredMemory | None:
        """The memory that this batch puts here; null also when the held one stays."""
        return self.entry if isinstance(self.entry, StoredMemory) else None

    @property
    def invalid(self) -> InvalidMemory | None:
        """The invalid record that this batch puts here."""
        return self.entry if isinstance(self.entry, InvalidMemory) else None

    @property
    def is_memory(self) -> bool:
        """Whether a valid memory stands here after this batch."""
        return self.memory is not None if self.changed else self.held.cid is not None

    def put(self, entry: StoredMemory | InvalidMemory, rev: str, at: datetime) -> None:
        """A create or an update; the CID that is current already changes nothing and is no version."""
        if self.cid == entry.cid:
            return
        was_memory = self.is_memory
        if was_memory:
            self._overwrite(at)
        if isinstance(entry, StoredMemory):
            if not was_memory:
                self.first_indexed_at = at
            elif not self.changed:
                self.first_indexed_at = self.held.first_indexed_at
            number, last = self._last()
            lineage = number > 0 and last is not Operation.DELETED
            operation = Operation.UPDATED if lineage else Operation.CREATED
            self.versions.append(NewVersion(number + 1, operation, at, entry, named_cid=entry.cid))
        self.entry, self.rev, self.indexed_at, self.changed = entry, rev, at, True

    def delete(self, at: datetime) -> None:
        """The tombstone; it and every earlier version are erased at once."""
        number, last = self._last()
        if number > 0 and last is not Operation.DELETED:
            for version in self.versions:
                version.entry, version.redacted_at = None, version.redacted_at or at
            self.redacted_at = self.redacted_at or at
            self.versions.append(NewVersion(number + 1, Operation.DELETED, at, None, redacted_at=at))
        self.entry, self.rev, self.indexed_at, self.changed = None, None, at, True

    def withhold(self) -> bool:
        """Unmakes what this batch put here, for the quota keeps it out; whether a record stood at the end.

        No version tells of it; the tombstone of an earlier life stays.
        """
        alive = self.held.last_number > 0 and self.held.last_operation is not Operation.DELETED
        tombstone = next((version for version in self.versions if version.operation is Operation.DELETED), None)
        self.versions = [replace(tombstone, number=self.held.last_number + 1)] if alive and tombstone else []
        self.withheld, self.entry = self.entry, None
        return self.withheld is not None

    def withhold_invalid(self) -> bool:
        """The same of an invalid record that stands at the end; what was a memory before is forgotten with it."""
        if self.invalid is None:
            return False
        self.versions, self.overwritten_at, self.redacted_at = [], None, None
        self.withheld, self.entry = self.entry, None
        return True

    def _overwrite(self, at: datetime) -> None:
        if self.versions and self.versions[-1].entry is not None:
            self.versions[-1].overwritten_at = at
        elif self.overwritten_at is None:
            self.overwritten_at = at

    def _last(self) -> tuple[int, Operation | None]:
        if self.versions:
            return self.versions[-1].number, self.versions[-1].operation
        return self.held.last_number, self.held.last_operation

    def entry_growth(self) -> tuple[int, int]:
        """By how much storing this batch's memory grows what of the repo is in view, and its bytes.

        A new one is in view until its mask is judged, one that is overwritten stays where it was.
        """
        memory, held = self.memory, self.held
        if memory is None or held.masked:
            return 0, 0
        return (0, memory.content_bytes - held.content_bytes) if held.cid else (1, memory.content_bytes)

    def growth(self) -> tuple[int, int, int, int]:
        """By how much the repo's memories, record bytes, edges and invalid records grow."""
        if not self.changed:
            return 0, 0, 0, 0
        memory, held = self.memory, self.held
        after = (1, len(memory.record), len(memory.targets)) if memory else (0, 0, 0)
        before = (1, held.record_bytes, len(held.targets)) if held.cid else (0, 0, 0)
        invalid = (self.invalid is not None) - (held.invalid_cid is not None)
        return after[0] - before[0], after[1] - before[1], after[2] - before[2], invalid
