"""From a verified commit to what it means for the index: memories, invalid records, deletions. No I/O."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

from indexer.verify.commit import RecordOp, VerifiedCommit
from memory.masking import targets
from memory.record import InvalidRecord, Memory, interpret_record
from memory.space import PUBLIC
from memory.terms import index_terms

EXCERPT_BYTES = 4096


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


def interpret_commit(commit: VerifiedCommit) -> tuple[MemoryOp, ...]:
    """What `commit` does to memories, one op a record key."""
    return tuple(_interpret_op(commit.repo, op) for op in commit.ops)


def _interpret_op(author: str, op: RecordOp) -> MemoryOp:
    if op.cid is None or op.block is None:
        return MemoryOp(op.rkey, None)
    return MemoryOp(op.rkey, interpret_block(author, PUBLIC, op.rkey, op.cid, op.block), created=op.prev is None)


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
