"""Whose a handle is, asked from the handle's side: a DID document may claim any.

A DNS TXT record `_atproto.{handle}` decides, and where there is none, `https://{handle}/.well-known/atproto-did`.
Several TXT records that name several DIDs mean: nobody's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from pydantic import BaseModel, ValidationError

from memory.errors import Rejected, Unavailable
from memory.identifiers import is_did
from memory.outbound import MAX_REDIRECTS, Limits, Outbound
from memory.outbound_dns import Names
from memory.outbound_errors import HostUnknown

_DID_RECORD: Final = "did="
_LIMITS: Final = Limits(max_bytes=8 * 1024, total_s=5.0)
_WELL_KNOWN_LIMITS: Final = Limits(max_bytes=8 * 1024, total_s=5.0, redirects=MAX_REDIRECTS)


class Handles(Protocol):
    """Says whose handles are."""

    async def owner(self, handle: str) -> str | None:
        """The DID that a handle points to; None: to none. Raises Unavailable when that cannot be said now."""
        ...


class NetworkHandles:
    """Asks as the protocol has it."""

    def __init__(self, names: Names, outbound: Outbound) -> None:
        self._names = names
        self._outbound = outbound

    async def owner(self, handle: str) -> str | None:
        """See Handles."""
        dids = {
            text.removeprefix(_DID_RECORD).strip()
            for text in await self._names.texts(f"_atproto.{handle}")
            if text.startswith(_DID_RECORD)
        }
        if dids:
            return _did_or_none(dids.pop()) if len(dids) == 1 else None
        try:
            answer = await self._outbound.get(f"https://{handle}/.well-known/atproto-did", _WELL_KNOWN_LIMITS)
        except (Rejected, HostUnknown):
            return None
        return _did_or_none(answer.decode("utf-8", "replace").strip())


class AskedHandles:
    """Asks servers that the operator named, one after another, by `com.atproto.identity.resolveHandle`.

    For networks whose handles are in no DNS, like those under `.test`.
    """

    def __init__(self, outbound: Outbound, servers: Sequence[str]) -> None:
        self._outbound = outbound
        self._servers = servers

    async def owner(self, handle: str) -> str | None:
        """See Handles; the first server that knows the handle decides."""
        missed: Unavailable | None = None
        for server in self._servers:
            try:
                answer = await self._outbound.get(
                    f"{server}/xrpc/com.atproto.identity.resolveHandle?handle={handle}", _LIMITS
                )
                return _did_or_none(_ResolvedHandle.model_validate_json(answer).did)
            except Unavailable as failure:
                missed = failure
            except (Rejected, ValidationError):
                continue
        if missed is not None:
            raise missed
        return None


class _ResolvedHandle(BaseModel):
    did: str


def _did_or_none(text: str) -> str | None:
    return text if is_did(text) else None
