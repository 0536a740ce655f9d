"""DID documents fetched: of did:plc from the directory, of did:web from the DID's own host."""

from __future__ import annotations

import re
from typing import Final

from memory.errors import Unavailable
from memory.identity import BadIdentity, DidDocument, did_web_url, parse_document
from memory.outbound import Limits, Outbound
from memory.outbound_errors import ForbiddenAddress, ForbiddenUrl, HostRefused

MAX_DID_CHARS: Final = 255  # of those that can be asked for; the syntax allows more

_NOT_FOUND: Final = 404
_GONE: Final = 410
_PLC: Final = "did:plc:"
_DID_PLC: Final = re.compile("did:plc:[a-z2-7]{24}")


class IdentityUnavailable(Unavailable):
    """Nothing is known of a DID, and it cannot be looked up at the moment."""


async def fetch_document(outbound: Outbound, plc_url: str, did: str) -> DidDocument | None:
    """The document of a DID as it stands now; None: it was given up for good.

    Raises BadIdentity, or another Rejected of the DID's own host, where it has none that can be used, and Unavailable
    where that cannot be told now.
    """
    require_known_method(did)
    if not is_in_directory(did):
        return parse_document(did, await outbound.get(did_web_url(did)))
    try:
        answer = await ask_directory(outbound, plc_url, did, "", Limits())
    except HostRefused as refused:
        if refused.status != _GONE:
            raise
        return None
    return parse_document(did, answer)


async def ask_directory(outbound: Outbound, plc_url: str, did: str, path: str, limits: Limits) -> bytes:
    """What the directory has at a path below the DID; the only HostRefused is that of a tombstone."""
    try:
        return await outbound.get(f"{plc_url}/{did}{path}", limits)
    except HostRefused as refused:
        if refused.status == _NOT_FOUND:
            raise BadIdentity("the directory knows no such DID", reason="unknown_did", did=did) from refused
        if refused.status == _GONE:
            raise
        raise IdentityUnavailable(f"The directory refuses us: {refused.message}", did=did) from refused
    except (ForbiddenAddress, ForbiddenUrl) as refused:
        message = f"The directory of INDEXER_PLC_URL may not be asked: {refused.message}"
        raise IdentityUnavailable(message, did=did) from refused


def is_in_directory(did: str) -> bool:
    """Whether the directory is asked for it, and not its own host."""
    return did.startswith(_PLC)


def is_resolvable(did: str) -> bool:
    """Whether a DID can be asked for at all: of a method that the protocol uses, and as long as one can be there."""
    try:
        require_known_method(did)
    except BadIdentity:
        return False
    return len(did) <= MAX_DID_CHARS


def require_known_method(did: str) -> None:
    """Raises BadIdentity for a DID that cannot be asked for."""
    if not is_in_directory(did):
        did_web_url(did)
    elif _DID_PLC.fullmatch(did) is None:
        raise BadIdentity("not a did:plc", did=did)
