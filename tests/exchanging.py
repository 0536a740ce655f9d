"""Noor's Space at a Space host on loopback, and what asks that host for credentials as the API does."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from appview.refusals import Refusal
from appview.spaces.attestation import ClientAttestation
from appview.spaces.delegation import Delegation, judge_delegation
from appview.spaces.exchange import Exchange, Opened
from memory.es256 import Es256Key
from memory.outbound import Outbound
from memory.outbound_addresses import Network
from memory.space_authorities import SpaceAuthorities
from tests.credentials_recorded import space_ref
from tests.fakes.directory import Directory, directory
from tests.fakes.internet import LOOPBACK, plain_outbound
from tests.fakes.space_host import Space, SpaceHost, SpaceWorld, space_world
from tests.fakes.space_host_world import Account

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
METHOD = "getSpaceCredential"
CLIENT_URL = "https://memory.example"


@dataclass
class Setting:
    """Noor's Space, where Mara is a member and Lukas is not, and what asks its host."""

    fake: Directory
    world: SpaceWorld
    host: SpaceHost
    outbound: Outbound
    now: datetime = START
    client: ClientAttestation | None = None
    draw: random.Random = field(default_factory=lambda: random.Random(5))

    def __post_init__(self) -> None:
        self.noor, self.mara, self.lukas = (self.host.add(name) for name in ("noor", "mara", "lukas"))
        self.space = self.host.create_space(self.noor, "main", self.mara)
        self.authorities = SpaceAuthorities(self.outbound, plc_url=self.fake.url, clock=self.clock)

    def clock(self) -> datetime:
        return self.now

    def delegation(self, viewer: Account | None = None, space: Space | None = None) -> Delegation:
        viewer, space = viewer or self.mara, space or self.space
        text = viewer.delegation(str(space))
        return judge_delegation(text, viewer=viewer.did, space=space_ref(str(space)), now=self.now)

    async def open(self, viewer: Account | None = None, space: Space | None = None, **changes: Any) -> Opened:
        return await self.open_by(self.delegation(viewer, space), **changes)

    async def open_by(self, delegation: Delegation, **changes: Any) -> Opened:
        exchange = Exchange(
            self.outbound,
            self.authorities,
            client=self.client,
            clock=self.clock,
            random_bytes=self.draw.randbytes,
            **changes,
        )
        return await exchange.open(delegation)


@asynccontextmanager
async def setting_with(allowed: tuple[Network, ...] = LOOPBACK) -> AsyncGenerator[Setting]:
    async with directory() as fake, plain_outbound(allowed=allowed) as outbound:
        made: list[Setting] = []
        async with space_world(clock=lambda: made[0].now if made else START, directory=fake) as world:
            made.append(Setting(fake, world, await world.host(), outbound))
            yield made[0]
        fake.release.set()


def published(number: int) -> dict[str, Any]:
    """The keys of a client, by `kid`, as the fake host looks them up."""
    key = Es256Key.from_bytes(number.to_bytes(32))
    own = Es256Key.from_bytes((5).to_bytes(32))
    return {own.thumbprint: dict(key.jwk)}


def attesting(folder: Path, number: int = 5) -> ClientAttestation:
    key = ec.derive_private_key(number, ec.SECP256R1())
    file = folder / "client.pem"
    file.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    file.chmod(0o600)
    return ClientAttestation.read(file, public_url=CLIENT_URL)


async def refused(setting: Setting, *asked: Any, **changes: Any) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await setting.open(*asked, **changes)
    return caught.value
