"""Delegation tokens: the word of a viewer's PDS, to a Space's authority, that this app asks for the viewer.

Whether the viewer may read the Space is the authority's to say, and whether the token was used before too, for only the
authority sees all that is made of it. Everything else is told here, before the authority is asked: that the token is
this viewer's, for this Space, so that nobody opens a Space with another's token; that it is a delegation token at all,
and holds, so that nobody has us carry something else to a host of their choice. Who signed it can be told as soon as
the viewer's key is known (`is_signed_by`): not every authority can be trusted to have looked.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from appview.jwt import (
    CLOCK_SKEW,
    SignedToken,
    judge_header,
    judge_times,
    read_jti,
    read_text,
    read_token,
)
from appview.refusals import AuthenticationRequired, BadJwtType
from appview.spaces.refusals import InvalidDelegationToken
from memory.signatures import PublicKey
from memory.space import SpaceRef
from memory.space_protocol import ACCOUNT_KEY_FRAGMENT, DELEGATION_LIFETIME, TokenType, space_host_audience

_MAX_LEFT: Final = DELEGATION_LIFETIME + CLOCK_SKEW


@dataclass(frozen=True, slots=True, repr=False)
class Delegation:
    """A delegation token that holds if its viewer's PDS signed it, and was not used before."""

    viewer: str
    space: SpaceRef
    text: str  # as it is shown to the authority
    token: SignedToken

    def is_signed_by(self, key: PublicKey) -> bool:
        """Whether that key made the signature."""
        return self.token.is_signed_by(key)


def judge_delegation(text: str, *, viewer: str, space: SpaceRef, now: datetime) -> Delegation:
    """The delegation token in `text`, if it is this viewer's, for this Space, and holds at `now`.

    Its signature is left to be checked. Raises InvalidDelegationToken.
    """
    try:
        token = _judge(text, viewer, space, now)
    except BadJwtType:
        raise InvalidDelegationToken(f"The delegation token's typ must be {TokenType.DELEGATION}.") from None
    except AuthenticationRequired as fault:
        # By another name than that of service auth, which this request may have come with too, and which is in order.
        raise InvalidDelegationToken(f"The delegation token does not hold. {fault.message}") from None
    return Delegation(viewer, space, text, token)


def _judge(text: str, viewer: str, space: SpaceRef, now: datetime) -> SignedToken:
    unjudged = read_token(text.encode("utf-8", "replace"))
    header, claims = unjudged.read()
    algorithm = judge_header(header, lambda kind: kind == TokenType.DELEGATION)
    expires_at = judge_times(claims, now, _MAX_LEFT)
    if header.get("kid") not in (ACCOUNT_KEY_FRAGMENT, viewer + ACCOUNT_KEY_FRAGMENT):
        raise InvalidDelegationToken(f"The delegation token's kid must be {ACCOUNT_KEY_FRAGMENT}.")
    if read_text(claims, "iss") != viewer:
        raise InvalidDelegationToken("The delegation token's iss must be the viewer.")
    if read_text(claims, "sub") != str(space):
        raise InvalidDelegationToken("The delegation token's sub must be the Space.")
    if read_text(claims, "aud") != space_host_audience(space.authority):
        raise InvalidDelegationToken("The delegation token's aud must be the Space's host.")
    jti = read_jti(claims)
    if jti is None:
        raise InvalidDelegationToken("The delegation token must have a jti, for it is good once.")
    return SignedToken(viewer, algorithm, expires_at, jti, unjudged.signed, unjudged.read_signature())
