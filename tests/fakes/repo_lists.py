"""Lists of repos, page by page, as hosts and relays give them; and those that come to no end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any


class ListFault(Enum):
    """How a list of repos does not come to an end."""

    SAME_CURSOR = auto()  # every page leads to itself
    CIRCLE = auto()  # after the last page the first comes again
    NOTHING_NEW = auto()  # the last page again and again, with new cursors
    NOTHING = auto()  # empty pages with new cursors
    INVENTED = auto()  # ever new repos that nobody has


@dataclass
class RepoLists:
    """Gives pages, and the cursors to them, which nobody else may make."""

    fault: ListFault | None = None
    page_repos: int = 1000  # at most
    cursors: dict[str, tuple[int, int]] = field(default_factory=dict[str, tuple[int, int]])  # → first repo, page

    def page(self, parameters: Mapping[str, str], repos: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
        """The page that the parameters ask for; None for a cursor that was not given here."""
        given, size = parameters.get("cursor"), min(int(parameters.get("limit", "500")), self.page_repos)
        if given is not None and given not in self.cursors:
            return None
        first, number = (0, 0) if given is None else self.cursors[given]
        page = list(repos[first : first + size])
        is_last, cursor = first + size >= len(repos), self._cursor(first + size, number + 1)
        match self.fault:
            case None:
                # The reference gives a cursor as long as a page has repos: an empty one ends the list.
                return {"repos": page, "cursor": cursor} if page else {"repos": page}
            case ListFault.SAME_CURSOR:
                cursor = given or cursor
            case ListFault.CIRCLE:
                cursor = self._cursor(0, 0) if is_last else cursor
            case ListFault.NOTHING_NEW:
                cursor = self._cursor(first, number + 1) if is_last else cursor
            case ListFault.NOTHING:
                page = []
            case ListFault.INVENTED:
                page = [{"did": f"did:web:{number}.{each}.example", "active": True} for each in range(size)]
        return {"repos": page, "cursor": cursor}

    def _cursor(self, first: int, number: int) -> str:
        cursor = f"{number}::{first} ü&/%"  # nothing that one may look into, or leave unescaped
        self.cursors[cursor] = (first, number)
        return cursor
