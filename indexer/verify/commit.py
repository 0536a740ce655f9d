"""`#commit`, judged by itself: is it the author's, and do its ops lead from the tree before to the tree after?"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from indexer.frames import CommitEvent, RepoOp
from indexer.verify.car import Car, read_car
from indexer.verify.reasons import Fault, Inconsistent, Unattributable
from indexer.verify.signed import SignedCommit, check_signature, parse_commit
from indexer.verify.tree import EMPTY_TREE, Tree
from memory.errors import Rejected
from memory.identifiers import COLLECTION, MAX_NSID_CHARS, MAX_RKEY_CHARS, cid_text, is_tid, tid_time
from memory.signatures import PublicKey

MAX_BLOCKS_BYTES: Final = 2_000_000
MAX_RECORD_BYTES: Final = 1_000_000
MAX_OPS: Final = 200
MAX_REV_LEAD: Final = timedelta(minutes=5)

_PREFIX: Final = COLLECTION + "/"
# Keys of other collections are the tree's business, not ours: only their form is held to the repository's rules.
_PATH: Final = re.compile(rf"[A-Za-z0-9._:~-]{{1,{MAX_NSID_CHARS}}}/[A-Za-z0-9._:~-]{{1,{MAX_RKEY_CHARS}}}")
_DOTS: Final = ("/.", "/..")


@dataclass(frozen=True, slots=True)
class RecordOp:
    """What one commit as a whole did to one record of our collection."""

    rkey: str
    prev: str | None  # CID before the commit; null: the key was free
    cid: str | None  # CID after it; null: deleted
    block: bytes | None  # the record after it, not decoded

    @property
    def action(self) -> Literal["create", "update", "delete"]:
        if self.cid is None:
            return "delete"
        return "create" if self.prev is None else "update"


@dataclass(frozen=True, slots=True)
class VerifiedCommit:
    """A commit that its author signed. With a `fault` it must not be applied, and `ops` is empty."""

    repo: str
    rev: str
    since: str | None
    commit_cid: str
    data_cid: str
    prev_data: str | None  # as the frame says; without a fault: proven
    from_empty: bool  # the tree before held nothing, so that this commit brings all that the repo holds
    fault: Fault | None
    touches_collection: bool  # names a record of ours, also one that was there only within the commit
    ops: tuple[RecordOp, ...]  # one a record key


def verify_commit(event: CommitEvent, key: PublicKey, now: datetime) -> VerifiedCommit:
    """Verify all of a commit that does not depend on what is held; `now` judges its rev.

    Raises Rejected with an Unattributable reason when `key` did not provably sign this commit of this repo.
    """
    car, signed = _attribute(event, key)
    fault, ops = None, ()
    previous = EMPTY_TREE if event.prev_data is None and event.since is None else event.prev_data
    try:
        ops = _check(event, signed, car, previous, now)
    except Inconsistent as error:
        fault = error.fault
    return VerifiedCommit(
        repo=signed.did,
        rev=signed.rev,
        since=event.since,
        commit_cid=signed.commit_cid,
        data_cid=signed.data_cid,
        prev_data=None if event.prev_data is None else cid_text(event.prev_data),
        from_empty=previous == EMPTY_TREE,
        fault=fault,
        touches_collection=event.touches_collection,
        ops=ops,
    )


def _attribute(event: CommitEvent, key: PublicKey) -> tuple[Car, SignedCommit]:
    """The blocks, and the commit among them that `key` signed."""
    if len(event.blocks) > MAX_BLOCKS_BYTES or (event.too_big and not event.blocks):
        raise Rejected(reason=Unattributable.TOO_BIG)
    car = read_car(event.blocks)
    if car.root != event.commit:
        raise Rejected(reason=Unattributable.ROOT_MISMATCH)
    block = car.blocks.get(car.root)
    if block is None:
        raise Rejected(reason=Unattributable.COMMIT_MISSING)
    signed = parse_commit(car.root, block)
    if signed.did != event.did:
        raise Rejected(reason=Unattributable.DID_MISMATCH)
    if signed.rev != event.rev:
        raise Rejected(reason=Unattributable.REV_MISMATCH)
    check_signature(signed, key)
    return car, signed


def _check(
    event: CommitEvent, signed: SignedCommit, car: Car, previous: bytes | None, now: datetime
) -> tuple[RecordOp, ...]:
    """Prove the ops, and give those of our collection; raises Inconsistent."""
    if not is_tid(signed.rev):
        raise Inconsistent(Fault.REV_NOT_TID)
    if tid_time(signed.rev) - MAX_REV_LEAD > now:
        raise Inconsistent(Fault.REV_IN_FUTURE)
    if previous is None:
        raise Inconsistent(Fault.PREV_DATA_ABSENT)
    if len(event.ops) > MAX_OPS:
        raise Inconsistent(Fault.TOO_MANY_OPS)
    changes = _collapse(event.ops)
    ops = tuple(_record_op(path, change, car.blocks) for path, change in changes.items() if path.startswith(_PREFIX))
    if _undo(changes, signed.data, car.blocks) != previous:
        raise Inconsistent(Fault.INVERSION)
    return ops


# What stood at a path before the commit and what stands there after it: binary CIDs, null for nothing.
_Change = tuple[bytes | None, bytes | None]


def _collapse(ops: Iterable[RepoOp]) -> dict[str, _Change]:
    """What the ops amount to, path by path; paths that end as they began are left out.

    Within one commit a producer may write a path several times. Only the first op tells what was there before, the
    later ones need no `prev`, and only what the last one wrote needs to be in the CAR.
    """
    changes: dict[str, _Change] = {}
    for op in ops:
        if _PATH.fullmatch(op.path) is None or op.path.endswith(_DOTS):
            raise Inconsistent(Fault.BAD_PATH)
        creates = op.action == "create"
        deletes = op.action == "delete"
        if not (creates or deletes or op.action == "update") or (op.cid is None) != deletes:
            raise Inconsistent(Fault.BAD_OP)
        earlier = changes.get(op.path)
        if earlier is None:
            before = op.prev
            if creates != (before is None):
                raise Inconsistent(Fault.BAD_OP if creates else Fault.PREV_ABSENT)
        else:
            before, current = earlier
            if creates != (current is None) or op.prev not in (None, current):
                raise Inconsistent(Fault.BAD_OP)
        changes[op.path] = (before, op.cid)
    return {path: change for path, change in changes.items() if change[0] != change[1]}


def _record_op(path: str, change: _Change, blocks: Mapping[bytes, bytes]) -> RecordOp:
    before, after = change
    rkey, prev = path[len(_PREFIX) :], None if before is None else cid_text(before)
    if after is None:
        return RecordOp(rkey, prev, None, None)
    block = blocks.get(after)
    if block is None:
        raise Inconsistent(Fault.RECORD_MISSING)
    if len(block) > MAX_RECORD_BYTES:
        raise Inconsistent(Fault.RECORD_TOO_BIG)
    return RecordOp(rkey, prev, cid_text(after), block)


def _undo(changes: Mapping[str, _Change], data: bytes, blocks: Mapping[bytes, bytes]) -> bytes:
    """The root of the tree before the changes."""
    if not changes:
        return data
    tree = Tree.load(data, blocks)
    for path, (before, after) in changes.items():
        key = path.encode()
        if before is None:
            assert after is not None
            tree.remove(key, after)
        elif after is None:
            tree.insert(key, before)
        else:
            tree.replace(key, after, before)
    return tree.seal()
