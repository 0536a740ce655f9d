"""The way to identities: names, the directory, handles, and what is remembered of all of them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

from memory.database import Database
from memory.handles import AskedHandles, Handles, NetworkHandles
from memory.outbound import Outbound
from memory.outbound_addresses import Network
from memory.outbound_dns import DnsNames
from memory.outbound_hosts import Hosts
from memory.resolver import PLC_LIMITS, IdentityResolver
from memory.tasks import TaskGroup


@dataclass(frozen=True, slots=True)
class Identities:
    """What identities are asked with."""

    resolver: IdentityResolver
    handles: Handles
    names: DnsNames


@asynccontextmanager
async def open_identities(
    database: Database,
    *,
    plc_url: str,
    handle_resolvers: Sequence[str],
    private_networks: Sequence[Network],
    clock: Callable[[], datetime],
) -> AsyncGenerator[Identities]:
    """Opens it. `handle_resolvers`: who is asked instead of DNS; `private_networks`: what may be asked; both in
    development.
    """
    names = DnsNames()
    ways = Hosts(named={plc_url: PLC_LIMITS})
    async with Outbound(names, ways, allowed=private_networks) as outbound, TaskGroup() as tasks:
        handles: Handles = NetworkHandles(names, outbound)
        if handle_resolvers:
            handles = AskedHandles(outbound, handle_resolvers)
        resolver = IdentityResolver(outbound, handles, database, tasks, plc_url=plc_url, clock=clock)
        yield Identities(resolver, handles, names)
