"""openSpace, closeSpace and listGrants."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import orjson

from appview.access import require_access_token, require_viewer
from appview.call import Call, SpaceOpening
from appview.refusals import (
    AuthenticationRequired,
    InvalidRequest,
    InvalidToken,
    TooManyAccessTokens,
    TooManyGrants,
)
from appview.spaces.delegation import Delegation, judge_delegation
from appview.spaces.exchange import Opened
from appview.spaces.refusals import InvalidDelegationToken, SpaceDeleted, SpacesNotConfigured
from appview.store.access import add_access_token
from appview.store.grants import SealedCredential, add_grant, delete_grant, hold_token, is_held, put_deletion
from appview.store.grants import list_grants as load_grants
from appview.tokens import AccessToken, make_access_token
from appview.views import datetime_text
from memory.queries import Connection
from memory.space import SpaceRef, parse_space_uri

SHARE_WEIGHT: Final = 5
"""A fifth of what a viewer may open may be at one host: a fiftieth of how often an authority is asked."""

STRANGERS_WEIGHT: Final = 4
"""A quarter of how often an authority is asked may be for strangers, at one host in all."""

TOKEN_NAME: Final = "openSpace"  # noqa: S105 - what a viewer finds in the list of tokens, not one of them


async def open_space(call: Call) -> bytes:
    """Answer `openSpace`."""
    viewer = require_viewer(call.viewer)
    space = _space(call)
    text = _text(call, "delegationToken")
    opening = call.resources.opening
    if opening is None:
        raise SpacesNotConfigured
    asked_at = call.resources.clock()
    delegation = judge_delegation(text, viewer=viewer, space=space, now=asked_at)
    opened = await _exchange(call, opening, delegation)
    # A Space that was deleted since takes the grant along: one of the same name would be another.
    granted = await _grant(call, opening, delegation, opened, asked_at)
    answer = {"status": _status(ready=granted.ready), "expiresAt": datetime_text(granted.expires_at)}
    if granted.token is not None:
        answer["accessToken"] = granted.token.text
    return orjson.dumps(answer)


async def close_space(call: Call) -> bytes:
    """Answer `closeSpace`: the same, whether there was anything to close or not."""
    viewer = require_viewer(call.viewer)
    async with call.resources.database.transaction() as conn:
        await delete_grant(conn, viewer, str(_space(call)), token=call.viewer.token)
    return b"{}"


async def list_grants(call: Call) -> bytes:
    """Answer `listGrants`."""
    viewer, token = require_access_token(call.viewer)
    async with call.resources.database.connection() as conn:
        grants = await load_grants(conn, viewer, token, now=call.resources.clock())
    views = [
        {
            "space": grant.space,
            "status": _status(ready=grant.ready),
            "grantedAt": datetime_text(grant.granted_at),
            "expiresAt": datetime_text(grant.expires_at),
        }
        for grant in grants
    ]
    return orjson.dumps({"grants": views})


async def _exchange(call: Call, opening: SpaceOpening, delegation: Delegation) -> Opened:
    """What the authority gives for the token. Raise whatever it says, by its own name for it."""
    opening.viewers.take(delegation.viewer)
    try:
        await opening.issuers.require_signature(delegation.token, call.address)
    except AuthenticationRequired as fault:
        raise InvalidDelegationToken(f"The delegation token does not hold. {fault.message}") from None
    _take_turn(opening, delegation, await opening.exchange.host_of(delegation))
    try:
        return await opening.exchange.open(delegation)
    except SpaceDeleted:
        async with call.resources.database.connection() as conn:
            await put_deletion(conn, delegation.space)
        raise


def _take_turn(opening: SpaceOpening, delegation: Delegation, host: str) -> None:
    """Count a question to an authority, whose host others stand for too. Raise RateLimited if it is one too many.

    Anybody has any number of accounts, and of names for one host. So one viewer has a share of what is asked there, and
    all whom authorities did not let in have one together, so that they never take the turn of those who are.
    """
    authority, viewer = delegation.space.authority, delegation.viewer
    strangers = None if opening.exchange.has_let_in(delegation) else f"strangers {host}"
    opening.authorities.require(authority)  # who is refused for the sake of all is not counted for it
    opening.authorities.require(strangers)
    opening.viewers.take(f"{viewer} {host}", weight=SHARE_WEIGHT)
    opening.authorities.take(strangers, weight=STRANGERS_WEIGHT)
    opening.authorities.take(authority)


@dataclass(frozen=True, slots=True, repr=False)
class _Granted:
    token: AccessToken | None  # a new one
    expires_at: datetime
    ready: bool


async def _grant(
    call: Call, opening: SpaceOpening, delegation: Delegation, opened: Opened, asked_at: datetime
) -> _Granted:
    viewer, space, now = delegation.viewer, delegation.space, call.resources.clock()
    sealed = opened.credential.seal(opening.keys, space=str(space), viewer=viewer)
    credential = SealedCredential(sealed, opening.keys.current, opened.expires_at)
    made = make_access_token(viewer) if call.viewer.token is None else None
    token = call.viewer.token if made is None else made.id
    assert token is not None
    async with call.resources.database.transaction() as conn:
        if made is not None:
            await _keep(conn, made, created_at=now, expires_at=opened.expires_at)
        token_expires_at = await hold_token(conn, viewer, token, now=now)
        if token_expires_at is None:
            raise InvalidToken
        expires_at = min(opened.expires_at, token_expires_at)
        if not await add_grant(conn, viewer, token, space, credential, granted_at=asked_at, expires_at=expires_at):
            raise TooManyGrants
        ready = await is_held(conn, space)
    return _Granted(made, expires_at, ready)


async def _keep(conn: Connection, token: AccessToken, *, created_at: datetime, expires_at: datetime) -> None:
    if not await add_access_token(conn, token, TOKEN_NAME, created_at=created_at, expires_at=expires_at):
        raise TooManyAccessTokens


def _space(call: Call) -> SpaceRef:
    space = parse_space_uri(_text(call, "space"))
    if space is None:
        raise InvalidRequest("The parameter space must be a Space's at-uri.", param="space")
    return space


def _text(call: Call, name: str) -> str:
    text = call.parameters.text(name)
    if text is None:
        raise InvalidRequest(f"The parameter {name} is required.", param=name)
    return text


def _status(*, ready: bool) -> str:
    return "ready" if ready else "syncing"
