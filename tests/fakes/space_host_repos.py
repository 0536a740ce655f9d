"""One author's repo in one Space: its records, its oplog, its commits, and how each is told."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import libipld

from tests.builders import Write
from tests.fakes.space_bytes import (
    Cid,
    SetHash,
    Signer,
    cid_of,
    cid_text,
    encode_cbor,
    encode_map,
    from_json,
    signed_commit,
    to_json,
    write_car,
)
from tests.fakes.space_host_tokens import Refused

HASH_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class Entry:
    """A record as it stands."""

    cid: Cid
    block: bytes
    value: Any = field(repr=False)  # its JSON; null where its block is no data


@dataclass(frozen=True, slots=True)
class Op:
    """One line of the oplog."""

    rev: str
    index: int  # within its rev
    path: str
    cid: Cid | None
    prev: Cid | None

    @property
    def cursor(self) -> str:
        return f"{self.rev}/{self.index}"


@dataclass(frozen=True, slots=True)
class Flaws:
    """What is wrong with what is told: nothing, unless a fault says so."""

    digest: bytes | None = None  # a hash that is not that of the repo
    signer: Signer | None = None  # a key that is not the author's
    mac: bytes | None = None
    torn: bool = False  # the index is of before the last commit
    unordered: bool = False  # the index, and the records after it
    swapped: bool = False  # a record is not what its CID says


@dataclass
class SpaceRepo:
    """Held whole. `ops` is what compaction left of the log."""

    space: str
    author: str
    rev: str | None = None
    entries: dict[str, Entry] = field(default_factory=dict[str, Entry])
    ops: list[Op] = field(default_factory=list[Op])
    hash: SetHash = field(default_factory=SetHash)
    before: dict[str, Entry] = field(default_factory=dict[str, Entry])  # the last commit

    @property
    def digest(self) -> bytes:
        return self.hash.digest

    def uri(self, path: str) -> str:
        return f"{self.space}/{self.author}/{path}"

    # Writing

    def apply(self, writes: Sequence[Write], rev: str) -> None:
        """One commit, of all of them or of none."""
        entries, hashed, ops = dict(self.entries), SetHash(self.hash.lanes), list[Op]()
        for index, write in enumerate(writes):
            current = entries.pop(write.path, None)
            if write.action == "create" and current is not None:
                raise Refused(400, "RecordAlreadyExists", f"Record already exists: {write.path}")
            if write.action != "create" and current is None:
                raise Refused(400, "RecordNotFound", f"Record not found: {write.path}")
            if current is not None:
                hashed.remove(write.path, current.cid)
            entry = None if write.record is None else _entry(write.record)
            if entry is not None:
                hashed.add(write.path, entry.cid)
                entries[write.path] = entry
            ops.append(Op(rev, index, write.path, entry and entry.cid, current and current.cid))
        self.before, self.entries, self.hash, self.rev = self.entries, entries, hashed, rev
        self.ops += ops

    def compact(self, keep_revs: int) -> None:
        """Forgets the log but for its last revs."""
        kept = sorted({op.rev for op in self.ops})[-keep_revs:] if keep_revs else []
        self.ops = [op for op in self.ops if op.rev in kept]

    # Telling

    def commit(self, signer: Signer, draw: random.Random, flaws: Flaws) -> dict[str, Any]:
        """Signed anew, whenever somebody asks."""
        assert self.rev is not None
        commit = signed_commit(
            flaws.signer or signer,
            self.space,
            self.author,
            self.rev,
            digest=flaws.digest or self.digest,
            ikm=draw.randbytes(HASH_BYTES),
        )
        return commit if flaws.mac is None else commit | {"mac": flaws.mac}

    def car(self, commit: Mapping[str, Any], flaws: Flaws, *, values: bool) -> bytes:
        """What `getRepo` answers."""
        entries = self.before if flaws.torn else self.entries
        paths = sorted(entries, key=lambda path: (len(path.encode()), path.encode()))
        head = encode_cbor(commit)
        index = encode_cbor({path: entry.cid for path, entry in entries.items()})
        if flaws.unordered:
            paths.reverse()
            index = encode_map((path, entries[path].cid) for path in paths)
        blocks = [(cid_of(head), head), (cid_of(index), index)]
        if values:
            blocks += [(entries[path].cid, entries[path].block) for path in paths]
            if flaws.swapped and paths:
                cid, block = blocks[-1]
                blocks[-1] = cid, block[:-1] + bytes([block[-1] ^ 1])
        return write_car((cid_of(head), cid_of(index)), blocks)

    def ops_from(self, since: str | None, cursor: str | None) -> list[Op]:
        """Those after a rev, or after the op that a cursor names. What is unknown, or was forgotten, is no error."""
        if cursor is not None:
            rev, slash, index = cursor.partition("/")
            if not slash or not index.isdecimal():
                raise Refused(400, "MalformedCursor", "Malformed cursor")
            return [op for op in self.ops if (op.rev, op.index) > (rev, int(index))]
        return [op for op in self.ops if since is None or op.rev > since]

    def op_json(self, op: Op, flaws: Flaws, *, values: bool) -> dict[str, Any]:
        """A record comes along as long as it is still the one that stands."""
        collection, _, rkey = op.path.partition("/")
        said: dict[str, Any] = {"rev": op.rev, "collection": collection, "rkey": rkey}
        said |= {"cid": op.cid and cid_text(op.cid), "prev": op.prev and cid_text(op.prev)}
        entry = self.entries.get(op.path)
        if values and entry is not None and entry.cid == op.cid:
            said["value"] = {**(entry.value or {}), "swapped": True} if flaws.swapped else entry.value
        return said

    def records(self, collection: str | None, cursor: str | None, *, ascending: bool) -> Iterator[tuple[str, Entry]]:
        """By path, the last first."""
        for path in sorted(self.entries, reverse=not ascending):
            after = cursor is None or (self.uri(path) > cursor if ascending else self.uri(path) < cursor)
            if after and collection in (None, path.partition("/")[0]):
                yield path, self.entries[path]

    def blobs(self) -> list[str]:
        """CIDs of the blobs that records here hold."""
        found: set[str] = set()
        for entry in self.entries.values():
            _find_blobs(entry.value, found)
        return sorted(found)


def _entry(record: Mapping[str, Any] | bytes) -> Entry:
    if not isinstance(record, bytes):
        data = from_json(dict(record))
        block = encode_cbor(data)
        return Entry(cid_of(block), block, to_json(data))
    try:
        value = libipld.decode_dag_cbor(record)
    except ValueError:
        value = None
    return Entry(cid_of(record), record, to_json(value))


def _find_blobs(value: Any, found: set[str]) -> None:
    match value:
        case {"$type": "blob", "ref": {"$link": str() as cid}}:
            found.add(cid)
        case dict():
            for inner in value.values():
                _find_blobs(inner, found)
        case list():
            for inner in value:
                _find_blobs(inner, found)
        case _:
            pass
