"""The bytes of Space repos, made here from proposal 0016 alone: DAG-CBOR, CARs, the set hash, signed commits.

It shares nothing with what it tests: two who agree because they are one prove nothing.
"""

from __future__ import annotations

import hmac
import struct
from base64 import b32encode, b64decode, b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final, Protocol, cast

import libipld
import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

CONTEXT: Final = b"atproto-space-v1"
STATE_BYTES: Final = 2048
COMMIT_VERSION: Final = 1

_LANES: Final = np.dtype("<u2")


class Signer(Protocol):
    """A key that signs, as `tests.builders.SigningKey`: 64 bytes, low-S, over the SHA-256 of a message."""

    did_key: str

    def sign(self, message: bytes) -> bytes: ...


class Cid(bytes):
    """A binary CID, told apart from bytes."""


# DAG-CBOR and JSON


def encode_cbor(value: object) -> bytes:
    """DAG-CBOR: keys by length, then by bytes; every float of 64 bits."""
    match value:
        case None:
            return b"\xf6"
        case bool():
            return b"\xf5" if value else b"\xf4"
        case int():
            return _head(0, value) if value >= 0 else _head(1, -1 - value)
        case float():
            return b"\xfb" + struct.pack(">d", value)
        case str():
            return _head(3, len(text := value.encode())) + text
        case Cid():
            return b"\xd8\x2a" + _head(2, len(value) + 1) + b"\x00" + value
        case bytes():
            return _head(2, len(value)) + value
        case list() | tuple():
            items = cast("Iterable[object]", value)
            return _head(4, len(value)) + b"".join(encode_cbor(item) for item in items)
        case Mapping():
            named = cast("Mapping[str, object]", value)
            return encode_map(sorted(named.items(), key=_canonical))
        case _:
            raise TypeError(type(value).__name__)


def encode_map(pairs: Iterable[tuple[str, object]]) -> bytes:
    """A map whose keys come as they are given."""
    encoded = [encode_cbor(key) + encode_cbor(value) for key, value in pairs]
    return _head(5, len(encoded)) + b"".join(encoded)


def from_json(value: Any) -> Any:
    """The data of JSON: `$link` and `$bytes` become what they stand for."""
    match value:
        case {"$link": str() as text, **others} if not others:
            return Cid(libipld.decode_multibase(text)[1])
        case {"$bytes": str() as text, **others} if not others:
            return b64decode(text + "=" * (-len(text) % 4))
        case dict():
            return {name: from_json(inner) for name, inner in cast("dict[str, Any]", value).items()}
        case list():
            return [from_json(inner) for inner in cast("list[Any]", value)]
        case _:
            return value


def to_json(value: Any) -> Any:
    """The JSON of data."""
    match value:
        case Cid():
            return {"$link": cid_text(value)}
        case bytes():
            return {"$bytes": b64encode(value).decode().rstrip("=")}
        case Mapping():
            return {name: to_json(inner) for name, inner in cast("Mapping[str, Any]", value).items()}
        case list() | tuple():
            return [to_json(inner) for inner in cast("Iterable[Any]", value)]
        case _:
            return value


def cid_of(block: bytes) -> Cid:
    """Of a DAG-CBOR block."""
    return Cid(b"\x01\x71\x12\x20" + sha256(block).digest())


def cid_text(cid: bytes) -> str:
    return "b" + b32encode(cid).decode().lower().rstrip("=")


def write_car(roots: Iterable[bytes], blocks: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A CAR of these blocks, whatever they are, in this order."""
    header = encode_cbor({"version": 1, "roots": [Cid(root) for root in roots]})
    return _section(header) + b"".join(_section(cid + block) for cid, block in blocks)


def _section(data: bytes) -> bytes:
    length, left = bytearray(), len(data)
    while left > 0x7F:
        length.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes(length) + bytes([left]) + data


def _head(major: int, number: int) -> bytes:
    major <<= 5
    if number < 24:
        return bytes([major | number])
    size = next(size for size in range(4) if number < 1 << (8 << size))
    return bytes([major | 24 + size]) + number.to_bytes(1 << size)


def _canonical(pair: tuple[str, object]) -> tuple[int, bytes]:
    key = pair[0].encode()
    return len(key), key


# The set hash and commits


@dataclass
class SetHash:
    """The sum of what is in a repo; the order of adding and removing leaves no trace."""

    lanes: NDArray[np.uint16] = field(default_factory=lambda: np.zeros(STATE_BYTES // 2, _LANES))

    def add(self, path: str, cid: bytes) -> None:
        """A record: `{collection}/{rkey}` and its CID."""
        self.lanes = self.lanes + _expanded(path, cid)

    def remove(self, path: str, cid: bytes) -> None:
        self.lanes = self.lanes - _expanded(path, cid)

    @property
    def state(self) -> bytes:
        return self.lanes.astype(_LANES).tobytes()

    @property
    def digest(self) -> bytes:
        return sha256(self.state).digest()


def _expanded(path: str, cid: bytes) -> NDArray[np.uint16]:
    return np.frombuffer(blake3(f"{path}/{cid_text(cid)}".encode()).digest(STATE_BYTES), _LANES)


def hash_of(records: Mapping[str, bytes]) -> bytes:
    """The hash of a repo, from CIDs by path."""
    summed = SetHash()
    for path, cid in records.items():
        summed.add(path, cid)
    return summed.digest


def commit_context(space: str, author: str, rev: str, ikm: bytes) -> bytes:
    """What is signed."""
    return CONTEXT + b"".join(len(part).to_bytes(2) + part for part in (*map(str.encode, (space, author, rev)), ikm))


def signed_commit(signer: Signer, space: str, author: str, rev: str, *, digest: bytes, ikm: bytes) -> dict[str, Any]:
    """A commit; the same repo has another each time that it is asked for, as `ikm` is drawn anew."""
    context = commit_context(space, author, rev, ikm)
    # HKDF-Expand for 32 bytes of SHA-256 is one block.
    key = hmac.digest(ikm, context + b"\x01", sha256)
    mac = hmac.digest(key, digest, sha256)
    commit = {"ver": COMMIT_VERSION, "hash": digest, "ikm": ikm}
    return commit | {"mac": mac, "sig": signer.sign(context), "rev": rev}
