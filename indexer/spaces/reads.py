"""What is read of Spaces, with whichever credential their hosts take.

Any live credential of a Space reads all of it. One that is refused is no word on the Space: the next is tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar, cast

import orjson

from indexer.spaces.hosts import SpaceHosts
from indexer.store.spaces import Listed
from indexer.verify.space_commit import json_bytes
from indexer.verify.space_oplog import OpsPage, parse_ops_page
from indexer.verify.space_reasons import SpaceRefusal
from memory.datetimes import parse_datetime
from memory.errors import Rejected, Unavailable
from memory.identifiers import is_did, is_tid
from memory.outbound_errors import HostRefused, HostUnavailable
from memory.space_credential import SpaceCredential
from memory.space_protocol import HASH_BYTES, PAGE_ITEMS_MAX, SpaceError, SpaceMethod

MAX_LISTING_PAGES: Final = 50
PAGES_S: Final = 300.0  # that all pages of a list may take: each may come as slowly as one may
_UNAUTHORIZED: Final = 401
_OF_THE_CREDENTIAL: Final = (SpaceError.INVALID_CREDENTIAL, SpaceError.INVALID_TOKEN)
_INACTIVE: Final[Mapping[str, str]] = {
    SpaceError.REPO_DEACTIVATED: "deactivated",
    SpaceError.REPO_TAKENDOWN: "takendown",
    SpaceError.REPO_SUSPENDED: "suspended",
}

_Result = TypeVar("_Result")


class SpaceGone(Rejected):
    """The authority deleted the Space."""

    reason = "space_deleted"


class CredentialsRefused(Unavailable):
    """None of the credentials that are kept is taken."""


class NoCredential(Unavailable):
    """No credential of the Space holds at the moment."""


class RepoAbsent(Rejected):
    """The author's host holds no such repo."""

    reason = "repo_not_found"


class AccountInactive(Rejected):
    """The author's host does not serve the account."""

    reason = "account_inactive"

    def __init__(self, status: str) -> None:
        self.status = status
        super().__init__(status=status)


class ListingTooLong(Rejected):
    """A listing has no end, or more pages than are read."""

    reason = "listing_too_long"


@dataclass(frozen=True, slots=True, repr=False)
class SpaceReads:
    """Reads one Space; raises NoCredential, CredentialsRefused, SpaceGone, and what hosts raise."""

    hosts: SpaceHosts
    space: str
    credentials: Sequence[SpaceCredential]

    async def list_repos(self, host: str) -> dict[str, Listed]:
        """All writers; raises Rejected(malformed_page) and ListingTooLong."""
        try:
            async with asyncio.timeout(PAGES_S):
                return await self._list_repos(host)
        except TimeoutError:
            raise HostUnavailable(f"{host} takes too long to list", host=host) from None

    async def _list_repos(self, host: str) -> dict[str, Listed]:
        listed: dict[str, Listed] = {}
        cursor: str | None = None
        for _ in range(MAX_LISTING_PAGES):
            parameters: dict[str, str | int] = {"space": self.space, "limit": PAGE_ITEMS_MAX}
            if cursor is not None:
                parameters["cursor"] = cursor
            body = await self._first(
                lambda credential, given=parameters: self.hosts.get(host, SpaceMethod.LIST_REPOS, credential, given)
            )
            page, cursor = parse_listing(body)
            before = len(listed)
            listed |= {each.author: each for each in page}
            if cursor is None:
                return listed
            if len(listed) == before:  # nothing new, and yet it goes on
                raise ListingTooLong
        raise ListingTooLong

    async def list_ops(self, host: str, author: str, since: str, cursor: str | None) -> OpsPage:
        """A page of what happened in an author's repo; raises AccountInactive, RepoAbsent, as `parse_ops_page`."""
        parameters: dict[str, str | int] = {
            "space": self.space,
            "repo": author,
            "since": since,
            "limit": PAGE_ITEMS_MAX,
        }
        if cursor is not None:
            parameters["cursor"] = cursor
        body = await self._first(
            lambda credential: self.hosts.get(host, SpaceMethod.LIST_REPO_OPS, credential, parameters)
        )
        return parse_ops_page(body)

    @asynccontextmanager
    async def repo(self, host: str, author: str) -> AsyncGenerator[AsyncIterator[bytes]]:
        """A whole repo as a CAR that nobody checked yet; raises AccountInactive, RepoAbsent."""
        parameters: dict[str, str | int] = {"space": self.space, "repo": author}
        async with AsyncExitStack() as opened:
            yield await self._first(
                lambda credential: opened.enter_async_context(
                    self.hosts.stream(host, SpaceMethod.GET_REPO, credential, parameters)
                )
            )

    async def register(self, host: str, service: str) -> datetime:
        """Has the Space's host tell `service` of writes; until when. Raises Rejected(malformed_page)."""
        given = {"space": self.space, "service": service}
        body = await self._first(
            lambda credential: self.hosts.post(host, SpaceMethod.REGISTER_NOTIFY, credential, given)
        )
        return parse_registration(body)

    async def _first(self, ask: Callable[[SpaceCredential], Awaitable[_Result]]) -> _Result:
        """What the first credential gets that is taken."""
        if not self.credentials:
            raise NoCredential
        for credential in self.credentials:
            try:
                return await ask(credential)
            except HostRefused as refused:
                if not _is_of_credential(refused):
                    raise _judged(refused) from None
        raise CredentialsRefused


def parse_listing(body: bytes) -> tuple[list[Listed], str | None]:
    """A page of writers, and where the next begins; raises Rejected(malformed_page)."""
    fields = _object(body)
    repos, cursor = fields.get("repos"), fields.get("cursor")
    if not isinstance(repos, list) or len(entries := cast(list[Any], repos)) > PAGE_ITEMS_MAX:
        raise Rejected(reason=SpaceRefusal.MALFORMED_PAGE)
    if cursor is not None and not (isinstance(cursor, str) and cursor):
        raise Rejected(reason=SpaceRefusal.MALFORMED_PAGE)
    return [_listed(entry) for entry in entries], cursor


def parse_registration(body: bytes) -> datetime:
    """Until when it holds; raises Rejected(malformed_page)."""
    text = _object(body).get("expiresAt")
    found = parse_datetime(text) if isinstance(text, str) else None
    if found is None:
        raise Rejected(reason=SpaceRefusal.MALFORMED_PAGE)
    return found


def is_standing(author: object, rev: object, digest: bytes | None) -> bool:
    """Whether these can be where a repo stands."""
    named = isinstance(author, str) and is_did(author) and isinstance(rev, str) and is_tid(rev)
    return named and digest is not None and len(digest) == HASH_BYTES


def _listed(entry: Any) -> Listed:
    match entry:
        case {"did": str() as author, "rev": str() as rev, "hash": value}:
            digest = json_bytes(value)
        case _:
            raise Rejected(reason=SpaceRefusal.MALFORMED_PAGE)
    if not is_standing(author, rev, digest):
        raise Rejected(reason=SpaceRefusal.MALFORMED_PAGE)
    return Listed(author, rev, digest)


def _object(body: bytes) -> dict[str, Any]:
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise Rejected(reason=SpaceRefusal.MALFORMED_PAGE) from None
    if not isinstance(found, dict):
        raise Rejected(reason=SpaceRefusal.MALFORMED_PAGE)
    return cast(dict[str, Any], found)


def _is_of_credential(refused: HostRefused) -> bool:
    return refused.status == _UNAUTHORIZED or refused.error in _OF_THE_CREDENTIAL


def _judged(refused: HostRefused) -> Rejected:
    if refused.error == SpaceError.SPACE_DELETED:
        return SpaceGone()
    if refused.error == SpaceError.REPO_NOT_FOUND:
        return RepoAbsent()
    if refused.error in _INACTIVE:
        return AccountInactive(_INACTIVE[refused.error])
    return refused
