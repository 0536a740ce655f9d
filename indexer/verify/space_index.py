"""The index in a Space's CAR: a map of `{collection}/{rkey}` to CID, read and summed up as its bytes come. Pure.

It is one block, and as large as the repo has records. A canonical map has one form only, so one expression both takes
an entry apart and proves that form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Final, NamedTuple

import numpy as np

from indexer.verify.reasons import Unattributable
from indexer.verify.set_hash import SetHash, element
from indexer.verify.space_reasons import SpaceRefusal
from memory.errors import Rejected
from memory.identifiers import MAX_NSID_CHARS, MAX_RKEY_CHARS, cid_text

CID_BYTES: Final = 36

_DIGEST_AT: Final = 4
_TEXT, _MAP = 3, 5
_MAX_PATH_BYTES: Final = MAX_NSID_CHARS + 1 + MAX_RKEY_CHARS
_DOTS: Final = (b"/.", b"/..")

_ENTRY: Final = re.compile(
    rb"([\x60-\x77]|\x78.|\x79..)([A-Za-z0-9._:~-]{1,%d}+/[A-Za-z0-9._:~-]{1,%d}+)"
    rb"\xd8\x2aX\x25\x00(\x01\x71\x12\x20.{32})" % (MAX_NSID_CHARS, MAX_RKEY_CHARS),
    re.DOTALL,
)
_MAX_ENTRY_BYTES: Final = 3 + _MAX_PATH_BYTES + 5 + CID_BYTES


def _head(major: int, count: int) -> bytes:
    """How DAG-CBOR begins an item of a major type, of this length."""
    if count < 24:
        return bytes([major << 5 | count])
    size = 0 if count < 1 << 8 else 1 if count < 1 << 16 else 2
    return bytes([major << 5 | 24 + size]) + count.to_bytes(1 << size)


_PATH_HEADS: Final = tuple(_head(_TEXT, count) for count in range(_MAX_PATH_BYTES + 1))


class Listed(NamedTuple):
    """Where a record of any collection stands; its CID is binary."""

    collection: str
    rkey: str
    cid: bytes


class SpaceIndex:
    """All records of a repo, in the index's order: paths by length, then by bytes.

    Held as text and bytes side by side, which takes about what the block did, twice.
    """

    __slots__ = ("_cids", "_paths")

    def __init__(self, paths: list[str], cids: bytes) -> None:
        self._paths = paths
        self._cids = cids

    def __len__(self) -> int:
        return len(self._paths)

    def __iter__(self) -> Iterator[Listed]:
        return map(self.at, range(len(self)))

    def at(self, place: int) -> Listed:
        """The entry at `place`."""
        collection, _, rkey = self._paths[place].partition("/")
        return Listed(collection, rkey, self.cid(place))

    def cid(self, place: int) -> bytes:
        """The CID of the entry at `place`."""
        return self._cids[place * CID_BYTES : (place + 1) * CID_BYTES]

    def repeated(self) -> dict[bytes, list[int]]:
        """The places of each CID that stands at several, in order; a few CIDs may stand at one only."""
        rows = np.frombuffer(self._cids, np.uint8).reshape(-1, CID_BYTES)
        starts = rows[:, _DIGEST_AT : _DIGEST_AT + 8].copy().view(np.uint64).ravel()
        order = np.argsort(starts, kind="stable")
        same = starts[order][1:] == starts[order][:-1]
        places: dict[bytes, list[int]] = {}
        for place in np.unique(np.concatenate((order[1:][same], order[:-1][same]))):
            places.setdefault(self.cid(int(place)), []).append(int(place))
        return places


class IndexReader:
    """Takes the bytes of an index block. After a Rejected it is of no use any more."""

    __slots__ = ("_cids", "_head", "_held", "_last", "_paths", "_sha256", "missing_bytes", "records")

    def __init__(self, size: int) -> None:
        self.missing_bytes = size
        self.records = SetHash()
        self._sha256 = sha256()
        self._held = b""  # the beginning of what has not come whole
        self._head = b""  # how the map begins; empty: it has not come
        self._paths: list[str] = []
        self._cids = bytearray()
        self._last = (0, b"")

    def feed(self, part: bytes) -> None:
        """Take more of the block, no more than `missing_bytes`; costs what its entries' hashes cost.

        Raises Rejected(malformed_index).
        """
        self.missing_bytes -= len(part)
        self._sha256.update(part)
        held = self._held + part
        position = 0 if self._head else self._read_head(held)
        elements: list[bytes] = []
        while self._head and (entry := _ENTRY.match(held, position)) is not None:
            head, path, cid = entry.groups()
            place = (len(path), path)
            if head != _PATH_HEADS[len(path)] or place <= self._last or path.endswith(_DOTS):
                raise Rejected(reason=SpaceRefusal.MALFORMED_INDEX)
            self._last = place
            text = path.decode()
            self._paths.append(text)
            self._cids += cid
            elements.append(element(text, cid_text(cid)))
            position = entry.end()
        self._held = held[position:]
        if len(self._held) >= _MAX_ENTRY_BYTES:
            raise Rejected(reason=SpaceRefusal.MALFORMED_INDEX)
        self.records.add(elements)

    def finish(self, cid: bytes) -> SpaceIndex:
        """The index, once all has come; raises Rejected: `block_hash` if it is not that of `cid`, `malformed_index`."""
        if self._sha256.digest() != cid[_DIGEST_AT:]:
            raise Rejected(reason=Unattributable.BLOCK_HASH)
        if self._held or self._head != _head(_MAP, len(self._paths)):
            raise Rejected(reason=SpaceRefusal.MALFORMED_INDEX)
        return SpaceIndex(self._paths, bytes(self._cids))

    def _read_head(self, held: bytes) -> int:
        """Where the first entry begins; 0 if the map's head has not come whole."""
        major, count = divmod(held[0], 32) if held else (_MAP, 0)
        if major != _MAP:
            raise Rejected(reason=SpaceRefusal.MALFORMED_INDEX)
        size = 1 if count < 24 else 1 + (1 << count - 24)
        if len(held) < size:
            return 0
        self._head = held[:size]
        return size
