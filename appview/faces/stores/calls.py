"""One valid request to this face, and where in a list it asks to go on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from appview.access import Viewer
from appview.call import Resources
from appview.faces.stores.ids import Ids
from appview.faces.stores.parameters import Asked
from appview.faces.stores.views import JsonObject
from appview.page_cursor import Place, Question
from appview.refusals import InvalidCursor, InvalidRequest, Refusal

_PLACES: Final = ("page", "after_id", "before_id")
_NO_FILTERS: Final = frozenset({*_PLACES, "limit"})


class ObjectNotFound(Refusal):
    """There is no such object here."""

    status = 404
    error = "NotFound"


@dataclass(frozen=True, slots=True, repr=False)
class Window:
    """Which part of a list is asked for: up to `limit` objects behind a place; `backward`, in front of it.

    The place is the one that a page cursor held, `sealed`, or that of the object with the id `anchor`, which the
    parameter `named_by` gave; neither: the list's beginning.
    """

    limit: int
    backward: bool = False
    sealed: Sequence[Place] | None = None
    anchor: str | None = None
    named_by: str = ""

    def no_such_anchor(self) -> InvalidRequest:
        """The refusal of an anchor that is not in the list."""
        return InvalidRequest(
            f"The parameter {self.named_by} names no object that is in this list; `page` goes on in any case.",
            param=self.named_by,
        )


@dataclass(frozen=True, slots=True, repr=False)
class StoresCall:
    """A viewer's valid request. `store_id` and `object_id` are what its path names, None where it names none."""

    viewer: Viewer
    path: str
    store_id: str | None
    object_id: str | None
    asked: Asked
    resources: Resources
    ids: Ids

    def window(self) -> Window:
        """Where to go on. Raise InvalidRequest, or InvalidCursor."""
        given = [name for name in _PLACES if self.asked.text(name) is not None]
        if len(given) > 1:
            raise InvalidRequest(f"Give one of {', '.join(_PLACES)}, not several.", param=given[1])
        limit = self.asked.integer("limit")
        if not given:
            return Window(limit)
        [name] = given
        text = self.asked.text(name) or ""
        if name != "page":
            return Window(limit, name == "before_id", anchor=text, named_by=name)
        match self.resources.page_cursors.open(self._question(), text):
            case [bool(backward), [*place]]:
                return Window(limit, backward, sealed=place)
            case _:
                raise InvalidCursor

    def page_of(self, objects: list[JsonObject], window: Window, goes_on_at: Sequence[Place] | None) -> bytes:
        """The envelope of a page. `goes_on_at`: the place to go on from, None at the end of the list.

        `objects` are in the order in which they were gone through; the answer always has them in the list's.
        """
        objects = objects[::-1] if window.backward else objects
        next_page = None
        if goes_on_at is not None:
            next_page = self.resources.page_cursors.seal(self._question(), [window.backward, goes_on_at])
        return orjson.dumps(
            {
                "data": objects,
                "next_page": next_page,
                "first_id": objects[0]["id"] if objects else None,
                "last_id": objects[-1]["id"] if objects else None,
                "has_more": goes_on_at is not None,
            }
        )

    def _question(self) -> Question:
        filters = {name: value for name, value in self.asked.values.items() if name not in _NO_FILTERS}
        fingerprint = orjson.dumps([self.path, filters], option=orjson.OPT_SORT_KEYS)
        return Question(self.viewer.id, "memory_stores", fingerprint)
