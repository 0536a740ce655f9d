"""When a remembered event happened: the spans of `memory.record.Occurrence`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cbrrr import encode_dag_cbor
from hypothesis import given
from hypothesis import strategies as st

from memory.datetimes import EARLIEST, LATEST, parse_datetime
from memory.identifiers import COLLECTION
from memory.record import Memory, Occurrence, Precision, interpret_record

MICROSECOND = timedelta(microseconds=1)


def occurred(**stated: str) -> Occurrence:
    """The occurrence of a record whose `occurredAt` says this."""
    interpreted = interpret_record(
        "3mine22222222",
        encode_dag_cbor(
            {"$type": COLLECTION, "content": "x", "createdAt": "2026-11-01T10:00:00Z", "occurredAt": {**stated}}
        ),
    )
    assert isinstance(interpreted, Memory), interpreted
    assert interpreted.occurred is not None
    return interpreted.occurred


def test_an_instant_is_a_span_of_one_microsecond() -> None:
    start = datetime(2019, 5, 17, 8, tzinfo=UTC)
    for stated in ({}, {"precision": "instant"}):
        assert occurred(**{"from": "2019-05-17T10:00:00+02:00"}, **stated) == Occurrence(
            start, start + MICROSECOND, Precision.INSTANT
        )


@pytest.mark.parametrize(
    ("precision", "start", "end"),
    [
        ("year", datetime(2019, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=UTC)),
        ("month", datetime(2019, 5, 1, tzinfo=UTC), datetime(2019, 6, 1, tzinfo=UTC)),
        ("day", datetime(2019, 5, 17, tzinfo=UTC), datetime(2019, 5, 18, tzinfo=UTC)),
    ],
)
def test_a_precision_makes_a_datetime_the_anchor_of_its_span(precision: str, start: datetime, end: datetime) -> None:
    occurrence = occurred(**{"from": "2019-05-17T23:59:59Z", "precision": precision})
    assert occurrence == Occurrence(start, end, Precision(precision))


def test_a_span_is_one_in_the_offset_of_its_own_datetime() -> None:
    # Already 2020 there, still 2019 in UTC.
    occurrence = occurred(**{"from": "2020-01-01T01:00:00+09:00", "precision": "year"})
    assert occurrence.start == datetime(2019, 12, 31, 15, tzinfo=UTC)
    assert occurrence.end == datetime(2020, 12, 31, 15, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "precision", "end"),
    [
        ("2024-02-29T12:00:00Z", "day", datetime(2024, 3, 1, tzinfo=UTC)),
        ("2024-02-29T12:00:00Z", "month", datetime(2024, 3, 1, tzinfo=UTC)),
        ("2024-02-29T12:00:00Z", "year", datetime(2025, 1, 1, tzinfo=UTC)),
        ("2023-02-01T00:00:00Z", "month", datetime(2023, 3, 1, tzinfo=UTC)),
        ("2023-12-31T00:00:00Z", "month", datetime(2024, 1, 1, tzinfo=UTC)),
        ("2023-01-31T00:00:00Z", "month", datetime(2023, 2, 1, tzinfo=UTC)),
    ],
)
def test_spans_follow_the_calendar(text: str, precision: str, end: datetime) -> None:
    assert occurred(**{"from": text, "precision": precision}).end == end


def test_an_end_extends_the_span_to_the_end_of_its_own() -> None:
    stated = {"from": "2019-05-17T00:00:00Z", "to": "2021-02-01T00:00:00Z"}
    assert occurred(**stated, precision="year").end == datetime(2022, 1, 1, tzinfo=UTC)
    assert occurred(**stated, precision="day").end == datetime(2021, 2, 2, tzinfo=UTC)
    assert occurred(**stated).end == datetime(2021, 2, 1, tzinfo=UTC) + MICROSECOND
    assert occurred(**stated, precision="year").start == datetime(2019, 1, 1, tzinfo=UTC)


def test_an_end_before_the_beginning_is_ignored() -> None:
    stated = {"from": "2019-05-17T00:00:00Z", "to": "2018-01-01T00:00:00Z"}
    assert occurred(**stated) == occurred(**{"from": "2019-05-17T00:00:00Z"})
    assert occurred(**stated, precision="year").end == datetime(2020, 1, 1, tzinfo=UTC)


def test_an_end_never_shortens_the_span_across_offsets() -> None:
    occurrence = occurred(
        **{"from": "2020-01-01T00:00:00-12:00", "to": "2020-06-01T00:00:00+14:00", "precision": "year"}
    )
    assert occurrence.end == datetime(2021, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize(
    "text",
    [
        "0001-01-01T00:00:00+14:00",
        "0001-01-01T00:00:00-12:00",
        "9999-12-31T23:59:59.999999Z",
        "9999-12-31T23:59:59-14:00",
        "9999-12-31T23:59:59+14:00",
    ],
)
def test_spans_at_either_end_of_time_are_clipped_and_not_empty(text: str, precision: Precision) -> None:
    occurrence = occurred(**{"from": text, "to": text, "precision": precision.value})
    assert EARLIEST <= occurrence.start < occurrence.end <= LATEST


@given(
    st.datetimes(),
    st.datetimes() | st.none(),
    st.sampled_from(["Z", "+14:00", "-12:00", "+05:45"]),
    st.sampled_from(Precision),
)
def test_a_span_holds_both_its_datetimes(
    from_: datetime, to: datetime | None, offset: str, precision: Precision
) -> None:
    stated = {"from": f"{from_.isoformat()}{offset}", "precision": precision.value}
    if to is not None:
        stated["to"] = f"{to.isoformat()}{offset}"
    occurrence = occurred(**stated)
    assert occurrence.start < occurrence.end
    for text in (stated["from"], stated.get("to")):
        if text is not None and text >= stated["from"]:
            moment = parse_datetime(text)
            assert moment is not None
            assert occurrence.start <= moment < occurrence.end or moment in (EARLIEST, LATEST)
