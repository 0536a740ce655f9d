"""How often one client may ask."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from appview.rates import MAX_COUNTED, WINDOW_S, Limits, Rates, address_of, tightest
from appview.refusals import RateLimited
from tests.builders import START


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


def test_client_has_its_limit_in_each_window() -> None:
    clock = Clock()
    rates = Rates(limit=3, clock=clock)
    left = [allowance.remaining for _ in range(3) if (allowance := rates.take("a")) is not None]
    assert left == [2, 1, 0]
    clock.pass_by(WINDOW_S - 10)
    with pytest.raises(RateLimited) as refused:
        rates.take("a")
    assert refused.value.retry_after_s == 10
    clock.pass_by(10)
    allowance = rates.take("a")
    assert allowance is not None
    assert allowance.remaining == 2


def test_refused_requests_do_not_prolong_the_wait() -> None:
    clock = Clock()
    rates = Rates(limit=1, clock=clock)
    rates.take("a")
    for _ in range(5):
        clock.pass_by(WINDOW_S / 10)
        with pytest.raises(RateLimited):
            rates.take("a")
    clock.pass_by(WINDOW_S / 2)
    rates.take("a")


def test_request_may_weigh_more_than_one_and_is_let_in_while_there_is_anything_left() -> None:
    rates = Rates(limit=15, clock=Clock())
    left = [allowance.remaining for _ in range(2) if (allowance := rates.take("a", weight=10)) is not None]
    assert left == [5, 0]
    with pytest.raises(RateLimited):
        rates.take("a")


def test_clients_are_counted_apart() -> None:
    rates = Rates(limit=1, clock=Clock())
    rates.take("a")
    rates.take("b")
    with pytest.raises(RateLimited):
        rates.take("a")


def test_network_of_the_signed_in_has_ten_times_the_limit_of_one_counted_apart() -> None:
    limits = Limits(Rates(limit=2, clock=Clock()))
    for _ in range(20):
        limits.networks.take("a")
    with pytest.raises(RateLimited):
        limits.networks.take("a")
    limits.networks.take("b")
    limits.clients.take("a")
    limits.refusals.take("a")


def test_network_of_the_signed_in_has_five_times_as_many_requests_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("appview.rates.MAX_AT_ONCE", 2)
    networks = Limits(Rates(limit=2, clock=Clock())).networks
    begun = [networks.begin("a") for _ in range(10)]
    with pytest.raises(RateLimited):
        networks.begin("a")
    networks.end(begun[0])
    networks.begin("a")


def test_without_a_limit_networks_have_none() -> None:
    networks = Limits(Rates(limit=0, clock=Clock())).networks
    assert [networks.take("a") for _ in range(99)] == [None] * 99


def test_the_tightest_allowance_has_the_least_left() -> None:
    rates = Rates(limit=9, clock=Clock())
    first, second = rates.take("a"), rates.take("a")
    assert tightest(first, None, second) is second
    assert tightest(second, first) is second
    assert tightest(None, None) is None


def test_requiring_counts_nothing() -> None:
    rates = Rates(limit=1, clock=Clock())
    rates.require("a")
    rates.require("a")
    rates.take("a")
    with pytest.raises(RateLimited):
        rates.require("a")


def test_without_a_limit_or_a_name_nothing_is_counted() -> None:
    for rates, client in ((Rates(limit=0, clock=Clock()), "a"), (Rates(limit=1, clock=Clock()), None)):
        assert [rates.take(client) for _ in range(9)] == [None] * 9
        rates.require(client)


def test_no_more_clients_are_counted_than_have_room() -> None:
    rates = Rates(limit=1, clock=Clock())
    for number in range(MAX_COUNTED + 1):
        rates.take(f"{number}")
    assert len(rates._counted) == MAX_COUNTED
    rates.take("0")  # forgotten: it begins anew
    with pytest.raises(RateLimited):
        rates.take(f"{MAX_COUNTED}")


def test_headers_tell_the_allowance_as_the_protocols_servers_do() -> None:
    allowance = Rates(limit=9, clock=Clock()).take("a")
    assert allowance is not None
    assert dict(allowance.headers()) == {
        b"ratelimit-limit": b"9",
        b"ratelimit-remaining": b"8",
        b"ratelimit-reset": str(int(START.timestamp()) + WINDOW_S).encode(),
        b"ratelimit-policy": b"9;w=300",
    }


@pytest.mark.parametrize(
    ("client", "headers", "address"),
    [
        (("203.0.113.7", 1), [], "203.0.113.7"),
        (("::ffff:203.0.113.7", 1), [], "203.0.113.7"),
        (("2001:db8:1:2:3:4:5:6", 1), [], "2001:db8:1:2::"),
        (("2001:db8:1:2:ffff::1", 1), [], "2001:db8:1:2::"),
        (("127.0.0.1", 1), [], None),
        (("::1", 1), [], None),
        (("127.0.0.1", 1), [(b"x-forwarded-for", b"203.0.113.7")], "127.0.0.1"),
        (("127.0.0.1", 1), [(b"x-real-ip", b"203.0.113.7")], "127.0.0.1"),
        (("127.0.0.1", 1), [(b"x-forwarded-proto", b"https")], "127.0.0.1"),
        (("::1", 1), [(b"via", b"1.1 proxy")], "::"),
        (("127.0.0.1", 1), [(b"forwarded", b"for=203.0.113.7")], "127.0.0.1"),
        (("nonsense", 1), [], "unknown"),
        (None, [], "unknown"),
    ],
)
def test_who_is_not_signed_in_is_known_by_network(
    client: tuple[str, int] | None, headers: list[tuple[bytes, bytes]], address: str | None
) -> None:
    scope: dict[str, Any] = {"type": "http", "client": client, "headers": headers}
    assert address_of(scope) == address
