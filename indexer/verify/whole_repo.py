"""A repo as a whole: the commit at its head, and all of the tree that it vouches for.

Held are only the nodes on the way to the entry that is looked at. Every link leads down by one layer and keys only
grow, so there is no circle, and a subtree that is linked to twice is not followed twice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Final, NamedTuple, Protocol

from indexer.verify.node import DIGEST_BOUNDS, key_layer
from indexer.verify.node_bytes import split_node
from indexer.verify.reasons import Fault, Inconsistent, Unattributable
from indexer.verify.signed import SignedCommit, parse_commit
from indexer.verify.tree import EMPTY_TREE
from memory.errors import Rejected
from memory.identifiers import COLLECTION, MAX_NSID_CHARS, MAX_RKEY_CHARS

# Some milliseconds.
STRETCH_ENTRIES: Final = 1000

_OURS: Final = COLLECTION.encode() + b"/"
_BEHIND_OURS: Final = COLLECTION.encode() + b"0"  # the character after "/"
_BEHIND_ALL: Final = b"\x7f"
# The rules for the paths of ops: keys of other collections are held to their form only.
_PATH: Final = re.compile(
    rb"[A-Za-z0-9._:~-]{1,%d}/(?!\.{1,2}\Z)[A-Za-z0-9._:~-]{1,%d}" % (MAX_NSID_CHARS, MAX_RKEY_CHARS)
)


class BlockStore(Protocol):
    """Blocks whose hashes have been checked, by binary CID."""

    def get(self, cid: bytes, /) -> bytes | None: ...

    def __contains__(self, cid: bytes, /) -> bool: ...


class Leaf(NamedTuple):
    """Where a record of our collection stands; its CID is binary."""

    rkey: str
    cid: bytes


def read_commit(cid: bytes, block: bytes, did: str) -> SignedCommit:
    """The commit at the head of the repo of `did`, its signature unchecked.

    Raises Rejected: `malformed_commit`, `did_mismatch`.
    """
    commit = parse_commit(cid, block)
    if commit.did != did:
        raise Rejected(reason=Unattributable.DID_MISMATCH)
    return commit


def verify_tree(
    data: bytes, blocks: BlockStore, ours: list[Leaf] | None = None, *, most_ours: int = 0
) -> Iterator[int]:
    """Walk all of the tree below `data`; gives every STRETCH_ENTRIES or so how many entries were new.

    Every node must be there, and the record of every entry of our collection, whatever its shape. The first `most_ours`
    of these are added to `ours`, in order. Raises Inconsistent: `repo_incomplete`, `malformed_tree`, `bad_path`.
    """
    passed, ours = 0, [] if ours is None else ours
    for keys, values in _runs(data, blocks, b"", _BEHIND_ALL):
        passed += len(keys)
        if keys[0] < _BEHIND_OURS and keys[-1] > _OURS:
            for key, cid in zip(keys, values, strict=True):
                if key.startswith(_OURS):
                    if cid not in blocks:
                        raise Inconsistent(Fault.REPO_INCOMPLETE)
                    if len(ours) < most_ours:
                        ours.append(Leaf(key[len(_OURS) :].decode(), cid))
        if passed >= STRETCH_ENTRIES:
            yield passed
            passed = 0
    yield passed


def our_leaves(data: bytes, blocks: BlockStore) -> Iterator[Leaf]:
    """The records of our collection in order of their keys; only the part of the tree that holds them is read."""
    for keys, values in _runs(data, blocks, _OURS, _BEHIND_OURS):
        for key, cid in zip(keys, values, strict=True):
            if key.startswith(_OURS):
                yield Leaf(key[len(_OURS) :].decode(), cid)


_Entries = tuple[list[bytes], list[bytes]]  # keys and values


class _Below(NamedTuple):
    """A node to be read; without a layer it is the root, which has that of its keys."""

    cid: bytes
    layer: int | None


def _runs(data: bytes, blocks: BlockStore, low: bytes, high: bytes) -> Iterator[_Entries]:
    """Entries in order, all checked; a subtree that can have no key between `low` and `high` is left out."""
    last = b""
    ahead: list[_Below | _Entries] = [] if data == EMPTY_TREE else [_Below(data, None)]
    while ahead:
        part = ahead.pop()
        if isinstance(part, _Below):
            block = blocks.get(part.cid)
            if block is None:
                raise Inconsistent(Fault.REPO_INCOMPLETE)
            keys, values, links = split_node(block)
            layer = _check_keys(keys, part.layer)
            if any(links):
                if layer == 0:
                    raise Inconsistent(Fault.MALFORMED_TREE)
                ahead += reversed(list(_parts(keys, values, links, layer - 1, low, high)))
                continue
        else:
            keys, values = part
        if not keys or keys[0] <= last:
            raise Inconsistent(Fault.MALFORMED_TREE)
        last = keys[-1]
        yield keys, values


def _check_keys(keys: list[bytes], layer: int | None) -> int:
    """The layer of these keys, which is `layer` unless that is null."""
    if layer is None:
        if not keys:
            raise Inconsistent(Fault.MALFORMED_TREE)
        layer = key_layer(keys[0])
    least, beyond = DIGEST_BOUNDS[layer]
    for key in keys:
        if not least <= sha256(key).digest() < beyond:
            raise Inconsistent(Fault.MALFORMED_TREE)
        if _PATH.fullmatch(key) is None:
            raise Inconsistent(Fault.BAD_PATH)
    return layer


def _parts(
    keys: list[bytes], values: list[bytes], links: list[bytes | None], layer: int, low: bytes, high: bytes
) -> Iterator[_Below | _Entries]:
    """What a node holds and links to, in order."""
    start = 0
    for index, link in enumerate(links):
        if link is None:
            continue
        if start < index:
            yield keys[start:index], values[start:index]
            start = index
        if (index == len(keys) or keys[index] > low) and (index == 0 or keys[index - 1] < high):
            yield _Below(link, layer)
    if start < len(keys):
        yield keys[start:], values[start:]
