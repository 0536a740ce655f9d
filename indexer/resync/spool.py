"""The blocks of one repo while it is fetched: the first ones in memory, the rest in a file that no one else sees.

Blocks come in any order, and which of them a repo's tree needs is known only when all have come. A record of ours may
have any shape, so none can be told from other collections' before, and none is thrown away.
"""

from __future__ import annotations

import os
import tempfile
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, NoReturn, Protocol, Self

from indexer.verify.reasons import Unattributable
from memory.errors import Rejected, Unavailable

MEMORY_BYTES: Final = 16 * 1024 * 1024
MAX_FILED_BLOCKS: Final = 8_000_000  # an index of 68 MB
BLOCK_COST_BYTES: Final = 250  # what a block takes in memory beyond its own bytes
MAX_MISREADS: Final = 32  # blocks of other CIDs that are read for one: chance gives no repo so many

_CID_BYTES: Final = 36
_SIZE_BYTES: Final = 4
_HEAD_BYTES: Final = _SIZE_BYTES + _CID_BYTES
_READ_BYTES: Final = 4096  # nearly every block in one call
_WRITE_BYTES: Final = 256 * 1024

# An entry of the index: of a CID's 64-bit hash those behind the ones that choose its bucket, as many as there is room
# for, then the block's place in the file. An author can find CIDs that share the first bits of their digests, so each
# file hashes with a salt of its own.
_SALT_BYTES: Final = 16
_HASH_MASK: Final = (1 << 64) - 1
_BUCKET_BITS: Final = 10
_BUCKETS: Final = 1 << _BUCKET_BITS
_BUCKET_SHIFT: Final = 64 - _BUCKET_BITS
_PLACES: Final = 1 << 36
_MARK: Final = (1 << 64) - _PLACES


class DiskUnavailable(Unavailable):
    """The disk for repos that are being fetched cannot be used."""


class Room(Protocol):
    """Room on a disk."""

    def take(self, more: int, held: int) -> None:
        """Room for so many bytes more of a file that has `held`; raises DiskUnavailable and Rejected(too_big)."""
        ...

    def give_back(self, held: int, *, worked: bool) -> None:
        """The room of a file that is gone. `worked`: it held all that it was to hold."""
        ...


class Spool:
    """Blocks that have been checked, by binary CID, until the context is left. A block may come more than once.

    `folder` is for the file, and is left alone as long as none is needed; without it the system's for temporary files.
    The file is as large as the blocks, and 40 bytes more for each; who adds them bounds that, and `room` does for all
    files together (null: nothing does).
    """

    def __init__(
        self,
        folder: Path | None,
        *,
        memory_bytes: int = MEMORY_BYTES,
        max_filed_blocks: int = MAX_FILED_BLOCKS,
        room: Room | None = None,
    ) -> None:
        self._room = room
        self._folder = folder
        self._memory_bytes = memory_bytes
        self._max_filed_blocks = max_filed_blocks
        self._held: dict[bytes, bytes] = {}
        self._held_bytes = 0
        self._file: _BlockFile | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._held.clear()
        if self._file is not None:
            self._file.close(worked=kind is None)

    @property
    def memory_bytes(self) -> int:
        """What it holds in memory, about."""
        return self._held_bytes + (0 if self._file is None else self._file.memory_bytes)

    def add(self, blocks: Sequence[tuple[bytes, bytes]]) -> None:
        """Keep all of these; raises Rejected(too_big) for more blocks than any repo has, and DiskUnavailable."""
        if self._held_bytes < self._memory_bytes:
            self._held.update(blocks)
            self._held_bytes += sum([len(block) for _, block in blocks]) + BLOCK_COST_BYTES * len(blocks)
            return
        if self._file is None:
            self._file = _BlockFile(self._folder, self._room)
        if self._file.blocks + len(blocks) > self._max_filed_blocks:
            raise Rejected(reason=Unattributable.TOO_BIG)
        self._file.add(blocks)

    def get(self, cid: bytes, /) -> bytes | None:
        """A block, if it has come; raises DiskUnavailable, and Rejected(too_big) where others are in its way."""
        block = self._held.get(cid)
        if block is None and self._file is not None:
            return self._file.get(cid)
        return block

    def __contains__(self, cid: bytes, /) -> bool:
        return cid in self._held or (self._file is not None and self._file.find(cid, _HEAD_BYTES) is not None)


class _BlockFile:
    """Blocks in a file without a name, and 8 bytes of index for each in memory.

    The file is sizes (32 bits), CIDs and blocks in the order of their arrival. The index is sorted when it is first
    asked after that, bucket by bucket, so that no moment of it is long.
    """

    def __init__(self, folder: Path | None, room: Room | None) -> None:
        self.blocks = 0
        self._room = room
        self._taken = 0  # of it
        try:
            self._file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115  closed by `close`
        except OSError as error:
            _give_up(error)
        self._end = 0
        self._unwritten = bytearray()
        self._salt = os.urandom(_SALT_BYTES)
        self._index = [array("Q") for _ in range(_BUCKETS)]
        self._sorted: set[int] = set()

    @property
    def memory_bytes(self) -> int:
        """The index, with the room that arrays keep to grow, and what is not written yet."""
        return self.blocks * 17 // 2 + len(self._unwritten)

    def close(self, *, worked: bool) -> None:
        """The file is gone with that."""
        self._file.close()
        if self._room is not None:
            self._room.give_back(self._taken, worked=worked and self._taken > 0)

    def add(self, blocks: Sequence[tuple[bytes, bytes]]) -> None:
        index, unwritten, place, salt = self._index, self._unwritten, self._end, self._salt
        for cid, block in blocks:
            number = hash(salt + cid) & _HASH_MASK
            index[number >> _BUCKET_SHIFT].append(number << _BUCKET_BITS & _MARK | place)
            size = len(block)
            unwritten += size.to_bytes(_SIZE_BYTES) + cid + block
            place += _HEAD_BYTES + size
        if place > _PLACES:
            raise Rejected(reason=Unattributable.TOO_BIG)
        self._end = place
        self.blocks += len(blocks)
        self._sorted.clear()
        if len(unwritten) >= _WRITE_BYTES:
            self._write()

    def get(self, cid: bytes) -> bytes | None:
        found = self.find(cid, _READ_BYTES)
        if found is None:
            return None
        place, data = found
        end = _HEAD_BYTES + int.from_bytes(data[:_SIZE_BYTES])
        if end > len(data):
            data += self._read(end - len(data), place + len(data))
        return data[_HEAD_BYTES:end]

    def find(self, cid: bytes, length: int) -> tuple[int, bytes] | None:
        """A block's place, and `length` bytes of the file from there on, unless the file ends before.

        Raises Rejected(too_big) where too many other blocks have its entry.
        """
        number = hash(self._salt + cid) & _HASH_MASK
        bucket = self._bucket(number >> _BUCKET_SHIFT)
        mark = number << _BUCKET_BITS & _MARK
        first = bisect_left(bucket, mark)
        for at in range(first, len(bucket)):
            if bucket[at] & _MARK != mark:
                break
            if at - first == MAX_MISREADS:
                raise Rejected(reason=Unattributable.TOO_BIG)
            place = bucket[at] - mark
            data = self._read(length, place)
            if data[_SIZE_BYTES:_HEAD_BYTES] == cid:
                return place, data
        return None

    def _bucket(self, number: int) -> array[int]:
        if self._unwritten:
            self._write()
        if number not in self._sorted:
            self._index[number] = array("Q", sorted(self._index[number]))
            self._sorted.add(number)
        return self._index[number]

    def _write(self) -> None:
        if self._room is not None:
            self._room.take(len(self._unwritten), self._taken)
            self._taken += len(self._unwritten)
        try:
            with memoryview(self._unwritten) as rest:
                written = 0
                while written < len(rest):
                    written += self._file.write(rest[written:])
        except OSError as error:
            _give_up(error)
        self._unwritten.clear()

    def _read(self, length: int, place: int) -> bytes:
        try:
            return os.pread(self._file.fileno(), length, place)
        except OSError as error:
            _give_up(error)


def _give_up(error: OSError) -> NoReturn:
    raise DiskUnavailable(f"the disk for repos that are being fetched: {error.strerror}") from error
