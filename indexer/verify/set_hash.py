"""LtHash: the hash of a set of records, which any number of additions and removals keeps up to date. Pure.

An element is `{collection}/{rkey}/{cid}`. BLAKE3 expands it to as many bytes as the state has. Both are rows of lanes,
little-endian numbers of 16 bits, and an element is added to the state, or taken from it, lane by lane. So order does
not matter, and to take out what is not in is no error: only the hash, compared with that of a commit, tells that
something is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from itertools import islice
from typing import Final

import numpy as np
from blake3 import blake3

from memory.space_protocol import SET_LANES, SET_STATE_BYTES

EMPTY_STATE: Final = bytes(SET_STATE_BYTES)
EMPTY_HASH: Final = sha256(EMPTY_STATE).digest()

# Rows that are summed at once: they stay in the processor's cache.
_BATCH: Final = 64
_LANE: Final = np.dtype("<u2")


def element(path: str, cid: str) -> bytes:
    """What stands for a record in the set; `path` is `{collection}/{rkey}`, `cid` in base32."""
    return f"{path}/{cid}".encode()


class SetHash:
    """The state of one repo's set.

    A record that is added twice is in it twice: the caller adds what was not in, and removes what was.
    """

    __slots__ = ("_lanes",)

    def __init__(self, state: bytes = EMPTY_STATE) -> None:
        """Goes on from `state`, as `state()` gave it; raises ValueError for another size."""
        if len(state) != SET_STATE_BYTES:
            raise ValueError("a set's state has another size")
        self._lanes = np.frombuffer(state, _LANE).copy()

    def add(self, elements: Iterable[bytes]) -> None:
        """Some microseconds for each."""
        for rows in _expanded(elements):
            self._lanes += rows

    def remove(self, elements: Iterable[bytes]) -> None:
        """Some microseconds for each."""
        for rows in _expanded(elements):
            self._lanes -= rows

    def state(self) -> bytes:
        """All that is needed to go on later."""
        return self._lanes.tobytes()

    def digest(self) -> bytes:
        """The hash of the set, as commits have it."""
        return sha256(self.state()).digest()

    def copy(self) -> SetHash:
        """Another one with the same state."""
        return SetHash(self.state())


def _expanded(elements: Iterable[bytes]) -> Iterable[np.ndarray[tuple[int], np.dtype[np.uint16]]]:
    """Sums of the elements' rows, a batch each."""
    ahead = iter(elements)
    while batch := list(islice(ahead, _BATCH)):
        rows = b"".join([blake3(each).digest(SET_STATE_BYTES) for each in batch])
        yield np.frombuffer(rows, _LANE).reshape(-1, SET_LANES).sum(axis=0, dtype=_LANE)
