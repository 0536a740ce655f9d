"""Who this service is: the document behind its DID, by which others find it."""

from __future__ import annotations

from typing import Final

from memory.service_did import APPVIEW_FRAGMENT
from memory.space_protocol import SYNCER_FRAGMENT, SYNCER_TYPE

_SERVICES: Final = ((APPVIEW_FRAGMENT, "MemoryAppView"), (SYNCER_FRAGMENT, SYNCER_TYPE))


def did_document(did: str, url: str) -> dict[str, object]:
    """The DID document of the service: what it offers, and where. It signs nothing, so it has no keys."""
    return {
        "@context": ["https://www.w3.org/ns/did/v1"],
        "id": did,
        "service": [{"id": fragment, "type": kind, "serviceEndpoint": url.rstrip("/")} for fragment, kind in _SERVICES],
    }
