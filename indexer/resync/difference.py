"""The difference between what is held of a repo and what was fetched of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from indexer.interpret import Interpreter, MemoryOp, StoredMemory
from memory.identifiers import cid_text
from memory.space import PUBLIC


class Contents(Protocol):
    """The records of our collection in a repo, in order of rkey (by bytes)."""

    def leaves(self) -> Iterator[tuple[str, bytes]]:
        """Rkey and binary CID of each."""
        ...

    def block(self, cid: bytes) -> bytes:
        """The block of one."""
        ...


@dataclass(frozen=True, slots=True)
class Difference:
    """What a fetch changed."""

    put: int = 0
    deleted: int = 0


async def find_gone(held: dict[str, str], contents: Contents) -> set[str]:
    """What is held and is no more."""
    gone = set(held)
    if not gone:
        return gone
    for count, (rkey, _) in enumerate(contents.leaves()):
        gone.discard(rkey)
        if count % 1000 == 0:
            await asyncio.sleep(0)
    return gone


def list_ops(
    repo: str, held: dict[str, str], gone: set[str], contents: Contents, quota_edge: Callable[[], str | None]
) -> Iterator[MemoryOp | None]:
    """What there is to do: deletes first, for the quota is of what is left, then in order of rkey.

    Null for a record behind the quota edge, as what was taken so far has left it: it is not even looked into.
    """
    for rkey in sorted(gone):
        yield MemoryOp(rkey, None)
    interpreter = Interpreter(repo, PUBLIC)
    for rkey, cid in contents.leaves():
        edge = quota_edge()
        if edge is not None and rkey >= edge and rkey not in held:
            yield None
            continue
        text = cid_text(cid)
        if held.get(rkey) != text:
            entry = interpreter.interpret(rkey, text, contents.block(cid))
            yield MemoryOp(rkey, entry, created=rkey not in held)


def bytes_of(op: MemoryOp) -> int:
    """How long the record is that it puts, if that is a memory."""
    return len(op.entry.record) if isinstance(op.entry, StoredMemory) else 0
