"""The memories of a store: the list, and one."""

from __future__ import annotations

from datetime import datetime

import orjson

from appview.faces.stores.calls import ObjectNotFound, StoresCall, Window
from appview.faces.stores.ids import IdKind
from appview.faces.stores.stores import require_store
from appview.faces.stores.views import memory_object
from appview.refusals import InvalidCursor
from appview.store.store_contents import (
    EntryFilters,
    EntryPlace,
    FoundMemory,
    find_memory,
    list_entries,
    load_entries,
)
from appview.store.stores import StoreKey
from memory.queries import Connection


async def answer_memories(call: StoresCall) -> bytes:
    """A page of a store's memories, latest in effect first, without their contents."""
    window = call.window()
    filters = EntryFilters(call.asked.flag("include_superseded"), call.asked.text("path_prefix"))
    spaces = call.viewer.spaces
    async with (
        call.resources.walk(narrowed=bool(filters.path_prefix)),
        call.resources.database.connection() as conn,
    ):
        store = await require_store(conn, call)
        place = await _place_of(conn, call, store, window)
        places = await list_entries(
            conn, store, filters, place=place, backward=window.backward, limit=window.limit + 1, spaces=spaces
        )
        rkeys = [place.rkey for place in places[: window.limit]]
        entries, reached = await load_entries(conn, store, rkeys, with_records=False, spaces=spaces)
    goes_on_at = None
    if reached < len(places):
        last = places[reached - 1]
        goes_on_at = [last.effective_at.isoformat(), last.rkey]
    return call.page_of([memory_object(entry, call.ids) for entry in entries], window, goes_on_at)


async def answer_memory(call: StoresCall) -> bytes:
    """One memory with its content, masked or not."""
    async with call.resources.database.connection() as conn:
        store = await require_store(conn, call)
        found = await find_memory_by_id(conn, call, store, call.object_id or "")
        rkeys = [] if found is None or found.place is None else [found.rkey]
        entries, _ = await load_entries(conn, store, rkeys, with_records=True, spaces=call.viewer.spaces)
    if not entries:
        raise ObjectNotFound("There is no such memory in this store.")
    return orjson.dumps(memory_object(entries[0], call.ids))


async def find_memory_by_id(conn: Connection, call: StoresCall, store: StoreKey, memory_id: str) -> FoundMemory | None:
    """The memory of the store with this id, there or deleted."""
    hashes = call.ids.read(IdKind.MEMORY, memory_id)
    if hashes is None:
        return None
    return await find_memory(conn, store, hashes.of(store), spaces=call.viewer.spaces)


async def _place_of(conn: Connection, call: StoresCall, store: StoreKey, window: Window) -> EntryPlace | None:
    if window.anchor is not None:
        found = await find_memory_by_id(conn, call, store, window.anchor)
        if found is None or found.place is None:
            raise window.no_such_anchor()
        return found.place
    match window.sealed:
        case None:
            return None
        case [str(effective_at), str(rkey)]:
            return EntryPlace(datetime.fromisoformat(effective_at), rkey)
        case _:
            raise InvalidCursor
