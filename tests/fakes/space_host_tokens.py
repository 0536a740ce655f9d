"""The tokens of Spaces as a Space host makes and judges them, and as their bearers make them, well or badly.

    key = DpopKey("mara")
    key.proof("GET", url, now, credential)                    # for a read
    key.proof("POST", url, now)                               # for a credential: without `ath`
    key.proof("GET", url, now, credential, htm="POST")        # not what was asked
    delegation_token(signer, did, space, now, aud="other")    # null: without it

What is not acceptable is refused as the reference does it, by name and in its words: `Refused`.
"""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import count
from typing import Any, Final, NoReturn, cast

import coincurve
import libipld
from coincurve.ecdsa import cdata_to_der, deserialize_compact
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature, encode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256

from tests.fakes.space_bytes import Signer

DELEGATION: Final = "atproto-space-delegation+jwt"
CREDENTIAL: Final = "atproto-space-credential+jwt"
ATTESTATION: Final = "atproto-client-attestation+jwt"
PROOF: Final = "dpop+jwt"
SERVICE_AUTH: Final = "JWT"

HOST: Final = "#atproto_space_host"
MINUTE: Final = 60
CREDENTIAL_S: Final = 2 * 60 * 60
SKEW_S: Final = 5

_K256: Final = b"\xe7\x01"


class Refused(Exception):
    """A request is not done."""

    def __init__(self, status: int, error: str, message: str, *headers: str) -> None:
        self.status = status
        self.error = error
        self.message = message
        self.headers = headers
        super().__init__(message)


@dataclass(frozen=True, slots=True)
class Token:
    """A JWT taken apart; nothing of it is believed yet."""

    text: str
    header: Mapping[str, Any]
    claims: Mapping[str, Any]

    @property
    def typ(self) -> object:
        return self.header.get("typ")

    def says(self, name: str) -> str:
        """A claim that is text, else nothing."""
        value = self.claims.get(name)
        return value if isinstance(value, str) else ""

    def seconds(self, name: str) -> int:
        value = self.claims.get(name)
        return value if isinstance(value, int) else 0

    def is_signed_by(self, did_key: str) -> bool:
        message, _, signature = self.text.rpartition(".")
        return verifies(did_key, message.encode(), _decoded(signature))


def read_token(text: str) -> Token:
    """Refused if it is none."""
    with suppress(ValueError, UnicodeDecodeError):
        header, claims, _ = text.split(".")
        parts = json.loads(_decoded(header)), json.loads(_decoded(claims))
        if all(isinstance(part, dict) for part in parts):
            return Token(text, *cast("tuple[dict[str, Any], dict[str, Any]]", parts))
    raise Refused(401, "BadJwt", "poorly formatted jwt")


def made_token(signer: Signer, header: Mapping[str, Any], claims: Mapping[str, Any]) -> str:
    """A signed JWT; what is null stays away."""
    given: list[bytes] = []
    for part in (header, claims):
        said = {name: value for name, value in part.items() if value is not None}
        given.append(_encoded(json.dumps(said, separators=(",", ":")).encode()))
    message = b".".join(given)
    return (message + b"." + _encoded(signer.sign(message))).decode()


def algorithm(did_key: str) -> str:
    return "ES256K" if _key_bytes(did_key).startswith(_K256) else "ES256"


def verifies(did_key: str, message: bytes, signature: bytes) -> bool:
    """Whether the key of a did:key made that signature of 64 bytes."""
    point = _key_bytes(did_key)
    if len(signature) != 64:
        return False
    if point.startswith(_K256):
        der = cdata_to_der(deserialize_compact(signature))
        return coincurve.PublicKey(point[2:]).verify(der, message)
    return _p256_verifies(ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point[2:]), message, signature)


# What bearers make


class DpopKey:
    """The P-256 key that a credential is bound to, always the same for a seed."""

    def __init__(self, seed: str | bytes) -> None:
        secret = hashlib.sha256(f"dpop {seed}".encode()).digest() if isinstance(seed, str) else seed
        self._key = ec.derive_private_key(int.from_bytes(secret), ec.SECP256R1())
        self._seed = seed
        self._numbers = count()
        point = self._key.public_key().public_numbers()
        self.jwk = {"kty": "EC", "crv": "P-256", "x": _coordinate(point.x), "y": _coordinate(point.y)}

    @property
    def jkt(self) -> str:
        return thumbprint(self.jwk)

    def sign(self, message: bytes) -> bytes:
        r, s = decode_dss_signature(self._key.sign(message, ec.ECDSA(SHA256())))
        return r.to_bytes(32) + s.to_bytes(32)

    def proof(
        self,
        method: str,
        url: str,
        now: datetime,
        credential: str | None = None,
        *,
        header: Mapping[str, Any] | None = None,
        **changes: Any,
    ) -> str:
        """A proof of this request; `changes` are of its claims."""
        jti = hashlib.sha256(f"{self._seed!r} {next(self._numbers)}".encode()).hexdigest()[:32]
        claims = {"jti": jti, "htm": method, "htu": url, "iat": int(now.timestamp())}
        if credential is not None:
            claims["ath"] = digest_of(credential)
        given = {"typ": PROOF, "alg": "ES256", "jwk": self.jwk} | dict(header or {})
        return made_token(cast("Signer", self), given, claims | changes)

    def attestation(self, client_id: str, authority: str, now: datetime, kid: str, **changes: Any) -> str:
        """What an app says of itself to a Space host that asks for it."""
        claims = {"iss": client_id, "sub": client_id, "aud": authority + HOST} | lasting(now, MINUTE)
        claims["jti"] = hashlib.sha256(f"attestation {self._seed!r} {next(self._numbers)}".encode()).hexdigest()[:32]
        return made_token(cast("Signer", self), {"typ": ATTESTATION, "alg": "ES256", "kid": kid}, claims | changes)


def lasting(now: datetime, seconds: int) -> dict[str, Any]:
    """From when until when."""
    return {"iat": int(now.timestamp()), "exp": int(now.timestamp()) + seconds}


def delegation_token(
    signer: Signer, user: str, space: str, now: datetime, jti: str, *, typ: str | None = DELEGATION, **changes: Any
) -> str:
    """What a user's PDS gives to whoever is to read a Space for them."""
    header = {"alg": algorithm(signer.did_key), "typ": typ, "kid": "#atproto"}
    claims = {"iss": user, "sub": space, "aud": authority_of(space) + HOST} | lasting(now, MINUTE) | {"jti": jti}
    return made_token(signer, header, claims | changes)


def service_token(signer: Signer, issuer: str, audience: str, method: str, now: datetime, jti: str) -> str:
    """Service auth, as hosts call each other and those who subscribed."""
    times = lasting(now, MINUTE)
    claims = {"iat": times["iat"], "iss": issuer, "aud": audience, "exp": times["exp"], "lxm": method, "jti": jti}
    return made_token(signer, {"typ": SERVICE_AUTH, "alg": algorithm(signer.did_key)}, claims)


def authority_of(space: str) -> str:
    return space.removeprefix("at://").partition("/")[0]


def digest_of(token: str) -> str:
    """`ath`."""
    return _encoded(hashlib.sha256(token.encode()).digest()).decode()


def thumbprint(jwk: Mapping[str, Any]) -> str:
    """`jkt`, by RFC 7638."""
    said = json.dumps({name: jwk[name] for name in ("crv", "kty", "x", "y")}, separators=(",", ":"))
    return digest_of(said)


# What a host judges


def judge_proof(text: str | None, method: str, url: str, now: datetime, *, credential: str | None) -> tuple[str, str]:
    """The thumbprint of the proof's key, and its `jti`. `credential` is null where one is asked for."""
    if text is None:
        raise Refused(401, "MissingDpopProof", "request requires a DPoP proof")
    try:
        proof = read_token(text)
    except Refused:
        _unverified("Invalid Compact JWS")
    key = _judge_signature(proof)
    _judge_age(proof, now)
    jti = proof.says("jti")
    if not jti:
        _bad('missing DPoP proof "jti"')
    if proof.claims.get("htm") != method:
        _bad('DPoP proof "htm" does not match the request')
    if proof.claims.get("htu") != url:
        _bad('DPoP proof "htu" does not match the request')
    if credential is None and "ath" in proof.claims:
        _bad('DPoP proof "ath" must be omitted when obtaining a credential')
    if credential is not None and proof.claims.get("ath") != digest_of(credential):
        _bad('DPoP proof "ath" does not match the credential')
    return key, jti


def _judge_signature(proof: Token) -> str:
    if proof.header.get("alg") != "ES256":
        _unverified('"alg" (Algorithm) Header Parameter value not allowed')
    try:
        jwk = cast("Mapping[str, Any]", proof.header["jwk"])
        message, _, signature = proof.text.rpartition(".")
        if not _p256_verifies(_p256(jwk), message.encode(), _decoded(signature)):
            _unverified("signature verification failed")
        key = thumbprint(jwk)
    except (KeyError, TypeError, ValueError):
        _unverified('"jwk" (JSON Web Key) Header Parameter must be a JSON object')
    if proof.typ != PROOF:
        _unverified('unexpected "typ" JWT header value')
    return key


def _judge_age(proof: Token, now: datetime) -> None:
    age_s = int(now.timestamp()) - proof.seconds("iat")
    if age_s > MINUTE + SKEW_S:
        message = 'DPoP proof is expired: "iat" claim timestamp check failed (too far in the past)'
        raise Refused(401, "DpopProofExpired", message)
    if age_s < -SKEW_S:
        _unverified('"iat" claim timestamp check failed (it should be in the past)')


def judge_expiry(token: Token, now: datetime) -> None:
    if int(now.timestamp()) > token.seconds("exp") + SKEW_S:
        raise Refused(401, "JwtExpired", "token expired")


def judge_key(token: Token, keys: Mapping[str, str]) -> None:
    """Whether the issuer signed it with the key that `kid` names; `keys` are those of its DID document, by fragment."""
    kid = str(token.header.get("kid"))
    key = keys.get(kid)
    if key is None:
        raise Refused(401, "BadJwtIss", f"missing or bad key ({kid}) in did doc: {token.says('iss')}")
    if not token.is_signed_by(key):
        raise Refused(401, "BadJwtSignature", "invalid token signature")


def judge_attestation(text: str, clients: Mapping[str, Mapping[str, Any]], authority: str, now: datetime) -> Token:
    """Whether an app is who it says. `clients`: by client id, the JWKs of each by `kid`."""
    try:
        token = read_token(text)
    except Refused:
        # As recorded: what is no JWT at all is an accident there.
        raise Refused(500, "InternalServerError", "Internal Server Error") from None
    client = token.says("iss")
    if client not in clients:
        message = f'Could not resolve client metadata for "{client}"'
        raise Refused(400, "InvalidClientAttestation", message)
    jwk = clients[client].get(str(token.header.get("kid")))
    message, _, signature = text.rpartition(".")
    if (
        jwk is None
        or token.typ != ATTESTATION
        or token.claims.get("sub") != client
        or token.claims.get("aud") != authority + HOST
        or int(now.timestamp()) > token.seconds("exp") + SKEW_S
        or not _p256_verifies(_p256(jwk), message.encode(), _decoded(signature))
    ):
        raise Refused(400, "InvalidClientAttestation", f'Invalid client attestation for "{client}"')
    return token


def _bad(message: str) -> NoReturn:
    raise Refused(401, "BadDpopProof", message)


def _unverified(message: str) -> NoReturn:
    raise Refused(401, "BadDpopProofSignature", f"could not verify DPoP proof: {message}")


def _key_bytes(did_key: str) -> bytes:
    return libipld.decode_multibase(did_key.removeprefix("did:key:"))[1]


def _p256(jwk: Mapping[str, Any]) -> ec.EllipticCurvePublicKey:
    return _p256_at(str(jwk["x"]), str(jwk["y"]))


@lru_cache(1000)
def _p256_at(x: str, y: str) -> ec.EllipticCurvePublicKey:
    at = (int.from_bytes(_decoded(x)), int.from_bytes(_decoded(y)))
    return ec.EllipticCurvePublicNumbers(*at, ec.SECP256R1()).public_key()


def _p256_verifies(key: ec.EllipticCurvePublicKey, message: bytes, signature: bytes) -> bool:
    with suppress(InvalidSignature):
        r, s = int.from_bytes(signature[:32]), int.from_bytes(signature[32:])
        key.verify(encode_dss_signature(r, s), message, ec.ECDSA(SHA256()))
        return True
    return False


def _coordinate(number: int) -> str:
    return _encoded(number.to_bytes(32)).decode()


def _encoded(data: bytes) -> bytes:
    return urlsafe_b64encode(data).rstrip(b"=")


def _decoded(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
