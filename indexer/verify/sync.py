"""`#sync`: a commit without its contents."""

from __future__ import annotations

from typing import Final

from indexer.frames import SyncEvent
from indexer.verify.car import read_car
from indexer.verify.reasons import Unattributable
from indexer.verify.signed import SignedCommit, check_signature, parse_commit
from memory.errors import Rejected
from memory.signatures import PublicKey

MAX_SYNC_BYTES: Final = 10_000


def read_sync(event: SyncEvent) -> SignedCommit:
    """The commit that a `#sync` names, unverified but for its hash: enough to see that nothing is new.

    Raises Rejected: `too_big`, `malformed_car`, `block_hash`, `commit_missing`, `malformed_commit`.
    """
    if len(event.blocks) > MAX_SYNC_BYTES:
        raise Rejected(reason=Unattributable.TOO_BIG)
    car = read_car(event.blocks)
    block = car.blocks.get(car.root)
    if block is None:
        raise Rejected(reason=Unattributable.COMMIT_MISSING)
    return parse_commit(car.root, block)


def verify_sync(event: SyncEvent, key: PublicKey) -> SignedCommit:
    """The commit that a `#sync` names, signed by `key`.

    Raises Rejected as `read_sync` does, and `did_mismatch`, `rev_mismatch`, `bad_signature`, `signature_not_low_s`.
    """
    commit = read_sync(event)
    if commit.did != event.did:
        raise Rejected(reason=Unattributable.DID_MISMATCH)
    if commit.rev != event.rev:
        raise Rejected(reason=Unattributable.REV_MISMATCH)
    check_signature(commit, key)
    return commit
