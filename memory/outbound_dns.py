"""Names looked up in the domain name system, without threads that a slow name server could use up.

`/etc/hosts` is not read, and search domains are not tried: a name means the same everywhere. `localhost` is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, Protocol

from dns.asyncresolver import Resolver
from dns.exception import DNSException
from dns.rdata import Rdata
from dns.rdatatype import AAAA, TXT, A, RdataType
from dns.rdtypes.ANY.TXT import TXT as TextRecord  # noqa: N811  a class, whatever its name
from dns.rdtypes.IN.A import A as Ipv4Record
from dns.rdtypes.IN.AAAA import AAAA as Ipv6Record  # noqa: N811
from dns.resolver import NXDOMAIN, NoResolverConfiguration

from memory.outbound_addresses import Address
from memory.outbound_errors import DnsUnavailable

_TIMEOUT_S: Final = 5.0
_LOOPBACK: Final = (IPv4Address("127.0.0.1"), IPv6Address("::1"))
_NAME_SERVER_BY_DEFAULT: Final = "127.0.0.1"  # where the system's resolver looks, too, when nothing is configured


class Names(Protocol):
    """What names stand for."""

    async def addresses(self, name: str) -> Sequence[Address]:
        """All addresses of a host, IPv4 first; none: there is no such host. Raises DnsUnavailable."""
        ...

    async def texts(self, name: str) -> Sequence[str]:
        """The TXT records of a name; none: there are none, or no such name. Raises DnsUnavailable."""
        ...


class DnsNames:
    """Asks the machine's name servers."""

    def __init__(self, resolver: Resolver | None = None, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._resolver = resolver or _system_resolver()
        self._timeout_s = timeout_s

    async def addresses(self, name: str) -> Sequence[Address]:
        """See Names. One family is enough when the question for the other fails."""
        if name == "localhost" or name.endswith(".localhost"):
            return _LOOPBACK
        ipv4, ipv6 = await asyncio.gather(self._addresses(name, A), self._addresses(name, AAAA))
        match ipv4, ipv6:
            case DnsUnavailable(), DnsUnavailable() | []:
                raise ipv4
            case [], DnsUnavailable():
                raise ipv6
            case _:
                return [address for found in (ipv4, ipv6) if isinstance(found, list) for address in found]

    async def texts(self, name: str) -> Sequence[str]:
        """See Names. The strings of one record are joined, as they were cut for length only."""
        records = await self._records(name, TXT)
        return [
            b"".join(record.strings).decode("utf-8", "replace") for record in records if isinstance(record, TextRecord)
        ]

    async def _addresses(self, name: str, kind: RdataType) -> list[Address] | DnsUnavailable:
        try:
            records = await self._records(name, kind)
        except DnsUnavailable as failure:
            return failure
        return [ip_address(record.address) for record in records if isinstance(record, Ipv4Record | Ipv6Record)]

    async def _records(self, name: str, kind: RdataType) -> Iterable[Rdata]:
        try:
            answer = await self._resolver.resolve(
                name, kind, raise_on_no_answer=False, search=False, lifetime=self._timeout_s
            )
        except NXDOMAIN:
            return ()
        except (DNSException, OSError) as failure:
            raise DnsUnavailable(f"The name servers have no answer for {name}.") from failure
        return answer.rrset or ()


def _system_resolver() -> Resolver:
    try:
        return Resolver()
    except NoResolverConfiguration:
        resolver = Resolver(configure=False)
        resolver.nameservers = [_NAME_SERVER_BY_DEFAULT]
        return resolver
