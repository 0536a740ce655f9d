"""Stores themselves: the list, and one."""

from __future__ import annotations

from datetime import datetime
from typing import Final

import orjson

from appview.faces.stores.calls import ObjectNotFound, StoresCall, Window
from appview.faces.stores.ids import IdKind
from appview.faces.stores.views import store_object
from appview.refusals import InvalidCursor, InvalidRequest
from appview.store.stores import StoreFilters, StoreKey, StorePlace, find_store, list_stores, load_stores
from memory.queries import Connection

_NO_STORE: Final = "There is no such memory store, or none that may be looked into."


async def answer_stores(call: StoresCall) -> bytes:
    """A page of stores, newest first."""
    window = call.window()
    oldest, newest = call.asked.instant("created_at[gte]"), call.asked.instant("created_at[lte]")
    if oldest is not None and newest is not None and newest < oldest:
        raise InvalidRequest("created_at[lte] must not be before created_at[gte].", param="created_at[lte]")
    name = call.asked.text("name")
    filters = StoreFilters(
        include_archived=call.asked.flag("include_archived"),
        name_prefix=None if name is None else name.lower(),
        oldest=oldest,
        newest=newest,
    )
    spaces = call.viewer.spaces
    async with call.resources.walk(narrowed=bool(name)), call.resources.database.connection() as conn:
        place = await _place_of(conn, call, window)
        # One more than is shown, to know whether the list goes on.
        places = await list_stores(
            conn, filters, place=place, backward=window.backward, limit=window.limit + 1, spaces=spaces
        )
        shown = places[: window.limit]
        stores = await load_stores(conn, [place.key for place in shown], spaces=spaces)
    last = shown[-1] if len(places) > len(shown) else None
    goes_on_at = None if last is None else [last.first_indexed_at.isoformat(), last.repo, last.space]
    return call.page_of([store_object(store, call.ids) for store in stores], window, goes_on_at)


async def answer_store(call: StoresCall) -> bytes:
    """One store."""
    async with call.resources.database.connection() as conn:
        place = await _find(conn, call, call.store_id or "")
        keys = [] if place is None else [place.key]
        stores = await load_stores(conn, keys, spaces=call.viewer.spaces)
    if not stores:
        raise ObjectNotFound(_NO_STORE)
    return orjson.dumps(store_object(stores[0], call.ids))


async def require_store(conn: Connection, call: StoresCall) -> StoreKey:
    """The store that the path names, to look into it. Raise ObjectNotFound, also for an archived one."""
    place = await _find(conn, call, call.store_id or "", include_archived=False)
    if place is None:
        raise ObjectNotFound(_NO_STORE)
    return place.key


async def _find(
    conn: Connection, call: StoresCall, store_id: str, *, include_archived: bool = True
) -> StorePlace | None:
    hashes = call.ids.read(IdKind.STORE, store_id)
    if hashes is None:
        return None
    return await find_store(
        conn,
        public_hash=hashes.public,
        space_hash=hashes.keyed,
        include_archived=include_archived,
        spaces=call.viewer.spaces,
    )


async def _place_of(conn: Connection, call: StoresCall, window: Window) -> StorePlace | None:
    if window.anchor is not None:
        place = await _find(conn, call, window.anchor)
        if place is None:
            raise window.no_such_anchor()
        return place
    match window.sealed:
        case None:
            return None
        case [str(first_indexed_at), str(repo), str(space)]:
            return StorePlace(datetime.fromisoformat(first_indexed_at), repo, space)
        case _:
            raise InvalidCursor
