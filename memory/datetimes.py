"""The protocol's datetimes: a strict subset of RFC 3339."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

# One microsecond inside what Python can hold: asyncpg takes the very ends for plus and minus infinity.
EARLIEST: Final = datetime(1, 1, 1, microsecond=1, tzinfo=UTC)
LATEST: Final = datetime(9999, 12, 31, 23, 59, 59, 999_998, tzinfo=UTC)

# Days and months are left to the calendar; hours are not, as some versions of Python read 24:00 as the next midnight.
_DATETIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?"
    r"(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)


def parse_datetime(text: str) -> datetime | None:
    """The instant that a protocol datetime names, in UTC; None for any other text.

    Upper-case `T`, seconds, and `Z` or an offset are required; `-00:00`, the year 0000, impossible dates and leap
    seconds are refused. Digits below the microsecond are cut. What its offset moves out of the years 0001–9999 is
    clipped to them.
    """
    moment = parse_offset_datetime(text)
    return None if moment is None else clip_to_utc(moment)


def parse_offset_datetime(text: str) -> datetime | None:
    """The same instant in the offset that the text gives it: for calendar days and years as its author saw them."""
    if _DATETIME.fullmatch(text) is None or text.endswith("-00:00"):
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def clip_to_utc(moment: datetime) -> datetime:
    """An aware datetime in UTC, within `EARLIEST` and `LATEST`."""
    try:
        return min(max(moment.astimezone(UTC), EARLIEST), LATEST)
    except OverflowError:
        return EARLIEST if moment.year == 1 else LATEST
