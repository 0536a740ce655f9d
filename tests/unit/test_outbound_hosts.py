from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import outbound_hosts
from memory.outbound_errors import HostNotAsked, HostRefused, HostUnavailable
from memory.outbound_hosts import (
    MAX_PAUSE_S,
    MAX_RETRY_AFTER_S,
    MIN_PAUSE_S,
    HostLimits,
    Shares,
    site_of,
)
from tests.host_turns import FAST, PLC, A, Asking, B, Time, ask, down, fail, hosts, settled, under_way


async def test_host_is_asked_at_its_pace_after_a_burst():
    time, asked = Time(), list[float]()
    gate = hosts(time, strangers=HostLimits(requests_per_s=10.0, burst=5))
    for _ in range(25):
        async with gate.turn(A):
            asked.append(round(time.now - 100, 6))
    assert asked[:5] == [0.0] * 5
    assert asked[5:] == [round(0.1 * n, 6) for n in range(1, 21)]


@given(st.lists(st.floats(0, 3), max_size=40), st.integers(1, 5))
async def test_no_span_of_time_sees_more_requests_than_pace_and_burst_allow(gaps: list[float], burst: int):
    time, asked = Time(), list[float]()
    gate = hosts(time, strangers=HostLimits(requests_per_s=2.0, burst=burst))
    for gap in gaps:
        time.now += gap
        async with gate.turn(A):
            asked.append(time.now)
    for first, start in enumerate(asked):
        for last, end in enumerate(asked[first:], start=first):
            assert last - first + 1 <= burst + (end - start) * 2.0 + 1e-6


async def test_rest_gives_back_no_more_than_the_burst():
    time, asked = Time(), list[float]()
    gate = hosts(time, strangers=HostLimits(requests_per_s=1.0, burst=2))
    await ask(gate, A)
    time.now += 3600
    for _ in range(3):
        async with gate.turn(A):
            asked.append(time.now - 3700)
    assert asked == [0.0, 0.0, 1.0]


async def test_hosts_have_their_own_pace():
    time = Time()
    gate = hosts(time, strangers=HostLimits(requests_per_s=1.0, burst=1))
    await ask(gate, A)
    await ask(gate, B)
    assert time.now == 100.0


async def test_host_is_asked_by_so_many_at_a_time_and_whoever_comes_too_late_is_told():
    asking = Asking(gate := hosts())
    async with under_way(asking, A, A, A):
        assert asking.inside == [A, A]
        with pytest.raises(HostUnavailable, match="too many") as refused:
            await ask(gate, A)
        assert refused.value.host == A
    assert asking.inside == [A, A, A]
    await ask(gate, A)


async def test_cancelled_request_frees_its_place_in_the_queue_and_its_slot():
    asking = Asking(gate := hosts())
    tasks = [asyncio.create_task(asking(A)) for _ in range(3)]
    await settled()
    for task in (tasks[2], tasks[0]):
        task.cancel()
    await settled()
    async with under_way(Asking(gate), A):
        pass
    asking.done.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [task.cancelled() for task in tasks] == [True, False, True]


async def test_slow_host_holds_up_no_other():
    asking = Asking(gate := hosts(shares=Shares(concurrent=3, site_concurrent=3)))
    async with under_way(asking, A, A, A):
        await ask(gate, "https://other.test")


async def test_site_with_any_number_of_hosts_has_its_share_only():
    shares = Shares(concurrent=10, waiting=10, site_concurrent=3, site_waiting=2)
    asking = Asking(gate := hosts(shares=shares))
    async with under_way(asking, *(f"https://{n}.evil.example" for n in range(5))):
        assert len(asking.inside) == 3
        with pytest.raises(HostUnavailable, match="too many"):
            await ask(gate, "https://another.evil.example")
        await ask(gate, "https://honest.test")
        await ask(gate, "https://honest.org")
    assert len(asking.inside) == 5


async def test_all_strangers_share_so_many_slots_and_the_operators_own_hosts_have_theirs():
    gate = hosts(shares=Shares(concurrent=2, waiting=1), named={PLC: FAST})
    asking = Asking(gate)
    async with under_way(asking, "https://a.test", "https://b.org", "https://c.net"):
        assert len(asking.inside) == 2
        await ask(gate, PLC)
        with pytest.raises(HostUnavailable, match="too many"):
            await ask(gate, "https://d.com")


async def test_host_that_says_when_to_come_back_is_left_alone_until_then():
    time = Time()
    gate = hosts(time)
    await fail(ask(gate, A, down(A, 7.0)))
    time.now += 6.0
    with pytest.raises(HostUnavailable, match="left alone") as refused:
        await ask(gate, A)
    assert refused.value.retry_after_s == pytest.approx(1.0)
    await ask(gate, B)
    time.now += 1.0
    await ask(gate, A)


async def test_requests_that_waited_while_the_host_asked_for_rest_are_not_sent():
    asking = Asking(gate := hosts())
    answered = asyncio.Event()

    async def told_to_rest() -> None:
        async with gate.turn(A):
            await answered.wait()
            raise down(A, 7.0)

    async with under_way(asking, A):
        told = asyncio.create_task(told_to_rest())
        await settled()
        waiting = asyncio.create_task(ask(gate, A))
        await settled()
        answered.set()
        with pytest.raises(HostUnavailable, match="left alone"):
            await waiting
        await fail(told)


async def test_absurd_time_to_come_back_is_cut():
    time = Time()
    gate = hosts(time)
    await fail(ask(gate, A, down(A, 1e9)))
    time.now += MAX_RETRY_AFTER_S
    await ask(gate, A)


async def test_host_that_fails_on_end_is_left_alone_ever_longer_until_it_answers():
    time = Time()
    gate = hosts(time)
    for _ in range(2):
        await fail(ask(gate, A, down(A)))
    pauses: list[float] = []
    for _ in range(10):
        await fail(ask(gate, A, down(A)))
        with pytest.raises(HostUnavailable, match="left alone") as refused:
            await ask(gate, A)
        assert refused.value.retry_after_s is not None
        pauses.append(refused.value.retry_after_s)
        time.now += refused.value.retry_after_s
    assert pauses[:3] == pytest.approx([MIN_PAUSE_S, 2 * MIN_PAUSE_S, 4 * MIN_PAUSE_S])
    assert max(pauses) == pytest.approx(MAX_PAUSE_S)
    await ask(gate, A)
    for _ in range(2):
        await fail(ask(gate, A, down(A)))
    await ask(gate, A)


async def test_refusal_is_an_answer_too():
    gate = hosts()
    for _ in range(10):
        await fail(ask(gate, A, down(A)))
        await fail(ask(gate, A, down(A)))
        await fail(ask(gate, A, HostRefused(A, 404)))
    await ask(gate, A)


async def test_failure_of_another_host_counts_against_that_one_only():
    gate = hosts()
    for _ in range(10):
        await fail(ask(gate, A, down(B, 60.0)))
    await ask(gate, A)


async def test_failures_of_requests_that_were_under_way_together_count_once_after_a_pause():
    time = Time()
    gate = hosts(time, strangers=HostLimits(requests_per_s=1e6, burst=1000, concurrent=10))
    for _ in range(3):
        await fail(ask(gate, A, down(A)))
    time.now += MIN_PAUSE_S
    failed = asyncio.Event()

    async def fail_with_the_others() -> None:
        async with gate.turn(A):
            await failed.wait()
            time.now += 1.0
            raise down(A)

    asked = [asyncio.create_task(fail_with_the_others()) for _ in range(10)]
    await settled()
    failed.set()
    await asyncio.gather(*asked, return_exceptions=True)
    assert gate.available_in_s(A) == pytest.approx(2 * MIN_PAUSE_S - 9.0)


async def test_host_that_fails_on_end_is_left_alone_for_as_long_as_its_limits_say():
    time = Time()
    gate = hosts(time, strangers=HostLimits(longest_pause_s=86_400.0))
    for _ in range(40):
        await fail(ask(gate, A, down(A)))
        time.now += gate.available_in_s(A)
    await fail(ask(gate, A, down(A)))
    assert gate.available_in_s(A) == pytest.approx(86_400.0)


async def test_who_was_not_asked_can_be_told_from_who_did_not_answer():
    asking = Asking(gate := hosts())
    with pytest.raises(HostUnavailable) as answered:
        await ask(gate, A, down(A, 7.0))
    assert not isinstance(answered.value, HostNotAsked)
    with pytest.raises(HostNotAsked):
        await ask(gate, A)
    async with under_way(asking, B, B, B):
        with pytest.raises(HostNotAsked):
            await ask(gate, B)


async def test_request_that_was_not_made_says_nothing_of_its_host():
    gate = hosts()
    for _ in range(10):
        await fail(ask(gate, A, HostNotAsked("not asked", host=A)))
    await fail(ask(gate, A, HostNotAsked("not asked", host=A, retry_after_s=7.0)))
    assert gate.available_in_s(A) == 0.0


async def test_hosts_without_number_take_bounded_memory(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outbound_hosts, "MAX_HOSTS_KNOWN", 10)
    asking = Asking(gate := hosts())
    async with under_way(asking, A):
        for n in range(100):
            await ask(gate, f"https://{n}.example")
        assert len(gate._hosts) == 10
        assert A in gate._hosts
    assert gate._sites == {}


@pytest.mark.parametrize(
    ("host", "site"),
    [
        ("https://a.b.example.com", "example.com"),
        ("https://example.com:8443", "example.com"),
        ("https://com", "com"),
        ("http://localhost:2583", "localhost:2583"),
        ("http://127.0.0.1:2583", "127.0.0.1:2583"),
        ("http://[::1]:2583", "[::1]:2583"),
    ],
)
def test_site_is_the_domain_that_somebody_pays_for(host: str, site: str):
    assert site_of(host) == site
