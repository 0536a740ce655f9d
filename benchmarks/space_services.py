"""What `space_sync` measures and what it measures with, each a process of its own; and what the API does when viewers
open Spaces.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import socket
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from appview.store.access import add_access_token
from appview.store.grants import SealedCredential, add_grant
from appview.tokens import AccessToken, make_access_token
from benchmarks.processes import LOOPBACK, Child, Service, child, next_told
from benchmarks.space_hosts import signed_jwt
from benchmarks.space_people import Community
from memory.database import Database
from memory.dpop import ProofKey
from memory.sealed import SealingKeys
from memory.service_did import service_did
from memory.space_credential import SpaceCredential
from memory.space_protocol import CREDENTIAL_LIFETIME, SYNCER_FRAGMENT, TokenType
from tests.builders import RepoBuilder


@dataclass(frozen=True, slots=True)
class SpaceHosts:
    """The other side of `benchmarks.space_hosts`."""

    child: Child
    urls: Sequence[str]
    directory: str

    async def tell(self, **what: object) -> dict[str, Any]:
        """Has something happen there, and hears what came of it."""
        assert self.child.process.stdin is not None
        self.child.process.stdin.write(json.dumps(what).encode() + b"\n")
        return await next_told(self.child)


@asynccontextmanager
async def space_hosts(spaces: int, writes: int, hosts: int, folder: Path) -> AsyncGenerator[SpaceHosts]:
    """Hosts, once all is made that they answer with."""
    command = ["benchmarks.space_hosts", *map(str, (spaces, writes, hosts))]
    async with child("space_hosts", command, folder, piped=True) as started:
        ready = await next_told(started)
        yield SpaceHosts(started, [_local(port) for port in ready["ports"]], _local(ready["directory"]))


@dataclass(frozen=True, slots=True)
class Settings:
    """What the sync and the API have in common."""

    database_url: str
    directory: str
    key_file: Path
    api_port: int

    @property
    def audience(self) -> str:
        """Whom hosts notify."""
        return f"{service_did(self._public_url)}{SYNCER_FRAGMENT}"

    @property
    def _public_url(self) -> str:
        return f"http://localhost:{self.api_port}"

    def environ(self) -> dict[str, str]:
        """They, for a process."""
        return {
            "DATABASE_URL": self.database_url,
            "INDEXER_PLC_URL": self.directory,
            "INDEXER_HANDLE_RESOLVER": self.directory,
            "INDEXER_ALLOW_PRIVATE_ADDRESSES": LOOPBACK,
            "SPACES_KEY_FILE": str(self.key_file),
            "APPVIEW_PUBLIC_URL": self._public_url,
            "APPVIEW_PORT": str(self.api_port),
            "APPVIEW_RATE_LIMIT": "0",
        }


def settings_for(database_url: str, hosts: SpaceHosts, folder: Path) -> Settings:
    """A port that is free, and a key of their own."""
    key_file = folder / "space-keys"
    key_file.write_text(f"bench {secrets.token_hex(32)}\n")
    key_file.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return Settings(database_url, hosts.directory, key_file, listener.getsockname()[1])


@asynccontextmanager
async def space_api(settings: Settings, folder: Path) -> AsyncGenerator[Service]:
    """`python -m appview serve`; returns once it answers."""
    async with child("api", ["appview", "serve"], folder, environ=settings.environ()) as started:
        service = Service(started, _local(settings.api_port))

        async def answers() -> bool:
            try:
                await asyncio.to_thread(_ask, f"{service.url}/xrpc/_health")
            except (URLError, OSError):
                return False
            return True

        await started.until(answers)
        yield service


@asynccontextmanager
async def space_process(settings: Settings, folder: Path, name: str) -> AsyncGenerator[Service]:
    """`python -m indexer spaces`, which may still be on its way up."""
    async with child(name, ["indexer", "spaces"], folder, environ=settings.environ()) as started:
        yield Service(started, "")


async def open_all(database: Database, key_file: Path, made: Sequence[Community], viewer: RepoBuilder) -> AccessToken:
    """What the API does when one viewer opens all of these Spaces by one access token, in one transaction."""
    keys, now = SealingKeys.read(key_file, random_bytes=secrets.token_bytes), datetime.now(UTC)
    token, expires_at = make_access_token(viewer.did), now + CREDENTIAL_LIFETIME
    granted = [(each, _credential(each, viewer, keys, now, expires_at)) for each in made]
    async with database.transaction() as conn:
        await add_access_token(conn, token, "bench", created_at=now, expires_at=expires_at)
        for each, sealed in granted:
            added = await add_grant(
                conn, viewer.did, token.id, each.space, sealed, granted_at=now, expires_at=expires_at
            )
            assert added
    return token


def _credential(
    community: Community, viewer: RepoBuilder, keys: SealingKeys, now: datetime, expires_at: datetime
) -> SealedCredential:
    key, space = ProofKey.generate(secrets.token_bytes), str(community.space)
    claims = {
        "iss": community.authority.did,
        "sub": space,
        "iat": int(now.timestamp()),
        "exp": int(expires_at.timestamp()),
        "jti": secrets.token_hex(16),
        "cnf": {"jkt": key.jkt},
    }
    header = {"typ": TokenType.CREDENTIAL, "alg": "ES256K", "kid": "#atproto"}
    credential = SpaceCredential(signed_jwt(community.authority, header, claims), key)
    return SealedCredential(credential.seal(keys, space=space, viewer=viewer.did), keys.current, expires_at)


def _ask(url: str) -> None:
    with urlopen(url, timeout=10):
        pass


def _local(port: int) -> str:
    return f"http://127.0.0.1:{port}"
