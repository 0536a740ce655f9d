"""getRecord and listRecords."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Final

import orjson

from appview.access import require_readable
from appview.answers.asked import asked_key, is_narrowed, read_filters, readable_spaces
from appview.answers.lists import ListPage, list_page, read_place, write_place
from appview.call import Call
from appview.refusals import InternalError, NotEnoughResources, RecordNotFound, SpaceNotReadable
from appview.store.grants import load_readable_spaces
from appview.store.lists import Order, Place
from appview.store.views import load_memory
from appview.views import datetime_text, record_view
from memory.errors import Unavailable

_STREAMED_PAGE_RECORDS: Final = 100
_STREAMED_PAGE_TIMEOUT_S: Final = 15  # less than an answer may take: there must be time left to say that it broke off


async def get_record(call: Call) -> bytes:
    """Answer `getRecord`."""
    key = asked_key(call, "uri")
    async with call.resources.database.connection() as conn:
        memory = await load_memory(conn, key, spaces=call.viewer.spaces)
    if memory is None:
        raise RecordNotFound
    return record_view(memory, as_of=None)


async def list_records(call: Call) -> bytes:
    """Answer `listRecords`."""
    after = read_place(call.open_cursor())
    async with call.resources.walk(narrowed=is_narrowed(call.parameters)):
        page = await _list_page(call, after, call.parameters.integer("limit"))
    answer: dict[str, object] = {"records": [orjson.Fragment(view) for view in page.views]}
    if page.goes_on_after is not None:
        answer["cursor"] = call.seal_cursor(write_place(page.goes_on_after))
    as_of = call.parameters.instant("asOf")
    if as_of is not None:
        answer["asOf"] = datetime_text(as_of)
    return orjson.dumps(answer)


async def stream_records(call: Call) -> AsyncIterator[bytes]:
    """Yield all that `listRecords` lists, from the cursor on, `limit` aside; holds no connection in between.

    Each piece but the last ends with a line that has the cursor to go on with. Where no more can be read, a line with
    `error` and `message` comes instead of the next piece, before the failure is raised; one with `error` is the last
    where the viewer may read a Space no more that they could when it began, for a stream may take hours.
    """
    page = await _streamed_page(call, read_place(call.open_cursor()))
    while page.goes_on_after is not None:
        yield _lines([*page.views, orjson.dumps({"cursor": call.seal_cursor(write_place(page.goes_on_after))})])
        try:
            await _require_the_same_spaces(call)
            page = await _streamed_page(call, page.goes_on_after)
        except SpaceNotReadable as refusal:
            yield _lines([_broken_off(refusal)])
            return
        except Exception as failure:
            yield _lines([_broken_off(failure)])
            raise
    if page.views:
        yield _lines(page.views)


async def _streamed_page(call: Call, after: Place | None) -> ListPage:
    async with asyncio.timeout(_STREAMED_PAGE_TIMEOUT_S), call.resources.streams:
        return await _list_page(call, after, _STREAMED_PAGE_RECORDS)


async def _require_the_same_spaces(call: Call) -> None:
    viewer = call.viewer
    if not viewer.spaces.spaces or viewer.did is None or viewer.token is None:
        return
    async with call.resources.database.connection() as conn:
        still = await load_readable_spaces(conn, viewer.did, viewer.token, now=call.resources.clock())
    require_readable(still, viewer.spaces.spaces)


def _lines(texts: Iterable[bytes]) -> bytes:
    return b"".join(text + b"\n" for text in texts)


def _broken_off(failure: Exception) -> bytes:
    match failure:
        case SpaceNotReadable():
            name = failure.error
        case Unavailable() | TimeoutError():
            name = NotEnoughResources.error
        case _:
            name = InternalError.error
    return orjson.dumps({"error": name, "message": "The list broke off here; it goes on from the last cursor."})


async def _list_page(call: Call, after: Place | None, limit: int) -> ListPage:
    spaces = readable_spaces(call)
    order = Order(call.parameters.text("order"))
    async with call.resources.database.connection() as conn:
        filters = await read_filters(conn, call.parameters)
        view = partial(record_view, as_of=filters.as_of)
        return await list_page(conn, order, filters, after=after, limit=limit, view=view, spaces=spaces)
