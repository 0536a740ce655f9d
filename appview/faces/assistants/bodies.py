"""Reads the body of a request into the parameters that the index's own methods take.

A field that cannot mean what it says is refused, and never cut to what can. Unknown fields are ignored, as other
services of this schema ignore them; unknown filters are refused, for without them the answer would be wider.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final, cast

from appview.faces.assistants.fields import Field, FiltersType, NumberType
from appview.lexicon import ArrayType, StringType
from appview.parameters import Parameters, Value, read_json
from appview.refusals import InvalidRequest
from memory.space import parse_space_uri

NOBODY_NAMED: Final = (
    "Say whose memories: give userId, a DID or a handle, or sign in, which stands for your own. Without either, the"
    " words of strangers would get into an assistant's context."
)

_PARAMETERS: Final = {
    "id": "uri",
    "query": "q",
    "userId": "repo",
    "agentId": "agent",
    "runId": "scope",
    "pageSize": "limit",
    "topK": "limit",
    "pageToken": "cursor",
}
"""Fields that are a parameter by another name."""

_TAKE_SEVERAL: Final = frozenset({"repo", "agent", "scope"})
_FLAGS: Final = ("publicOnly", "includeSuperseded")
_SCORES: Final = tuple(score / 1000 for score in range(1001))
"""Every score that there can be, in order."""


def read_parameters(fields: Iterable[Field], given: Mapping[str, object], *, viewer: str | None) -> Parameters:
    """The parameters that the fields given stand for. Raise InvalidRequest, which names the field at fault.

    `viewer` is the DID of whoever is signed in: whose memories are meant where nobody's are named.
    """
    values: dict[str, Value] = {}
    by_name = {field.name: field for field in fields}
    for field in by_name.values():
        for name in field.names:
            if (value := given.get(name)) is not None:
                _add(values, _read(field, name, value), name)
        if field.required and _PARAMETERS[field.name] not in values:
            raise InvalidRequest(f"The field {field.name} is required.")
        _add_default(values, field)
    if "userId" in by_name and "repo" not in values:
        if viewer is None:
            raise InvalidRequest(NOBODY_NAMED)
        values["repo"] = (viewer,)
    if "space" in values and "publicOnly" in values:
        raise InvalidRequest("Memories are asked for that are public and in a Space: none are both.")
    return Parameters(dict.fromkeys(_FLAGS, False) | values)


def _read(field: Field, name: str, value: object) -> dict[str, Value]:
    """The parameters that one value stands for, which was given by one of the field's names."""
    match field.type:
        case NumberType():
            return {"minScore": bisect_left(_SCORES, _read_number(field.type, name, value))}
        case FiltersType():
            return _read_filters(field.type, name, value)
        case StringType() if field.name == "appId":
            return _read_app(field.type, name, value)
        case _:
            parameter = _PARAMETERS[field.name]
            read = read_json(name, field.type, value)
            return {parameter: (read,) if isinstance(read, str) and parameter in _TAKE_SEVERAL else read}


def _read_number(schema: NumberType, name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidRequest(f"The field {name} must be a number.")
    if not schema.minimum <= value <= schema.maximum:
        raise InvalidRequest(f"The field {name} must be from {schema.minimum:g} to {schema.maximum:g}.")
    return value


def _read_app(schema: StringType, name: str, value: object) -> dict[str, Value]:
    uri = read_json(name, schema, value)
    if uri == "":
        return {"publicOnly": True}
    if not isinstance(uri, str) or parse_space_uri(uri) is None:
        raise InvalidRequest(f"The field {name} must be the at-uri of a Space, or empty for public memories only.")
    return {"space": (uri,)}


def _read_filters(schema: FiltersType, name: str, value: object) -> dict[str, Value]:
    if not isinstance(value, dict):
        raise InvalidRequest(f"The field {name} must be an object.")
    values: dict[str, Value] = {}
    for key, item in cast("dict[str, object]", value).items():
        declared = schema.filters.get(key)
        if declared is None:
            raise InvalidRequest(f"There is no filter {key[:60]!r}; known are {', '.join(sorted(schema.filters))}.")
        if item is not None:
            several = [item] if isinstance(declared, ArrayType) and isinstance(item, str) else item
            values[key] = read_json(f"{name}.{key}", declared, several)
    return {key: read for key, read in values.items() if read is not False}


def _add(values: dict[str, Value], more: Mapping[str, Value], name: str) -> None:
    """Take over what a field says, unless another one has said something else of the same."""
    for parameter, value in more.items():
        if parameter in values and not _same(values[parameter], value):
            raise InvalidRequest(f"The field {name} and another one say different things of the same.")
        values[parameter] = value


def _same(one: Value, other: Value) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return set(one) == set(other)
    return one == other


def _add_default(values: dict[str, Value], field: Field) -> None:
    match field.type:
        case NumberType() | FiltersType():
            pass
        case schema:
            if schema.default is not None:
                values.setdefault(_PARAMETERS[field.name], schema.default)
