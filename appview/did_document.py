"""Who this service is: the did:web of its URL, and the document by which others find it.

A DID of that kind is a host name; only localhost may have a port.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

APPVIEW_FRAGMENT: Final = "#memory_appview"
SYNCER_FRAGMENT: Final = "#atproto_space_syncer"

_SERVICES: Final = ((APPVIEW_FRAGMENT, "MemoryAppView"), (SYNCER_FRAGMENT, "AtprotoSpaceSyncer"))


def service_did(url: str) -> str | None:
    """The DID of the service at this URL; None for one that can have none: not https, or with a port."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host == "localhost":
        return f"did:web:localhost%3A{parts.port}" if parts.port else "did:web:localhost"
    is_name = parts.scheme == "https" and parts.port is None and "." in host and not host.replace(".", "").isdecimal()
    return f"did:web:{host}" if is_name else None


def did_document(did: str, url: str) -> dict[str, object]:
    """The DID document of the service: what it offers, and where. It signs nothing, so it has no keys."""
    return {
        "@context": ["https://www.w3.org/ns/did/v1"],
        "id": did,
        "service": [{"id": fragment, "type": kind, "serviceEndpoint": url.rstrip("/")} for fragment, kind in _SERVICES],
    }
