"""The entries of a node straight from its bytes.

A canonical block has one form only, so one expression both takes it apart and proves that form. That is several times
faster than to decode it and to look at what came out, and costs time and memory by the block's size, whatever lengths
the block claims.
"""

from __future__ import annotations

import re
from typing import Final

from indexer.verify.reasons import Fault, Inconsistent
from memory.identifiers import is_binary_cid

MAX_KEY_BYTES: Final = 1024
# Keys of one layer in a row: by chance a thousand would need 10^125 records.
MAX_NODE_ENTRIES: Final = 1000

_CID_BYTES: Final = 36

# Behind a suffix comes "ap" and a number, which begins with a control character, and no path has one of those: so an
# entry reads in one way only. What is no entry takes all the rest along, or it would be searched for entries.
_ENTRIES: Final = re.compile(
    rb"\xa4ak([\x41-\x57]|\x58.|\x59..)([^\x00-\x1f]{1,%(key)d})ap([\x00-\x17]|\x18.|\x19..)"
    rb"at(?:\xf6|\xd8\x2aX\x25\x00(%(cid)s))av\xd8\x2aX\x25\x00(%(cid)s)|(.+)"
    % {b"key": MAX_KEY_BYTES, b"cid": rb"\x01[\x55\x71]\x12\x20.{32}"},
    re.DOTALL,
)


def _heads(major: int, count: int) -> tuple[bytes, ...]:
    """How DAG-CBOR begins an item of a major type, for every length or number below `count`."""
    return tuple(
        bytes([major << 5 | n])
        if n < 24
        else bytes([major << 5 | 24, n])
        if n < 256
        else bytes([major << 5 | 25]) + n.to_bytes(2)
        for n in range(count)
    )


_SUFFIX_HEADS: Final = _heads(2, MAX_KEY_BYTES + 1)
_NODE_HEADS: Final = tuple(b"\xa2ae" + head for head in _heads(4, MAX_NODE_ENTRIES + 1))
_NUMBERS: Final = {head: number for number, head in enumerate(_heads(0, MAX_KEY_BYTES + 1))}

_NO_LINK: Final = b"al\xf6"
_LINK: Final = b"al\xd8\x2aX\x25\x00"
_LINK_BYTES: Final = len(_LINK) + _CID_BYTES


def split_node(block: bytes) -> tuple[list[bytes], list[bytes], list[bytes | None]]:
    """Keys, values and links of a node, its keys in order and each written in its shortest form.

    CIDs are binary. There is one link more than keys: before, between and behind them. Keys have no control characters,
    CIDs are of the two kinds that repos use. Raises Inconsistent(malformed_tree) for all else.
    """
    end, first = _own_link(block)
    count = block[3:4]
    start = 4 if count < b"\x98" else 5 if count == b"\x98" else 6
    rows: list[tuple[bytes, ...]] = _ENTRIES.findall(block, start, end)
    if len(rows) > MAX_NODE_ENTRIES or block[:start] != _NODE_HEADS[len(rows)]:
        raise Inconsistent(Fault.MALFORMED_TREE)
    keys: list[bytes] = []
    values: list[bytes] = []
    links: list[bytes | None] = [first]
    key = b""
    for head, suffix, number, link, value, _ in rows:
        size = len(suffix)
        shared = _NUMBERS.get(number, MAX_KEY_BYTES)
        # What is no entry has no head.
        if head != _SUFFIX_HEADS[size] or shared > len(key) or shared + size > MAX_KEY_BYTES:
            raise Inconsistent(Fault.MALFORMED_TREE)
        # In one comparison: the key is greater than the one before it, and shares no more with it than it says.
        if shared < len(key) and suffix[0] <= key[shared]:
            raise Inconsistent(Fault.MALFORMED_TREE)
        key = key[:shared] + suffix
        keys.append(key)
        values.append(value)
        links.append(link or None)
    return keys, values, links


def _own_link(block: bytes) -> tuple[int, bytes | None]:
    """The link that stands behind the entries, and where its field begins."""
    # Looked for first: its digest may end like the other form, but the other form is never preceded like this.
    if block[-_LINK_BYTES:-_CID_BYTES] == _LINK and is_binary_cid(block[-_CID_BYTES:]):
        return len(block) - _LINK_BYTES, block[-_CID_BYTES:]
    if block[-len(_NO_LINK) :] == _NO_LINK:
        return len(block) - len(_NO_LINK), None
    raise Inconsistent(Fault.MALFORMED_TREE)
