"""Pages of lists: places found, memories loaded, views made until the page is full."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from appview import page_cursor
from appview.answers.pages import fill_page
from appview.filters import Filters
from appview.refusals import InvalidCursor
from appview.store.lists import Order, Place, list_places, start_of
from appview.store.views import StoredMemory, load_memories
from memory.queries import Connection
from memory.space import ReadableSpaces


@dataclass(frozen=True, slots=True, repr=False)
class ListPage:
    """Views of some memories, and the place to go on behind; None at the end of the list."""

    views: list[bytes]
    goes_on_after: Place | None


async def list_page(
    conn: Connection,
    order: Order,
    filters: Filters,
    *,
    after: Place | None,
    limit: int,
    view: Callable[[StoredMemory], bytes],
    spaces: ReadableSpaces,
) -> ListPage:
    """The page behind `after`, from the start without one: up to `limit` memories, each as `view` shows it."""
    after = after or start_of(order, filters.as_of)
    # One more than is shown, to know whether the list goes on.
    places = await list_places(conn, order, filters, after=after, limit=limit + 1, spaces=spaces)
    keys = [place.key for place in places[:limit]]
    memories = await load_memories(conn, keys, as_of=filters.as_of, spaces=spaces)
    page, reached = fill_page(None if memory is None else view(memory) for memory in memories)
    return ListPage(page, places[reached - 1] if len(places) > reached else None)


def write_place(place: Place) -> page_cursor.Place:
    """A place as page cursors hold it."""
    return [place.dated, place.sort_at.isoformat(), place.repo, place.rkey, place.space]


def read_place(sealed: page_cursor.Place) -> Place | None:
    """The place that a page cursor holds; None where there is none. Raise InvalidCursor for that of another method."""
    match sealed:
        case None:
            return None
        case [bool(dated), str(sort_at), str(repo), str(rkey), str(space)]:
            return Place(dated, datetime.fromisoformat(sort_at), repo, rkey, space)
        case _:
            raise InvalidCursor
