"""A CAR that comes in pieces: the blocks of one that is too large to hold, each checked as it passes.

The rules are those of `car.read_car`. Only the part of a block that has come is held, never more than MAX_BLOCK_BYTES.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from indexer.verify.car import MAX_HEADER_BYTES, Link, decode_block
from indexer.verify.reasons import Unattributable
from memory.errors import Rejected
from memory.identifiers import is_binary_cid
from memory.record import RECORD_BYTES_MAX

# Enough to see that a block is too long: for a record, and for a node too, since 1,000 entries with the longest paths
# take less. Longer ones may well be other collections' records, so they are no reason to refuse a repo.
MAX_BLOCK_BYTES: Final = RECORD_BYTES_MAX + 1

_CID_BYTES: Final = 36
_CODEC_AT: Final = 1
_DIGEST_AT: Final = 4
_DAG_CBOR: Final = 0x71
_DAG_CBOR_PREFIX: Final = b"\x01\x71\x12\x20"
_MAX_SECTION_BYTES: Final = _CID_BYTES + MAX_BLOCK_BYTES
_MAX_VARINT_BYTES: Final = 5  # 2^35: more than any length here

Blocks = list[tuple[bytes, bytes]]  # binary CID, block


class CarStream:
    """Splits a CAR. After a Rejected it is of no use any more.

    `root` is the first one, once the header has come. `blocks` counts all that were checked, also raw ones.
    """

    __slots__ = ("_held", "_long", "_needed", "blocks", "root")

    def __init__(self) -> None:
        self.root: bytes | None = None
        self.blocks = 0
        self._held = bytearray()  # the beginning of what has not come whole
        self._needed = 1  # how much of it must be there to go on
        self._long: _LongBlock | None = None

    def feed(self, chunk: bytes) -> Blocks:
        """The DAG-CBOR blocks that end in `chunk`, repeated ones too, each with the CID that its bytes have.

        Of a block longer than MAX_BLOCK_BYTES only so much is given, once all of it is checked. Raises Rejected:
        `malformed_car`, `block_hash`.
        """
        held, data = self._held, chunk
        if held:
            held += chunk
            if len(held) < self._needed:
                return []
            data = bytes(held)
            held.clear()
        found: Blocks = []
        position = 0
        if self.root is None:
            position = self._read_header(data)
        if self.root is not None:
            position = self._split(data, position, found)
        held += data[position:]
        return found

    def finish(self) -> None:
        """The end of the CAR; raises Rejected(truncated_car) if it comes within the header or a block."""
        if self.root is None or self._held or self._long is not None:
            raise Rejected(reason=Unattributable.TRUNCATED_CAR)

    def _read_header(self, data: bytes) -> int:
        """Where the header ends; 0 if it has not come whole."""
        read = _read_varint(data, 0)
        if read is None:
            self._needed = 1
            return 0
        length, start = read
        if length > MAX_HEADER_BYTES:
            raise Rejected(reason=Unattributable.MALFORMED_CAR)
        end = start + length
        if end > len(data):
            self._needed = end
            return 0
        match decode_block(data[start:end]):
            case {"version": 1, "roots": [Link() as root, *_]}:
                self.root = root
                return end
            case _:
                raise Rejected(reason=Unattributable.MALFORMED_CAR)

    def _split(self, data: bytes, position: int, found: Blocks) -> int:
        """Adds the blocks that end in `data` to `found`; gives where the first one begins that has not come whole."""
        position = self._go_on(data, position, found)
        end, raw = len(data), 0
        while position < end:
            length, start = data[position], position + 1
            if length < 0x80:
                pass
            elif start < end and 0 < data[start] < 0x80:  # most lengths have two bytes
                length, start = length & 0x7F | data[start] << 7, start + 1
            elif (read := _read_varint(data, position)) is not None:
                length, start = read
            else:
                self._needed = 1
                break
            block_at, section_end = start + _CID_BYTES, start + length
            if section_end > end or not _CID_BYTES <= length <= _MAX_SECTION_BYTES:
                if not self._begin_long(data, position, start, length):
                    break
                position = self._go_on(data, block_at, found)
                continue
            cid, block = data[start:block_at], data[block_at:section_end]
            digest = sha256(block).digest()
            if _DAG_CBOR_PREFIX + digest == cid:
                found.append((cid, block))
            else:
                _check_raw(cid, digest)
                raw += 1
            position = section_end
        self.blocks += len(found) + raw
        return position

    def _begin_long(self, data: bytes, position: int, start: int, length: int) -> bool:
        """Whether the section at `position` is a long one that can be gone on with; if not, more of it is needed."""
        if length < _CID_BYTES:
            raise Rejected(reason=Unattributable.MALFORMED_CAR)
        needed = start - position + (length if length <= _MAX_SECTION_BYTES else _CID_BYTES)
        if position + needed > len(data):
            self._needed = needed
            return False
        self._long = _LongBlock(data[start : start + _CID_BYTES], length - _CID_BYTES)
        return True

    def _go_on(self, data: bytes, position: int, found: Blocks) -> int:
        """Where the long block that has been begun, if one has, ends in `data`."""
        block = self._long
        if block is None:
            return position
        position = block.take(data, position)
        if block.missing_bytes == 0:
            self._long = None
            if block.check():
                found.append((block.cid, bytes(block.head)))
            else:
                self.blocks += 1
        return position


class _LongBlock:
    """A block of which only the beginning is kept."""

    __slots__ = ("_hash", "cid", "head", "missing_bytes")

    def __init__(self, cid: bytes, size: int) -> None:
        if not is_binary_cid(cid):
            raise Rejected(reason=Unattributable.MALFORMED_CAR)
        self.cid = cid
        self.missing_bytes = size
        self.head = bytearray()
        self._hash = sha256()

    def take(self, data: bytes, position: int) -> int:
        """Where this block ends in `data`, of which it goes on at `position`."""
        piece = memoryview(data)[position : position + self.missing_bytes]
        self._hash.update(piece)
        self.head += piece[: MAX_BLOCK_BYTES - len(self.head)]
        self.missing_bytes -= len(piece)
        return position + len(piece)

    def check(self) -> bool:
        """Whether it is DAG-CBOR; raises Rejected(block_hash)."""
        if self._hash.digest() != self.cid[_DIGEST_AT:]:
            raise Rejected(reason=Unattributable.BLOCK_HASH)
        return self.cid[_CODEC_AT] == _DAG_CBOR


def _check_raw(cid: bytes, digest: bytes) -> None:
    """Raises unless `cid` is that of a raw block with this digest."""
    if not is_binary_cid(cid):
        raise Rejected(reason=Unattributable.MALFORMED_CAR)
    if cid[_DIGEST_AT:] != digest:
        raise Rejected(reason=Unattributable.BLOCK_HASH)


def _read_varint(data: bytes, offset: int) -> tuple[int, int] | None:
    """An unsigned LEB128 number, in the shortest form only, and the offset behind it; null: it has not come whole."""
    value = 0
    for index, byte in enumerate(data[offset : offset + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if byte == 0 and index > 0:
                break
            return value, offset + index + 1
    else:
        if len(data) - offset < _MAX_VARINT_BYTES:
            return None
    raise Rejected(reason=Unattributable.MALFORMED_CAR)
