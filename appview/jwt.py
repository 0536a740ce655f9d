"""JWTs as they come: taken apart, and their parts read in the one spelling that they have.

What any token of ours has to be is told here, whatever it is for: three parts of base64url without padding, flat JSON
in which every name stands once, one of the protocol's two algorithms, and times that make sense.
"""

from __future__ import annotations

import json
import math
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as NotBase64
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final, NoReturn, cast

from appview.refusals import BadJwt, BadJwtSignature, BadJwtType, JwtExpired
from memory.identifiers import is_did
from memory.signatures import PublicKey, SignatureVerdict

MAX_TOKEN_BYTES: Final = 4096
MAX_JTI_CHARS: Final = 256
CLOCK_SKEW: Final = timedelta(minutes=1)
"""So far ahead of ours may the clock be by which a token was signed."""

_MAX_BRACKETS: Final = 16  # every level of JSON takes one; header and claims have one each, and a key's thumbprint one
_SIGNATURE_BYTES: Final = 64
_ALGORITHMS: Final = ("ES256", "ES256K")
_BASE64URL: Final = re.compile(rb"[A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True, repr=False)
class SignedToken:
    """A token that holds if it is signed: `signature` of `signed`, by a key of `issuer` and by `algorithm`."""

    issuer: str  # the account's DID
    algorithm: str
    expires_at: datetime
    jti: str | None  # names the token among its issuer's
    signed: bytes
    signature: bytes

    def is_signed_by(self, key: PublicKey) -> bool:
        """Whether that key made the signature; of another curve than `algorithm` says, it did not."""
        return self.algorithm == key.jose_algorithm and key.verify(self.signed, self.signature) is SignatureVerdict.GOOD

    def jti_sha256(self) -> bytes | None:
        """What is kept of `jti`."""
        return None if self.jti is None else sha256(self.jti.encode("utf-8", "surrogatepass")).digest()


@dataclass(frozen=True, slots=True, repr=False)
class UnjudgedToken:
    """A token as it came, taken apart. `claims` are what it says, true or not; BadJwt: why they cannot be read."""

    claims: dict[str, object] | BadJwt
    header: bytes = b""  # encoded, as the signature is
    signed: bytes = b""
    signature: bytes = b""

    @property
    def claimed_issuer(self) -> str | None:
        """Whose it says it is; None if it says nothing of the kind."""
        issuer = None if isinstance(self.claims, BadJwt) else self.claims.get("iss")
        return issuer if isinstance(issuer, str) and is_did(issuer) else None

    def read(self) -> tuple[dict[str, object], dict[str, object]]:
        """Its header and its claims; raises BadJwt."""
        if isinstance(self.claims, BadJwt):
            raise self.claims
        return _read_json(self.header), self.claims

    def read_signature(self) -> bytes:
        """The 64 bytes of its signature; raises BadJwt and BadJwtSignature."""
        signature = _decode(self.signature)
        if len(signature) != _SIGNATURE_BYTES:
            raise BadJwtSignature(f"The JWT's signature must have {_SIGNATURE_BYTES} bytes.")
        return signature


def read_token(text: bytes) -> UnjudgedToken:
    """Take a token apart, whatever it is."""
    if len(text) > MAX_TOKEN_BYTES:
        return UnjudgedToken(BadJwt(f"A JWT may have {MAX_TOKEN_BYTES:,} bytes."))
    parts = text.split(b".")
    if len(parts) != 3:
        return UnjudgedToken(BadJwt("A JWT has three parts."))
    try:
        claims = _read_json(parts[1])
    except BadJwt as failure:
        return UnjudgedToken(failure)
    return UnjudgedToken(claims, parts[0], parts[0] + b"." + parts[1], parts[2])


def judge_header(header: dict[str, object], is_kind: Callable[[object], bool]) -> str:
    """The `alg`, if the `typ` is the right one; who has none is a JWT.

    Raises BadJwt, for extensions that the token demands too, BadJwtType and BadJwtSignature.
    """
    algorithm = header.get("alg")
    if not isinstance(algorithm, str):
        raise BadJwt("The JWT's header must have an alg.")
    # Other kinds of token are signed by the same keys: none of them is taken for this one.
    if not is_kind(header.get("typ", "JWT")):
        raise BadJwtType
    if "crit" in header:
        raise BadJwt("The JWT demands extensions that are not known here.")
    if algorithm not in _ALGORITHMS:
        raise BadJwtSignature("The JWT's alg must be ES256 or ES256K.")
    return algorithm


def judge_times(claims: dict[str, object], now: datetime, max_left: timedelta) -> datetime:
    """When the token expires, which is within `max_left`; raises BadJwt and JwtExpired unless it holds at `now`."""
    expires = judge_expiry(claims, now)
    if expires > now.timestamp() + max_left.total_seconds():
        raise BadJwt(f"The JWT must expire within {max_left.total_seconds():.0f} seconds.")
    return datetime.fromtimestamp(expires, UTC)


def judge_expiry(claims: dict[str, object], now: datetime) -> float:
    """When the token expires, in seconds since 1970; raises BadJwt and JwtExpired unless it holds at `now`."""
    expires = read_seconds(claims, "exp")
    if expires is None:
        raise BadJwt("The JWT must say when it expires.")
    seconds = now.timestamp()
    if expires <= seconds:
        raise JwtExpired
    issued, begins = read_seconds(claims, "iat"), read_seconds(claims, "nbf")
    latest = seconds + CLOCK_SKEW.total_seconds()
    if (issued is not None and issued > latest) or (begins is not None and begins > latest):
        raise BadJwt("The JWT does not hold yet.")
    if (issued is not None and issued > expires) or (begins is not None and begins > expires):
        raise BadJwt("The JWT never holds.")
    return expires


def read_jti(claims: dict[str, object]) -> str | None:
    """What names the token, if something does; raises BadJwt."""
    jti = claims.get("jti")
    if jti is None:
        return None
    if not isinstance(jti, str) or not 0 < len(jti) <= MAX_JTI_CHARS:
        raise BadJwt(f"The JWT's jti must be a string of 1 to {MAX_JTI_CHARS} characters.")
    return jti


def read_text(claims: dict[str, object], name: str) -> str:
    """A claim that is a string; raises BadJwt."""
    value = claims.get(name)
    if not isinstance(value, str):
        raise BadJwt(f"The JWT must have a string {name}.")
    return value


def read_seconds(claims: dict[str, object], name: str) -> float | None:
    """A claim that is a time, in seconds since 1970, if it is there; raises BadJwt."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadJwt(f"The JWT's {name} must be a number.")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not math.isfinite(seconds):
        raise BadJwt(f"The JWT's {name} is no time.")
    return seconds


def _read_json(part: bytes) -> dict[str, object]:
    text = _decode(part)
    if text.count(b"{") + text.count(b"[") > _MAX_BRACKETS:
        raise BadJwt("The JWT's header and claims must be flat.")
    try:
        value = json.loads(text.decode(), object_pairs_hook=_object, parse_constant=_refuse_constant)
    except ValueError:
        raise BadJwt("The JWT's header and claims must be JSON in UTF-8.") from None
    if not isinstance(value, dict):
        raise BadJwt("The JWT's header and claims must be objects.")
    return cast("dict[str, object]", value)


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise BadJwt("The JWT's header and claims must name everything once.")
    return members


def _refuse_constant(_: str) -> NoReturn:
    raise BadJwt("The JWT's header and claims must be JSON in UTF-8.")  # NaN and Infinity are not


def _decode(part: bytes) -> bytes:
    """Base64url without padding, in the one spelling that its bytes have."""
    try:
        data = urlsafe_b64decode(part + b"=" * (-len(part) % 4)) if _BASE64URL.fullmatch(part) else b""
    except NotBase64:
        data = b""
    if not data or urlsafe_b64encode(data).rstrip(b"=") != part:
        raise BadJwt("The JWT's parts must be base64url without padding.")
    return data
