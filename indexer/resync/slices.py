"""The pieces in which a difference is applied. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from indexer.arrivals import ContentsFetched, Place
from indexer.interpret import InvalidMemory, MemoryOp, StoredMemory
from indexer.verify.reasons import Fault


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of what a fetch changes, for one transaction."""

    rev: str  # of the commit that was fetched
    ops: Sequence[MemoryOp]
    first: bool  # of the fetch's
    fresh: bool  # as in ContentsFetched
    beyond: int = 0  # as there

    def arrival(self, place: Place, repo: str, token: UUID) -> ContentsFetched:
        """It, for the writer."""
        return ContentsFetched(place, repo, token, self.rev, tuple(self.ops), self.first, self.fresh, self.beyond)

    @property
    def has_targets(self) -> bool:
        """Whether a memory in it replaces others."""
        return any(isinstance(op.entry, StoredMemory) and op.entry.targets for op in self.ops)

    @property
    def can_be_less(self) -> bool:
        """Whether it can be halved, or its only memory be left out."""
        return len(self.ops) > 1 or (len(self.ops) == 1 and isinstance(self.ops[0].entry, StoredMemory))

    def parts(self) -> list[Slice]:
        """Its halves, one after the other; of a single op one that is invalid, for the database cannot hold it."""
        if len(self.ops) == 1:
            return [replace(self, ops=[_unstorable(self.ops[0])])]
        middle = len(self.ops) // 2
        first, second = self.ops[:middle], self.ops[middle:]
        return [
            replace(self, ops=first, fresh=False),
            replace(self, ops=second, first=False, fresh=False, beyond=0),
        ]


def _unstorable(op: MemoryOp) -> MemoryOp:
    cid = op.entry.cid if op.entry is not None else ""
    return MemoryOp(op.rkey, InvalidMemory(cid, Fault.UNSTORABLE, b""), op.created)
