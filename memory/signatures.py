"""Public keys of the protocol's two curves, and the signatures made with them.

A signature is 64 bytes, `r` and `s` big-endian, over the sha-256 of the message, with `s` in the lower half of the
curve's order: the protocol refuses its twin in the upper half, so that nobody can re-sign what they do not own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import ClassVar, Final

import coincurve
import libipld
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from memory.errors import Rejected

_K256_ORDER: Final = 0xFFFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFE_BAAEDCE6_AF48A03B_BFD25E8C_D0364141
_P256_ORDER: Final = 0xFFFFFFFF_00000000_FFFFFFFF_FFFFFFFF_BCE6FAAD_A7179E84_F3B9CAC2_FC632551

_DID_KEY: Final = "did:key:"
_K256_CODEC: Final = b"\xe7\x01"
_P256_CODEC: Final = b"\x80\x24"
_SIGNATURE_BYTES: Final = 64
_COMPRESSED_POINT_BYTES: Final = 33
_UNCOMPRESSED_POINT_BYTES: Final = 65

_P256: Final = ec.SECP256R1()
_ECDSA_SHA256: Final = ec.ECDSA(SHA256())


class SignatureVerdict(Enum):
    """What a key says of a signature."""

    GOOD = auto()
    BAD = auto()
    NOT_LOW_S = auto()  # valid ECDSA, but the twin that the protocol refuses


class BadKey(Rejected):
    """This is no public key of a curve that the protocol uses."""

    reason = "bad_key"


class PublicKey(ABC):
    """A key that verifies; two are equal when their `did_key` is."""

    __slots__ = ("did_key",)
    jose_algorithm: ClassVar[str]
    """What a JWT that it signed has as `alg`."""
    _ORDER: ClassVar[int]  # of the curve's group

    def __init__(self, codec: bytes, compressed_point: bytes) -> None:
        self.did_key: Final = _DID_KEY + libipld.encode_multibase("z", codec + compressed_point)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PublicKey) and self.did_key == other.did_key

    def __hash__(self) -> int:
        return hash(self.did_key)

    def __repr__(self) -> str:
        return f"PublicKey({self.did_key})"

    def verify(self, message: bytes, signature: bytes) -> SignatureVerdict:
        """Judge a 64-byte signature; any other length, DER too, is BAD."""
        if len(signature) != _SIGNATURE_BYTES:
            return SignatureVerdict.BAD
        r = int.from_bytes(signature[:32])
        s = int.from_bytes(signature[32:])
        low_s = min(s, self._ORDER - s)
        if low_s <= 0 or not self._matches(message, encode_dss_signature(r, low_s)):
            return SignatureVerdict.BAD
        return SignatureVerdict.GOOD if s == low_s else SignatureVerdict.NOT_LOW_S

    @abstractmethod
    def _matches(self, message: bytes, der_signature: bytes) -> bool:
        """Plain ECDSA with sha-256."""


class _K256Key(PublicKey):
    __slots__ = ("_key",)
    jose_algorithm = "ES256K"
    _ORDER = _K256_ORDER

    def __init__(self, point: bytes) -> None:
        try:
            self._key = coincurve.PublicKey(point)
        except ValueError as error:
            raise BadKey from error
        super().__init__(_K256_CODEC, self._key.format(compressed=True))

    def _matches(self, message: bytes, der_signature: bytes) -> bool:
        return self._key.verify(der_signature, message)


class _P256Key(PublicKey):
    __slots__ = ("_key",)
    jose_algorithm = "ES256"
    _ORDER = _P256_ORDER

    def __init__(self, point: bytes) -> None:
        try:
            self._key = ec.EllipticCurvePublicKey.from_encoded_point(_P256, point)
        except ValueError as error:
            raise BadKey from error
        super().__init__(_P256_CODEC, self._key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint))

    def _matches(self, message: bytes, der_signature: bytes) -> bool:
        try:
            self._key.verify(der_signature, message, _ECDSA_SHA256)
        except InvalidSignature:
            return False
        return True


def parse_did_key(text: str) -> PublicKey:
    """The key in a `did:key:z…`; raises BadKey."""
    if not text.startswith(_DID_KEY):
        raise BadKey
    return parse_multikey(text.removeprefix(_DID_KEY))


def parse_multikey(multibase: str) -> PublicKey:
    """The key in a `Multikey`'s `publicKeyMultibase`: base58btc of codec and compressed point; raises BadKey."""
    data = _decode_base58(multibase)
    codec, point = data[:2], data[2:]
    if len(point) != _COMPRESSED_POINT_BYTES:
        raise BadKey
    if codec == _K256_CODEC:
        return _K256Key(point)
    if codec == _P256_CODEC:
        return _P256Key(point)
    raise BadKey


def parse_verification_method(method_type: str, public_key_multibase: str) -> PublicKey:
    """The key in a DID document's `verificationMethod` entry; raises BadKey.

    Knows `Multikey` and the two legacy types, whose base58btc holds the bare point, compressed or not.
    """
    match method_type:
        case "Multikey":
            return parse_multikey(public_key_multibase)
        case "EcdsaSecp256k1VerificationKey2019":
            return _K256Key(_decode_legacy_point(public_key_multibase))
        case "EcdsaSecp256r1VerificationKey2019":
            return _P256Key(_decode_legacy_point(public_key_multibase))
        case _:
            raise BadKey


def _decode_legacy_point(multibase: str) -> bytes:
    point = _decode_base58(multibase)
    if len(point) not in (_COMPRESSED_POINT_BYTES, _UNCOMPRESSED_POINT_BYTES):
        raise BadKey
    return point


def _decode_base58(multibase: str) -> bytes:
    if not multibase.startswith("z") or len(multibase) > 128:  # the longest point takes 90; base58 is quadratic
        raise BadKey
    try:
        return libipld.decode_multibase(multibase)[1]
    except ValueError as error:
        raise BadKey from error
