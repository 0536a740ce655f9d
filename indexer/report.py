"""What commands print for machines."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from indexer.store.status import MemoryCounts


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The last line of a replay."""

    frames: int
    commits_verified: int  # and applied
    rejected: dict[str, int]  # frames that were not, by reason
    already_applied: int
    memories: MemoryCounts  # in the whole index
    seconds: float

    def to_json(self) -> str:
        """One line."""
        return json.dumps(asdict(self))
