from __future__ import annotations

import pytest

from memory.outbound_errors import HostNotAsked
from memory.outbound_hosts import LOOK_AGAIN_S, HostLimits, Shares
from tests.host_turns import FAST, PLC, A, Asking, B, Time, ask, down, fail, hosts, under_way


async def test_host_that_nobody_asked_yet_is_available():
    gate = hosts()
    assert gate.available_in_s(A) == 0.0
    assert gate.unavailable() == {}


async def test_paused_host_tells_when_it_is_available_without_being_asked():
    time = Time()
    gate = hosts(time)
    await fail(ask(gate, A, down(A, 7.0)))
    await ask(gate, B)
    time.now += 2.0
    assert gate.available_in_s(A) == pytest.approx(5.0)
    assert gate.unavailable() == {A: pytest.approx(5.0)}
    assert gate.unavailable(beyond_s=5.0) == {}
    time.now += 5.0
    assert gate.unavailable() == {}


async def test_host_at_its_pace_tells_when_its_next_request_is_due():
    time = Time()
    gate = hosts(time, strangers=HostLimits(requests_per_s=2.0, burst=1))
    await ask(gate, A)
    assert gate.available_in_s(A) == pytest.approx(0.5)
    time.now += 0.5
    assert gate.available_in_s(A) == 0.0


async def test_looking_whether_a_host_is_available_costs_it_no_turn():
    time = Time()
    gate = hosts(time, strangers=HostLimits(requests_per_s=1.0, burst=1))
    for _ in range(10):
        gate.available_in_s(A)
        gate.unavailable()
    await ask(gate, A)
    assert time.now == 100.0


async def test_host_whose_slots_are_taken_is_not_available_until_one_is_free():
    asking = Asking(gate := hosts())
    async with under_way(asking, A):
        assert gate.available_in_s(A) == 0.0
    asking = Asking(gate)
    async with under_way(asking, A, A):
        assert gate.unavailable() == {A: LOOK_AGAIN_S}
        assert gate.available_in_s(B) == 0.0
    assert gate.available_in_s(A) == 0.0


async def test_host_of_a_site_whose_slots_are_taken_is_not_available():
    asking = Asking(gate := hosts(shares=Shares(site_concurrent=2)))
    async with under_way(asking, "https://a.evil.example", "https://b.evil.example"):
        assert gate.available_in_s("https://c.evil.example") == LOOK_AGAIN_S
        assert gate.available_in_s("https://honest.test") == 0.0


async def test_no_stranger_is_available_once_all_slots_are_taken_and_the_operators_own_hosts_are():
    asking = Asking(gate := hosts(shares=Shares(concurrent=1), named={PLC: FAST}))
    async with under_way(asking, A):
        assert gate.available_in_s(B) == LOOK_AGAIN_S
        assert gate.available_in_s(PLC) == 0.0
        own = Asking(gate)
        async with under_way(own, PLC, PLC):
            assert gate.available_in_s(PLC) == LOOK_AGAIN_S


async def test_pause_that_a_host_asks_for_in_one_kind_of_request_holds_for_the_other():
    time = Time()
    small = hosts(time)
    large = hosts(time, paced_with=small)
    await fail(ask(large, A, down(A, 7.0)))
    with pytest.raises(HostNotAsked):
        await ask(small, A)
    await fail(ask(small, B, down(B, 9.0)))
    assert large.unavailable() == {A: pytest.approx(7.0), B: pytest.approx(9.0)}
    with pytest.raises(HostNotAsked):
        await ask(large, B)


async def test_two_kinds_of_requests_keep_one_pace():
    time, asked = Time(), list[float]()
    small = hosts(time, strangers=HostLimits(requests_per_s=1.0, burst=1), named={PLC: HostLimits(2.0, 1)})
    large = hosts(time, paced_with=small, named={PLC: FAST})
    for host in (A, PLC):
        for gate in (small, large, large, small):
            async with gate.turn(host):
                asked.append(time.now - 100)
    assert asked == [0.0, 1.0, 2.0, 3.0, 3.0, 3.5, 4.0, 4.5]


async def test_slots_of_one_kind_of_requests_are_not_those_of_the_other():
    small = hosts()
    asking = Asking(hosts(paced_with=small))
    async with under_way(asking, A, A, A):
        assert small.available_in_s(A) == 0.0
        await ask(small, A)
