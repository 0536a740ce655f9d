"""From the bytes of a `com.atproto.sync.getRepo` answer to the records of our collection, proven to be all of them.

What remains to be checked is who signed the commit, and whether it is newer than what is held.
"""

from __future__ import annotations

from asyncio import sleep
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from indexer.resync.spool import MEMORY_BYTES, Room, Spool
from indexer.verify.car_stream import Blocks, CarStream
from indexer.verify.reasons import Unattributable
from indexer.verify.signed import SignedCommit
from indexer.verify.whole_repo import Leaf, our_leaves, read_commit, verify_tree
from memory.errors import Rejected
from memory.identifiers import cid_text

# What is split without letting others run: some milliseconds, also when it is all blocks of a few bytes.
_SLICE_BYTES: Final = 64 * 1024
# Records of ours whose places are remembered while the tree is verified; with more, it is read again for them.
KEPT_LEAVES: Final = 10_000


class FoundRecord(NamedTuple):
    """A record of our collection, whatever is in it."""

    rkey: str
    cid: str
    block: bytes  # cut off behind RECORD_BYTES_MAX + 1 bytes, which is enough for `interpret_block`


@dataclass(frozen=True, slots=True)
class FetchedRepo:
    """A repo whose tree has been verified whole; its commit's signature has not."""

    commit: SignedCommit
    blocks: int  # that the CAR brought, repeated and needless ones too
    records: int  # that the tree holds, of all collections
    car_bytes: int
    _spool: Spool
    _first_leaves: Sequence[Leaf]  # of our collection: all, or more than KEPT_LEAVES

    def memories(self) -> Iterator[FoundRecord]:
        """Every record of our collection in order of their keys, by bytes, each read when its turn comes.

        May be asked for again. Raises DiskUnavailable.
        """
        for rkey, cid in self.leaves():
            yield FoundRecord(rkey, cid_text(cid), self.block(cid))

    def leaves(self) -> Iterator[tuple[str, bytes]]:
        """Rkey and binary CID of every record of our collection, in the same order."""
        if len(self._first_leaves) <= KEPT_LEAVES:
            return iter(self._first_leaves)
        return our_leaves(self.commit.data, self._spool)

    def block(self, cid: bytes) -> bytes:
        """The block of one of them, cut off as in FoundRecord."""
        block = self._spool.get(cid)
        assert block is not None, "verified to be there"
        return block


@asynccontextmanager
async def download(
    chunks: AsyncIterator[bytes],
    did: str,
    folder: Path | None,
    *,
    memory_bytes: int = MEMORY_BYTES,
    room: Room | None = None,
) -> AsyncGenerator[FetchedRepo]:
    """The repo of `did`, held until the context is left, from a CAR that comes in pieces.

    Memory does not grow with the repo, but for 9 bytes a block and the places of its first memories. Beyond
    `memory_bytes` its blocks go to a file in `folder` (null: the system's for temporary files), as large as the CAR,
    which the caller bounds. Raises Rejected: `malformed_car`, `truncated_car`, `block_hash`, `too_big`,
    `commit_missing`, `malformed_commit`, `did_mismatch`, `repo_incomplete`, `malformed_tree`, `bad_path`;
    DiskUnavailable; and what `chunks` raises.
    """
    with Spool(folder, memory_bytes=memory_bytes, room=room) as spool:
        stream, commit, received = CarStream(), None, 0
        async for chunk in chunks:
            received += len(chunk)
            for start in range(0, len(chunk), _SLICE_BYTES):
                blocks = stream.feed(chunk[start : start + _SLICE_BYTES])
                commit = commit or _find_commit(blocks, stream.root, did)
                spool.add(blocks)
                await sleep(0)
        stream.finish()
        if commit is None:
            raise Rejected(reason=Unattributable.COMMIT_MISSING)
        records, leaves = 0, list[Leaf]()
        for passed in verify_tree(commit.data, spool, leaves, most_ours=KEPT_LEAVES + 1):
            records += passed
            await sleep(0)
        yield FetchedRepo(commit, stream.blocks, records, received, spool, leaves)


def _find_commit(blocks: Blocks, root: bytes | None, did: str) -> SignedCommit | None:
    """The commit of `did`, if it is among these blocks; raises as `read_commit` does."""
    for cid, block in blocks:
        if cid == root:
            return read_commit(cid, block, did)
    return None
