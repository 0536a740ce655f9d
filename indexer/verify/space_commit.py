"""The commit at the head of a repo in a Space: read strictly from both of its forms, and verified. Pure.

The author signs the context only: Space, author, rev and `ikm`, never the hash. `mac` binds the hash to that context,
with a key that whoever sees the commit can make. So a commit proves that its author once committed this rev in this
Space; that these are the contents is the word of the host, and good only over TLS from the one in the author's DID
document.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, cast

from indexer.verify.car import decode_block
from indexer.verify.reasons import Unattributable
from indexer.verify.set_hash import SetHash
from indexer.verify.signed import MAX_COMMIT_BYTES
from indexer.verify.space_reasons import SpaceRefusal
from memory.errors import Rejected
from memory.identifiers import is_tid, tid_time
from memory.signatures import PublicKey, SignatureVerdict
from memory.space_protocol import (
    COMMIT_FIELDS,
    COMMIT_VERSION,
    CONTEXT_TAG,
    HASH_BYTES,
    IKM_BYTES,
    MAC_BYTES,
    REV_LEAD_MAX,
    SIGNATURE_BYTES,
    SIGNED_COMMIT_TYPE,
)

_BYTE_FIELDS: Final = {"hash": HASH_BYTES, "ikm": IKM_BYTES, "sig": SIGNATURE_BYTES, "mac": MAC_BYTES}


@dataclass(frozen=True, slots=True, repr=False)
class SpaceCommit:
    """What a host says is the head of a repo; counts only once `SpaceRepo.check` has passed."""

    rev: str
    hash: bytes  # of the set of all records
    ikm: bytes  # random, new each time that the commit is served
    signature: bytes
    mac: bytes


class HashMismatch(Rejected):
    """The records are not those that the commit stands for."""

    def __init__(self, commit: SpaceCommit) -> None:
        self.commit = commit  # verified: what the host has now, or had a moment ago
        super().__init__(reason=SpaceRefusal.HASH_MISMATCH)


@dataclass(frozen=True, slots=True, repr=False)
class SpaceRepo:
    """One author's repo in one Space, and the key in their DID document that signs its commits."""

    space: str  # its at-uri
    author: str
    key: PublicKey

    def check(self, commit: SpaceCommit, now: datetime) -> None:
        """Verify a commit; `now` judges its rev.

        Raises Rejected: `bad_signature`, `signature_not_low_s`, `bad_mac`, `rev_in_future`.
        """
        context = commit_context(self.space, self.author, commit.rev, commit.ikm)
        verdict = self.key.verify(context, commit.signature)
        if verdict is SignatureVerdict.BAD:
            raise Rejected(reason=Unattributable.BAD_SIGNATURE)
        if verdict is SignatureVerdict.NOT_LOW_S:
            raise Rejected(reason=Unattributable.SIGNATURE_NOT_LOW_S)
        if not hmac.compare_digest(commit.mac, commit_mac(context, commit.ikm, commit.hash)):
            raise Rejected(reason=SpaceRefusal.BAD_MAC)
        if tid_time(commit.rev) - REV_LEAD_MAX > now:
            raise Rejected(reason=SpaceRefusal.REV_IN_FUTURE)


def check_contents(commit: SpaceCommit, records: SetHash) -> None:
    """Raises HashMismatch unless these are the records of a commit that has been verified."""
    if records.digest() != commit.hash:
        raise HashMismatch(commit)


def commit_context(space: str, author: str, rev: str, ikm: bytes) -> bytes:
    """What the author signs: the version's tag, then each part behind its length, two bytes big-endian."""
    parts = (space.encode(), author.encode(), rev.encode(), ikm)
    return CONTEXT_TAG + b"".join(len(part).to_bytes(2) + part for part in parts)


def commit_mac(context: bytes, ikm: bytes, set_hash: bytes) -> bytes:
    """HMAC-SHA256 of the hash, under HKDF-Expand(ikm, context) of 32 bytes: the first block, which is all of it."""
    key = hmac.digest(ikm, context + b"\x01", "sha256")
    return hmac.digest(key, set_hash, "sha256")


def parse_commit_block(block: bytes) -> SpaceCommit:
    """Read a commit in canonical DAG-CBOR, as CARs have it; raises Rejected: `malformed_commit`, `commit_version`."""
    decoded = decode_block(block) if len(block) <= MAX_COMMIT_BYTES else None
    if not isinstance(decoded, dict):
        raise Rejected(reason=Unattributable.MALFORMED_COMMIT)
    return _commit(cast(dict[str, Any], decoded))


def parse_commit_json(value: object) -> SpaceCommit:
    """Read a commit as answers in JSON have it; raises Rejected: `malformed_commit`, `commit_version`."""
    if not isinstance(value, dict):
        raise Rejected(reason=Unattributable.MALFORMED_COMMIT)
    fields = dict(cast(dict[str, Any], value))
    if fields.pop("$type", SIGNED_COMMIT_TYPE) != SIGNED_COMMIT_TYPE:
        raise Rejected(reason=Unattributable.MALFORMED_COMMIT)
    return _commit(fields | {name: json_bytes(fields[name]) for name in _BYTE_FIELDS if name in fields})


def json_bytes(value: object) -> bytes | None:
    """The bytes of `{"$bytes": …}`, in base64 without padding; null for anything else."""
    fields = cast(dict[str, object], value) if isinstance(value, dict) else {}
    text = fields.get("$bytes")
    if len(fields) != 1 or not isinstance(text, str):
        return None
    try:
        data = b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        return None
    return data if b64encode(data).rstrip(b"=") == text.encode() else None


def _commit(fields: Mapping[str, Any]) -> SpaceCommit:
    version, rev = fields.get("ver"), fields.get("rev")
    if type(version) is int and version != COMMIT_VERSION:
        raise Rejected(reason=SpaceRefusal.COMMIT_VERSION)
    # Links are bytes too, but of another type.
    sizes = {name: len(fields[name]) for name in _BYTE_FIELDS if type(fields.get(name)) is bytes}
    if fields.keys() ^ COMMIT_FIELDS or type(version) is not int or sizes != _BYTE_FIELDS:
        raise Rejected(reason=Unattributable.MALFORMED_COMMIT)
    if not isinstance(rev, str) or not is_tid(rev):
        raise Rejected(reason=Unattributable.MALFORMED_COMMIT)
    return SpaceCommit(rev, fields["hash"], fields["ikm"], fields["sig"], fields["mac"])
