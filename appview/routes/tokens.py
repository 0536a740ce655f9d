"""createAccessToken, listAccessTokens and revokeAccessToken."""

from __future__ import annotations

from datetime import datetime, timedelta

import orjson

from appview.access import require_service_auth
from appview.call import Call
from appview.refusals import AccessTokenNotFound, InvalidRequest, TooManyAccessTokens
from appview.store.access import add_access_token, delete_access_token
from appview.store.access import list_access_tokens as load_access_tokens
from appview.store.grants import delete_grants_of_token
from appview.tokens import make_access_token
from appview.views import datetime_text


async def create_access_token(call: Call) -> bytes:
    """Answer `createAccessToken`."""
    viewer = require_service_auth(call.viewer)
    name = _text(call, "name")
    created_at = call.resources.clock()
    expires_at = created_at + timedelta(days=call.parameters.integer("expiresInDays"))
    token = make_access_token(viewer)
    async with call.resources.database.transaction() as conn:
        added = await add_access_token(conn, token, name, created_at=created_at, expires_at=expires_at)
    if not added:
        raise TooManyAccessTokens
    view = _view(token.id, name, created_at=created_at, expires_at=expires_at)
    return orjson.dumps({"accessToken": token.text, "token": view})


async def list_access_tokens(call: Call) -> bytes:
    """Answer `listAccessTokens`."""
    viewer = require_service_auth(call.viewer)
    async with call.resources.database.connection() as conn:
        tokens = await load_access_tokens(conn, viewer, now=call.resources.clock())
    views = [_view(token.id, token.name, created_at=token.created_at, expires_at=token.expires_at) for token in tokens]
    return orjson.dumps({"tokens": views})


async def revoke_access_token(call: Call) -> bytes:
    """Answer `revokeAccessToken`."""
    viewer = require_service_auth(call.viewer)
    token = _text(call, "id")
    async with call.resources.database.transaction() as conn:
        if not await delete_access_token(conn, viewer, token):
            raise AccessTokenNotFound
        await delete_grants_of_token(conn, viewer, token)
    return b"{}"


def _text(call: Call, name: str) -> str:
    text = call.parameters.text(name)
    if text is None:
        raise InvalidRequest(f"The parameter {name} is required.", param=name)
    return text


def _view(token_id: str, name: str, *, created_at: datetime, expires_at: datetime) -> dict[str, object]:
    return {
        "id": token_id,
        "name": name,
        "createdAt": datetime_text(created_at),
        "expiresAt": datetime_text(expires_at),
    }
