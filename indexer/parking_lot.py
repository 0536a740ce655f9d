"""How much waits for keys, and for whom there is room. No I/O."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from indexer.arrivals import CommitParked

ParkedKey = tuple[str, str, str]  # (repo, rev, source)


@dataclass(frozen=True, slots=True)
class ParkingLimits:
    """What may wait."""

    max_commits: int = 64  # a repo
    max_bytes: int = 256_000_000  # in all
    max_bytes_of_a_repo: int = 8_000_000  # also of one that is tracked: all share the room
    max_bytes_of_strangers: int = 128_000_000  # of repos that are not tracked, in all
    max_bytes_of_a_stranger: int = 2_500_000  # a full commit: a few forged DIDs must not take the room of all


@dataclass(frozen=True, slots=True)
class Parked:
    """What waits already."""

    sizes: dict[ParkedKey, int]  # of the repos that were asked for, in bytes
    total_bytes: int
    stranger_bytes: int


@dataclass(slots=True)
class ParkingLot:
    """Gives room as long as there is some."""

    limits: ParkingLimits
    parked: Parked
    _commits: Counter[str] = field(init=False)
    _bytes: Counter[str] = field(init=False)
    _total_bytes: int = field(init=False)
    _stranger_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        self._commits, self._bytes = Counter[str](), Counter[str]()
        for (repo, _, _), size in self.parked.sizes.items():
            self._commits[repo] += 1
            self._bytes[repo] += size
        self._total_bytes, self._stranger_bytes = self.parked.total_bytes, self.parked.stranger_bytes

    @property
    def totals(self) -> tuple[int, int]:
        """How many bytes wait in all, and of strangers, with those that were given a place."""
        return self._total_bytes, self._stranger_bytes

    def has(self, commit: CommitParked) -> bool:
        """Whether it waits already."""
        return _key(commit) in self.parked.sizes

    def take(self, commit: CommitParked, *, tracked: bool) -> bool:
        """Gives it a place; False: there is none."""
        size, repo, limits = len(commit.frame), commit.repo, self.limits
        fits = (
            self._commits[repo] < limits.max_commits
            and self._bytes[repo] + size <= limits.max_bytes_of_a_repo
            and self._total_bytes + size <= limits.max_bytes
        )
        if not tracked:
            fits = (
                fits
                and self._bytes[repo] + size <= limits.max_bytes_of_a_stranger
                and self._stranger_bytes + size <= limits.max_bytes_of_strangers
            )
            self._stranger_bytes += size if fits else 0
        if fits:
            self.parked.sizes[_key(commit)] = size
            self._commits[repo] += 1
            self._bytes[repo] += size
            self._total_bytes += size
        return fits


def _key(commit: CommitParked) -> ParkedKey:
    return commit.repo, commit.rev, commit.place.source.url
