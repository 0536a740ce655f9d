"""Access tokens: what a viewer hands to a client that is to ask for longer than an hour.

A token is opaque to whoever holds it: a prefix by which secret scanners know it, and behind it, as base64url, an id,
256 random bits and the viewer's DID. The DID is in it so that its row is found in the viewer's own shard, by one look
into the primary key. Nothing of it is kept but the id and a hash of the whole.
"""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from memory.identifiers import is_did

PREFIX: Final = "memat_"

_ID_BYTES: Final = 12
_SECRET_BYTES: Final = 32
_MAX_CHARS: Final = 4096
_BASE64URL: Final = re.compile(r"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, repr=False)
class AccessToken:
    """A token; `id` tells it from its viewer's others, and is no secret."""

    did: str
    id: str
    text: str

    def digest(self) -> bytes:
        """What is kept of it. Its bits are random, so nobody can try them out: no slow hash is needed."""
        return sha256(self.text.encode()).digest()

    def matches(self, digest: bytes) -> bool:
        """Whether that is what was kept of it; in constant time."""
        return hmac.compare_digest(self.digest(), digest)


def make_access_token(did: str, random_bytes: Callable[[int], bytes] = secrets.token_bytes) -> AccessToken:
    """A new token of that viewer."""
    identifier, secret = random_bytes(_ID_BYTES), random_bytes(_SECRET_BYTES)
    data = identifier + secret + did.encode()
    return AccessToken(did, identifier.hex(), PREFIX + urlsafe_b64encode(data).rstrip(b"=").decode())


def parse_access_token(text: str) -> AccessToken | None:
    """The token in `text`, which nobody may have made; None for what has another form."""
    encoded = text.removeprefix(PREFIX)
    if encoded == text or len(text) > _MAX_CHARS or _BASE64URL.fullmatch(encoded) is None:
        return None
    try:
        data = urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        did = data[_ID_BYTES + _SECRET_BYTES :].decode("ascii")
    except (NotBase64, UnicodeDecodeError):
        return None
    if not is_did(did) or urlsafe_b64encode(data).rstrip(b"=").decode() != encoded:
        return None
    return AccessToken(did, data[:_ID_BYTES].hex(), text)
