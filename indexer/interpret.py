"""From a verified commit to what it means for the index: memories, invalid records, deletions. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

from indexer.verify.commit import RecordOp, VerifiedCommit
from memory.identifiers import is_tid
from memory.masking import targets
from memory.record import InvalidRecord, Memory, interpret_record
from memory.space import PUBLIC
from memory.terms import index_terms

EXCERPT_BYTES = 4096

# Of blocks whose meaning is kept at hand, in case that more keys have them.
REMEMBERED_BYTES: Final = 2 * 1024 * 1024
# What is derived of a small block takes more room than the block itself: each counts as this much at least.
REMEMBERED_BYTES_LEAST: Final = 128 * 1024


@dataclass(frozen=True, slots=True)
class StoredMemory:
    """A valid record with all that is derived from it alone."""

    cid: str
    record: bytes  # the block; the source of truth
    memory: Memory
    content_bytes: int  # as UTF-8
    content_sha256: bytes
    targets: tuple[str, ...]  # rkeys in the same repo and Space that it replaces, distinct
    terms: str  # text form of a tsvector
    term_count: int


@dataclass(frozen=True, slots=True)
class InvalidMemory:
    """A record in our collection that fails the lexicon."""

    cid: str
    reason: str
    excerpt: bytes  # at most EXCERPT_BYTES


@dataclass(frozen=True, slots=True)
class MemoryOp:
    """What one commit leaves at one record key; `entry` is null when it deletes."""

    rkey: str
    entry: StoredMemory | InvalidMemory | None
    created: bool = False  # whether the key was free before the commit


class Interpreter:
    """Reads the records of one repo; one block under many keys is read once, for reading it can take milliseconds.

    Blocks are known by their CIDs. It remembers the last that were asked for, up to `remembered_bytes` of blocks, each
    counted as REMEMBERED_BYTES_LEAST at least; None: all of them.
    """

    def __init__(self, author: str, space: str, *, remembered_bytes: int | None = REMEMBERED_BYTES) -> None:
        self._author = author
        self._space = space
        self._room = remembered_bytes
        self._known: dict[str, StoredMemory | InvalidMemory] = {}  # the last that was asked for stands last
        self._sizes: dict[str, int] = {}

    def interpret(self, rkey: str, cid: str, block: bytes) -> StoredMemory | InvalidMemory:
        """As `interpret_block`."""
        if not is_tid(rkey):  # says nothing of the block, which is not looked into
            return interpret_block(self._author, self._space, rkey, cid, block)
        found = self._known.pop(cid, None)
        if found is None:
            found = interpret_block(self._author, self._space, rkey, cid, block)
            self._make_room(cid, len(block))
        elif isinstance(found, StoredMemory):
            found = replace(found, targets=targets(found.memory.supersedes, self._author, self._space, rkey))
        self._known[cid] = found
        return found

    def _make_room(self, cid: str, block_bytes: int) -> None:
        if self._room is None:
            return
        self._sizes[cid] = size = max(block_bytes, REMEMBERED_BYTES_LEAST)
        self._room -= size
        while self._room < 0 and self._known:
            oldest = next(iter(self._known))
            del self._known[oldest]
            self._room += self._sizes.pop(oldest)


def interpret_commit(commit: VerifiedCommit) -> tuple[MemoryOp, ...]:
    """What `commit` does to memories, one op a record key."""
    # All that it remembers is part of what is given back.
    interpreter = Interpreter(commit.repo, PUBLIC, remembered_bytes=None)
    return tuple(_interpret_op(interpreter, op) for op in commit.ops)


def _interpret_op(interpreter: Interpreter, op: RecordOp) -> MemoryOp:
    if op.cid is None or op.block is None:
        return MemoryOp(op.rkey, None)
    return MemoryOp(op.rkey, interpreter.interpret(op.rkey, op.cid, op.block), created=op.prev is None)


def interpret_block(author: str, space: str, rkey: str, cid: str, block: bytes) -> StoredMemory | InvalidMemory:
    """The record at `rkey`, whatever the block holds: hostile bytes make it invalid, never an error."""
    found = interpret_record(rkey, block)
    if isinstance(found, InvalidRecord):
        return InvalidMemory(cid, found.reason, block[:EXCERPT_BYTES])
    content = found.content.encode()
    terms = index_terms(found.content)
    return StoredMemory(
        cid=cid,
        record=block,
        memory=found,
        content_bytes=len(content),
        content_sha256=sha256(content).digest(),
        targets=targets(found.supersedes, author, space, rkey),
        terms=terms.tsvector,
        term_count=terms.count,
    )


def storable(text: str | None) -> str | None:
    """`text` as Postgres can hold it in a derived column: NUL becomes U+FFFD; the block keeps it."""
    return text if text is None or "\x00" not in text else text.replace("\x00", "\ufffd")
