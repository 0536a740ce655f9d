"""The disk for repos that are too large for memory: how much of it their files may take, and what is done without it.

All files of one process have one budget, of which each of its crew has a part. Other processes, and perhaps the
database, share the disk: some of it always stays free, whoever takes the rest.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from indexer.back_off import back_off_s
from indexer.resync.spool import MEMORY_BYTES, DiskUnavailable
from indexer.verify.reasons import Unattributable
from memory.errors import Rejected
from memory.telemetry import get_logger

GIB: Final = 1024**3
BUDGET_BYTES: Final = 8 * GIB
KEPT_FREE_BYTES: Final = GIB
FIRST_PAUSE_S: Final = 10.0
LONGEST_PAUSE_S: Final = 300.0
WAIT_FOR_ROOM_S: Final = 60.0  # of a repo that found none beside others

DISK_UNAVAILABLE: Final = "disk_unavailable"  # why a fetch failed that found no room
HINT: Final = "INDEXER_SPOOL_DIR names the folder; `python -m indexer doctor` tells what is wrong with it."


@dataclass(frozen=True, slots=True)
class DiskBudget:
    """Where the files of one process, or of a command with all of its own, are, and how much they may take."""

    folder: Path | None = None  # null: the system's for temporary files
    in_all_bytes: int = BUDGET_BYTES
    processes: int = 1  # that have a part of it each
    kept_free_bytes: int = KEPT_FREE_BYTES  # of the disk
    memory_bytes: int = MEMORY_BYTES  # that a repo takes before it has a file

    def shared(self, processes: int) -> DiskBudget:
        """The part of each of so many processes."""
        return replace(self, processes=processes)


class RoomTaken(DiskUnavailable):
    """Other repos that are being fetched take all the room on the disk that there is for them."""


class Disk:
    """Room for the files of one process, and whether it can be had."""

    def __init__(self, budget: DiskBudget, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.budget = budget
        self.taken_bytes = 0
        self._monotonic = monotonic
        self._failures = 0  # since it last worked
        self._paused_until = 0.0

    def take(self, more: int, held: int) -> None:
        """Room for so many bytes more of a file that has `held`.

        Raises DiskUnavailable, and Rejected(too_big) for a file that would never find room.
        """
        if held + more > self.budget.in_all_bytes:
            raise Rejected(reason=Unattributable.TOO_BIG)
        if self.taken_bytes + more > self.budget.in_all_bytes // self.budget.processes:
            raise RoomTaken
        try:
            free = free_bytes(self.budget.folder)
        except OSError as error:
            raise DiskUnavailable(f"the disk for repos that are being fetched: {error.strerror}") from error
        if free - more < self.budget.kept_free_bytes:
            raise DiskUnavailable("the disk for repos that are being fetched is full")
        self.taken_bytes += more

    def give_back(self, held: int, *, worked: bool) -> None:
        """The room of a file that is gone. `worked`: it held all that it was to hold."""
        self.taken_bytes -= held
        if worked and self._failures:
            self._failures, self._paused_until = 0, 0.0
            get_logger().info("disk_available")

    def pause_s(self) -> float:
        """How long no fetch is to begin: what it needs may not be there."""
        return max(0.0, self._paused_until - self._monotonic())

    def note(self, failure: DiskUnavailable) -> float:
        """Has no fetch begin for a while, longer each time; how long what met this waits. Told once, until it works."""
        if isinstance(failure, RoomTaken):
            return WAIT_FOR_ROOM_S
        if not self.pause_s():  # else many met it at once
            self._failures += 1
            pause_s = back_off_s(self._failures, FIRST_PAUSE_S, LONGEST_PAUSE_S)
            self._paused_until = self._monotonic() + pause_s
            if self._failures == 1:
                get_logger().error("disk_unavailable", message=failure.message, hint=HINT)
        return max(self.pause_s(), FIRST_PAUSE_S)


def spool_folder(folder: Path | None) -> Path:
    """Where the files are."""
    return Path(tempfile.gettempdir()) if folder is None else folder


def free_bytes(folder: Path | None) -> int:
    """What is free on their disk, for whoever is no superuser; raises OSError."""
    disk = os.statvfs(spool_folder(folder))
    return disk.f_bavail * disk.f_frsize
