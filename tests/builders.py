"""Really signed repos, and the frames that the reference PDS would send of them.

    alice = RepoBuilder("alice")                         # the same seed, the same DID, key, revs and bytes
    frames = [*alice.genesis()]                          # identity, account, empty commit, sync
    frames += [alice.create("3kaaaaaaaaa2a", memory("Likes green tea."))]
    frames += [alice.update("3kaaaaaaaaa2a", memory("Likes black tea.")), alice.delete("3kaaaaaaaaa2a")]
    frames += [alice.apply([Write("create", "3kaaaaaaaab2a", memory("…")), Write("create", "x", {}, "a.b.post")])]
    key = parse_did_key(alice.did_key)

Every method that makes a frame takes `seq` and `time`; without them `seq` counts up by one and `time` by a second.
`since`, `prevData`, revs, covering tree nodes, `prev` of ops are as the reference PDS 0.5.35 sends them. A record is a
dict, or the bytes of a block for those that no encoder would make. Several builders that feed one stream share a
`Sequence`: `stream = Sequence(); RepoBuilder("a", stream=stream)`.

To tamper: `alice.create(rkey, record, tamper=change)` calls `change(parts: CommitParts)` before the frame is signed
and encoded; after that, `decode_frame_parts(frame)` gives (header, body) to change, and `encode_frame` puts them
together. The builder goes on from the honest commit.

What hosts answer: `alice.car()` as `getRepo`, `alice.export_line(created_at)` as the PLC directory's export. A whole
host is `tests/fakes/pds.py`.
"""

from __future__ import annotations

import base64
import json
import random
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any, Literal

import coincurve
import libipld
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from indexer.verify.car import Link, decode_block, encode_block
from indexer.verify.node import Child, Node, encode_node
from indexer.verify.tree import Tree
from memory.identifiers import COLLECTION, cid_text, tid_time

START = datetime(2026, 11, 1, tzinfo=UTC)
P256_ORDER = 0xFFFFFFFF_00000000_FFFFFFFF_FFFFFFFF_BCE6FAAD_A7179E84_F3B9CAC2_FC632551

_TID_ALPHABET = "234567abcdefghijklmnopqrstuvwxyz"

Record = Mapping[str, Any] | bytes


def memory(content: str, created_at: str = "2026-11-01T10:00:00.000Z", **fields: Any) -> dict[str, Any]:
    """A record of our collection with the fields that the lexicon requires, and more."""
    return {"$type": COLLECTION, "content": content, "createdAt": created_at, **fields}


def tid(time: datetime, clock_id: int = 0) -> str:
    """The TID of an instant, to the microsecond."""
    number = ((time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)) << 10 | clock_id
    return "".join(_TID_ALPHABET[number >> shift & 31] for shift in range(60, -1, -5))


def block_cid(block: bytes) -> Link:
    """The binary CID of a DAG-CBOR block."""
    return Link(b"\x01\x71\x12\x20" + sha256(block).digest())


def encode_frame(header: Mapping[str, Any], body: Mapping[str, Any]) -> bytes:
    return encode_block(dict(header)) + encode_block(dict(body))


def decode_frame_parts(frame: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and body, links as Link, so that `encode_frame` gives the same bytes again."""
    header_bytes = len(encode_block(libipld.decode_dag_cbor_multi(frame)[0]))
    return decode_block(frame[:header_bytes]), decode_block(frame[header_bytes:])


def write_car(root: bytes, blocks: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A CAR with one root and `blocks` as given: order, repetition and wrong hashes too."""
    header = encode_block({"roots": [Link(root)], "version": 1})
    sections = [_varint(len(header)), header]
    for cid, block in blocks:
        sections += (_varint(len(cid) + len(block)), cid, block)
    return b"".join(sections)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


class SigningKey:
    """A deterministic key of either curve whose signatures are low-S and deterministic too."""

    def __init__(self, seed: str, curve: Literal["k256", "p256"] = "k256") -> None:
        secret = sha256(f"{curve} {seed}".encode()).digest()
        if curve == "k256":
            self._k256 = coincurve.PrivateKey(secret)
            point, codec = self._k256.public_key.format(), b"\xe7\x01"
        else:
            self._k256 = None
            self._p256 = ec.derive_private_key(int.from_bytes(secret), ec.SECP256R1())
            point = self._p256.public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
            codec = b"\x80\x24"
        self.did_key = "did:key:" + libipld.encode_multibase("z", codec + point)

    def sign(self, message: bytes) -> bytes:
        if self._k256 is not None:
            return self._k256.sign_recoverable(message)[:64]
        r, s = decode_dss_signature(self._p256.sign(message, ec.ECDSA(SHA256(), deterministic_signing=True)))
        return r.to_bytes(32) + min(s, P256_ORDER - s).to_bytes(32)


@dataclass
class Sequence:
    """The next `seq` of a stream and the instant of its last frame."""

    seq: int = 0
    time: datetime = START

    def next(self, seq: int | None, time: datetime | None) -> tuple[int, datetime]:
        self.seq = self.seq + 1 if seq is None else seq
        self.time = self.time + timedelta(seconds=1) if time is None else time
        return self.seq, self.time


@dataclass(frozen=True)
class Write:
    """One write of a commit; `record` is null for a delete."""

    action: Literal["create", "update", "delete"]
    rkey: str
    record: Record | None = None
    collection: str = COLLECTION

    @property
    def path(self) -> str:
        return f"{self.collection}/{self.rkey}"


@dataclass
class CommitParts:
    """A commit that is not signed yet: change what you like, also `key`."""

    key: SigningKey
    commit: dict[str, Any]  # did, version, rev, data, prev
    blocks: dict[bytes, bytes]  # tree nodes, then records; the commit's own is added behind them
    body: dict[str, Any]  # the frame's, without `commit` and `blocks` unless they are put here

    def sign(self) -> tuple[Link, bytes]:
        block = encode_block({**self.commit, "sig": self.key.sign(encode_block(self.commit))})
        return block_cid(block), block

    def frame(self) -> bytes:
        cid, block = self.sign()
        car = write_car(cid, [*self.blocks.items(), (cid, block)])
        return encode_frame({"op": 1, "t": "#commit"}, {"commit": cid, "blocks": car, **self.body})


Tamper = Callable[[CommitParts], None]


@dataclass
class RepoBuilder:
    """One account and its repo, held whole."""

    seed: str
    curve: Literal["k256", "p256"] = "k256"
    host: str = "http://localhost:2583"
    stream: Sequence = field(default_factory=Sequence)
    handle: str = ""

    def __post_init__(self) -> None:
        digest = base64.b32encode(sha256(self.seed.encode()).digest()).decode().lower()
        self.did = f"did:plc:{digest[:24]}"
        self.handle = self.handle or f"{digest[24:32]}.test"
        self.key = SigningKey(self.seed, self.curve)
        self.tree = Tree()
        self.records: dict[str, Link] = {}  # by path
        self.record_blocks: dict[bytes, bytes] = {}  # the current ones, by CID
        self.rev: str | None = None
        self.data: Link | None = None
        self.commit: tuple[Link, bytes] | None = None
        self._exported: str | None = None

    @property
    def did_key(self) -> str:
        return self.key.did_key

    # Commits

    def create(self, rkey: str, record: Record, collection: str = COLLECTION, **options: Any) -> bytes:
        return self.apply([Write("create", rkey, record, collection)], **options)

    def update(self, rkey: str, record: Record, collection: str = COLLECTION, **options: Any) -> bytes:
        return self.apply([Write("update", rkey, record, collection)], **options)

    def delete(self, rkey: str, collection: str = COLLECTION, **options: Any) -> bytes:
        return self.apply([Write("delete", rkey, None, collection)], **options)

    def apply(
        self,
        writes: Iterable[Write] = (),
        *,
        seq: int | None = None,
        time: datetime | None = None,
        tamper: Tamper | None = None,
    ) -> bytes:
        """The frame of one commit; its rev is the TID of `time`, or the next one when that is not greater."""
        seq, time = self.stream.next(seq, time)
        since, prev_data = self.rev, self.data
        self.rev = tid(time) if since is None or tid(time) > since else _next_tid(since)
        touched: set[str] = set()
        ops: list[dict[str, Any]] = []
        for write in writes:
            ops.append(self._write(write, first=write.path not in touched))
            touched.add(write.path)
        blocks: dict[bytes, bytes] = {}
        self.data = self.tree.seal(blocks)
        for path in touched:
            for node in _covering(self.tree.root, path.encode()):
                assert node.cid is not None
                if node.cid not in blocks:
                    blocks[node.cid] = encode_node(node)
        for path in touched & self.records.keys():
            blocks[self.records[path]] = self.record_blocks[self.records[path]]
        body: dict[str, Any] = {
            "seq": seq, "time": _iso(time), "repo": self.did, "rev": self.rev, "since": since,
            "ops": ops, "blobs": [], "rebase": False, "tooBig": False,
        }  # fmt: skip
        if prev_data is not None:
            body["prevData"] = prev_data
        commit = {"did": self.did, "version": 3, "rev": self.rev, "data": self.data, "prev": None}
        parts = CommitParts(self.key, commit, blocks, body)
        self.commit = parts.sign()
        if tamper is not None:
            parts = CommitParts(self.key, dict(commit), dict(blocks), dict(body))
            tamper(parts)
        return parts.frame()

    def _write(self, write: Write, first: bool) -> dict[str, Any]:
        path, key = write.path, write.path.encode()
        op: dict[str, Any] = {"action": write.action, "path": path, "cid": None}
        current = self.records.pop(path, None)
        if first and write.action != "create":
            op["prev"] = current
        if write.record is not None:
            block = write.record if isinstance(write.record, bytes) else encode_block(dict(write.record))
            op["cid"] = self.records[path] = cid = block_cid(block)
            self.record_blocks[cid] = block
            if current is None:
                self.tree.insert(key, cid)
            else:
                self.tree.replace(key, current, cid)
        else:
            assert current is not None, f"{path} is not there to be deleted"
            self.tree.remove(key, current)
        return op

    # Other frames

    def genesis(self, time: datetime | None = None) -> list[bytes]:
        """What the creation of the account sends: identity, account, an empty commit, sync."""
        return [self.identity_frame(time=time), self.account_frame(), self.apply(), self.sync_frame()]

    def identity_frame(self, *, seq: int | None = None, time: datetime | None = None) -> bytes:
        seq, time = self.stream.next(seq, time)
        body = {"seq": seq, "time": _iso(time), "did": self.did, "handle": self.handle}
        return encode_frame({"op": 1, "t": "#identity"}, body)

    def account_frame(
        self, active: bool = True, status: str | None = None, *, seq: int | None = None, time: datetime | None = None
    ) -> bytes:
        seq, time = self.stream.next(seq, time)
        body: dict[str, Any] = {"seq": seq, "time": _iso(time), "did": self.did, "active": active}
        if status is not None:
            body["status"] = status
        return encode_frame({"op": 1, "t": "#account"}, body)

    def sync_frame(self, *, rev: str | None = None, seq: int | None = None, time: datetime | None = None) -> bytes:
        """Where the repo stands; `rev` other than the commit's is what a PDS sends after a move."""
        assert self.commit is not None
        seq, time = self.stream.next(seq, time)
        car = write_car(self.commit[0], [self.commit])
        body = {"seq": seq, "time": _iso(time), "did": self.did, "rev": rev or self.rev, "blocks": car}
        return encode_frame({"op": 1, "t": "#sync"}, body)

    # What a host and the directory answer

    def car(self, order: random.Random | None = None) -> bytes:
        """The whole repo, as `com.atproto.sync.getRepo` answers; with `order` its blocks come in any."""
        assert self.commit is not None
        blocks = [self.commit]
        pending: list[Child] = [self.tree.root]
        while pending:
            node = pending.pop()
            if isinstance(node, Node):
                assert node.cid is not None
                blocks.append((node.cid, encode_node(node)))
                pending += reversed(node.children)
        if self.tree.root is None:
            sink: dict[bytes, bytes] = {}
            self.tree.seal(sink)
            blocks += [(Link(cid), block) for cid, block in sink.items()]
        blocks += [(cid, self.record_blocks[cid]) for _, cid in sorted(self.records.items())]
        if order is not None:
            order.shuffle(blocks)
        return write_car(self.commit[0], blocks)

    def rotate_key(self, seed: str, curve: Literal["k256", "p256"] = "k256") -> None:
        """Sign with another key from now on; the directory learns of it by the next `export_line`."""
        self.key = SigningKey(seed, curve)

    def export_line(self, created_at: datetime = START, *, tombstone: bool = False) -> str:
        """A line of the PLC directory's export: the account's identity as the builder has it now."""
        prev = self._exported
        operation: dict[str, Any] = {"prev": prev}
        if tombstone:
            operation |= {"type": "plc_tombstone"}
        else:
            operation |= {
                "type": "plc_operation",
                "verificationMethods": {"atproto": self.did_key},
                "rotationKeys": [self.did_key],
                "alsoKnownAs": [f"at://{self.handle}"],
                "services": {"atproto_pds": {"type": "AtprotoPersonalDataServer", "endpoint": self.host}},
            }
        signature = base64.urlsafe_b64encode(self.key.sign(encode_block(operation))).decode().rstrip("=")
        operation["sig"] = signature
        self._exported = cid_text(block_cid(encode_block(operation)))
        line = {"did": self.did, "operation": operation, "cid": self._exported, "nullified": False}
        return json.dumps({**line, "createdAt": _iso(created_at)})


def _covering(root: Child, key: bytes) -> list[Node]:
    """The nodes that prove what stands at `key` and beside it, on both sides."""
    nodes: list[Node] = []
    node = root
    while isinstance(node, Node):
        nodes.append(node)
        index = bisect_left(node.keys, key)
        if index < len(node.keys) and node.keys[index] == key:
            for side, child in ((-1, node.children[index]), (0, node.children[index + 1])):
                while isinstance(child, Node):
                    nodes.append(child)
                    child = child.children[side]
            break
        node = node.children[index]
    return nodes


def _next_tid(rev: str) -> str:
    return tid(tid_time(rev) + timedelta(microseconds=1))


def _iso(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
