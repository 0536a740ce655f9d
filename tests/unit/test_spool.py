"""Blocks beyond a bound are in a file, come back as they went in, and leave nothing behind."""

from __future__ import annotations

import os
import random
import resource
import tracemalloc
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.resync.spool import MAX_MISREADS, DiskUnavailable, Spool
from memory.errors import Rejected
from tests.builders import block_cid

Pair = tuple[bytes, bytes]

SMALL = 2000  # bytes in memory: a few blocks
SIZES = (0, 1, 300, 4055, 4056, 4057, 10_000, 1_000_001)


def pair(block: bytes) -> Pair:
    return block_cid(block), block


def some(count: int, size: int = 100) -> list[Pair]:
    return [pair(b"%08d" % number + b"x" * (size - 8)) for number in range(count)]


@given(st.lists(st.lists(st.binary(max_size=200), max_size=10), max_size=10), st.integers(0, 3000))
def test_blocks_come_back_as_they_went_in(batches: list[list[bytes]], memory_bytes: int) -> None:
    absent, _ = pair(b"nobody has this, for it is longer than what they have" * 10)
    with Spool(None, memory_bytes=memory_bytes) as spool:
        for batch in batches:
            spool.add([pair(block) for block in batch])
        for cid, block in (pair(block) for batch in batches for block in batch):
            assert cid in spool
            assert spool.get(cid) == block
        assert absent not in spool
        assert spool.get(absent) is None


def test_blocks_may_be_asked_for_between_those_that_come() -> None:
    with Spool(None, memory_bytes=0) as spool:
        blocks = some(3000)
        for count, (cid, block) in enumerate(blocks):
            assert cid not in spool
            spool.add([(cid, block)])
            assert spool.get(cid) == block
            assert spool.get(blocks[count // 2][0]) == blocks[count // 2][1]


@pytest.mark.parametrize("size", SIZES)
def test_blocks_of_every_size_come_back_whole(size: int) -> None:
    blocks = [pair(bytes([number]) * size) for number in range(3)]
    with Spool(None, memory_bytes=0) as spool:
        spool.add(blocks)
        assert [spool.get(cid) for cid, _ in blocks] == [block for _, block in blocks]


def test_repeated_blocks_are_legal() -> None:
    blocks = some(50)
    with Spool(None, memory_bytes=SMALL) as spool:
        for _ in range(3):
            spool.add(blocks)
        assert [spool.get(cid) for cid, _ in blocks] == [block for _, block in blocks]


def test_blocks_are_told_apart_by_their_whole_cid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indexer.resync.spool.hash", lambda _: 1, raising=False)
    digests = [bytes([number]) * 32 for number in range(MAX_MISREADS // 2)]
    cids = [prefix + digest for prefix in (b"\x01\x71\x12\x20", b"\x01\x55\x12\x20") for digest in digests]
    with Spool(None, memory_bytes=0) as spool:
        spool.add([(cid, b"%d" % number) for number, cid in enumerate(cids[1:])])
        assert [spool.get(cid) for cid in cids] == [None, *(b"%d" % number for number in range(len(cids) - 1))]
        assert cids[0] not in spool
        assert cids[1] in spool


# Two blocks whose digests share their first 38 bits, as anybody finds them within a second.
ALIKE = tuple(b"\x46" + number.to_bytes(6) for number in (202939, 336048))


def test_blocks_whose_digests_begin_alike_are_not_in_each_others_way(monkeypatch: pytest.MonkeyPatch) -> None:
    repeated, wanted = pair(ALIKE[0]), pair(ALIKE[1])
    assert (int.from_bytes(repeated[0][4:12]) ^ int.from_bytes(wanted[0][4:12])) >> 26 == 0
    read: list[int] = []

    def pread(file: int, length: int, place: int) -> bytes:
        read.append(place)
        return os_pread(file, length, place)

    os_pread = os.pread
    with Spool(None, memory_bytes=0) as spool:
        spool.add([repeated] * 1000)
        spool.add([wanted])
        monkeypatch.setattr("indexer.resync.spool.os.pread", pread)
        assert spool.get(wanted[0]) == wanted[1]
        assert len(read) == 1


def test_too_many_blocks_in_the_way_of_one_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("indexer.resync.spool.hash", lambda _: 1, raising=False)
    blocks = some(MAX_MISREADS + 2)
    with Spool(None, memory_bytes=0) as spool:
        spool.add(blocks[:-1])
        assert [spool.get(cid) for cid, _ in blocks[:-2]] == [block for _, block in blocks[:-2]]
        for ask in (spool.get, spool.__contains__):
            with pytest.raises(Rejected) as caught:
                ask(blocks[-1][0])
            assert caught.value.reason == "too_big"


# Memory


@pytest.mark.parametrize("size", [8, 500, 100_000])
def test_no_more_than_its_share_is_held_in_memory(size: int) -> None:
    share, count = 2_000_000, 20_000_000 // (size + 400)
    with Spool(None, memory_bytes=share) as spool:
        tracemalloc.start()
        for start in range(0, count, 10):
            spool.add([pair(b"%08d" % number + bytes(size - 8)) for number in range(start, min(start + 10, count))])
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (
            held < 1.5 * share + 12 * count + 300_000
        )  # some way beyond a block's cost, an index, what is not written
        assert 0.6 * held < spool.memory_bytes < 1.6 * held


def test_a_block_in_the_file_takes_a_few_bytes_of_memory() -> None:
    """So 1.3 million of them take 12 MB."""
    blocks = [(b"\x01\x71\x12\x20" + random.Random(number).randbytes(32), b"") for number in range(100_000)]
    with Spool(None, memory_bytes=0) as spool:
        tracemalloc.start()
        for start in range(0, len(blocks), 1000):
            spool.add(blocks[start : start + 1000])
        assert all(cid in spool for cid, _ in blocks[::100])
        held, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held < 12 * len(blocks)
        assert most < 12 * len(blocks) + 500_000
        assert spool.memory_bytes < 12 * len(blocks)


@pytest.mark.parametrize("repeated", [False, True])
def test_more_blocks_than_any_repo_has_are_refused(repeated: bool) -> None:
    with Spool(None, memory_bytes=0, max_filed_blocks=100) as spool:
        blocks = some(101)
        spool.add(blocks[:99])
        with pytest.raises(Rejected) as caught:
            spool.add(blocks[:2] if repeated else blocks[99:])
        assert caught.value.reason == "too_big"


# The disk


def open_files(folder: Path) -> list[int]:
    """The sizes of the files that this process holds open in a folder, with a name or without."""
    sizes: list[int] = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the listing itself
            if str(link.readlink()).startswith(f"{folder}/"):
                sizes.append(link.stat().st_size)
    return sizes


def test_what_fits_into_memory_needs_no_disk(tmp_path: Path) -> None:
    with Spool(tmp_path / "not there") as spool:
        spool.add(some(1000))
        assert all(spool.get(cid) == block for cid, block in some(1000))


def test_the_file_has_no_name_and_is_little_larger_than_its_blocks(tmp_path: Path) -> None:
    with Spool(tmp_path, memory_bytes=0) as spool:
        blocks = some(10_000)
        spool.add(blocks)
        assert blocks[0][0] in spool
        assert list(tmp_path.iterdir()) == []
        assert open_files(tmp_path) == [10_000 * (100 + 40)]
    assert open_files(tmp_path) == []


def test_the_file_is_gone_after_a_failure_too(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), Spool(tmp_path, memory_bytes=0) as spool:
        spool.add(some(10_000))
        assert len(open_files(tmp_path)) == 1
        raise RuntimeError
    assert open_files(tmp_path) == []


def test_a_folder_that_is_not_there_makes_the_disk_unavailable(tmp_path: Path) -> None:
    with Spool(tmp_path / "not there", memory_bytes=0) as spool, pytest.raises(DiskUnavailable, match="No such file"):
        spool.add(some(1))


@pytest.fixture
def largest_file() -> Generator[int]:
    """A limit to the size of files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (700_000, hard))
    yield 700_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_file_that_may_not_grow_makes_the_disk_unavailable(tmp_path: Path, largest_file: int) -> None:
    with Spool(tmp_path, memory_bytes=0) as spool, pytest.raises(DiskUnavailable, match="File too large"):
        for _ in range(10):
            spool.add(some(1000))
    assert open_files(tmp_path) == []


def test_a_full_disk_makes_the_disk_unavailable(tmp_path: Path) -> None:
    with Spool(tmp_path, memory_bytes=0) as spool:
        spool.add(some(1))
        assert spool._file is not None
        spool._file._file.close()
        spool._file._file = open("/dev/full", "w+b", buffering=0)  # noqa: SIM115, PTH123  closed by the spool
        with pytest.raises(DiskUnavailable, match="No space left"):
            spool.get(some(1)[0][0])


def test_a_disk_that_cannot_be_read_is_unavailable(tmp_path: Path) -> None:
    with Spool(tmp_path, memory_bytes=0) as spool:
        blocks = some(10_000)
        spool.add(blocks)
        assert spool._file is not None
        with open(tmp_path / "written only", "wb", buffering=0) as other:  # noqa: PTH123
            os.dup2(other.fileno(), spool._file._file.fileno())
        for ask in (spool.get, spool.__contains__):
            with pytest.raises(DiskUnavailable, match="Bad file descriptor"):
                ask(blocks[0][0])
