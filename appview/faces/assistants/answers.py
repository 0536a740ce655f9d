"""The three methods: parameters in, the JSON text of the answer out."""

from __future__ import annotations

from functools import partial

import orjson

from appview.answers.arms import search_snapshot
from appview.answers.asked import asked_key, is_narrowed, read_filters, readable_spaces
from appview.answers.lists import list_page, read_place, write_place
from appview.answers.search import (
    Mode,
    Search,
    SearchQuestion,
    fill_search_page,
    read_served,
    search_memories,
    seek_meaning,
    write_served,
)
from appview.call import Call
from appview.faces.assistants.views import hit_view, memory_view
from appview.page_cursor import Place
from appview.refusals import InvalidCursor, InvalidRequest, RecordNotFound
from appview.search.hits import Hit
from appview.search.query import parse_query
from appview.store.lists import Order
from appview.store.views import StoredMemory, load_memories


async def get_memory(call: Call) -> bytes:
    """Answer `get-memory`: replaced memories too."""
    key = asked_key(call, "uri")
    async with call.resources.database.connection() as conn:
        loaded = await load_memories(conn, [key], as_of=None, spaces=call.viewer.spaces)
    if not loaded or loaded[0] is None:
        raise RecordNotFound
    return orjson.dumps({"memory": orjson.Fragment(memory_view(loaded[0], as_of=None))})


async def list_memories(call: Call) -> bytes:
    """Answer `list-memories`: the latest in effect first."""
    spaces = readable_spaces(call)
    after = read_place(_open_token(call))
    async with (
        call.resources.walk(narrowed=is_narrowed(call.parameters)),
        call.resources.database.connection() as conn,
    ):
        filters = await read_filters(conn, call.parameters)
        page = await list_page(
            conn,
            Order.NEWEST,
            filters,
            after=after,
            limit=call.parameters.integer("limit"),
            view=partial(memory_view, as_of=filters.as_of),
            spaces=spaces,
        )
    answer: dict[str, object] = {"memories": [orjson.Fragment(view) for view in page.views]}
    if page.goes_on_after is not None:
        answer["nextPageToken"] = call.seal_cursor(write_place(page.goes_on_after))
    return orjson.dumps(answer)


async def search_for_memories(call: Call) -> bytes:
    """Answer `search-memories`: the best first."""
    spaces = readable_spaces(call)
    served = read_served(_open_token(call))
    query = parse_query(call.parameters.text("q") or "")
    limit = served.room_for(call.parameters.integer("limit"))
    seeking_meaning = seek_meaning(call.resources, query, Mode.HYBRID, call.parameters, spaces=spaces)
    async with seeking_meaning as seeking, search_snapshot(call.resources) as snapshot:
        question = SearchQuestion(query, limit, seeking, call.parameters.integer_if_given("minScore"), served)
        filters = await read_filters(snapshot.conn, call.parameters)
        search = await search_memories(snapshot, question, filters, spaces=spaces)
        page = await fill_search_page(snapshot.conn, search, view=partial(_hit_view, search), spaces=spaces)
    answer: dict[str, object] = {"memories": [orjson.Fragment(view) for view in page.views]}
    if page.goes_on:
        answer["nextPageToken"] = call.seal_cursor(write_served(search.served_with(page.hits)))
    if search.is_capped:
        answer["matchesCapped"] = True
    return orjson.dumps(answer)


def _hit_view(search: Search, hit: Hit, memory: StoredMemory) -> bytes:
    return hit_view(memory, hit, hit.marks.score, as_of=search.filters.as_of)


def _open_token(call: Call) -> Place:
    try:
        return call.open_cursor()
    except InvalidCursor:
        sentence = "The pageToken was not made here, or for other fields; start again without one."
        raise InvalidRequest(sentence, param="pageToken") from None
