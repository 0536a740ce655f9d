from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.datetimes import EARLIEST, LATEST, clip_to_utc, parse_datetime, parse_offset_datetime

VECTORS = Path(__file__).parents[2].parent / "shared" / "vectors"


def vectors(name: str) -> list[str]:
    path = VECTORS / name
    if not path.exists():
        pytest.skip(f"the interoperability vectors are not here: {name}")
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


def test_every_valid_datetime_of_the_vectors_parses() -> None:
    for text in vectors("datetime_syntax_valid.txt"):
        moment = parse_datetime(text)
        assert moment is not None, text
        assert moment.tzinfo is UTC


@pytest.mark.parametrize("name", ["datetime_syntax_invalid.txt", "datetime_parse_invalid.txt"])
def test_no_invalid_datetime_of_the_vectors_parses(name: str) -> None:
    for text in vectors(name):
        assert parse_datetime(text) is None, text


def test_an_offset_is_applied() -> None:
    assert parse_datetime("1985-04-12T23:20:50.123+01:45") == datetime(1985, 4, 12, 21, 35, 50, 123_000, tzinfo=UTC)


def test_the_offset_itself_is_kept_for_calendar_days() -> None:
    moment = parse_offset_datetime("1985-04-12T00:20:50+01:45")
    assert moment is not None
    assert moment.day == 12
    assert moment.utcoffset() == timedelta(hours=1, minutes=45)


def test_digits_below_the_microsecond_are_cut() -> None:
    assert parse_datetime("1985-04-12T23:20:50.1234569Z") == datetime(1985, 4, 12, 23, 20, 50, 123_456, tzinfo=UTC)
    assert parse_datetime(f"1985-04-12T23:20:50.{'9' * 5_000}Z") == datetime(
        1985, 4, 12, 23, 20, 50, 999_999, tzinfo=UTC
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yesterday",
        "2026-01-01T00:00:00-00:00",
        "2026-01-01T00:00:00.5-00:00",
        "0000-01-01T00:00:00Z",
        "0000-12-31T23:59:59-01:00",
        "10000-01-01T00:00:00Z",
        "2026-02-29T00:00:00Z",
        "2026-04-31T00:00:00Z",
        "2026-01-01T24:00:00Z",
        "2026-06-30T23:59:60Z",
        "2026-01-01T00:00:00+24:00",
        "2026-01-01T00:00:00+01:60",
        "2026-01-01T00:00:00,5Z",
        "2026-01-01T00:00:00Z\n",
        "2026-01-01T00:00:00",
        "2026-01-01T00:00Z",
        "2026-01-01",
        "20260101T000000Z",
        "2026-W01-1T00:00:00Z",
        "２０２６-01-01T00:00:00Z",
        "2026-01-01T00:00:00Z\0",
    ],
)
def test_other_spellings_and_impossible_dates_are_refused(text: str) -> None:
    assert parse_datetime(text) is None
    assert parse_offset_datetime(text) is None


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("0001-01-01T00:00:00Z", EARLIEST),
        ("0001-01-01T00:00:00+14:00", EARLIEST),
        ("9999-12-31T23:59:59.999999999Z", LATEST),
        ("9999-12-31T23:59:59-14:00", LATEST),
        ("0001-01-01T00:00:00-00:01", datetime(1, 1, 1, 0, 1, tzinfo=UTC)),
    ],
)
def test_instants_beyond_the_calendar_are_clipped_to_it(text: str, moment: datetime) -> None:
    assert parse_datetime(text) == moment


@given(
    st.datetimes(timezones=st.builds(timezone, st.timedeltas(timedelta(hours=-23), timedelta(hours=23)))),
    st.integers(0, 9),
)
def test_what_is_written_in_the_format_is_read_again(moment: datetime, extra_digits: int) -> None:
    offset = moment.utcoffset()
    assert offset is not None
    moment = moment.replace(tzinfo=timezone(timedelta(minutes=offset // timedelta(minutes=1))))
    text = moment.isoformat(timespec="microseconds")
    text = text[:26] + "7" * extra_digits + text[26:]
    assert parse_offset_datetime(text) == moment
    assert parse_datetime(text) == clip_to_utc(moment)


@given(st.text(alphabet="0123456789-:.TZ+ tz", max_size=40))
def test_no_text_breaks_the_parser(text: str) -> None:
    moment = parse_datetime(text)
    assert moment is None or EARLIEST <= moment <= LATEST
