"""notifyWrite and notifySpaceDeleted: what authorities tell of their Spaces, as hints.

They are answered at once, and acted on by the indexer, which asks for itself: what is told needs not be true.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Final, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from appview.access import Viewer, require_viewer
from appview.call import Resources
from appview.refusals import Forbidden, InvalidRequest
from appview.store.grants import ToldWrite, put_deletion, put_write
from memory.did_documents import is_resolvable
from memory.identifiers import is_tid
from memory.space import SpaceRef, parse_space_uri
from memory.space_protocol import HASH_BYTES, SpaceMethod

MAX_SPACE_CHARS: Final = 1_200
MAX_DID_CHARS: Final = 300  # of accounts: a host name has 253 letters at most

_Text = Annotated[str, StringConstraints(strict=True, max_length=MAX_SPACE_CHARS)]
_Did = Annotated[str, StringConstraints(strict=True, max_length=MAX_DID_CHARS)]


class _Notice(BaseModel):
    """The draft may gain fields: others are ignored."""

    model_config = ConfigDict(hide_input_in_errors=True)
    space: _Text


class _Bytes(BaseModel):
    """Bytes in the protocol's JSON."""

    model_config = ConfigDict(hide_input_in_errors=True)
    base64: Annotated[_Text, Field(alias="$bytes")]


class _Write(_Notice):
    repo: _Did
    rev: _Text
    hash: _Bytes


_Read = TypeVar("_Read", bound=_Notice)

Hear: TypeAlias = Callable[[Resources, Viewer, bytes], Awaitable[None]]
"""Takes in what an authority says, as the body of its call. Raises Refusal."""


async def hear_write(resources: Resources, authority: Viewer, body: bytes) -> None:
    """Take in a `notifyWrite`."""
    notice = _read(_Write, body)
    space = _governed(notice, authority)
    if not is_resolvable(notice.repo):
        raise _invalid("repo")
    if not is_tid(notice.rev):
        raise _invalid("rev")
    told = ToldWrite(notice.repo, notice.rev, _hash(notice.hash))
    async with resources.database.connection() as conn:
        await put_write(conn, space, told)


async def hear_deletion(resources: Resources, authority: Viewer, body: bytes) -> None:
    """Take in a `notifySpaceDeleted`."""
    space = _governed(_read(_Notice, body), authority)
    async with resources.database.connection() as conn:
        await put_deletion(conn, space)


NOTICES: Final[Mapping[str, Hear]] = {
    SpaceMethod.NOTIFY_WRITE.value: hear_write,
    SpaceMethod.NOTIFY_SPACE_DELETED.value: hear_deletion,
}
"""By NSID."""


def _read(kind: type[_Read], body: bytes) -> _Read:
    try:
        return kind.model_validate_json(body)
    except ValidationError as failure:
        place = failure.errors(include_url=False, include_context=False, include_input=False)[0]["loc"]
        if not place:
            raise InvalidRequest("The body must be one JSON object.") from None
        raise _invalid(str(place[0])) from None


def _governed(notice: _Notice, authority: Viewer) -> SpaceRef:
    """The Space that is told of, if it is the caller's to tell of."""
    did = require_viewer(authority)
    space = parse_space_uri(notice.space)
    if space is None:
        raise _invalid("space")
    if space.authority != did:
        raise Forbidden
    return space


def _hash(told: _Bytes) -> bytes:
    text = told.base64.rstrip("=")
    try:
        digest = b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        digest = b""
    if len(digest) != HASH_BYTES:
        raise _invalid("hash")
    return digest


def _invalid(name: str) -> InvalidRequest:
    return InvalidRequest(f"The field {name} is missing or malformed.", param=name)
