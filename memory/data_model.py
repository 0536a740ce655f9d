"""Records as the protocol's data model has them: DAG-CBOR blocks, read without harm whatever is in them.

`cbrrr` keeps links and bytes apart, refuses what is not canonical, and does not recurse; but it allocates every list
at the length that its head claims. Nested lists that each claim the rest of the block would cost the square of its
size, so the heads are added up before anything is decoded.
"""

from __future__ import annotations

from typing import Final, TypeAlias, cast

from cbrrr import DagCborTypes, decode_dag_cbor

from memory.errors import Rejected

JsonValue: TypeAlias = "str | int | bool | list[JsonValue] | dict[str, JsonValue] | None"

NESTING_LEVELS_MAX: Final = 512
"""Maps and lists inside one another, the record itself among them."""

ITEMS_MAX: Final = 10_000
"""Values and keys in all: some milliseconds of everybody who reads them."""

_MAP: Final = 5
_LINK_TAG: Final = 42
# A byte string of 37: multibase prefix 0, version 1, raw or DAG-CBOR, sha-256 or BLAKE3, 32 bytes of digest.
_CIDS: Final = tuple(bytes((0x58, 37, 0, 1, codec, hash_, 32)) for codec in (0x55, 0x71) for hash_ in (0x12, 0x1E))
_CID_BYTES: Final = 39

# By an item's first byte: the item's size, a list's or map's without what is in it, where that byte tells it, else 0.
# It does for short integers, byte and text strings, lists and maps, for false, true and null.
_SIZES: Final = (
    *2 * (*24 * (1,), 2, 3, 5, *5 * (0,)),
    *2 * (*range(1, 25), *8 * (0,)),
    *2 * (*24 * (1,), *8 * (0,)),
    *52 * (0,),
    *3 * (1,),
    *9 * (0,),
)
# How many items follow inside, where that byte tells it.
_ITEMS: Final = (*128 * (0,), *range(24), *8 * (0,), *range(0, 48, 2), *72 * (0,))

# As map keys these would read as a link or as bytes in the JSON form.
_RESERVED_KEYS: Final = (b"\x65$link", b"\x66$bytes")


class Undecodable(Rejected):
    """The block is not one canonical DAG-CBOR map of the data model."""

    reason = "undecodable"


class NestedTooDeep(Rejected):
    """The record nests maps and lists deeper than any reader needs to follow."""

    reason = "nestedTooDeep"


class TooManyItems(Rejected):
    """The record has more items than any reader needs to go through."""

    reason = "tooManyItems"


def decode_record(block: bytes) -> dict[str, DagCborTypes]:
    """The properties of a record: links as `CID`, bytes as `bytes`.

    Accepts exactly the blocks that have a JSON form. Raises Undecodable for floats, bad UTF-8, keys that are repeated,
    out of order or reserved, integers beyond 64 bits, links that are no CID, bytes left over; NestedTooDeep for too
    many levels; TooManyItems.
    """
    _check_heads(block)
    try:
        if _RESERVED_KEYS[0] in block or _RESERVED_KEYS[1] in block:
            decode_dag_cbor(block, atjson_mode=True)
        return cast("dict[str, DagCborTypes]", decode_dag_cbor(block))
    except ValueError:
        # Not chained: the decoder's messages quote the record.
        raise Undecodable from None


def record_json(block: bytes) -> dict[str, JsonValue]:
    """The JSON form of a record: `{"$link": …}`, `{"$bytes": …}`, every property as it was written, NULs too.

    Encoding it again gives the same block. Up to `NESTING_LEVELS_MAX` levels deep. Raises as `decode_record` does.
    """
    _check_heads(block)
    try:
        return cast("dict[str, JsonValue]", decode_dag_cbor(block, atjson_mode=True))
    except ValueError:
        raise Undecodable from None


def _check_heads(block: bytes) -> None:
    """Walk the items of a block without decoding them.

    Refuses what the decoder would take or choke on: lengths beyond the end, too many levels, floats, integers beyond 64
    bits, links that are no CID, another root than a map.
    """
    end = len(block)
    if end == 0 or block[0] >> 5 != _MAP:
        raise Undecodable
    position = 0
    owed = 1  # items still to come, in all open maps and lists
    remaining = 1  # items still to come in the innermost of them
    outer: list[int] = []  # the same of those around it
    items_left = ITEMS_MAX
    while owed:
        if owed > end - position:  # every item has at least one byte
            raise Undecodable
        if owed > items_left:
            raise TooManyItems
        items_left -= 1
        owed -= 1
        remaining -= 1
        head = block[position]
        size, items = _SIZES[head], _ITEMS[head]
        if not size:
            size, items = _measure(block, position)
        position += size
        if 0x80 <= head < 0xC0:  # a list or a map
            outer.append(remaining)
            owed += items
            remaining = items
            if len(outer) > NESTING_LEVELS_MAX:
                raise NestedTooDeep
        while remaining == 0 and outer:
            remaining = outer.pop()
    if position != end:
        raise Undecodable


def _measure(block: bytes, position: int) -> tuple[int, int]:
    """The size of an item, a list's or map's without what is in it, and how many items follow inside."""
    major, argument = divmod(block[position], 32)
    size = 1
    if argument > 23:
        extra = 1 << (argument - 24)
        if extra > 8:
            raise Undecodable
        argument = int.from_bytes(block[position + 1 : position + 1 + extra], "big")
        size += extra
    match major:
        case 0 | 1 if argument < 1 << 63:
            return size, 0
        case 2 | 3:
            return size + argument, 0
        case 4:
            return size, argument
        case 5:
            return size, 2 * argument
        case 6 if argument == _LINK_TAG and block.startswith(_CIDS, position + size):
            return size + _CID_BYTES, 0
        case _:
            raise Undecodable
