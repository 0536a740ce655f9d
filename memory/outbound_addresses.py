"""Which addresses are on the public internet. No I/O.

The lists are our own: what Python's `ipaddress` calls global differs between its releases, and some of it (6to4,
IPv4-compatible addresses) leads into private networks all the same.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_NOT_PUBLIC_IPV4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network
            "10.0.0.0/8",  # private
            "100.64.0.0/10",  # carriers' own
            "127.0.0.0/8",  # loopback
            "169.254.0.0/16",  # link-local; clouds' metadata
            "172.16.0.0/12",  # private
            "192.0.0.0/24",  # protocol assignments
            "192.0.2.0/24",  # documentation
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",  # private
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",  # documentation
            "203.0.113.0/24",  # documentation
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved; broadcast
        ),
    )
)
_GLOBAL_UNICAST: Final = IPv6Network("2000::/3")  # all that was ever given out
_NOT_PUBLIC_IPV6: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments; Teredo, which wraps IPv4
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4, which wraps IPv4
            "3fff::/20",  # documentation
        ),
    )
)
_NAT64: Final = IPv6Network("64:ff9b::/96")  # how a network without IPv4 reaches an IPv4 address: its last 32 bits


def is_public(address: Address) -> bool:
    """Whether this is a unicast address that the public internet routes to one host."""
    if isinstance(address, IPv4Address):
        return not is_within(address, _NOT_PUBLIC_IPV4)
    if address.scope_id is not None:
        return False
    if address in _NAT64:
        return is_public(IPv4Address(address.packed[-4:]))
    return address in _GLOBAL_UNICAST and not is_within(address, _NOT_PUBLIC_IPV6)


def is_within(address: Address, networks: tuple[Network, ...]) -> bool:
    """Whether the address is in one of the networks; one of the other family never is."""
    return any(address in network for network in networks)
