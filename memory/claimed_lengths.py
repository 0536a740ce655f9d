"""What lists and maps of DAG-CBOR claim to hold, against what there is. Pure.

Decoders make room for what a list claims before they read it. Lists in lists that each claim all the rest of a message
cost the square of its size: seconds and gigabytes for a megabyte.
"""

from __future__ import annotations

from typing import Final

# More than any frame of the protocol has; beyond it the walk itself would cost too much, and what is decoded too.
ITEMS_MAX: Final = 20_000
# What is merely cut off lacks less than that.
LACKING_MAX: Final = 1_000

_BYTES, _TEXT, _LIST, _MAP, _TAG = 2, 3, 4, 5, 6


def overclaims(data: bytes, items: int) -> bool:
    """Whether so many items on end claim far more than there is, or are more than ITEMS_MAX in all.

    Walks heads only, for a time that grows with their number. What is no DAG-CBOR for other reasons, a decoder tells.
    """
    position, end = 0, len(data)
    owed = items
    for _ in range(ITEMS_MAX):
        if owed == 0 or position >= end:
            return False
        if owed > end - position + LACKING_MAX:  # every item has at least one byte
            return True
        head = data[position]
        position += 1
        major, length = head >> 5, head & 31
        if length > 27:
            return False
        if length > 23:
            size = 1 << (length - 24)
            length = int.from_bytes(data[position : position + size])
            position += size
        owed -= 1
        if major in (_BYTES, _TEXT):
            position += length
        elif major == _LIST:
            owed += length
        elif major == _MAP:
            owed += 2 * length
        elif major == _TAG:
            owed += 1
    return True
