"""Recordings of a firehose: a file of frames, each a length (u32, big-endian) and as many bytes, as the socket gave."""

from __future__ import annotations

import heapq
import os
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final, Self, cast

import libipld

from indexer.frames import MAX_FRAME_BYTES
from memory.errors import Misconfigured

_LENGTH_BYTES: Final = 4


def read_frames(path: Path) -> Iterator[bytes]:
    """The frames of one recording in order, one in memory at a time.

    A frame may be empty. Raises Misconfigured, with the offset, for a file that is cut off or is no recording.
    """
    try:
        with path.open("rb") as file:
            yield from _frames_of(file, path)
    except OSError as error:
        raise Misconfigured(f"{path}: cannot be read: {error.strerror}", path=str(path)) from error


def merge_by_seq(paths: Sequence[Path]) -> Iterator[bytes]:
    """The frames of several recordings of one stream, lowest `seq` first.

    No file's own order changes: a frame without a readable `seq` follows the one before it. Of equal seqs the earlier
    file's comes first; both are given, for telling copies apart is the consumer's work. One file is read undecoded.
    """
    if len(paths) == 1:
        return read_frames(paths[0])
    merged = heapq.merge(*(_with_seq(path) for path in paths), key=itemgetter(0))
    return (frame for _, frame in merged)


def frame_seq(frame: bytes) -> int | None:
    """The `seq` in a frame's body; None where there is none, or no frame."""
    try:
        items = libipld.decode_dag_cbor_multi(frame)
    except (ValueError, RecursionError):
        return None
    if len(items) < 2 or not isinstance(items[1], dict):
        return None
    seq = cast(dict[str, object], items[1]).get("seq")
    return seq if type(seq) is int else None


class RecordingWriter:
    """Appends frames to a new recording; they survive the death of the process, and after `close` that of the machine.

    Raises Misconfigured where the file exists and `overwrite` is not set, or cannot be made.
    """

    def __init__(self, path: Path, *, overwrite: bool = False) -> None:
        self.path = path
        self.frames = 0
        self.bytes = 0
        try:
            self._file: BinaryIO = path.open("wb" if overwrite else "xb")
        except FileExistsError as error:
            raise Misconfigured(f"{path}: exists already", path=str(path)) from error
        except OSError as error:
            raise _unwritable(path, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def write(self, frame: bytes) -> None:
        """Append one frame and hand it to the operating system; raises Misconfigured when the disk is full."""
        try:
            self._file.write(len(frame).to_bytes(_LENGTH_BYTES, "big") + frame)
            self._file.flush()
        except OSError as error:
            raise _unwritable(self.path, error) from error
        self.frames += 1
        self.bytes += _LENGTH_BYTES + len(frame)

    def close(self) -> None:
        """Force all frames to disk; may be called again."""
        if self._file.closed:
            return
        try:
            with self._file:
                self._file.flush()
                os.fsync(self._file.fileno())
        except OSError as error:
            raise _unwritable(self.path, error) from error


def _frames_of(file: BinaryIO, path: Path) -> Iterator[bytes]:
    offset = 0
    while prefix := file.read(_LENGTH_BYTES):
        if len(prefix) < _LENGTH_BYTES:
            raise _unusable(path, offset, f"cut off within a frame's length, after {len(prefix)} bytes of it")
        length = int.from_bytes(prefix, "big")
        if length > MAX_FRAME_BYTES:
            raise _unusable(
                path, offset, f"a frame of {length} bytes is announced, where {MAX_FRAME_BYTES} are the most"
            )
        frame = file.read(length)
        if len(frame) < length:
            raise _unusable(path, offset, f"cut off within a frame, after {len(frame)} of its {length} bytes")
        yield frame
        offset += _LENGTH_BYTES + length


def _unusable(path: Path, offset: int, complaint: str) -> Misconfigured:
    return Misconfigured(f"{path}: not a whole recording: at byte {offset}: {complaint}", path=str(path), offset=offset)


def _unwritable(path: Path, error: OSError) -> Misconfigured:
    return Misconfigured(f"{path}: cannot be written: {error.strerror}", path=str(path))


def _with_seq(path: Path) -> Iterator[tuple[int, bytes]]:
    place = 0
    for frame in read_frames(path):
        seq = frame_seq(frame)
        if seq is not None:
            place = seq
        yield place, frame
