"""The did:web of the service at a URL: its host name; only localhost may have a port."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

DOCUMENT_PATH: Final = "/.well-known/did.json"
APPVIEW_FRAGMENT: Final = "#memory_appview"
"""Names the index among what the service offers."""


def service_did(url: str) -> str | None:
    """The DID of the service at this URL; None for one that can have none: not https, or with a port."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host == "localhost":
        return f"did:web:localhost%3A{parts.port}" if parts.port else "did:web:localhost"
    is_name = parts.scheme == "https" and parts.port is None and "." in host and not host.replace(".", "").isdecimal()
    return f"did:web:{host}" if is_name else None
