"""DPoP (RFC 9449): proof that a request comes from whoever a Space credential was given to.

Each credential has a key of its own, so that nobody can tell by a key that two credentials are the same reader's.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

from memory.es256 import Es256Key, base64url
from memory.space_protocol import DPOP_ALGORITHM, TokenType

_JTI_BYTES: Final = 16


class ProofKey:
    """The key that a credential is bound to."""

    __slots__ = ("_key",)

    def __init__(self, key: Es256Key) -> None:
        self._key = key

    @classmethod
    def generate(cls, random_bytes: Callable[[int], bytes]) -> ProofKey:
        """A new key, for one credential."""
        return cls(Es256Key.generate(random_bytes))

    @classmethod
    def from_bytes(cls, secret: bytes) -> ProofKey:
        """The key of `to_bytes`; raises NotAnEs256Key."""
        return cls(Es256Key.from_bytes(secret))

    def to_bytes(self) -> bytes:
        """The secret: to be sealed."""
        return self._key.to_bytes()

    @property
    def jkt(self) -> str:
        """What a credential that is bound to this key has as `cnf.jkt`."""
        return self._key.thumbprint

    def prove(
        self,
        method: str,
        url: str,
        *,
        now: datetime,
        random_bytes: Callable[[int], bytes],
        credential: str | None = None,
    ) -> str:
        """A proof for one request, good once and for a minute.

        `url` as the host knows itself, whatever its query; None for `credential`: this asks for one.
        """
        claims: dict[str, object] = {
            "jti": random_bytes(_JTI_BYTES).hex(),
            "htm": method,
            "htu": urlsplit(url)._replace(query="", fragment="").geturl(),
            "iat": int(now.timestamp()),
        }
        if credential is not None:
            claims["ath"] = base64url(sha256(credential.encode()).digest())
        return self._key.sign_jwt({"typ": TokenType.DPOP_PROOF, "alg": DPOP_ALGORITHM, "jwk": self._key.jwk}, claims)
