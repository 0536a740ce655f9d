"""What the methods take: the fields of their bodies, with the limits that the lexicons set for the same things."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from appview.lexicon import ArrayType, Catalogue, IntegerType, StringType, Type
from memory.identifiers import NAMESPACE

GET: Final = "get-memory"
LIST: Final = "list-memories"
SEARCH: Final = "search-memories"

FILTERS: Final = (
    "repo",
    "space",
    "publicOnly",
    "scope",
    "kind",
    "agent",
    "client",
    "createdAfter",
    "createdBefore",
    "occurredAfter",
    "occurredBefore",
    "asOf",
    "includeSuperseded",
)
"""Parameters of listRecords that `filters` takes under the same names."""

DEFAULT_TOP_K: Final = 10


@dataclass(frozen=True, slots=True)
class NumberType:
    """A number within inclusive bounds, whole or not."""

    minimum: float
    maximum: float


@dataclass(frozen=True, slots=True)
class FiltersType:
    """An object of filters by name; all are optional."""

    filters: Mapping[str, Type]


FieldType: TypeAlias = StringType | IntegerType | NumberType | FiltersType


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a body. It may also be given by one of its `aliases`."""

    name: str
    type: FieldType
    description: str
    aliases: tuple[str, ...] = ()
    required: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """All that it goes by."""
        return (self.name, *self.aliases)


def load_fields(catalogue: Catalogue) -> dict[str, tuple[Field, ...]]:
    """The fields of each method, by its name."""
    one = catalogue.methods[NAMESPACE + "getRecord"].parameters.properties
    listed = catalogue.methods[NAMESPACE + "listRecords"].parameters.properties
    searched = catalogue.methods[NAMESPACE + "searchRecords"].parameters.properties
    limit = _whole(listed["limit"])
    page_token = Field(
        "pageToken",
        _text(listed["cursor"]),
        "The `nextPageToken` of the page before; all other fields but the page's size as they were.",
        aliases=("page",),
    )
    whose = (
        Field(
            "userId",
            _text(listed["repo"]),
            "Only memories of this author, by DID or handle. Without it, those of whoever is signed in; where nobody"
            " is, the request is refused.",
        ),
        Field("agentId", _text(listed["agent"]), "Only memories that this agent wrote; empty: of no named agent."),
        Field(
            "appId",
            replace(_text(listed["space"]), min_length=0),
            "Only memories of the Space with this at-uri; empty: public ones only. Without it, all that may be read.",
        ),
        Field("runId", _text(listed["scope"]), "Only memories with this label, their `scope`; empty: without one."),
    )
    filters = Field(
        "filters",
        FiltersType({name: listed[name] for name in FILTERS}),
        "More conditions, all of which must hold, under the names that `listRecords` has for them. Unknown ones are"
        " refused. Where the type is an array, one string will also do.",
    )
    return {
        GET: (
            Field("id", _text(one["uri"]), "The `id` of a memory: its at-uri.", aliases=("memoryId",), required=True),
        ),
        LIST: (
            *whose,
            filters,
            Field("pageSize", limit, "The most memories on a page. A page also ends at 4 MB.", aliases=("limit",)),
            page_token,
        ),
        SEARCH: (
            Field("query", _text(searched["q"]), 'What is asked for: words, "phrases", -exclusions.', required=True),
            *whose,
            filters,
            Field(
                "topK",
                replace(limit, default=DEFAULT_TOP_K),
                "The most hits on a page, the best first. A page also ends at 4 MB.",
                aliases=("limit",),
            ),
            Field(
                "threshold",
                NumberType(0, 1),
                "Leave out what has a lower `score`. Without it: 0.2 where meaning took part, else 0.",
            ),
            page_token,
        ),
    }


def _text(schema: Type) -> StringType:
    """The type of one string, also where a method of the lexicon takes several."""
    if isinstance(schema, ArrayType):
        schema = schema.items
    if isinstance(schema, StringType):
        return schema
    raise TypeError(schema)


def _whole(schema: Type) -> IntegerType:
    if isinstance(schema, IntegerType):
        return schema
    raise TypeError(schema)
