"""The signed block at the head of a repo: which tree it vouches for, and who signed it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

from indexer.verify.car import Link, decode_block, encode_block
from indexer.verify.reasons import Unattributable
from memory.errors import Rejected
from memory.identifiers import cid_text, is_binary_cid
from memory.signatures import PublicKey, SignatureVerdict

MAX_COMMIT_BYTES: Final = 4096  # ten times what one takes

_REPO_VERSION: Final = 3


@dataclass(frozen=True, slots=True)
class SignedCommit:
    """A commit block whose hash is right; its signature counts only once `check_signature` has passed."""

    did: str
    rev: str
    commit_cid: str
    data_cid: str
    data: bytes  # the same, binary
    unsigned: bytes  # what was signed: the block's canonical DAG-CBOR without `sig`
    signature: bytes


def parse_commit(cid: bytes, block: bytes) -> SignedCommit:
    """Read a commit block of repo version 3, in canonical DAG-CBOR; raises Rejected(malformed_commit)."""
    decoded = decode_block(block) if len(block) <= MAX_COMMIT_BYTES else None
    if not isinstance(decoded, dict):
        raise Rejected(reason=Unattributable.MALFORMED_COMMIT)
    fields = cast(dict[str, Any], decoded)
    signature = fields.pop("sig", None)
    match fields:
        case {"did": str() as did, "rev": str() as rev, "data": Link() as data, "version": int() as version}:
            prev = fields.get("prev")
            if version != _REPO_VERSION or type(signature) is not bytes or not is_binary_cid(data):
                raise Rejected(reason=Unattributable.MALFORMED_COMMIT)
            if prev is not None and type(prev) is not Link:
                raise Rejected(reason=Unattributable.MALFORMED_COMMIT)
            return SignedCommit(did, rev, cid_text(cid), cid_text(data), data, encode_block(fields), signature)
        case _:
            raise Rejected(reason=Unattributable.MALFORMED_COMMIT)


def check_signature(commit: SignedCommit, key: PublicKey) -> None:
    """Raises Rejected: `bad_signature`, `signature_not_low_s`."""
    verdict = key.verify(commit.unsigned, commit.signature)
    if verdict is SignatureVerdict.BAD:
        raise Rejected(reason=Unattributable.BAD_SIGNATURE)
    if verdict is SignatureVerdict.NOT_LOW_S:
        raise Rejected(reason=Unattributable.SIGNATURE_NOT_LOW_S)
