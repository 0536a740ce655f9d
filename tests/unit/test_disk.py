"""The disk for large repos: one budget for all of a process, some of it always free, and what is done without it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from indexer.resync.disk import (
    FIRST_PAUSE_S,
    HINT,
    LONGEST_PAUSE_S,
    WAIT_FOR_ROOM_S,
    Disk,
    DiskBudget,
    RoomTaken,
)
from indexer.resync.spool import DiskUnavailable, Spool
from memory.errors import Rejected

FULL = DiskUnavailable("the disk is full")


class Time:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def disk(folder: Path, in_all: int = 1000, *, processes: int = 1) -> Disk:
    return Disk(DiskBudget(folder, in_all, processes, kept_free_bytes=0))


def blocks(count: int, size: int = 100) -> Iterator[tuple[bytes, bytes]]:
    for _ in range(count):
        yield os.urandom(36), bytes(size)


def fill(spool: Spool, count: int) -> None:
    """Blocks that are written at once, for they are looked for."""
    spool.add(list(blocks(count)))
    spool.get(bytes(36))


# How much


def test_files_of_all_repos_share_one_budget(tmp_path: Path):
    room = disk(tmp_path, 10 * 140)
    with Spool(tmp_path, memory_bytes=0, room=room) as first, Spool(tmp_path, memory_bytes=0, room=room) as second:
        fill(first, 6)
        fill(second, 4)
        with pytest.raises(RoomTaken):
            fill(second, 1)
        assert room.taken_bytes == 10 * 140


def test_room_comes_back_when_a_repo_is_done_however_that_ends(tmp_path: Path):
    room = disk(tmp_path, 10 * 140)
    with Spool(tmp_path, memory_bytes=0, room=room) as spool:
        fill(spool, 10)
    with pytest.raises(RuntimeError), Spool(tmp_path, memory_bytes=0, room=room) as spool:
        fill(spool, 10)
        raise RuntimeError
    assert room.taken_bytes == 0


def test_repo_that_stays_in_memory_takes_none(tmp_path: Path):
    room = disk(tmp_path, 0)
    with Spool(tmp_path / "none", memory_bytes=10_000, room=room) as spool:
        fill(spool, 10)


def test_repo_that_needs_more_than_all_there_is_is_too_big(tmp_path: Path):
    with Spool(tmp_path, memory_bytes=0, room=disk(tmp_path, 9 * 140)) as spool, pytest.raises(Rejected) as refused:
        fill(spool, 10)
    assert refused.value.reason == "too_big"


def test_process_of_a_crew_takes_its_part_and_blames_no_repo_that_needs_more(tmp_path: Path):
    room = disk(tmp_path, 20 * 140, processes=4)
    with Spool(tmp_path, memory_bytes=0, room=room) as spool:
        fill(spool, 5)
        with pytest.raises(RoomTaken):
            fill(spool, 1)


def test_budget_is_shared_by_as_many_as_there_are():
    assert DiskBudget(in_all_bytes=80).shared(4) == DiskBudget(in_all_bytes=80, processes=4)


def test_some_of_the_disk_stays_free_whoever_takes_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("os.statvfs", lambda _: SimpleNamespace(f_bavail=10, f_frsize=140))
    room = Disk(DiskBudget(tmp_path, 10**9, kept_free_bytes=4 * 140))
    room.take(6 * 140, 0)
    with pytest.raises(DiskUnavailable, match="is full"):
        room.take(6 * 140 + 1, 0)
    assert room.taken_bytes == 6 * 140


def test_disk_that_is_gone_is_no_bug(tmp_path: Path):
    with pytest.raises(DiskUnavailable, match="No such file"):
        disk(tmp_path / "gone").take(1, 0)


# What is done without


def test_no_fetch_begins_for_a_while_that_grows_up_to_some_minutes(tmp_path: Path):
    time = Time()
    lacking = Disk(DiskBudget(tmp_path, kept_free_bytes=0), time)
    assert lacking.pause_s() == 0
    pauses: list[float] = []
    for _ in range(8):
        lacking.note(FULL)
        pauses.append(lacking.pause_s())
        time.now += lacking.pause_s()
        assert lacking.pause_s() == 0
    assert pauses[:3] == [FIRST_PAUSE_S, 2 * FIRST_PAUSE_S, 4 * FIRST_PAUSE_S]
    assert pauses[-1] == LONGEST_PAUSE_S


def test_what_fails_together_counts_once_and_waits_as_long(tmp_path: Path):
    time = Time()
    lacking = Disk(DiskBudget(tmp_path), time)
    assert [lacking.note(FULL) for _ in range(8)] == [FIRST_PAUSE_S] * 8
    time.now += FIRST_PAUSE_S / 2
    assert lacking.pause_s() == FIRST_PAUSE_S / 2


def test_it_is_told_once_and_once_more_when_it_works_again(tmp_path: Path):
    time = Time()
    room = Disk(DiskBudget(tmp_path, kept_free_bytes=0), time)
    with capture_logs() as logs:
        for _ in range(3):
            room.note(FULL)
            time.now += 1000
        for _ in range(2):
            with Spool(tmp_path, memory_bytes=0, room=room) as spool:
                fill(spool, 1)
        room.note(FULL)
    assert [(told["event"], told["log_level"]) for told in logs] == [
        ("disk_unavailable", "error"),
        ("disk_available", "info"),
        ("disk_unavailable", "error"),
    ]
    assert (logs[0]["hint"], "INDEXER_SPOOL_DIR" in HINT) == (HINT, True)
    assert room.pause_s() == FIRST_PAUSE_S


def test_repo_that_failed_or_needed_no_file_does_not_show_that_the_disk_works(tmp_path: Path):
    room = disk(tmp_path, 10_000)
    room.note(FULL)
    with pytest.raises(Rejected), Spool(tmp_path, memory_bytes=0, room=room) as spool:
        fill(spool, 1)
        raise Rejected
    with Spool(tmp_path, memory_bytes=10_000, room=room) as spool:
        fill(spool, 1)
    assert room.pause_s() > 0


def test_room_that_others_take_is_waited_for_and_slows_nobody_else(tmp_path: Path):
    room = disk(tmp_path)
    with capture_logs() as logs:
        assert room.note(RoomTaken()) == WAIT_FOR_ROOM_S
    assert (room.pause_s(), logs) == (0, [])
