"""Our own ES256 keys, and the JWTs that they sign: proofs of possession, and attestations of who we are."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from hashlib import sha256
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from memory.errors import Rejected

ALGORITHM: Final = "ES256"
KEY_BYTES: Final = 32

_ORDER: Final = 0xFFFFFFFF_00000000_FFFFFFFF_FFFFFFFF_BCE6FAAD_A7179E84_F3B9CAC2_FC632551
_CURVE: Final = ec.SECP256R1()
_ECDSA_SHA256: Final = ec.ECDSA(SHA256())


class NotAnEs256Key(Rejected):
    """These bytes are no private key of P-256."""

    reason = "not_an_es256_key"


class Es256Key:
    """A private key of P-256. Nothing but `to_bytes` shows it."""

    __slots__ = ("_key", "jwk", "thumbprint")

    def __init__(self, key: ec.EllipticCurvePrivateKey) -> None:
        """Raises NotAnEs256Key for a key of another curve."""
        if not isinstance(key.curve, ec.SECP256R1):
            raise NotAnEs256Key
        numbers = key.public_key().public_numbers()
        self._key = key
        self.jwk: Final[Mapping[str, str]] = {
            "kty": "EC",
            "crv": "P-256",
            "x": base64url(numbers.x.to_bytes(KEY_BYTES)),
            "y": base64url(numbers.y.to_bytes(KEY_BYTES)),
        }
        # RFC 7638: the required members in the order of their names, without white space.
        self.thumbprint: Final = base64url(sha256(compact(dict(sorted(self.jwk.items())))).digest())

    @classmethod
    def generate(cls, random_bytes: Callable[[int], bytes]) -> Es256Key:
        """A new key."""
        while True:
            try:
                return cls.from_bytes(random_bytes(KEY_BYTES))
            except NotAnEs256Key:  # one of 2^32, as the order is a little below 2^256
                continue

    @classmethod
    def from_bytes(cls, secret: bytes) -> Es256Key:
        """The key of `to_bytes`; raises NotAnEs256Key."""
        number = int.from_bytes(secret)
        if len(secret) != KEY_BYTES or not 0 < number < _ORDER:
            raise NotAnEs256Key
        return cls(ec.derive_private_key(number, _CURVE))

    def to_bytes(self) -> bytes:
        """The secret number, big-endian: to be sealed."""
        return self._key.private_numbers().private_value.to_bytes(KEY_BYTES)

    def sign_jwt(self, header: Mapping[str, object], claims: Mapping[str, object]) -> str:
        """A JWT of these, which keep their order; `header` has to name the algorithm."""
        message = f"{base64url(compact(header))}.{base64url(compact(claims))}"
        r, s = decode_dss_signature(self._key.sign(message.encode(), _ECDSA_SHA256))
        # The twin in the lower half: what of the protocol verifies takes no other.
        signature = r.to_bytes(KEY_BYTES) + min(s, _ORDER - s).to_bytes(KEY_BYTES)
        return f"{message}.{base64url(signature)}"


def base64url(data: bytes) -> str:
    """Without padding, as in JWTs."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def compact(value: Mapping[str, object]) -> bytes:
    """JSON without white space, its members in the order given."""
    return json.dumps(value, separators=(",", ":")).encode()
