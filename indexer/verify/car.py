"""CAR files: blocks in any order, each named by the hash of its bytes (`subscribeRepos#commit.blocks`, `getRepo`)."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import cbrrr

from indexer.verify.reasons import Unattributable
from memory.errors import Rejected
from memory.identifiers import is_binary_cid

# A header with one root has 58. Decoding may take the square of its size.
MAX_HEADER_BYTES: Final = 1024

_CID_BYTES: Final = 36
_CODEC_AT: Final = 1
_DAG_CBOR: Final = 0x71
_DIGEST_AT: Final = 4
_MAX_VARINT_BYTES: Final = 5  # 2^35: more than any length here


class Link(bytes):
    """A binary CID inside a block, which DAG-CBOR tells apart from bytes."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Car:
    """A CAR whose every block is what its CID says."""

    root: bytes  # the first one
    blocks: dict[bytes, bytes]  # the DAG-CBOR ones, by binary CID: repos are made of nothing else


def read_car(data: bytes) -> Car:
    """Split a CAR and check every block's sha-256, also of blocks that nothing needs.

    Extra and repeated blocks are legal. Raises Rejected: `malformed_car`, `block_hash`.
    """
    root, offset = _read_header(data)
    blocks: dict[bytes, bytes] = {}
    end = len(data)
    while offset < end:
        length, offset = _read_varint(data, offset)
        block_at = offset + _CID_BYTES
        section_end = offset + length
        cid = data[offset:block_at]
        if section_end > end or length < _CID_BYTES or not is_binary_cid(cid):
            raise Rejected(reason=Unattributable.MALFORMED_CAR, offset=offset)
        block = data[block_at:section_end]
        if sha256(block).digest() != cid[_DIGEST_AT:]:
            raise Rejected(reason=Unattributable.BLOCK_HASH, offset=offset)
        if cid[_CODEC_AT] == _DAG_CBOR:
            blocks[cid] = block
        offset = section_end
    return Car(root, blocks)


def _read_header(data: bytes) -> tuple[bytes, int]:
    length, offset = _read_varint(data, 0)
    end = offset + length
    if end > len(data) or length > MAX_HEADER_BYTES:
        raise Rejected(reason=Unattributable.MALFORMED_CAR, offset=0)
    header = decode_block(data[offset:end])
    match header:
        case {"version": 1, "roots": [Link() as root, *_]}:
            return root, end
        case _:
            raise Rejected(reason=Unattributable.MALFORMED_CAR, offset=0)


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    """An unsigned LEB128 number and the offset behind it; the shortest form only."""
    value = 0
    for index, byte in enumerate(data[offset : offset + _MAX_VARINT_BYTES]):
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if byte == 0 and index > 0:
                break
            return value, offset + index + 1
    raise Rejected(reason=Unattributable.MALFORMED_CAR, offset=offset)


def decode_block(block: bytes) -> Any:
    """The value of a DAG-CBOR block, links as Link; None when it is not in the one canonical form.

    For small blocks: what nested lists claim to hold is made room for, which costs the square of a hostile one's size.
    """
    try:
        value: Any = cbrrr.decode_dag_cbor(block, cid_ctor=Link)
    except ValueError:
        return None
    return value


def encode_block(value: Any) -> bytes:
    """The canonical DAG-CBOR of a value whose links are Link."""
    return cbrrr.encode_dag_cbor(value, cid_type=Link)  # pyright: ignore[reportUnknownMemberType]
