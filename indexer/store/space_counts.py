"""How Spaces do, in numbers: for metrics and `status`. Nothing here names a Space, an author or a host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Final

from memory.queries import Connection, Row, load_queries

_SQL = load_queries(Path(__file__).parent / "sql" / "space_counts.sql")

TALLIES_READ: Final = 500  # of more different words nobody would make sense


class SpaceState(StrEnum):
    """How a Space does, the first that fits from the end."""

    READY = "ready"  # served to whoever may read it
    STALE = "stale"  # not served, for it was not confirmed in time
    SYNCING = "syncing"  # not all of its authors' repos were pulled yet
    UNREACHABLE = "unreachable"  # its authors cannot be listed at the moment
    UNREAD = "unread"  # no credential for it holds: nothing is asked, and nothing served
    DELETED = "deleted"  # being purged


class SpaceRepoState(StrEnum):
    """How a repo in a Space does, the first that fits from the end."""

    IN_STEP = "in_step"  # what is held is what is listed
    BEHIND = "behind"  # something else is listed, since a moment ago
    NEW = "new"  # never pulled
    UNLISTED = "unlisted"  # hidden: a complete listing leaves it out
    STALE = "stale"  # hidden: it was not confirmed in time
    INACTIVE = "inactive"  # hidden: its author's account is


class Work(StrEnum):
    """What is done of Spaces."""

    LISTING = "listing"
    PULL = "pull"
    PURGE = "purge"
    REGISTRATION = "registration"


@dataclass(frozen=True, slots=True)
class SpaceCounts:
    """All Spaces at one moment. What has no rows is not named in the mappings."""

    spaces: Mapping[str, int] = field(default_factory=dict[str, int])  # by SpaceState
    repos: Mapping[str, int] = field(default_factory=dict[str, int])  # by SpaceRepoState
    told: int = 0  # Spaces whose hosts tell us of writes
    pulls: int = 0  # repos that are to be pulled
    pulls_late_s: float = 0.0  # for so long the first of them could have been
    notes: int = 0  # of the API, that wait to be acted upon
    notes_late_s: float = 0.0  # for so long the first of them has waited
    swept_s: float = 0.0  # so long ago was listed what was not for the longest, of Spaces that can be
    unlisted: Mapping[str, int] = field(default_factory=dict[str, int])  # reason → Spaces that cannot be listed
    unpulled: Mapping[str, int] = field(default_factory=dict[str, int])  # reason → repos that cannot be pulled

    @property
    def in_all(self) -> int:
        """How many Spaces there are."""
        return sum(self.spaces.values())


NO_SPACES: Final = SpaceCounts()

_SWEPT: Final = (SpaceState.READY, SpaceState.STALE, SpaceState.SYNCING)


async def count_spaces(conn: Connection, now: datetime | None) -> SpaceCounts:
    """Goes through whole tables, each once or twice."""
    spaces = await _SQL.spaces_by_state.fetch(conn, now=now)
    repos = await _SQL.space_repos_by_state.fetch(conn, now=now)
    inbox = await _SQL.space_notes_waiting.fetchrow(conn, now=now)
    notes, notes_late_s = (0, 0.0) if inbox is None else tuple(inbox)
    return SpaceCounts(
        spaces={row["state"]: row["spaces"] for row in spaces},
        repos={row["state"]: row["repos"] for row in repos},
        told=sum(row["told"] for row in spaces),
        pulls=sum(row["pulls"] for row in repos),
        pulls_late_s=max((row["late_s"] for row in repos), default=0.0),
        notes=notes,
        notes_late_s=notes_late_s,
        swept_s=max((row["swept_s"] for row in spaces if row["state"] in _SWEPT), default=0.0),
        unlisted=_by_reason(await _SQL.failing_spaces.fetch(conn, now=now)),
        unpulled=_by_reason(await _SQL.failing_space_repos.fetch(conn)),
    )


async def add_tallies(conn: Connection, counts: Mapping[tuple[Work, str], int], now: datetime | None) -> None:
    """Counts what came of work, by a word of ours for each outcome."""
    works, outcomes = [work for work, _ in counts], [outcome for _, outcome in counts]
    await _SQL.add_tallies.execute(conn, works=works, outcomes=outcomes, times=list(counts.values()), now=now)


async def load_tallies(conn: Connection) -> dict[tuple[str, str], int]:
    """What came of all work so far, by work and outcome."""
    rows = await _SQL.load_tallies.fetch(conn, at_most=TALLIES_READ)
    return {(row["work"], row["outcome"]): row["times"] for row in rows}


def _by_reason(rows: Iterable[Row]) -> dict[str, int]:
    return {row["reason"]: row["failing"] for row in rows}
