from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from ipaddress import ip_address

import pytest
from dns.asyncresolver import Resolver
from dns.flags import TC
from dns.message import Message, from_wire, make_response
from dns.rcode import NXDOMAIN, SERVFAIL, Rcode
from dns.rdatatype import to_text
from dns.rrset import from_text

from memory.outbound_dns import DnsNames
from memory.outbound_errors import DnsUnavailable

Zone = dict[tuple[str, str], list[str] | Rcode | None]  # (name, kind) → records, an error, or no answer at all


class NameServer(asyncio.DatagramProtocol):
    def __init__(self, zone: Zone, change: Callable[[Message], None]) -> None:
        self.zone = zone
        self.change = change
        self.asked: list[tuple[str, str]] = []

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:
        self.transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        query = from_wire(data)
        question = (query.question[0].name.to_text(omit_final_dot=True), to_text(query.question[0].rdtype))
        self.asked.append(question)
        found = self.zone.get(question, NXDOMAIN)
        response = make_response(query)
        match found:
            case None:
                return
            case Rcode():
                response.set_rcode(found)
            case []:
                pass
            case records:
                response.answer.append(from_text(query.question[0].name, 60, "IN", question[1], *records))
        self.change(response)
        self.transport.sendto(response.to_wire(), addr)


@asynccontextmanager
async def names(
    zone: Zone, change: Callable[[Message], None] = lambda _: None, *, patience_s: float = 5.0
) -> AsyncGenerator[tuple[DnsNames, NameServer]]:
    server = NameServer(zone, change)
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: server, local_addr=("127.0.0.1", 0))
    resolver = Resolver(configure=False)
    resolver.nameservers = ["127.0.0.1"]
    resolver.port = transport.get_extra_info("sockname")[1]
    resolver.timeout = 0.6 * patience_s
    try:
        yield DnsNames(resolver, timeout_s=patience_s), server
    finally:
        transport.close()


async def test_addresses_of_both_families_are_found_ipv4_first():
    zone: Zone = {("pds.example", "A"): ["9.9.9.9", "1.1.1.1"], ("pds.example", "AAAA"): ["2606:4700::1111"]}
    async with names(zone) as (dns, _):
        found = list(await dns.addresses("pds.example"))
    assert set(found[:2]) == {ip_address("9.9.9.9"), ip_address("1.1.1.1")}
    assert found[2:] == [ip_address("2606:4700::1111")]


async def test_host_of_one_family_has_the_addresses_of_that():
    async with names({("pds.example", "A"): [], ("pds.example", "AAAA"): ["2606:4700::1111"]}) as (dns, _):
        assert await dns.addresses("pds.example") == [ip_address("2606:4700::1111")]


@pytest.mark.parametrize("other", [SERVFAIL, None])
async def test_one_family_is_enough_when_the_question_for_the_other_fails(other: Rcode | None):
    async with names({("pds.example", "A"): ["9.9.9.9"], ("pds.example", "AAAA"): other}, patience_s=1.0) as (dns, _):
        assert await dns.addresses("pds.example") == [ip_address("9.9.9.9")]


async def test_name_that_does_not_exist_has_no_addresses_and_no_texts():
    async with names({}) as (dns, _):
        assert await dns.addresses("nobody.example") == []
        assert await dns.texts("nobody.example") == []


@pytest.mark.parametrize("first", [SERVFAIL, None, []])
@pytest.mark.parametrize("second", [SERVFAIL, None])
async def test_question_without_an_answer_is_no_proof_that_there_is_no_host(
    first: Rcode | list[str] | None, second: Rcode | None
):
    for a, aaaa in ((first, second), (second, first)):
        async with names({("pds.example", "A"): a, ("pds.example", "AAAA"): aaaa}, patience_s=0.15) as (dns, _):
            with pytest.raises(DnsUnavailable, match=r"pds\.example"):
                await dns.addresses("pds.example")


async def test_texts_are_whole_though_they_are_cut_into_strings():
    zone: Zone = {("_atproto.mara.example", "TXT"): ['"did=did:plc:" "abc"', '"other"', '"\\255"']}
    async with names(zone) as (dns, _):
        assert sorted(await dns.texts("_atproto.mara.example")) == ["did=did:plc:abc", "other", "\ufffd"]


async def test_texts_that_cannot_be_asked_for_are_unavailable():
    async with names({("_atproto.mara.example", "TXT"): SERVFAIL}) as (dns, _):
        with pytest.raises(DnsUnavailable):
            await dns.texts("_atproto.mara.example")


async def test_names_are_asked_for_as_they_are_and_in_no_search_domain():
    async with names({}) as (dns, server):
        await dns.texts("plc")
    assert server.asked == [("plc", "TXT")]


async def test_answer_cut_short_is_asked_for_by_tcp_and_unavailable_without_it():
    def truncate(response: Message) -> None:
        response.flags |= TC

    async with names({("mara.example", "TXT"): ['"did=x"']}, truncate) as (dns, _):
        with pytest.raises(DnsUnavailable):
            await dns.texts("mara.example")


@pytest.mark.parametrize("name", ["a" * 64 + ".example", "a.." + "example", ".".join(["a" * 63] * 5)])
async def test_name_that_the_dns_cannot_hold_is_unavailable(name: str):
    async with names({}) as (dns, server):
        with pytest.raises(DnsUnavailable):
            await dns.texts(name)
    assert server.asked == []


async def test_localhost_is_known_without_asking():
    async with names({}) as (dns, server):
        assert list(await dns.addresses("localhost")) == [ip_address("127.0.0.1"), ip_address("::1")]
        assert list(await dns.addresses("pds.localhost")) == [ip_address("127.0.0.1"), ip_address("::1")]
    assert server.asked == []
