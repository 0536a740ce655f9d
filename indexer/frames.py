"""What a source sends: one frame, decoded into one event.

A frame is two DAG-CBOR items, a header `{op, t}` and a body (`com.atproto.sync.subscribeRepos`). Nothing here is
verified: an event is what its sender claims. Texts are held to what Postgres can store, for some are stored unverified.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, cast

import libipld

from memory.claimed_lengths import overclaims
from memory.errors import Rejected
from memory.identifiers import COLLECTION, is_binary_cid, is_did, is_handle

# The protocol ends a message at 5 MB; read as MiB, so that no reading of MB loses a frame.
MAX_FRAME_BYTES: Final = 5 * 1024 * 1024
# A smaller frame costs little to decode, whatever its lists claim.
CLAIMS_LOOKED_AT_BYTES: Final = 16 * 1024
# Of a frame that is whole, and would cost too much to read: to meet it again would help nobody.
OVERCLAIMING: Final = "overclaiming"
MAX_SEQ: Final = 2**53 - 1

_MAX_TEXT_CHARS: Final = 2048
_MAX_STATUS_CHARS: Final = 64
_COLLECTION_PREFIX: Final = COLLECTION + "/"
_Map: TypeAlias = dict[str, Any]


class BrokenFrame(Rejected):
    """These bytes are no frame, or lack what an event of their type needs."""

    reason = "broken_frame"


@dataclass(frozen=True, slots=True)
class RepoOp:
    """One write as the frame lists it (`subscribeRepos#repoOp`); CIDs are binary."""

    action: str  # create, update, delete; anything else is kept for verification to refuse
    path: str  # collection/rkey, unchecked
    cid: bytes | None  # null: deleted
    prev: bytes | None  # the record before; null also when the producer leaves it out


@dataclass(frozen=True, slots=True)
class CommitEvent:
    """`subscribeRepos#commit`: a signed commit and the blocks that prove what it changed; CIDs are binary."""

    seq: int
    time: datetime  # UTC
    raw_time: str
    did: str
    rev: str  # unchecked
    since: str | None
    commit: bytes
    prev_data: bytes | None
    ops: tuple[RepoOp, ...]
    blocks: bytes  # a CAR
    too_big: bool  # deprecated: the producer left ops or blocks out

    @property
    def touches_collection(self) -> bool:
        """Whether an op names a record of our collection: what makes a repo ours."""
        return any(op.path.startswith(_COLLECTION_PREFIX) for op in self.ops)


@dataclass(frozen=True, slots=True)
class SyncEvent:
    """`subscribeRepos#sync`: where a repo stands now, whatever was sent before."""

    seq: int
    time: datetime  # UTC
    raw_time: str
    did: str
    rev: str  # unchecked; after a move it can differ from the commit's
    blocks: bytes  # a CAR with the commit block


@dataclass(frozen=True, slots=True)
class IdentityEvent:
    """`subscribeRepos#identity`: a DID document may have changed."""

    seq: int
    time: datetime  # UTC
    raw_time: str
    did: str
    handle: str | None  # a hint; null also for what is no handle


@dataclass(frozen=True, slots=True)
class AccountEvent:
    """`subscribeRepos#account`: whether this source serves an account."""

    seq: int
    time: datetime  # UTC
    raw_time: str
    did: str
    active: bool
    status: str | None  # null also for what is no plain word


@dataclass(frozen=True, slots=True)
class InfoEvent:
    """`subscribeRepos#info`: a word on the stream itself, such as OutdatedCursor."""

    name: str
    message: str | None


@dataclass(frozen=True, slots=True)
class ErrorEvent:
    """The frame before a source closes the stream, such as FutureCursor or ConsumerTooSlow."""

    error: str
    message: str | None


@dataclass(frozen=True, slots=True)
class IgnoredFrame:
    """A whole frame of a kind that this program does not know."""

    reason: str  # unknown_op, unknown_type
    seq: int | None


Event = CommitEvent | SyncEvent | IdentityEvent | AccountEvent | InfoEvent | ErrorEvent | IgnoredFrame


@dataclass(frozen=True, slots=True)
class OpenFrame:
    """A frame whose two items are decoded, and nothing more: enough to see whom it concerns."""

    header: _Map
    body: _Map

    @property
    def seq(self) -> int | None:
        """Null where there is none that can be used."""
        return _seq_if_any(self.body)

    def concerns(self, concerned: Callable[[str], bool]) -> bool:
        """Whether it has to be read further: all but an event of a repo that is not `concerned`.

        Of such an event, only a commit that names a record of our collection has to be.
        """
        return _concerns(self.header, self.body, concerned)


def open_frame(data: bytes) -> OpenFrame:
    """Decode the two items of a message; raises BrokenFrame as `decode_frame` does for bytes that are not."""
    return OpenFrame(*_split(data))


def event_of_others(data: bytes, concerned: Callable[[str], bool]) -> tuple[int, object] | None:
    """Seq and claimed time of an event that need not be read further; null for everything else, whatever it is.

    Says what `open_frame`, `seq` and `concerns` say of it, for half the time: nearly every frame of a network is one.
    """
    if len(data) > CLAIMS_LOOKED_AT_BYTES and (len(data) > MAX_FRAME_BYTES or overclaims(data, 2)):
        return None
    try:
        items: list[_Map] = libipld.decode_dag_cbor_multi(data)  # maps, if it is a frame
    except (ValueError, RecursionError):
        return None
    if len(items) != 2:
        return None
    header, body = items
    if type(header) is not dict or type(body) is not dict or header.get("op") == -1:
        return None
    seq = _seq_if_any(body)
    if seq is None or _concerns(header, body, concerned):
        return None
    return seq, body.get("time")


def _concerns(header: _Map, body: _Map, concerned: Callable[[str], bool]) -> bool:
    kind = header.get("t")
    if kind == "#commit":
        repo = body.get("repo")
        return type(repo) is not str or "ops" not in body or concerned(repo) or _names_our_collection(body["ops"])
    if kind in ("#identity", "#account", "#sync"):
        did = body.get("did")
        return type(did) is not str or concerned(did)
    return True  # also what is malformed: to be told so


def _names_our_collection(ops: object) -> bool:
    if not isinstance(ops, list):
        return True  # malformed: to be told so
    for op in cast(list[_Map], ops):  # maps, if it is well formed
        path = op.get("path") if type(op) is dict else None
        if type(path) is not str or path.startswith(_COLLECTION_PREFIX):
            return True
    return False


def decode_frame(data: bytes) -> Event:
    """Decode one message of a stream.

    Raises BrokenFrame: `broken_frame` for bytes that are not two DAG-CBOR maps, `malformed_event` for an event of a
    known type without a field that it needs.
    """
    return read_event(open_frame(data))


def read_event(frame: OpenFrame) -> Event:
    """The event in an open frame; raises BrokenFrame as `decode_frame` does."""
    header, body = frame.header, frame.body
    op = header.get("op")
    if type(op) is not int:
        raise BrokenFrame
    if op == -1:
        return ErrorEvent(error=_text(body, "error"), message=_optional_text(body, "message"))
    if op != 1:
        return IgnoredFrame("unknown_op", _seq_if_any(body))
    match header.get("t"):
        case "#commit":
            return _commit(body)
        case "#sync":
            return _sync(body)
        case "#identity":
            return _identity(body)
        case "#account":
            return _account(body)
        case "#info":
            return InfoEvent(name=_text(body, "name"), message=_optional_text(body, "message"))
        case str():
            return IgnoredFrame("unknown_type", _seq_if_any(body))
        case _:
            raise BrokenFrame


def _split(data: bytes) -> tuple[_Map, _Map]:
    if len(data) > CLAIMS_LOOKED_AT_BYTES:
        if len(data) > MAX_FRAME_BYTES:
            raise BrokenFrame(frame_bytes=len(data))
        if overclaims(data, 2):
            raise BrokenFrame(reason=OVERCLAIMING, frame_bytes=len(data))
    try:
        items = libipld.decode_dag_cbor_multi(data)
    except (ValueError, RecursionError) as error:
        raise BrokenFrame from error
    if len(items) != 2 or not isinstance(items[0], dict) or not isinstance(items[1], dict):
        raise BrokenFrame
    return cast(_Map, items[0]), cast(_Map, items[1])


def _commit(body: _Map) -> CommitEvent:
    raw_time = _text(body, "time")
    ops = body.get("ops")
    if not isinstance(ops, list):
        raise _malformed("ops")
    return CommitEvent(
        seq=_seq(body),
        time=_instant(raw_time),
        raw_time=raw_time,
        did=_did(body, "repo"),
        rev=_text(body, "rev"),
        since=_optional_text(body, "since"),
        commit=_cid(body, "commit"),
        prev_data=_optional_cid(body, "prevData"),
        ops=tuple(map(_op, cast(list[object], ops))),
        blocks=_bytes(body, "blocks"),
        too_big=body.get("tooBig") is True,
    )


def _op(entry: object) -> RepoOp:
    if not isinstance(entry, dict):
        raise _malformed("ops")
    op = cast(_Map, entry)
    action, path = op.get("action"), op.get("path")
    if not isinstance(action, str) or not isinstance(path, str):
        raise _malformed("ops")
    return RepoOp(action, path, _optional_cid(op, "cid"), _optional_cid(op, "prev"))


def _sync(body: _Map) -> SyncEvent:
    raw_time = _text(body, "time")
    return SyncEvent(
        seq=_seq(body),
        time=_instant(raw_time),
        raw_time=raw_time,
        did=_did(body, "did"),
        rev=_text(body, "rev"),
        blocks=_bytes(body, "blocks"),
    )


def _identity(body: _Map) -> IdentityEvent:
    raw_time = _text(body, "time")
    handle = body.get("handle")
    return IdentityEvent(
        seq=_seq(body),
        time=_instant(raw_time),
        raw_time=raw_time,
        did=_did(body, "did"),
        handle=handle.lower() if isinstance(handle, str) and is_handle(handle) else None,
    )


def _account(body: _Map) -> AccountEvent:
    raw_time = _text(body, "time")
    active, status = body.get("active"), body.get("status")
    if not isinstance(active, bool):
        raise _malformed("active")
    plain = isinstance(status, str) and status.isascii() and status.isalnum() and len(status) <= _MAX_STATUS_CHARS
    return AccountEvent(
        seq=_seq(body),
        time=_instant(raw_time),
        raw_time=raw_time,
        did=_did(body, "did"),
        active=active,
        status=status if plain else None,
    )


def _malformed(field: str) -> BrokenFrame:
    return BrokenFrame(reason="malformed_event", field=field)


def _seq(body: _Map) -> int:
    seq = _seq_if_any(body)
    if seq is None:
        raise _malformed("seq")
    return seq


def _seq_if_any(body: _Map) -> int | None:
    seq = body.get("seq")
    return seq if type(seq) is int and 1 <= seq <= MAX_SEQ else None


def _instant(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise _malformed("time")
        return moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise _malformed("time") from error


def _did(body: _Map, field: str) -> str:
    did = body.get(field)
    if not isinstance(did, str) or not is_did(did):
        raise _malformed(field)
    return did


def _text(body: _Map, field: str) -> str:
    text = _optional_text(body, field)
    if text is None:
        raise _malformed(field)
    return text


def _optional_text(body: _Map, field: str) -> str | None:
    text = body.get(field)
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > _MAX_TEXT_CHARS or "\x00" in text:
        raise _malformed(field)
    return text


def _bytes(body: _Map, field: str) -> bytes:
    data = body.get(field)
    if not isinstance(data, bytes):
        raise _malformed(field)
    return data


def _cid(body: _Map, field: str) -> bytes:
    cid = _optional_cid(body, field)
    if cid is None:
        raise _malformed(field)
    return cid


def _optional_cid(body: _Map, field: str) -> bytes | None:
    cid = body.get(field)
    if cid is None:
        return None
    if not isinstance(cid, bytes) or not is_binary_cid(cid):
        raise _malformed(field)
    return cid
