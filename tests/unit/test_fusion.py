from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appview.search.fusion import COMPANY_SHARE, LENDERS, SITTING, Attendant, Calibration, fuse, gather_company

CALIBRATION = Calibration(low=0.7, high=0.9)
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
ALICE = ("did:plc:alice", "")

shares = st.none() | st.floats(0, 3)
likenesses = st.none() | st.floats(-1, 1.2)


def order(share: float | None, likeness: float | None) -> float:
    fused = fuse(share, likeness, CALIBRATION)
    assert fused is not None
    return fused.order


def score(share: float | None, likeness: float | None) -> float:
    fused = fuse(share, likeness, CALIBRATION)
    assert fused is not None
    return fused.score


def test_what_has_no_word_and_is_no_nearer_than_chance_is_no_hit() -> None:
    assert fuse(None, None, CALIBRATION) is None
    assert fuse(None, CALIBRATION.low, CALIBRATION) is None
    assert fuse(None, 0.0, CALIBRATION) is None


def test_a_word_or_a_meaning_makes_a_hit() -> None:
    assert fuse(0.1, None, CALIBRATION) is not None
    assert fuse(0.1, 0.0, CALIBRATION) is not None
    assert fuse(None, 0.71, CALIBRATION) is not None


def test_without_any_vector_the_order_is_that_of_the_words() -> None:
    assert [order(share, None) for share in (0.1, 0.5, 1.2)] == [0.1, 0.5, 1.2]


def test_without_any_word_the_order_is_that_of_the_meaning() -> None:
    assert order(None, 0.71) < order(None, 0.8) < order(None, 0.95) < order(None, 1.1)


def test_what_has_no_vector_counts_as_chance() -> None:
    assert order(0.4, None) == order(0.4, CALIBRATION.low)


def test_all_the_words_are_worth_what_a_sure_meaning_is() -> None:
    assert order(1.0, None) == pytest.approx(order(None, CALIBRATION.high))
    assert score(1.0, None) == pytest.approx(score(None, CALIBRATION.high)) == pytest.approx(0.5)


def test_what_has_all_of_both_scores_one() -> None:
    assert score(1.0, 0.9) == pytest.approx(1.0)
    assert score(2.0, 1.2) == 1.0


@given(shares, likenesses)
def test_scores_are_bounded_and_never_nan(share: float | None, likeness: float | None) -> None:
    fused = fuse(share, likeness, CALIBRATION)
    if fused is not None:
        assert 0 <= fused.score <= 1
        assert math.isfinite(fused.order)


@given(st.floats(0, 3), st.floats(0, 3), likenesses)
def test_more_of_the_words_is_never_worse(one: float, other: float, likeness: float | None) -> None:
    less, more = sorted((one, other))
    assert order(less, likeness) <= order(more, likeness)
    assert score(less, likeness) <= score(more, likeness)


@given(st.floats(0, 3), st.floats(-1, 1.2), st.floats(-1, 1.2))
def test_more_of_the_meaning_is_never_worse(share: float, one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert order(share, less) <= order(share, more)
    assert score(share, less) <= score(share, more)


def test_where_all_is_farther_than_chance_pairs_are_chance_is_lower() -> None:
    lowered = CALIBRATION.at(0.6)
    assert (lowered.low, lowered.high) == pytest.approx((0.6, 0.8))
    assert fuse(None, 0.65, lowered) is not None


@pytest.mark.parametrize("chance", [None, 0.7, 0.8, math.nan])
def test_chance_is_never_raised(chance: float | None) -> None:
    assert CALIBRATION.at(chance) == CALIBRATION


def memory(order: float, at: datetime = NOON, owner: tuple[str, str] = ALICE, content: int | None = None) -> Attendant:
    return Attendant(owner, hash((order, at, owner)) if content is None else content, at, order)


def raised(memories: list[Attendant]) -> list[float]:
    company = gather_company(memories)
    return [company.raise_order(each) for each in memories]


def test_nobody_gains_from_nothing() -> None:
    assert gather_company([]).raise_order(memory(0.4)) == 0.4


def test_a_memory_alone_keeps_its_order() -> None:
    assert raised([memory(0.4)]) == [0.4]


def test_a_memory_gains_a_share_of_what_its_best_companion_is_better_than_the_worst() -> None:
    best, poor, worst = memory(1.0), memory(0.5), memory(0.2, NOON + 5 * SITTING)
    assert raised([best, poor, worst]) == pytest.approx([1.0 + COMPANY_SHARE * 0.3, 0.5 + COMPANY_SHARE * 0.8, 0.2])


def test_company_lasts_as_long_as_a_sitting() -> None:
    best, worst = memory(1.0), memory(0.1, NOON - 9 * SITTING)
    inside, outside = memory(0.5, NOON + SITTING), memory(0.4, NOON - SITTING - timedelta(microseconds=1))
    _, second, third, _ = raised([best, inside, outside, worst])
    assert second > 0.5
    assert third == 0.4


@pytest.mark.parametrize("owner", [("did:plc:bob", ""), ("did:plc:alice", "at://did:plc:bob/com.example.space/x")])
def test_others_and_other_spaces_are_no_company(owner: tuple[str, str]) -> None:
    assert raised([memory(1.0), memory(0.5, owner=owner)]) == [1.0, 0.5]


def test_the_same_text_again_is_no_company() -> None:
    assert raised([memory(1.0, content=7), memory(0.9, content=7), memory(0.1, content=8)])[:2] == [1.0, 0.9]


def test_the_second_companion_helps_where_the_first_is_the_same_text() -> None:
    twins, other, worst = [memory(1.0, content=7), memory(0.9, content=7)], memory(0.5), memory(0.1, NOON - 9 * SITTING)
    assert raised([*twins, other, worst])[0] == pytest.approx(1.0 + COMPANY_SHARE * 0.4)


def test_what_is_not_among_the_best_neither_gives_nor_gains() -> None:
    best = [memory(1.0 + number / 1_000, NOON + number * timedelta(days=1)) for number in range(LENDERS)]
    company = gather_company([*best, memory(0.5, NOON - SITTING)])
    assert company.raise_order(memory(0.4)) == 0.4
    assert company.raise_order(memory(1.05, NOON - SITTING)) == pytest.approx(1.05)


orders = st.lists(st.integers(-5_000, 5_000).map(lambda each: each / 1_000), min_size=1, max_size=30, unique=True)


@given(orders)
def test_what_was_recorded_at_once_keeps_its_order(found: list[float]) -> None:
    after = raised([memory(each, content=number) for number, each in enumerate(found)])
    assert sorted(range(len(found)), key=lambda at: after[at]) == sorted(range(len(found)), key=lambda at: found[at])


@given(st.lists(st.tuples(st.floats(-5, 5), st.integers(0, 300)), min_size=1, max_size=30), st.randoms())
def test_the_order_in_which_memories_come_changes_nothing(found: list[tuple[float, int]], random: object) -> None:
    memories = [memory(order, NOON + timedelta(minutes=minute)) for order, minute in found]
    shuffled = list(memories)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = gather_company(memories), gather_company(shuffled)
    assert [one.raise_order(each) for each in memories] == [other.raise_order(each) for each in memories]


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 300), st.integers(0, 4), st.sampled_from(["", "b"])),
        min_size=1,
        max_size=40,
    )
)
def test_the_best_companion_lends_whatever_else_was_recorded_around(found: list[tuple[int, int, int, str]]) -> None:
    memories = [
        memory(order / 4, NOON + timedelta(minutes=minute), ("did:plc:alice", space), content)
        for order, minute, content, space in found
    ]
    floor = min(each.order for each in memories)
    for one in memories:
        lent = [
            other.order
            for other in memories
            if other.owner == one.owner and other.content != one.content and abs(other.at - one.at) <= SITTING
        ]
        expected = one.order + COMPANY_SHARE * (max(lent, default=floor) - floor)
        assert gather_company(memories).raise_order(one) == pytest.approx(expected)


@pytest.mark.parametrize("at", [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, tzinfo=UTC)])
def test_the_first_and_the_last_of_times_have_company(at: datetime) -> None:
    good, poor = memory(1.0, at), memory(0.5, at, content=7)
    assert raised([good, poor, memory(0.1)])[1] > 0.5


@given(st.lists(st.tuples(st.floats(-5, 5), st.integers(0, 300)), min_size=1, max_size=30))
def test_company_never_lowers(found: list[tuple[float, int]]) -> None:
    memories = [memory(order, NOON + timedelta(minutes=minute)) for order, minute in found]
    assert all(after >= before.order for before, after in zip(memories, raised(memories), strict=True))
