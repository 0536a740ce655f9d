"""Who asks, and which Spaces they may read: the one place that decides it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from appview.issuers import Issuers
from appview.jwt import SignedToken, UnjudgedToken, read_token
from appview.refusals import (
    AccessTokenRequired,
    AuthenticationRequired,
    BadJwt,
    BadJwtAudience,
    BadJwtSignature,
    InvalidRequest,
    InvalidToken,
    JwtReplayed,
    Refusal,
    ServiceAuthRequired,
    SpaceNotReadable,
)
from appview.representation import Headers
from appview.service_auth import judge_notification, judge_token
from appview.store.access import is_token_kept, use_service_token
from appview.store.grants import is_authority, load_readable_spaces
from appview.tokens import PREFIX, AccessToken, parse_access_token
from memory.database import Database
from memory.did_documents import is_resolvable
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


@dataclass(frozen=True, slots=True, repr=False)
class Credential:
    """What a request says of who asks, read once and not judged yet.

    `shown`: the token, or why what was sent is none. `claimed_did`: who it says asks, true or not, if it is one who
    could be asked for.
    """

    shown: AccessToken | UnjudgedToken | Refusal
    claimed_did: str | None = None


def read_credential(headers: Headers) -> Credential | None:
    """What the `Authorization` of a request says, of which there may be one; None: there is none, so anybody asks."""
    sent = [value for name, value in headers if name == b"authorization"]
    if not sent:
        return None
    first = _read_authorization(sent[0])
    if len(sent) > 1:
        # Whom the first names is still the one for whom its refusal counts.
        return Credential(InvalidRequest("There may be one Authorization header."), first.claimed_did)
    return first


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

    async def viewer(self, credential: Credential | None, address: str, lxm: str, *, acts: bool) -> Viewer:
        """Who asks for the method `lxm`, by what a request from `address` says of it; None: anybody.

        `acts`: the method is a procedure, for which a service-auth token is good once, and used up by this. Whatever
        does not hold is refused, never taken for nobody: by AuthenticationRequired or one of its kind, InvalidRequest,
        RateLimited or NotEnoughResources. Raises Unavailable without a database.
        """
        if credential is None:
            return ANYBODY
        match credential.shown:
            case AccessToken() as token:
                return await self._holder(token)
            case UnjudgedToken() as token:
                return await self._issuer(token, address, lxm, acts=acts)
            case Refusal() as refusal:
                raise refusal

    async def _holder(self, token: AccessToken) -> Viewer:
        now = self._clock()
        async with self._database.connection() as conn:
            if not await is_token_kept(conn, token, now=now):
                raise InvalidToken
            # Whatever is asked for: so nothing tells one Space that may not be read from another.
            spaces = await load_readable_spaces(conn, token.did, token.id, now=now)
        return Viewer(f"{token.did} {token.id}", spaces, token.did, token.id)

    async def _issuer(self, unjudged: UnjudgedToken, address: str, lxm: str, *, acts: bool) -> Viewer:
        if self._own_did is None:
            raise _no_did()
        token = judge_token(unjudged, own_did=self._own_did, lxm=lxm, now=self._clock())
        if acts:
            _require_jti(token)
        await self._issuers.require_signature(token, address)
        if acts:
            await self._use(token)
        # Service auth names an account, not an app: it never reads more than what is public.
        return Viewer(token.issuer, ReadableSpaces.public_only(), token.issuer)

    async def authority(self, credential: Credential, address: str, lxm: str) -> Viewer:
        """The authority of a Space that was opened here, which tells something by the method `lxm`.

        Nobody is looked up for the sake of another. Who has no such Space is told the same as whoever forges: which
        Spaces are opened here is no stranger's matter. Raises what `viewer` raises for service auth that does not hold.
        """
        if isinstance(credential.shown, Refusal):
            raise credential.shown
        if isinstance(credential.shown, AccessToken):
            raise ServiceAuthRequired
        if self._own_did is None:
            raise _no_did()
        token = judge_notification(credential.shown, own_did=self._own_did, lxm=lxm, now=self._clock())
        _require_jti(token)
        async with self._database.connection() as conn:
            known = await is_authority(conn, token.issuer)
        if not known:
            raise BadJwtSignature
        try:
            await self._issuers.require_signature(token, address)
        except Refusal:
            raise BadJwtSignature from None
        await self._use(token)
        return Viewer(token.issuer, ReadableSpaces.public_only(), token.issuer)

    async def _use(self, token: SignedToken) -> None:
        """Use up a token that is good once. Raise JwtReplayed if it was before."""
        jti_sha256 = _require_jti(token)
        async with self._database.connection() as conn:
            if not await use_service_token(conn, token.issuer, jti_sha256, expires_at=token.expires_at):
                raise JwtReplayed


def require_service_auth(viewer: Viewer) -> str:
    """The DID of a viewer whom service auth names. Raise AuthenticationRequired or ServiceAuthRequired for others."""
    if viewer.did is None:
        raise AuthenticationRequired
    if viewer.token is not None:
        raise ServiceAuthRequired
    return viewer.did


def require_viewer(viewer: Viewer) -> str:
    """The DID of whoever asks. Raise AuthenticationRequired where nobody is said to."""
    if viewer.did is None:
        raise AuthenticationRequired
    return viewer.did


def require_access_token(viewer: Viewer) -> tuple[str, str]:
    """The DID of a viewer and the id of their access token. Raise AuthenticationRequired or AccessTokenRequired."""
    did = require_viewer(viewer)
    if viewer.token is None:
        raise AccessTokenRequired
    return did, viewer.token


def require_readable(spaces: ReadableSpaces, asked: Iterable[str]) -> None:
    """Raise SpaceNotReadable unless every Space that was asked for may be read.

    The same for unknown, unindexed, expired and foreign Spaces: nothing tells them apart.
    """
    if not all(space in spaces for space in asked):
        raise SpaceNotReadable


def _require_jti(token: SignedToken) -> bytes:
    jti_sha256 = token.jti_sha256()
    if jti_sha256 is None:
        raise BadJwt("The JWT must have a jti, for it is good once.")
    return jti_sha256


def _no_did() -> BadJwtAudience:
    return BadJwtAudience("This server has no DID, so no JWT can be for it.")


def _read_authorization(authorization: bytes) -> Credential:
    if not authorization.strip():
        return Credential(AuthenticationRequired("The Authorization is empty."))
    scheme, _, text = authorization.strip().partition(b" ")
    text = text.strip()
    if scheme.lower() != _SCHEME or not text or len(authorization) > _MAX_HEADER_BYTES:
        return Credential(
            AuthenticationRequired("The Authorization must be Bearer, with a service-auth JWT or an access token.")
        )
    if text.startswith(PREFIX.encode()):
        token = parse_access_token(text.decode("ascii", "replace"))
        return Credential(InvalidToken()) if token is None else Credential(token, _if_resolvable(token.did))
    unjudged = read_token(text)
    return Credential(unjudged, _if_resolvable(unjudged.claimed_issuer))


def _if_resolvable(did: str | None) -> str | None:
    return did if did is not None and is_resolvable(did) else None
