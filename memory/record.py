"""What one record of `dev.bastienrobert.memory.record` says, or why it says nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, TypeAlias, assert_never, cast

import regex
from cbrrr import DagCborTypes

from memory.data_model import NestedTooDeep, TooManyItems, Undecodable, decode_record
from memory.datetimes import LATEST, clip_to_utc, parse_datetime, parse_offset_datetime
from memory.errors import Rejected
from memory.identifiers import COLLECTION, is_tid

RECORD_BYTES_MAX: Final = 1_000_000
CONTENT_BYTES_MAX: Final = 10_000
CONTENT_GRAPHEMES_MAX: Final = 2_500
SCOPE_BYTES_MAX: Final = 512
AGENT_BYTES_MAX: Final = 256
SUPERSEDES_MAX: Final = 20

_GRAPHEME: Final = regex.compile(r"\X")
_FLAG: Final = re.compile("[\U0001f1e6-\U0001f1ff]{2}")

Properties: TypeAlias = Mapping[str, DagCborTypes]


class Precision(StrEnum):
    """How exactly a date is meant."""

    YEAR = "year"
    MONTH = "month"
    DAY = "day"
    INSTANT = "instant"


# No span of a precision is longer: so far after its start, the next one is under way.
_LONGEST: Final = {
    Precision.YEAR: timedelta(days=366),
    Precision.MONTH: timedelta(days=31),
    Precision.DAY: timedelta(days=1),
    Precision.INSTANT: timedelta(microseconds=1),
}


class InvalidReason(StrEnum):
    """Why a record is no memory: what it is counted under."""

    RKEY_NO_TID = "rkeyNoTid"
    RECORD_TOO_BIG = "recordTooBig"
    UNDECODABLE = Undecodable.reason
    NESTED_TOO_DEEP = NestedTooDeep.reason
    TOO_MANY_ITEMS = TooManyItems.reason
    TYPE_MISSING = "typeMissing"
    OTHER_TYPE = "otherType"
    CONTENT_MISSING = "contentMissing"
    CREATED_AT_MISSING = "createdAtMissing"
    OCCURRED_FROM_MISSING = "occurredFromMissing"
    WRONG_TYPE = "wrongType"
    CONTENT_TOO_LONG = "contentTooLong"
    CONTENT_TOO_MANY_GRAPHEMES = "contentTooManyGraphemes"
    SCOPE_TOO_LONG = "scopeTooLong"
    AGENT_TOO_LONG = "agentTooLong"
    SUPERSEDES_TOO_MANY = "supersedesTooMany"
    SUPERSEDES_NO_STRING = "supersedesNoString"
    NO_DATETIME = "noDatetime"
    UNKNOWN_PRECISION = "unknownPrecision"


@dataclass(frozen=True, slots=True)
class InvalidRecord:
    """A record that fails the lexicon: never served, masks nothing."""

    reason: InvalidReason


@dataclass(frozen=True, slots=True)
class Occurrence:
    """When the remembered event happened: some time in [`start`, `end`), in UTC, never empty."""

    start: datetime
    end: datetime
    precision: Precision


@dataclass(frozen=True, slots=True)
class Memory:
    """A valid record's known properties, as their author wrote them; None and () stand for absent ones.

    Strings may hold NUL. `supersedes` is unresolved: any strings, repetitions among them. Datetimes are in UTC.
    """

    content: str
    kind: str | None
    scope: str | None
    agent: str | None
    client: str | None
    source_uri: str | None
    created_at: datetime
    updated_at: datetime | None
    occurred: Occurrence | None
    supersedes: tuple[str, ...]


def interpret_record(rkey: str, block: bytes) -> Memory | InvalidRecord:
    """Read a record's block by the lexicon; never raises, whatever the block holds.

    Of several faults the first counts; they are looked for in the key, the block, `$type`, then the properties.
    """
    if not is_tid(rkey):
        return InvalidRecord(InvalidReason.RKEY_NO_TID)
    if len(block) > RECORD_BYTES_MAX:
        return InvalidRecord(InvalidReason.RECORD_TOO_BIG)
    try:
        return _memory(decode_record(block))
    except Rejected as rejected:
        return InvalidRecord(InvalidReason(rejected.reason))


def _memory(properties: Properties) -> Memory:
    if "$type" not in properties:
        raise Rejected(reason=InvalidReason.TYPE_MISSING)
    if properties["$type"] != COLLECTION:
        raise Rejected(reason=InvalidReason.OTHER_TYPE)
    content = _content(properties)
    created_at = _datetime(properties, "createdAt")
    if created_at is None:
        raise Rejected(reason=InvalidReason.CREATED_AT_MISSING)
    provenance = _object(properties, "provenance") or {}
    return Memory(
        content=content,
        kind=_string(properties, "kind"),
        scope=_short_string(properties, "scope", SCOPE_BYTES_MAX, InvalidReason.SCOPE_TOO_LONG),
        agent=_short_string(provenance, "agent", AGENT_BYTES_MAX, InvalidReason.AGENT_TOO_LONG),
        client=_string(provenance, "client"),
        source_uri=_string(provenance, "sourceUri"),
        created_at=created_at,
        updated_at=_datetime(properties, "updatedAt"),
        occurred=_occurrence(properties),
        supersedes=_supersedes(properties),
    )


def _content(properties: Properties) -> str:
    content = _string(properties, "content")
    if content is None:
        raise Rejected(reason=InvalidReason.CONTENT_MISSING)
    if len(content) > CONTENT_BYTES_MAX or len(content.encode()) > CONTENT_BYTES_MAX:
        raise Rejected(reason=InvalidReason.CONTENT_TOO_LONG)
    # No text has more graphemes than code points, and nearly all have few: counting is left to the long ones.
    if len(content) > CONTENT_GRAPHEMES_MAX and _count_graphemes(content) > CONTENT_GRAPHEMES_MAX:
        raise Rejected(reason=InvalidReason.CONTENT_TOO_MANY_GRAPHEMES)
    return content


def _count_graphemes(text: str) -> int:
    # A flag is two regional indicators, paired from the start of their run, which `\X` seeks anew for each of them: a
    # letter in place of each pair gives the same count in linear time.
    return len(_GRAPHEME.findall(_FLAG.sub("x", text)))


def _supersedes(properties: Properties) -> tuple[str, ...]:
    if "supersedes" not in properties:
        return ()
    entries = properties["supersedes"]
    if not isinstance(entries, list):
        raise Rejected(reason=InvalidReason.WRONG_TYPE)
    if len(entries) > SUPERSEDES_MAX:
        raise Rejected(reason=InvalidReason.SUPERSEDES_TOO_MANY)
    if not all(isinstance(entry, str) for entry in entries):
        raise Rejected(reason=InvalidReason.SUPERSEDES_NO_STRING)
    return tuple(cast("list[str]", entries))


def _occurrence(properties: Properties) -> Occurrence | None:
    """The span that `occurredAt` names, in the offset of its own datetimes.

    An instant is a span of one microsecond, so that whoever asks what overlaps a range needs no second rule for it.
    `to` extends the span to the end of its own span of the same precision; `to` before `from` is ignored.
    """
    stated = _object(properties, "occurredAt")
    if stated is None:
        return None
    from_ = _offset_datetime(stated, "from")
    if from_ is None:
        raise Rejected(reason=InvalidReason.OCCURRED_FROM_MISSING)
    to = _offset_datetime(stated, "to")
    precision = _precision(stated)
    start, end = _span(from_, precision)
    if to is not None and to >= from_:
        end = max(end, _span(to, precision)[1])
    # Clipping may leave nothing at either end of time; a span is never empty.
    start = min(start, LATEST - _LONGEST[Precision.INSTANT])
    return Occurrence(start, max(end, start + _LONGEST[Precision.INSTANT]), precision)


def _precision(stated: Properties) -> Precision:
    text = _string(stated, "precision")
    if text is None:
        return Precision.INSTANT
    try:
        return Precision(text)
    except ValueError:
        raise Rejected(reason=InvalidReason.UNKNOWN_PRECISION) from None


def _span(moment: datetime, precision: Precision) -> tuple[datetime, datetime]:
    """The year, month, day or microsecond around `moment` in its own offset, half-open, then in UTC."""
    start = _span_start(moment, precision)
    try:
        within_next = start + _LONGEST[precision]
    except OverflowError:
        return clip_to_utc(start), LATEST
    return clip_to_utc(start), clip_to_utc(_span_start(within_next, precision))


def _span_start(moment: datetime, precision: Precision) -> datetime:
    match precision:
        case Precision.YEAR:
            return moment.replace(month=1, day=1, hour=0, minute=0, second=0, microsecond=0)
        case Precision.MONTH:
            return moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        case Precision.DAY:
            return moment.replace(hour=0, minute=0, second=0, microsecond=0)
        case Precision.INSTANT:
            return moment
        case _:
            assert_never(precision)


def _string(properties: Properties, name: str) -> str | None:
    if name not in properties:
        return None
    value = properties[name]
    if not isinstance(value, str):
        raise Rejected(reason=InvalidReason.WRONG_TYPE)
    return value


def _short_string(properties: Properties, name: str, max_bytes: int, too_long: InvalidReason) -> str | None:
    value = _string(properties, name)
    if value is not None and len(value.encode()) > max_bytes:
        raise Rejected(reason=too_long)
    return value


def _datetime(properties: Properties, name: str) -> datetime | None:
    text = _string(properties, name)
    if text is None:
        return None
    moment = parse_datetime(text)
    if moment is None:
        raise Rejected(reason=InvalidReason.NO_DATETIME)
    return moment


def _offset_datetime(properties: Properties, name: str) -> datetime | None:
    text = _string(properties, name)
    if text is None:
        return None
    moment = parse_offset_datetime(text)
    if moment is None:
        raise Rejected(reason=InvalidReason.NO_DATETIME)
    return moment


def _object(properties: Properties, name: str) -> Properties | None:
    if name not in properties:
        return None
    value = properties[name]
    if not isinstance(value, dict):
        raise Rejected(reason=InvalidReason.WRONG_TYPE)
    return value
