"""The versions of a store's memories: the list, and one."""

from __future__ import annotations

from datetime import datetime

import orjson

from appview.faces.stores.calls import ObjectNotFound, StoresCall, Window
from appview.faces.stores.ids import IdKind
from appview.faces.stores.memories import find_memory_by_id
from appview.faces.stores.stores import require_store
from appview.faces.stores.views import version_object
from appview.refusals import InvalidCursor, InvalidRequest
from appview.store.store_contents import VersionPlace, find_version, list_versions, load_store_versions
from appview.store.stores import StoreKey
from memory.queries import Connection


async def answer_versions(call: StoresCall) -> bytes:
    """A page of versions, of a whole store or of one memory, latest first, without their contents."""
    window = call.window()
    spaces = call.viewer.spaces
    async with call.resources.database.connection() as conn:
        store = await require_store(conn, call)
        rkey = await _asked_memory(conn, call, store)
        place = await _place_of(conn, call, store, rkey, window)
        places = await list_versions(
            conn, store, rkey, place=place, backward=window.backward, limit=window.limit + 1, spaces=spaces
        )
        shown = places[: window.limit]
        versions = await load_store_versions(
            conn, store, shown, is_owner=call.viewer.did == store.repo, with_records=False, spaces=spaces
        )
    last = shown[-1] if len(places) > len(shown) else None
    goes_on_at = None if last is None else [last.observed_at.isoformat(), last.rkey, last.number]
    return call.page_of([version_object(version, call.ids) for version in versions], window, goes_on_at)


async def answer_version(call: StoresCall) -> bytes:
    """One version, with its content unless that is redacted."""
    async with call.resources.database.connection() as conn:
        store = await require_store(conn, call)
        place = await _find(conn, call, store, call.object_id or "")
        versions = await load_store_versions(
            conn,
            store,
            [] if place is None else [place],
            is_owner=call.viewer.did == store.repo,
            with_records=True,
            spaces=call.viewer.spaces,
        )
    if not versions:
        raise ObjectNotFound("There is no such version in this store.")
    return orjson.dumps(version_object(versions[0], call.ids))


async def _asked_memory(conn: Connection, call: StoresCall, store: StoreKey) -> str | None:
    memory_id = call.asked.text("memory_id")
    if memory_id is None:
        return None
    found = await find_memory_by_id(conn, call, store, memory_id)
    if found is None:
        raise InvalidRequest("The parameter memory_id names no memory of this store.", param="memory_id")
    return found.rkey


async def _find(conn: Connection, call: StoresCall, store: StoreKey, version_id: str) -> VersionPlace | None:
    hashes = call.ids.read(IdKind.VERSION, version_id)
    if hashes is None:
        return None
    return await find_version(conn, store, hashes.of(store), spaces=call.viewer.spaces)


async def _place_of(
    conn: Connection, call: StoresCall, store: StoreKey, rkey: str | None, window: Window
) -> VersionPlace | None:
    if window.anchor is not None:
        place = await _find(conn, call, store, window.anchor)
        if place is None or (rkey is not None and place.rkey != rkey):
            raise window.no_such_anchor()
        return place
    match window.sealed:
        case None:
            return None
        case [str(observed_at), str(at_rkey), int(number)]:
            return VersionPlace(datetime.fromisoformat(observed_at), at_rkey, number)
        case _:
            raise InvalidCursor
