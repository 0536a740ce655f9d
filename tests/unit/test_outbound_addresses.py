from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memory.outbound_addresses import Address, is_public, is_within

IPV4 = st.integers(0, 2**32 - 1).map(IPv4Address)
IPV6 = st.integers(0, 2**128 - 1).map(IPv6Address) | st.integers(2**125, 2**126 - 1).map(IPv6Address)


@pytest.mark.parametrize(
    "text",
    [
        "0.0.0.0",
        "0.1.2.3",
        "10.0.0.1",
        "100.64.0.1",
        "100.127.255.255",
        "127.0.0.1",
        "127.255.255.254",
        "169.254.169.254",
        "172.16.0.1",
        "172.31.255.255",
        "192.0.0.1",
        "192.0.2.1",
        "192.88.99.1",
        "192.168.1.1",
        "198.18.0.1",
        "198.19.255.255",
        "198.51.100.1",
        "203.0.113.1",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::9.9.9.9",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "::ffff:9.9.9.9",
        "64:ff9b::127.0.0.1",
        "64:ff9b::10.0.0.1",
        "64:ff9b::169.254.169.254",
        "64:ff9b:1::1",
        "100::1",
        "2001::1",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "2001:2::1",
        "2001:20::1",
        "2001:db8::1",
        "2002:7f00:1::",
        "2002:a00:1::1",
        "2002:909:909::1",
        "3fff::1",
        "4000::1",
        "5f00::1",
        "fc00::1",
        "fd12:3456::1",
        "fe80::1",
        "fe80::1%eth0",
        "2606:4700::1%eth0",
        "fec0::1",
        "ff02::1",
    ],
)
def test_address_that_the_internet_does_not_route_to_one_host_is_not_public(text: str):
    assert not is_public(ip_address(text))


@pytest.mark.parametrize(
    "text",
    [
        "1.1.1.1",
        "9.9.9.9",
        "100.63.255.255",
        "100.128.0.1",
        "172.15.255.255",
        "172.32.0.1",
        "223.255.255.255",
        "2001:4860:4860::8888",
        "2606:4700::1111",
        "2a00:1450::1",
        "64:ff9b::9.9.9.9",
    ],
)
def test_address_of_a_host_on_the_internet_is_public(text: str):
    assert is_public(ip_address(text))


@given(IPV4 | IPV6)
@example(IPv6Address("2002:7f00:1::"))
def test_what_is_public_is_so_for_python_too(address: Address):
    if is_public(address):
        assert address.is_global
        assert not address.is_private
        assert not address.is_multicast
        assert not address.is_loopback
        assert not address.is_link_local
        assert not address.is_unspecified
        assert not (address.is_reserved and address not in ip_network("64:ff9b::/96"))


@given(IPV4)
def test_wrapping_makes_no_address_public_that_was_not(address: IPv4Address):
    wrappings = ("::", "::ffff:0:0", "64:ff9b::", "64:ff9b:1::", "2002::", "2001::")
    for prefix in wrappings:
        wrapped = IPv6Address(int(IPv6Address(prefix)) | int(address))
        assert not is_public(wrapped) or is_public(address)
    assert not is_public(IPv6Address(int(IPv6Address("2002::")) | int(address) << 80))


@given(IPV4)
def test_nat64_is_as_public_as_what_it_wraps(address: IPv4Address):
    assert is_public(IPv6Address(int(IPv6Address("64:ff9b::")) | int(address))) == is_public(address)


def test_address_is_within_networks_of_its_own_family_only():
    networks = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
    assert is_within(ip_address("127.1.2.3"), networks)
    assert is_within(ip_address("::1"), networks)
    assert not is_within(ip_address("::ffff:127.0.0.1"), networks)
    assert not is_within(ip_address("128.0.0.1"), networks)
    assert not is_within(ip_address("127.0.0.1"), ())
