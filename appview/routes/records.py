"""getRecord and listRecords."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import orjson

from appview.access import require_readable
from appview.call import Call
from appview.keys import Key, key_of
from appview.refusals import InvalidCursor, InvalidRequest, RecordNotFound
from appview.routes.pages import fill_page, read_filters, readable_spaces
from appview.store.lists import Order, Place, list_places, start_of
from appview.store.views import load_memories
from appview.views import datetime_text, record_view

_STREAMED_PAGE_RECORDS: Final = 100


async def get_record(call: Call) -> bytes:
    """Answer `getRecord`."""
    key = asked_key(call, "uri")
    async with call.resources.database.connection() as conn:
        loaded = await load_memories(conn, [key], as_of=None, spaces=call.viewer.spaces)
    if not loaded or loaded[0] is None:
        raise RecordNotFound
    return record_view(loaded[0], as_of=None)


def asked_key(call: Call, name: str) -> Key:
    """The memory that a parameter names. Raise SpaceNotReadable, or RecordNotFound for what can be no memory."""
    uri = call.parameters.record_uri(name)
    if uri is None:
        raise InvalidRequest(f"The parameter {name} is required.")
    require_readable(call.viewer.spaces, [uri.space_uri])
    key = key_of(uri)
    if key is None:
        raise RecordNotFound
    return key


async def list_records(call: Call) -> bytes:
    """Answer `listRecords`."""
    page = await _list_page(call, _read_place(call), call.parameters.integer("limit"))
    answer: dict[str, object] = {"records": [orjson.Fragment(view) for view in page.views]}
    if page.goes_on_after is not None:
        answer["cursor"] = _seal_place(call, page.goes_on_after)
    as_of = call.parameters.instant("asOf")
    if as_of is not None:
        answer["asOf"] = datetime_text(as_of)
    return orjson.dumps(answer)


async def stream_records(call: Call) -> AsyncIterator[bytes]:
    """Yield all that `listRecords` lists, from the cursor on, `limit` aside; holds no connection in between."""
    after = _read_place(call)
    while True:
        page = await _list_page(call, after, _STREAMED_PAGE_RECORDS)
        if page.views:
            yield b"".join(view + b"\n" for view in page.views)
        if page.goes_on_after is None:
            return
        after = page.goes_on_after


@dataclass(frozen=True, slots=True, repr=False)
class _ListPage:
    """Views of some records, and the place to go on behind; None at the end of the list."""

    views: list[bytes]
    goes_on_after: Place | None


async def _list_page(call: Call, after: Place | None, limit: int) -> _ListPage:
    spaces = readable_spaces(call)
    order = Order(call.parameters.text("order"))
    async with call.resources.database.connection() as conn:
        filters = await read_filters(conn, call.parameters)
        after = after or start_of(order, filters.as_of)
        # One more than is shown, to know whether the list goes on.
        places = await list_places(conn, order, filters, after=after, limit=limit + 1, spaces=spaces)
        keys = [place.key for place in places[:limit]]
        memories = await load_memories(conn, keys, as_of=filters.as_of, spaces=spaces)
    views = (None if memory is None else record_view(memory, as_of=filters.as_of) for memory in memories)
    page, reached = fill_page(views)
    return _ListPage(page, places[reached - 1] if len(places) > reached else None)


def _seal_place(call: Call, place: Place) -> str:
    return call.seal_cursor([place.dated, place.sort_at.isoformat(), place.repo, place.rkey, place.space])


def _read_place(call: Call) -> Place | None:
    match call.open_cursor():
        case None:
            return None
        case [bool(dated), str(sort_at), str(repo), str(rkey), str(space)]:
            return Place(dated, datetime.fromisoformat(sort_at), repo, rkey, space)
        case _:
            raise InvalidCursor
