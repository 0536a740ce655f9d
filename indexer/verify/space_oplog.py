"""What an author's host says has happened in a repo of a Space since a rev (`listRepoOps`), page by page. Pure.

    fold = OplogFold(repo, state=held.state, since=held.rev)
    while fold.add(parse_ops_page(await ask(since=held.rev, cursor=fold.cursor))): ...
    folded = fold.finish(now)

Nothing of it may be applied before `finish` gives it. What to do:

- `Folded`: apply `ops` and store `state`, `commit.rev` and `commit.hash` in one transaction. If `missing` is not empty,
  get the whole repo instead: those records were not sent.
- None: this host holds no repo of this author in this Space. What that means is for the listing and `getRepo` to say.
- `HashMismatch`: the signed commit is of other records than ours with these ops. The host did not know our rev, or has
  dropped ops behind it (it says neither), or we hold something else than we believe. Drop the fold and get the whole
  repo with `getRepo` (`space_car`), at once; asking for the ops again gives the same.
- any other `Rejected`: this host's answer contradicts itself, or nobody signed it. Drop the fold, get the whole repo,
  and if that is refused too, leave the host alone for a while. What is held stays as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any, Final, NamedTuple, cast

import cbrrr
import orjson

from indexer.verify.commit import RecordOp
from indexer.verify.reasons import Unattributable
from indexer.verify.set_hash import EMPTY_STATE, SetHash, element
from indexer.verify.space_commit import SpaceCommit, SpaceRepo, check_contents, parse_commit_json
from indexer.verify.space_reasons import SpaceRefusal
from memory.errors import Rejected
from memory.identifiers import COLLECTION, cid_text, is_nsid, is_rkey, is_tid
from memory.space_protocol import PAGE_ITEMS_MAX

MAX_FOLD_OPS: Final = 20_000
MAX_FOLD_BYTES: Final = 32 * 1024 * 1024
"""Of records of our collection, in all; what is longer comes as a stream."""

# The one spelling of a CID of DAG-CBOR and sha-256.
_CID: Final = re.compile(r"bafyrei[a-h][a-z2-7]{50}[aeimquy4]")
_CID_PREFIX: Final = b"\x01\x71\x12\x20"


class SpaceOp(NamedTuple):
    """What one write did to one record of any collection; `value` is its JSON, not compared with `cid` yet."""

    rev: str
    collection: str
    rkey: str
    prev: str | None  # CID before; null: the key was free
    cid: str | None  # CID after; null: deleted
    value: dict[str, Any] | None  # null: deleted, left out, or written over since


@dataclass(frozen=True, slots=True, repr=False)
class OpsPage:
    """An answer of `listRepoOps`. The last page has no cursor, and a commit if the host holds the repo at all."""

    ops: tuple[SpaceOp, ...]
    commit: SpaceCommit | None  # not verified yet
    cursor: str | None


@dataclass(frozen=True, slots=True, repr=False)
class Folded:
    """What all pages amount to, under a verified commit."""

    commit: SpaceCommit
    state: bytes  # of the set hash, to go on from
    ops: tuple[RecordOp, ...]  # one a record of our collection that is not as it was
    missing: tuple[str, ...]  # rkeys of those whose record was not sent


def parse_ops_page(body: bytes) -> OpsPage:
    """Read an answer; raises Rejected: `malformed_page`, and what `parse_commit_json` raises."""
    try:
        page = orjson.loads(body)
    except orjson.JSONDecodeError:
        # Not chained: the decoder's error quotes the answer.
        raise Rejected(reason=SpaceRefusal.MALFORMED_PAGE) from None
    if not isinstance(page, dict):
        raise Rejected(reason=SpaceRefusal.MALFORMED_PAGE)
    fields = cast(dict[str, Any], page)
    ops, commit, cursor = fields.get("ops"), fields.get("commit"), fields.get("cursor")
    if not isinstance(ops, list) or len(entries := cast(list[Any], ops)) > PAGE_ITEMS_MAX:
        raise Rejected(reason=SpaceRefusal.MALFORMED_PAGE)
    # Pages that bring nothing and are not the last might never end.
    if cursor is not None and not (isinstance(cursor, str) and cursor and entries and commit is None):
        raise Rejected(reason=SpaceRefusal.MALFORMED_PAGE)
    return OpsPage(tuple(map(_op, entries)), None if commit is None else parse_commit_json(commit), cursor)


def _op(entry: Any) -> SpaceOp:
    match entry:
        case {
            "rev": str() as rev,
            "collection": str() as collection,
            "rkey": str() as rkey,
            "prev": str() | None as prev,
            "cid": str() | None as cid,
        }:
            value = entry.get("value")
        case _:
            raise Rejected(reason=SpaceRefusal.MALFORMED_PAGE)
    named = is_tid(rev) and is_nsid(collection) and is_rkey(rkey)
    cids = all(each is None or _CID.fullmatch(each) for each in (prev, cid))
    if not (named and cids and (value is None or isinstance(value, dict))):
        raise Rejected(reason=SpaceRefusal.MALFORMED_PAGE)
    return SpaceOp(rev, collection, rkey, prev, cid, value)


class _Change(NamedTuple):
    """What stood at a path before all ops, what stands there now, and that record if it was sent."""

    before: str | None
    after: str | None
    block: bytes | None


class OplogFold:
    """Adds pages up. After a Rejected it is of no use any more."""

    __slots__ = ("_bytes", "_changes", "_commit", "_count", "_records", "_repo", "_rev", "_since", "cursor")

    def __init__(self, repo: SpaceRepo, *, state: bytes = EMPTY_STATE, since: str | None = None) -> None:
        """Goes on from what is held: `state` at the rev `since`; without both, from nothing.

        From nothing, it leads to the head only where the host has kept all ops: it need not, and does not say.
        """
        self.cursor: str | None = None  # to ask with for the next page
        self._repo = repo
        self._since = since
        self._rev = since or ""  # of the last op
        self._records = SetHash(state)
        self._commit: SpaceCommit | None = None
        self._changes: dict[tuple[str, str], _Change] = {}
        self._count = 0
        self._bytes = 0

    def add(self, page: OpsPage) -> bool:
        """Take a page; whether there is another one. Costs some microseconds for each op.

        Raises Rejected: `too_many_ops`, `bad_op`, `rev_order`, `value_mismatch`.
        """
        self._count += len(page.ops)
        if self._count > MAX_FOLD_OPS:
            raise Rejected(reason=SpaceRefusal.TOO_MANY_OPS)
        for op in page.ops:
            self._take(op)
        paths = [f"{op.collection}/{op.rkey}" for op in page.ops]
        self._records.add(element(path, op.cid) for path, op in zip(paths, page.ops, strict=True) if op.cid)
        self._records.remove(element(path, op.prev) for path, op in zip(paths, page.ops, strict=True) if op.prev)
        self.cursor, self._commit = page.cursor, page.commit
        return page.cursor is not None

    def finish(self, now: datetime) -> Folded | None:
        """All that has happened, once the last page is in; None: the host holds no such repo.

        Raises HashMismatch; Rejected: `commit_missing`, `rev_order`, and what `SpaceRepo.check` raises.
        """
        commit = self._commit
        if commit is None:
            if self._count:
                raise Rejected(reason=Unattributable.COMMIT_MISSING)
            return None
        self._repo.check(commit, now)
        if self._count and self._rev > commit.rev:
            raise Rejected(reason=SpaceRefusal.REV_ORDER)
        check_contents(commit, self._records)
        ops = tuple(
            RecordOp(rkey, change.before, change.after, change.block)
            for (collection, rkey), change in self._changes.items()
            if collection == COLLECTION and change.before != change.after
        )
        missing = tuple(op.rkey for op in ops if op.cid is not None and op.block is None)
        return Folded(commit, self._records.state(), ops, missing)

    def _take(self, op: SpaceOp) -> None:
        """Judge an op, and put it on top of the earlier ones on its path.

        Ops of one write share its rev and stand in the order in which they were done, and a page may end among them.
        """
        if op.rev < self._rev or op.rev == self._since:
            raise Rejected(reason=SpaceRefusal.REV_ORDER)
        self._rev = op.rev
        place = (op.collection, op.rkey)
        earlier = self._changes.get(place)
        if op.cid is None and (op.prev is None or op.value is not None):
            raise Rejected(reason=SpaceRefusal.BAD_OP)
        before, block = op.prev, None
        if earlier is not None:
            if op.prev != earlier.after:
                raise Rejected(reason=SpaceRefusal.BAD_OP)
            before = earlier.before
            block = earlier.block if op.cid == earlier.after else None
            self._bytes -= len(earlier.block or b"")
        # Other collections' records count by their CIDs alone.
        if op.collection == COLLECTION and op.cid is not None and op.value is not None:
            block = _block(op.value, op.cid)
        self._bytes += len(block or b"")
        if self._bytes > MAX_FOLD_BYTES:
            raise Rejected(reason=SpaceRefusal.TOO_MANY_OPS)
        self._changes[place] = _Change(before, op.cid, block)


def _block(value: dict[str, Any], cid: str) -> bytes:
    """The DAG-CBOR of a record in JSON; raises Rejected(value_mismatch) unless `cid` is its CID."""
    try:
        block = cbrrr.encode_dag_cbor(value, atjson_mode=True)  # pyright: ignore[reportUnknownMemberType]
    except (ValueError, TypeError):  # TypeError: floats
        raise Rejected(reason=SpaceRefusal.VALUE_MISMATCH) from None
    if cid_text(_CID_PREFIX + sha256(block).digest()) != cid:
        raise Rejected(reason=SpaceRefusal.VALUE_MISMATCH)
    return block
