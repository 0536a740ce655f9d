"""Query parameters of this face: what there are, and how a query string is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias
from urllib.parse import parse_qsl

from appview.faces.stores.ids import IdKind, is_id
from appview.refusals import InvalidRequest
from memory.datetimes import parse_datetime

MAX_FIELDS: Final = 100
MAX_NAME_CHARACTERS: Final = 2_561  # a DID, a slash and the key of a Space
MAX_PATH_CHARACTERS: Final = 526  # a scope, a slash and an rkey
MAX_CURSOR_CHARACTERS: Final = 12_000
DEFAULT_LIMIT: Final = 20
MAX_LIMIT: Final = 100

_BOOLEANS: Final = {"true": True, "false": False}
_MAX_SHOWN_CHARACTERS: Final = 60


@dataclass(frozen=True, slots=True)
class IntegerParameter:
    """A whole number within limits."""

    name: str
    description: str
    minimum: int
    maximum: int
    default: int

    def read(self, text: str) -> int:
        """The number. Raise ValueError, which says what it must be."""
        # Digits only: int() would also take signs, spaces, underscores and other scripts.
        if not (text.isascii() and text.isdigit() and len(text) <= 9):
            raise ValueError(f"an integer from {self.minimum} to {self.maximum}")
        if not self.minimum <= int(text) <= self.maximum:
            raise ValueError(f"from {self.minimum} to {self.maximum}")
        return int(text)


@dataclass(frozen=True, slots=True)
class BooleanParameter:
    """`true` or `false`."""

    name: str
    description: str
    default: bool = False

    def read(self, text: str) -> bool:
        """The truth value. Raise ValueError, which says what it must be."""
        if text not in _BOOLEANS:
            raise ValueError("true or false")
        return _BOOLEANS[text]


@dataclass(frozen=True, slots=True)
class TimeParameter:
    """An instant."""

    name: str
    description: str
    default: None = None

    def read(self, text: str) -> datetime:
        """The instant, aware and in UTC. Raise ValueError, which says what it must be."""
        moment = parse_datetime(text)
        if moment is None:
            raise ValueError("an RFC 3339 timestamp like 2026-01-31T12:00:00Z, a plus sign percent-encoded")
        return moment


@dataclass(frozen=True, slots=True)
class TextParameter:
    """Text of a bounded length."""

    name: str
    description: str
    max_characters: int
    default: None = None

    def read(self, text: str) -> str:
        """The text. Raise ValueError, which says what it must be."""
        if len(text) > self.max_characters:
            raise ValueError(f"at most {self.max_characters:,} characters")
        if "\0" in text:
            raise ValueError("without NUL characters")
        return text


@dataclass(frozen=True, slots=True)
class IdParameter:
    """The id of an object."""

    name: str
    description: str
    kind: IdKind
    default: None = None

    def read(self, text: str) -> str:
        """The id. Raise ValueError, which says what it must be."""
        if not is_id(self.kind, text):
            raise ValueError(f"an id like {self.kind}…, with 32 hexadecimal digits")
        return text


Parameter: TypeAlias = IntegerParameter | BooleanParameter | TimeParameter | TextParameter | IdParameter
Value: TypeAlias = int | bool | datetime | str | None

LIMIT: Final = IntegerParameter("limit", "How many objects a page has at most.", 1, MAX_LIMIT, DEFAULT_LIMIT)
PAGE: Final = TextParameter(
    "page", "`next_page` of the answer before, asked with the same other parameters.", MAX_CURSOR_CHARACTERS
)


def paging_parameters(kind: IdKind) -> tuple[Parameter, ...]:
    """What every list takes beside its filters."""
    return (
        LIMIT,
        PAGE,
        IdParameter("after_id", "Begin behind this object of the list. Not with `page` or `before_id`.", kind),
        IdParameter("before_id", "End in front of this object of the list. Not with `page` or `after_id`.", kind),
    )


@dataclass(frozen=True, slots=True, repr=False)
class Asked:
    """Valid values by name, defaults filled in. A getter of the wrong type is a mistake in our code: TypeError."""

    values: Mapping[str, Value]

    def text(self, name: str) -> str | None:
        """A text or an id."""
        value = self.values[name]
        if value is None or isinstance(value, str):
            return value
        raise TypeError(name)

    def flag(self, name: str) -> bool:
        """A truth value."""
        value = self.values[name]
        if isinstance(value, bool):
            return value
        raise TypeError(name)

    def integer(self, name: str) -> int:
        """A number."""
        value = self.values[name]
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise TypeError(name)

    def instant(self, name: str) -> datetime | None:
        """A time, aware and in UTC."""
        value = self.values[name]
        if value is None or isinstance(value, datetime):
            return value
        raise TypeError(name)


def read_query(query: bytes, parameters: Sequence[Parameter]) -> Asked:
    """Read a URL's query. Raise InvalidRequest, which names the parameter at fault."""
    known = {parameter.name: parameter for parameter in parameters}
    values: dict[str, Value] = {name: parameter.default for name, parameter in known.items()}
    given: set[str] = set()
    for name, text in _pairs(query):
        parameter = known.get(name)
        if parameter is None:
            # Refused, not ignored: a filter that is ignored widens results.
            shown = name[:_MAX_SHOWN_CHARACTERS]
            takes = f"it takes {', '.join(known)}" if known else "it takes none"
            raise InvalidRequest(f"This path has no parameter of that name; {takes}.", param=shown)
        if name in given:
            raise InvalidRequest(f"The parameter {name} may be given once only.", param=name)
        given.add(name)
        try:
            values[name] = parameter.read(text)
        except ValueError as fault:
            raise InvalidRequest(f"The parameter {name} must be {fault}.", param=name) from None
    return Asked(values)


def _pairs(query: bytes) -> list[tuple[str, str]]:
    try:
        return parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError:
        raise InvalidRequest("The query string must be percent-encoded UTF-8 of a bounded number of fields.") from None
