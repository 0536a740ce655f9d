"""A whole repo of a Space as a CAR in pieces (`getRepo`): commit, index, then the records in its order. Pure.

Nothing is handed on before the commit is verified and the index is what it stands for, so what is handed on is the
author's. Held are the index and what has come of one block.

`getRepo` is no snapshot: while its author writes, a host may send a commit and an index that do not belong together.
At a HashMismatch, ask again after a pause. It is no sign of corruption and no reason to hide or to delete anything:
what is held stays until it is stale.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Final, NamedTuple

from indexer.verify.car_stream import CarStream
from indexer.verify.reasons import Unattributable
from indexer.verify.signed import MAX_COMMIT_BYTES
from indexer.verify.space_commit import SpaceCommit, SpaceRepo, check_contents, parse_commit_block
from indexer.verify.space_index import CID_BYTES, IndexReader, SpaceIndex
from indexer.verify.space_reasons import SpaceRefusal
from memory.errors import Rejected

MAX_INDEX_BYTES: Final = 32 * 1024 * 1024
"""About 350,000 memories."""

_DIGEST_AT: Final = 4
_MAX_VARINT_BYTES: Final = 5  # 2^35: more than any length here
_VARINT: Final = re.compile(rb"[\x80-\xff]{0,%d}[\x00-\x7f]" % (_MAX_VARINT_BYTES - 1))
# Canonical, with two roots: so it has one form and one length.
_HEADER: Final = re.compile(
    rb"\x63\xa2eroots\x82\xd8\x2aX\x25\x00(%(cid)s)\xd8\x2aX\x25\x00(%(cid)s)gversion\x01"
    % {b"cid": rb"\x01\x71\x12\x20.{32}"},
    re.DOTALL,
)
_HEADER_BYTES: Final = 100


class SpaceRecord(NamedTuple):
    """A record of any collection; its CID is binary. Of a block longer than `MAX_BLOCK_BYTES`, only so much."""

    collection: str
    rkey: str
    cid: bytes
    block: bytes


@dataclass(frozen=True, slots=True, repr=False)
class VerifiedSpaceRepo:
    """All that a repo holds at its commit."""

    commit: SpaceCommit
    state: bytes  # of the set hash, to go on from with later ops
    index: SpaceIndex


class SpaceCar:
    """Verifies a CAR. After a Rejected it is of no use any more.

    `verified` is there once the index has come and passed, before any record.
    """

    __slots__ = (
        "_commit",
        "_held",
        "_index_cid",
        "_most_index_bytes",
        "_now",
        "_reader",
        "_records",
        "_repo",
        "_values",
        "verified",
    )

    def __init__(
        self, repo: SpaceRepo, now: datetime, *, values: bool = True, most_index_bytes: int = MAX_INDEX_BYTES
    ) -> None:
        """`now` judges the commit's rev. Without `values` it is a CAR that was asked for with `excludeValues`.

        Such a one ends with the index; compared with what is held, it tells which records to fetch.
        """
        self.verified: VerifiedSpaceRepo | None = None
        self._repo = repo
        self._now = now
        self._values = values
        self._most_index_bytes = most_index_bytes
        self._held = b""  # header and commit, until the index begins
        self._index_cid = b""
        self._commit: SpaceCommit | None = None
        self._reader: IndexReader | None = None
        self._records: _Records | None = None

    def feed(self, chunk: bytes) -> list[SpaceRecord]:
        """The records whose blocks end in `chunk`; costs some microseconds for each entry of the index in it.

        Raises HashMismatch once all of the index has come; Rejected: what `SpaceRepo.check` and `parse_commit_block`
        raise, `malformed_car`, `root_mismatch`, `block_hash`, `malformed_index`, `index_too_big`, `record_unexpected`.
        """
        if self._reader is None:
            self._held += chunk
            start = self._begin(self._held)
            if start == 0:
                return []
            chunk, self._held = self._held[start:], self._held[:_HEADER_BYTES]
        assert self._reader is not None
        if self.verified is None:
            part = chunk[: self._reader.missing_bytes]
            self._reader.feed(part)
            if self._reader.missing_bytes:
                return []
            self.verified = self._judge(self._reader)
            chunk = chunk[len(part) :]
        if self._records is not None:
            return self._records.take(chunk)
        if chunk:
            raise Rejected(reason=SpaceRefusal.RECORD_UNEXPECTED)
        return []

    def finish(self) -> VerifiedSpaceRepo:
        """The end of the CAR; raises Rejected: `truncated_car`, `record_missing`."""
        if self.verified is None:
            raise Rejected(reason=Unattributable.TRUNCATED_CAR)
        if self._records is not None:
            self._records.finish()
        return self.verified

    def _begin(self, held: bytes) -> int:
        """Where the index block begins, once what is before it has passed; 0 if that has not come whole."""
        header = _HEADER.match(held)
        if header is None:
            if len(held) < _HEADER_BYTES:
                return 0
            raise Rejected(reason=Unattributable.MALFORMED_CAR)
        commit_cid, index_cid = header.groups()
        section = _root(held, _HEADER_BYTES, commit_cid)
        if section is None:
            return 0
        commit_at, size = section
        if size > MAX_COMMIT_BYTES:
            raise Rejected(reason=Unattributable.MALFORMED_COMMIT)
        section = _root(held, commit_at + size, index_cid) if len(held) > commit_at + size else None
        if section is None:
            return 0
        block = held[commit_at : commit_at + size]
        if sha256(block).digest() != commit_cid[_DIGEST_AT:]:
            raise Rejected(reason=Unattributable.BLOCK_HASH)
        commit = parse_commit_block(block)
        self._repo.check(commit, self._now)
        start, size = section
        if size > self._most_index_bytes:
            raise Rejected(reason=SpaceRefusal.INDEX_TOO_BIG)
        self._commit, self._index_cid, self._reader = commit, index_cid, IndexReader(size)
        return start

    def _judge(self, reader: IndexReader) -> VerifiedSpaceRepo:
        """What the index and the commit are together."""
        assert self._commit is not None
        index = reader.finish(self._index_cid)
        check_contents(self._commit, reader.records)
        if self._values:
            self._records = _Records(index, self._held)
        return VerifiedSpaceRepo(self._commit, reader.records.state(), index)


class _Records:
    """The blocks behind the index.

    Where several paths have one record, a host may write its block once or each time: it is given for all of them when
    it comes first.
    """

    __slots__ = ("_blocks", "_count", "_given", "_index", "_place", "_repeated")

    def __init__(self, index: SpaceIndex, header: bytes) -> None:
        self._blocks = CarStream()
        self._blocks.feed(header)
        self._count = 0
        self._index = index
        self._place = 0  # of the entry whose block comes next
        self._repeated = index.repeated()
        self._given: set[bytes] = set()  # of those

    def take(self, chunk: bytes) -> list[SpaceRecord]:
        """The records whose blocks end in `chunk`."""
        records: list[SpaceRecord] = []
        found = self._blocks.feed(chunk)
        self._count += len(found)
        if self._count != self._blocks.blocks:  # a raw block: no record is one
            raise Rejected(reason=SpaceRefusal.RECORD_UNEXPECTED)
        for cid, block in found:
            for place in self._places(cid):
                collection, rkey, _ = self._index.at(place)
                records.append(SpaceRecord(collection, rkey, cid, block))
        return records

    def finish(self) -> None:
        """Raises Rejected: `truncated_car`, `record_missing`."""
        self._blocks.finish()
        if any(self._index.cid(place) not in self._given for place in range(self._place, len(self._index))):
            raise Rejected(reason=SpaceRefusal.RECORD_MISSING)

    def _places(self, cid: bytes) -> list[int]:
        """Where the record stands whose block has come, unless it is given already."""
        while self._place < len(self._index):
            place = self._place
            due = self._index.cid(place)
            self._place += 1
            if due == cid:
                places = self._repeated.get(cid, [place])
                if cid in self._given:
                    return []
                if len(places) > 1:
                    self._given.add(cid)
                return places
            if due not in self._given:
                break
        raise Rejected(reason=SpaceRefusal.RECORD_UNEXPECTED)


def _root(held: bytes, position: int, cid: bytes) -> tuple[int, int] | None:
    """Where the block begins of the section at `position`, and its size; null: its CID has not come whole.

    Raises Rejected: `malformed_car`, `root_mismatch` unless it is the block that `cid` names.
    """
    digits = _VARINT.match(held, position)
    if digits is None:
        if len(held) - position < _MAX_VARINT_BYTES:
            return None
        raise Rejected(reason=Unattributable.MALFORMED_CAR)
    length = sum((digit & 0x7F) << 7 * index for index, digit in enumerate(digits[0]))
    # The shortest form only.
    if length <= CID_BYTES or digits[0][-1] == 0:
        raise Rejected(reason=Unattributable.MALFORMED_CAR)
    start = digits.end() + CID_BYTES
    if len(held) < start:
        return None
    if held[digits.end() : start] != cid:
        raise Rejected(reason=Unattributable.ROOT_MISMATCH)
    return start, length - CID_BYTES
