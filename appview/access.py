"""Who asks, and which Spaces they may read: the one place that decides it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from appview.issuers import Issuers
from appview.refusals import (
    AuthenticationRequired,
    BadJwt,
    BadJwtAudience,
    InvalidToken,
    JwtReplayed,
    ServiceAuthRequired,
    SpaceNotReadable,
)
from appview.service_auth import claimed_issuer, judge_token
from appview.store.access import is_token_kept, use_service_token
from appview.tokens import PREFIX, AccessToken, parse_access_token
from memory.database import Database
from memory.resolver import is_resolvable
from memory.space import ReadableSpaces

_MAX_HEADER_BYTES: Final = 8192
_SCHEME: Final = b"bearer"


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who asks. `id` tells viewers apart in page cursors; nobody in particular has '', and no `did`.

    `token`: the id of the access token that says so; None: service auth does, or nobody is said to ask.
    """

    id: str
    spaces: ReadableSpaces
    did: str | None = None
    token: str | None = None


ANYBODY: Final = Viewer("", ReadableSpaces.public_only())
"""A viewer without credentials: reads what is public."""


class Access:
    """Finds out who asks by what a request says of it."""

    def __init__(
        self, database: Database, issuers: Issuers, *, own_did: str | None, clock: Callable[[], datetime]
    ) -> None:
        """`own_did`: whom tokens must be for; None: nobody can know it, so only access tokens hold."""
        self._database = database
        self._issuers = issuers
        self._own_did = own_did
        self._clock = clock

    async def viewer(self, authorization: bytes, address: str, lxm: str, *, acts: bool) -> Viewer:
        """Who asks for the method `lxm`, by the `Authorization` of a request from `address`; b"": anybody.

        `acts`: the method is a procedure, for which a service-auth token is good once, and used up by this. Whatever
        does not hold is refused, never taken for nobody: by AuthenticationRequired or one of its kind, RateLimited or
        NotEnoughResources. Raises Unavailable without a database.
        """
        if not authorization:
            return ANYBODY
        credential = _bearer_credential(authorization)
        if credential.startswith(PREFIX.encode()):
            return await self._holder(parse_access_token(credential.decode("ascii", "replace")))
        return await self._issuer(credential, address, lxm, acts=acts)

    async def _holder(self, token: AccessToken | None) -> Viewer:
        if token is None:
            raise InvalidToken
        async with self._database.connection() as conn:
            if not await is_token_kept(conn, token, now=self._clock()):
                raise InvalidToken
        # Here the Spaces enter that were granted to this very token, of an account that is active.
        return Viewer(f"{token.did} {token.id}", ReadableSpaces.public_only(), token.did, token.id)

    async def _issuer(self, credential: bytes, address: str, lxm: str, *, acts: bool) -> Viewer:
        if self._own_did is None:
            raise BadJwtAudience("This server has no DID, so no JWT can be for it.")
        token = judge_token(credential, own_did=self._own_did, lxm=lxm, now=self._clock())
        jti_sha256 = token.jti_sha256()
        if acts and jti_sha256 is None:
            raise BadJwt("The JWT must have a jti, for it is good once.")
        await self._issuers.require_signature(token, address)
        if acts and jti_sha256 is not None:
            async with self._database.connection() as conn:
                if not await use_service_token(conn, token.issuer, jti_sha256, expires_at=token.expires_at):
                    raise JwtReplayed
        # Service auth names an account, not an app: it never reads more than what is public.
        return Viewer(token.issuer, ReadableSpaces.public_only(), token.issuer)


def claimed_did(authorization: bytes) -> str | None:
    """Who an `Authorization` says asks, true or not, if it is one who could be asked for."""
    try:
        credential = _bearer_credential(authorization)
    except AuthenticationRequired:
        return None
    if credential.startswith(PREFIX.encode()):
        token = parse_access_token(credential.decode("ascii", "replace"))
        did = None if token is None else token.did
    else:
        did = claimed_issuer(credential)
    return did if did is not None and is_resolvable(did) else None


def require_service_auth(viewer: Viewer) -> str:
    """The DID of a viewer whom service auth names. Raise AuthenticationRequired or ServiceAuthRequired for others."""
    if viewer.did is None:
        raise AuthenticationRequired
    if viewer.token is not None:
        raise ServiceAuthRequired
    return viewer.did


def require_readable(spaces: ReadableSpaces, asked: Iterable[str]) -> None:
    """Raise SpaceNotReadable unless every Space that was asked for may be read.

    The same for unknown, unindexed, expired and foreign Spaces: nothing tells them apart.
    """
    if not all(space in spaces for space in asked):
        raise SpaceNotReadable


def _bearer_credential(authorization: bytes) -> bytes:
    scheme, _, credential = authorization.strip().partition(b" ")
    credential = credential.strip()
    if scheme.lower() != _SCHEME or not credential or len(authorization) > _MAX_HEADER_BYTES:
        raise AuthenticationRequired("The Authorization must be Bearer, with a service-auth JWT or an access token.")
    return credential
