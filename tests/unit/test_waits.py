from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.resync.waits import FIRST_WAIT_S, LONGEST_WAIT_S, SHORTEST_WAIT_S, host_wait_s, next_wait_s
from memory.outbound_errors import HostNotAsked, HostUnavailable

HOST = "https://pds.example"
ANY_SEED = st.integers(0, 2**32)


def waits(attempts: int, retry_after_s: float | None = None) -> list[float]:
    """A hundred of those who failed together."""
    randomness = random.Random(7)
    return [next_wait_s(attempts, randomness, retry_after_s=retry_after_s) for _ in range(100)]


def test_first_wait_is_some_seconds():
    assert 1 < min(waits(1)) <= max(waits(1)) <= FIRST_WAIT_S


def test_waits_double_with_every_attempt_until_they_are_a_day():
    for attempts in range(2, 14):
        assert max(waits(attempts)) == pytest.approx(2 * max(waits(attempts - 1)))
    assert max(waits(20)) == pytest.approx(LONGEST_WAIT_S, rel=0.01)


@pytest.mark.parametrize("attempts", [1, 5, 30, 10**6])
def test_those_who_failed_together_do_not_come_back_together(attempts: int):
    spread = waits(attempts)
    assert len(set(spread)) == len(spread)
    assert max(spread) - min(spread) > 0.2 * min(spread)


@given(st.integers(-5, 10**9), ANY_SEED, st.none() | st.floats(0, 1e12))
def test_there_is_always_a_next_attempt_within_a_day(attempts: int, seed: int, retry_after_s: float | None):
    wait_s = next_wait_s(attempts, random.Random(seed), retry_after_s=retry_after_s)
    assert SHORTEST_WAIT_S <= wait_s <= LONGEST_WAIT_S


@given(st.integers(1, 100), ANY_SEED, st.floats(0, LONGEST_WAIT_S, exclude_max=True))
def test_nobody_comes_back_before_the_host_said(attempts: int, seed: int, retry_after_s: float):
    assert next_wait_s(attempts, random.Random(seed), retry_after_s=retry_after_s) >= retry_after_s


def test_hosts_word_shortens_no_wait():
    assert min(waits(10, retry_after_s=1.0)) >= 0.7 * max(waits(10))


def test_host_that_asks_for_more_than_a_day_is_asked_again_all_the_same_and_not_by_all_at_once():
    spread = waits(1, retry_after_s=1e9)
    assert 0.7 * LONGEST_WAIT_S < min(spread) < max(spread) <= LONGEST_WAIT_S


def test_same_seed_makes_the_same_waits():
    assert waits(3) == waits(3)


@given(ANY_SEED, st.floats(0, LONGEST_WAIT_S, exclude_max=True))
def test_word_on_when_to_come_back_is_the_hosts_matter(seed: int, retry_after_s: float):
    failure = HostUnavailable("answered 429", host=HOST, retry_after_s=retry_after_s)
    wait_s = host_wait_s(failure, random.Random(seed))
    assert wait_s is not None
    assert max(retry_after_s, SHORTEST_WAIT_S) <= wait_s <= LONGEST_WAIT_S


def test_who_was_not_asked_has_made_no_attempt():
    assert host_wait_s(HostNotAsked("too many wait", host=HOST), random.Random(7)) is not None
    assert (host_wait_s(HostNotAsked("left alone", host=HOST, retry_after_s=60.0), random.Random(7)) or 0) >= 60.0


def test_host_that_does_not_answer_what_it_was_asked_has_failed_that():
    assert host_wait_s(HostUnavailable("did not answer in time", host=HOST), random.Random(7)) is None
