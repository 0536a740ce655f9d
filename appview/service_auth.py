"""Service auth: the JWT by which an account, or its PDS on its behalf, says who asks.

What can be told from the token alone is told first, in constant work: nobody is looked up for a token that could not
hold whoever signed it. The order of the checks, and the names of the errors, are those of the reference server; this is
stricter in what it takes: every token has exactly one spelling here.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from appview.jwt import SignedToken, UnjudgedToken, judge_header, judge_times, read_jti, read_text
from appview.refusals import BadJwt, BadJwtAudience, BadJwtIss, BadJwtLexiconMethod
from memory.identifiers import is_did
from memory.service_did import APPVIEW_FRAGMENT
from memory.space_protocol import SYNCER_FRAGMENT

MAX_LIFETIME: Final = timedelta(hours=1)

_ACCOUNT_KEY: Final = "#atproto"


def judge_token(token: UnjudgedToken, *, own_did: str, lxm: str, now: datetime) -> SignedToken:
    """The token, if it is one for the method `lxm` of the service `own_did`, and holds at `now`.

    Only its signature is left to be checked. Raises BadJwt, BadJwtType, JwtExpired, BadJwtAudience,
    BadJwtLexiconMethod, BadJwtIss and BadJwtSignature.
    """
    audiences = (own_did, own_did + APPVIEW_FRAGMENT)
    return _judge(token, audiences, f"{own_did}, with {APPVIEW_FRAGMENT} or without", lxm, now)


def judge_notification(token: UnjudgedToken, *, own_did: str, lxm: str, now: datetime) -> SignedToken:
    """The same of a token for what follows Spaces, by the very name under which it asked to be told."""
    audience = own_did + SYNCER_FRAGMENT
    return _judge(token, (audience,), audience, lxm, now)


def _judge(token: UnjudgedToken, audiences: tuple[str, ...], named: str, lxm: str, now: datetime) -> SignedToken:
    header, claims = token.read()
    algorithm = judge_header(header, _is_service_auth)
    expires_at = judge_times(claims, now, MAX_LIFETIME)
    if read_text(claims, "aud") not in audiences:
        raise BadJwtAudience(f"The JWT's aud must be {named}.")
    if claims.get("lxm") != lxm:
        raise BadJwtLexiconMethod(f"The JWT's lxm must be {lxm}.")
    issuer = read_text(claims, "iss")
    _judge_issuer(issuer, header.get("kid"))
    return SignedToken(issuer, algorithm, expires_at, read_jti(claims), token.signed, token.read_signature())


def _is_service_auth(kind: object) -> bool:
    return isinstance(kind, str) and kind.upper() == "JWT"


def _judge_issuer(issuer: str, key_id: object) -> None:
    did, mark, _ = issuer.partition("#")
    if not is_did(did):
        raise BadJwtIss("The JWT's iss must be a DID.")
    if mark:
        # It speaks for one of its services, with another key than the account's: nothing here is for such.
        raise BadJwtIss("The JWT must be an account's own, its iss a DID without a service.")
    if key_id not in (None, _ACCOUNT_KEY, did + _ACCOUNT_KEY):
        raise BadJwt(f"The JWT must be signed by the account's key, {_ACCOUNT_KEY}.")
