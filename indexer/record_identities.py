"""Looks up who the authors in a recording were, in the lines that a PLC export has."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from http.client import HTTPConnection, HTTPException
from time import monotonic
from typing import Final
from urllib.parse import urlsplit

import orjson

from memory.errors import Rejected, Unavailable
from memory.identity import PlcExport, did_web_url, parse_document

Fetch = Callable[[str], Awaitable[bytes]]
"""GETs a URL: the body of a 200; raises Unavailable for everything else."""

_MAX_ANSWER_BYTES: Final = 1024 * 1024
_TIMEOUT_S: Final = 10.0
_ATTEMPTS: Final = 3
_MAX_WAIT_S: Final = 60.0
_SECONDS_PER_LOOK_UP: Final = 0.1  # a directory is asked ten times a second at most


@dataclass(frozen=True, slots=True)
class Found:
    """Identity lines, oldest first, and why each DID without one has none."""

    lines: tuple[bytes, ...]
    missing: Mapping[str, str]


async def fetch(url: str) -> bytes:
    """GET from a host that the operator named."""
    return await asyncio.to_thread(_get, url, _addresses)


async def fetch_public(url: str) -> bytes:
    """GET from a host that a stranger named: only if it has no address but public ones."""
    return await asyncio.to_thread(_get, url, _public_addresses)


@dataclass(frozen=True, slots=True)
class IdentityLookUp:
    """Asks the directory of did:plc, and the hosts of did:web, one at a time."""

    directory_url: str
    ask_directory: Fetch = fetch
    ask_stranger: Fetch = fetch_public
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def find(self, authors: Mapping[str, datetime]) -> Found:
        """The identities of `authors` (DID → when first met).

        did:plc: the whole audit log, so that a replay sees each operation at its time. did:web keeps no history: its
        document counts from when the author was first met.
        """
        dated: list[tuple[str, bytes]] = []
        missing: dict[str, str] = {}
        for did, first_met in sorted(authors.items()):
            try:
                if did.startswith("did:plc:"):
                    url = f"{self.directory_url}/{did}/log/audit"
                    dated += _audit_lines(did, await self._patiently(self.ask_directory, url))
                else:
                    answer = await self._patiently(self.ask_stranger, did_web_url(did))
                    dated.append(_document_line(did, answer, first_met))
            except (Rejected, Unavailable) as failure:
                missing[did] = failure.message
            await self.sleep(_SECONDS_PER_LOOK_UP)
        return Found(tuple(line for _, line in sorted(dated)), missing)

    async def _patiently(self, ask: Fetch, url: str) -> bytes:
        for attempt in range(1, _ATTEMPTS):
            try:
                return await ask(url)
            except Unavailable as failure:
                asked_for = failure.context.get("retry_after_s")
                await self.sleep(min(asked_for, _MAX_WAIT_S) if isinstance(asked_for, float) else float(2**attempt))
        return await ask(url)


def _audit_lines(did: str, answer: bytes) -> list[tuple[str, bytes]]:
    PlcExport.of_audit_log(did, answer)  # refuses what a replay could not read
    return [(entry["createdAt"], orjson.dumps(entry)) for entry in orjson.loads(answer)]


def _document_line(did: str, answer: bytes, first_met: datetime) -> tuple[str, bytes]:
    parse_document(did, answer)
    created_at = first_met.isoformat().replace("+00:00", "Z")
    return created_at, orjson.dumps({"did": did, "document": orjson.loads(answer), "createdAt": created_at})


_Address = tuple[str, int]


def _get(url: str, resolve: Callable[[str, int], list[_Address]]) -> bytes:
    """One GET without redirects, proxies or cookies."""
    parts = urlsplit(url)
    secure, host = parts.scheme == "https", parts.hostname or ""
    port = parts.port or (443 if secure else 80)
    deadline = monotonic() + _TIMEOUT_S
    connection = HTTPConnection(host, port)
    try:
        connection.sock = socket.create_connection(resolve(host, port)[0], timeout=_TIMEOUT_S)
        if secure:
            connection.sock = ssl.create_default_context().wrap_socket(connection.sock, server_hostname=host)
        connection.request("GET", parts.path, headers={"Accept": "application/json"})
        with connection.getresponse() as answer:
            if answer.status != 200:
                retry_after_s = _seconds(answer.getheader("Retry-After"))
                raise Unavailable(f"{host} answered {answer.status}", retry_after_s=retry_after_s)
            body = bytearray()
            while chunk := answer.read1(64 * 1024):
                body += chunk
                if len(body) > _MAX_ANSWER_BYTES or monotonic() > deadline:
                    raise Unavailable(f"{host} answered too much or too slowly")
            return bytes(body)
    except (OSError, HTTPException) as error:
        raise Unavailable(f"{host} cannot be reached: {error}") from error
    finally:
        connection.close()


def _addresses(host: str, port: int) -> list[_Address]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(str(address[0]), int(address[1])) for *_, address in found]


def _public_addresses(host: str, port: int) -> list[_Address]:
    """All addresses, and only if all are public: the one that is checked is the one that is connected to."""
    found = _addresses(host, port)
    if not all(ipaddress.ip_address(address).is_global for address, _ in found):
        raise Unavailable(f"{host} has a private address")
    return found


def _seconds(retry_after: str | None) -> float | None:
    return float(retry_after) if retry_after is not None and retry_after.isdecimal() else None
