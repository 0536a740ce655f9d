"""getHistory: one page after another through observed versions, then replaced, then replacing memories."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import IntEnum
from itertools import takewhile
from typing import Protocol

import orjson

from appview.answers.asked import asked_key
from appview.answers.pages import fill_page
from appview.call import Call
from appview.keys import Key, uri_of
from appview.page_cursor import Place
from appview.refusals import InvalidCursor, RecordNotFound
from appview.store.history import (
    FIRST_REPLACED_PLACE,
    FIRST_REPLACING_PLACE,
    FIRST_VERSION_PLACE,
    ObservedVersion,
    Related,
    RelatedPlace,
    find_replaced,
    find_replacing,
    load_versions,
)
from appview.store.service import plan_anew
from appview.store.views import MAX_PAGE_BYTES, load_memories, load_memory
from appview.views import datetime_text, record_view, value_text
from memory.queries import Connection
from memory.space import ReadableSpaces


class _Part(IntEnum):
    """The lists that a history tells, in this order."""

    VERSIONS = 0
    REPLACED = 1
    REPLACING = 2


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a page begins: in which list, and behind which place of it."""

    part: _Part = _Part.VERSIONS
    version: int = FIRST_VERSION_PLACE
    related: RelatedPlace | None = None  # the beginning of its list

    def sealed(self) -> Place:
        """What a page cursor keeps of it."""
        related = None if self.related is None else [self.related.effective_at.isoformat(), self.related.rkey]
        return [self.part.value, self.version, related]


@dataclass(frozen=True, slots=True)
class _Room:
    """What still fits on the page."""

    entries: int
    max_bytes: int = MAX_PAGE_BYTES

    def without(self, views: Sequence[bytes]) -> _Room:
        """What fits beside these views."""
        left = self.max_bytes - sum(map(len, views))
        return _Room(self.entries - len(views) if left > 0 else 0, left)


class _FindRelated(Protocol):
    """`find_replaced` or `find_replacing`."""

    def __call__(
        self, conn: Connection, key: Key, *, after: RelatedPlace, limit: int, spaces: ReadableSpaces
    ) -> Awaitable[Related]: ...


@dataclass(frozen=True, slots=True)
class _RelatedViews:
    """A piece of one list of related memories. `next_after`: the place to go on behind, None at its end."""

    views: list[bytes]
    capped: bool
    next_after: RelatedPlace | None


async def get_history(call: Call) -> bytes:
    """Answer `getHistory`."""
    key = asked_key(call, "uri")
    spaces = call.viewer.spaces
    start = _read_start(call.open_cursor())
    room = _Room(call.parameters.integer("limit"))
    answer: dict[str, object] = {"uri": uri_of(key), "versions": [], "replaced": [], "replacedBy": []}
    async with call.resources.database.transaction(isolation="repeatable_read", readonly=True) as conn:
        await plan_anew(conn)
        memory = await load_memory(conn, key, spaces=spaces)
        if memory is None and not await _versions(conn, call, key, before=FIRST_VERSION_PLACE, limit=1):
            raise RecordNotFound
        if memory is not None and start == _Start():
            view = record_view(memory, as_of=None)
            answer["record"] = orjson.Fragment(view)
            room = replace(room, max_bytes=room.max_bytes - len(view))
        going_on: _Start | None = None
        if start.part is _Part.VERSIONS:
            # One more than is shown, here and below, to know whether the list goes on.
            found = await _versions(conn, call, key, before=start.version, limit=room.entries + 1)
            fitting = takewhile(lambda version: not version.is_beyond, found[: room.entries])
            versions, reached = fill_page(map(_version_view, fitting), max_bytes=room.max_bytes)
            answer["versions"] = [orjson.Fragment(version) for version in versions]
            if len(found) > reached:
                going_on = replace(start, version=found[reached - 1].number)
            room = room.without(versions)
        for part, name, find, beginning in _RELATED_PARTS:
            if going_on is None and start.part <= part:
                after = (start.related if start.part is part else None) or beginning
                piece = await _related_views(conn, find, key, after=after, room=room, spaces=spaces)
                answer[name] = [orjson.Fragment(view) for view in piece.views]
                if piece.capped:
                    answer["relatedCapped"] = True
                if piece.next_after is not None:
                    going_on = _Start(part, related=piece.next_after)
                room = room.without(piece.views)
    if going_on is not None:
        answer["cursor"] = call.seal_cursor(going_on.sealed())
    return orjson.dumps(answer)


async def _versions(conn: Connection, call: Call, key: Key, *, before: int, limit: int) -> list[ObservedVersion]:
    is_owner = call.viewer.did == key.repo
    return await load_versions(conn, key, before=before, limit=limit, is_owner=is_owner, spaces=call.viewer.spaces)


_RELATED_PARTS: tuple[tuple[_Part, str, _FindRelated, RelatedPlace], ...] = (
    (_Part.REPLACED, "replaced", find_replaced, FIRST_REPLACED_PLACE),
    (_Part.REPLACING, "replacedBy", find_replacing, FIRST_REPLACING_PLACE),
)


async def _related_views(
    conn: Connection, find: _FindRelated, key: Key, *, after: RelatedPlace, room: _Room, spaces: ReadableSpaces
) -> _RelatedViews:
    related = await find(conn, key, after=after, limit=room.entries + 1, spaces=spaces)
    places = related.places
    keys = [key._replace(rkey=place.rkey) for place in places[: room.entries]]
    memories = await load_memories(conn, keys, as_of=None, spaces=spaces)
    views = (None if memory is None else record_view(memory, as_of=None) for memory in memories)
    page, reached = fill_page(views, max_bytes=room.max_bytes)
    if len(places) <= reached:
        return _RelatedViews(page, related.capped, None)
    return _RelatedViews(page, related.capped, places[reached - 1] if reached else after)


def _version_view(version: ObservedVersion) -> bytes:
    view: dict[str, object] = {
        "version": version.number,
        "operation": version.operation,
        "observedAt": datetime_text(version.observed_at),
        "current": version.current,
    }
    if version.redacted_at is not None:
        view["redactedAt"] = datetime_text(version.redacted_at)
    if version.cid is not None:
        view["cid"] = version.cid
    if version.scope is not None:
        view["scope"] = version.scope
    view["contentBytes"] = version.content_bytes
    view["contentSha256"] = version.content_sha256.hex()
    if version.block is not None:
        view["value"] = orjson.Fragment(value_text(version.block))
    return orjson.dumps(view)


def _read_start(place: Place) -> _Start:
    match place:
        case None:
            return _Start()
        case [int(part), int(version), None]:
            return _Start(_Part(part), version)
        case [int(part), int(version), [str(effective_at), str(rkey)]]:
            return _Start(_Part(part), version, RelatedPlace(datetime.fromisoformat(effective_at), rkey))
        case _:
            raise InvalidCursor
