"""Judges what an authority gives for a delegation token. No I/O."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, cast

from appview.jwt import SignedToken, judge_expiry, judge_header, read_jti, read_text, read_token
from appview.refusals import BadJwt, BadJwtIss
from memory.space import SpaceRef
from memory.space_authority import SpaceAuthority
from memory.space_protocol import (
    ACCOUNT_KEY_FRAGMENT,
    CREDENTIAL_LIFETIME_MAX,
    SPACE_KEY_FRAGMENT,
    TokenType,
)

_KEYS: Final = (SPACE_KEY_FRAGMENT, ACCOUNT_KEY_FRAGMENT)


class UnsignedCredential:
    """A credential that is in order but for its signature, and where that is to be checked."""

    __slots__ = ("_key_fragment", "_token")

    def __init__(self, token: SignedToken, key_fragment: str) -> None:
        self._token = token
        self._key_fragment = key_fragment

    @property
    def expires_at(self) -> datetime:
        """Until when it counts here."""
        return self._token.expires_at

    def is_signed_by(self, authority: SpaceAuthority) -> bool:
        """Whether the key that it names is in the authority's document, and made the signature."""
        key = authority.keys.get(self._key_fragment)
        return key is not None and self._token.is_signed_by(key)


def judge_credential(text: str, *, space: SpaceRef, jkt: str, now: datetime) -> UnsignedCredential:
    """The credential in `text`, if it is one for this Space, is bound to the key of that thumbprint, and holds.

    It counts for CREDENTIAL_LIFETIME_MAX, whatever it says beyond that. Raises AuthenticationRequired of some kind.
    """
    unjudged = read_token(text.encode("utf-8", "replace"))
    header, claims = unjudged.read()
    algorithm = judge_header(header, lambda kind: kind == TokenType.CREDENTIAL)
    expires = min(judge_expiry(claims, now), (now + CREDENTIAL_LIFETIME_MAX).timestamp())
    if read_text(claims, "iss") != space.authority:
        raise BadJwtIss("The credential's iss must be the Space's authority.")
    if read_text(claims, "sub") != str(space):
        raise BadJwt("The credential's sub must be the Space.")
    if _jkt(claims) != jkt:
        raise BadJwt("The credential must be bound to the key that asked for it.")
    token = SignedToken(
        space.authority,
        algorithm,
        datetime.fromtimestamp(expires, UTC),
        read_jti(claims),
        unjudged.signed,
        unjudged.read_signature(),
    )
    return UnsignedCredential(token, _key_fragment(header, space.authority))


def _jkt(claims: dict[str, object]) -> object:
    confirmed = claims.get("cnf")
    return cast("dict[str, object]", confirmed).get("jkt") if isinstance(confirmed, dict) else None


def _key_fragment(header: dict[str, object], authority: str) -> str:
    named = header.get("kid")
    for fragment in _KEYS:
        if named in (fragment, authority + fragment):
            return fragment
    raise BadJwt(f"The credential's kid must be {SPACE_KEY_FRAGMENT} or {ACCOUNT_KEY_FRAGMENT}.")
