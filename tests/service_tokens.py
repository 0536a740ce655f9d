"""Service-auth tokens as a PDS makes them, and as it would not.

signer = SigningKey("mara", "p256")
signed(signer, "ES256", claims(MARA, NOW))                  # what the reference PDS sends
signed(signer, "ES256", claims(MARA, NOW, exp=None, aud=5)) # null: without it
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

from tests.builders import SigningKey

Curve = Literal["k256", "p256"]

OWN_DID: Final = "did:web:memory.example"
SEARCH: Final = "dev.bastienrobert.memory.searchRecords"
ALGORITHMS: Final[dict[Curve, str]] = {"k256": "ES256K", "p256": "ES256"}


def claims(issuer: str, now: datetime, **changes: Any) -> dict[str, Any]:
    """What the reference PDS says in a token of a minute."""
    seconds = int(now.timestamp())
    given = {"iat": seconds, "iss": issuer, "aud": OWN_DID, "exp": seconds + 60, "lxm": SEARCH, "jti": "f00d" * 8}
    return {name: value for name, value in (given | changes).items() if value is not None}


def signed(signer: SigningKey, algorithm: str, payload: Mapping[str, Any] | bytes, **header: Any) -> bytes:
    """A token with that payload, or those bytes in its place."""
    fields = {"typ": "JWT", "alg": algorithm} | header
    head = json.dumps({name: value for name, value in fields.items() if value is not None}).encode()
    return signed_raw(signer, head, payload if isinstance(payload, bytes) else json.dumps(payload).encode())


def signed_raw(signer: SigningKey, header: bytes, payload: bytes) -> bytes:
    """A token of those bytes."""
    message = base64url(header) + b"." + base64url(payload)
    return message + b"." + base64url(signer.sign(message))


def base64url(data: bytes) -> bytes:
    """Without padding."""
    return urlsafe_b64encode(data).rstrip(b"=")
