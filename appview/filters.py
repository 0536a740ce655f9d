"""Which memories a request is about, and as of when: the same for lists and for search."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from memory.space import PUBLIC, ReadableSpaces


@dataclass(frozen=True, slots=True, repr=False)
class Reach:
    """Where to look: in these Spaces, and if `public`, among what is public."""

    spaces: ReadableSpaces
    public: bool


@dataclass(frozen=True, slots=True, repr=False)
class Filters:
    """What every answer's memories have in common. None stands for any; `""` among texts for an absent property.

    `repos` are DIDs: () when authors were asked for of whom none is known. `spaces` are at-uris of Spaces. Times are
    aware; `…after` is inclusive and `…before` exclusive. `as_of` None is now. `superseded`: memories that newer ones
    mask are wanted too.
    """

    repos: tuple[str, ...] | None = None
    spaces: tuple[str, ...] | None = None
    public_only: bool = False
    scopes: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None
    agents: tuple[str, ...] | None = None
    clients: tuple[str, ...] | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    occurred_after: datetime | None = None
    occurred_before: datetime | None = None
    as_of: datetime | None = None
    superseded: bool = False

    def reach(self, readable: ReadableSpaces) -> Reach:
        """Where memories that pass `spaces` and `public_only` can be: never in a Space that is not readable."""
        within = {space for space in readable.spaces if self.passes_spaces(space) and self.passes_public_only(space)}
        return Reach(ReadableSpaces(frozenset(within)), self.passes_spaces(PUBLIC))

    def passes_spaces(self, space: str) -> bool:
        """Whether a memory there is in one of the Spaces that were asked for."""
        return self.spaces is None or space in self.spaces

    def passes_public_only(self, space: str) -> bool:
        """Whether a memory there is public, if only such are wanted."""
        return not self.public_only or space == PUBLIC

    def in_sql(self) -> dict[str, object]:
        """The parameters by which the statements of `store/sql` apply all filters but those on repos and Spaces."""
        return {
            "scopes": self.scopes,
            "kinds": self.kinds,
            "agents": self.agents,
            "clients": self.clients,
            "created_after": self.created_after,
            "created_before": self.created_before,
            "occurred_after": self.occurred_after,
            "occurred_before": self.occurred_before,
            "as_of": self.as_of,
            "include_superseded": self.superseded,
        }
