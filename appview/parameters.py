"""Decodes what a request asks, by its method's lexicon, into values that the rest can rely on."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias, cast
from urllib.parse import parse_qsl

import orjson

from appview.lexicon import ArrayType, BooleanType, IntegerType, Method, StringType, Type, problem_with_text
from appview.refusals import InvalidRequest
from memory.at_uri import AtUri, parse_record_uri
from memory.datetimes import parse_datetime

Value: TypeAlias = str | int | bool | datetime | AtUri | tuple[str, ...]

MAX_FIELDS: Final = 1_000
"""Fields of one query string; more are refused before they are decoded."""

_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True, repr=False)
class Parameters:
    """Valid parameters by name, defaults filled in. A getter of the wrong type is a mistake in our code: TypeError."""

    values: Mapping[str, Value]

    def text(self, name: str) -> str | None:
        """A string, as it was sent."""
        value = self.values.get(name)
        if value is None or isinstance(value, str):
            return value
        raise TypeError(name)

    def texts(self, name: str) -> tuple[str, ...] | None:
        """An array of strings; None when the parameter is absent."""
        value = self.values.get(name)
        if value is None or isinstance(value, tuple):
            return value
        raise TypeError(name)

    def integer(self, name: str) -> int:
        """An integer that is required or has a default."""
        value = self.values[name]
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        raise TypeError(name)

    def integer_if_given(self, name: str) -> int | None:
        """An integer that may be absent."""
        return self.integer(name) if name in self.values else None

    def flag(self, name: str) -> bool:
        """A boolean that has a default."""
        value = self.values[name]
        if isinstance(value, bool):
            return value
        raise TypeError(name)

    def instant(self, name: str) -> datetime | None:
        """A datetime, aware and in UTC."""
        value = self.values.get(name)
        if value is None or isinstance(value, datetime):
            return value
        raise TypeError(name)

    def record_uri(self, name: str) -> AtUri | None:
        """The at-uri of a record, of either form."""
        value = self.values.get(name)
        if value is None or isinstance(value, AtUri):
            return value
        raise TypeError(name)

    def fingerprint(self) -> bytes:
        """All that a page cursor holds good for: every parameter but `cursor` and `limit`, in one spelling."""
        same = {name: value for name, value in self.values.items() if name not in ("cursor", "limit")}
        return orjson.dumps(same, default=str, option=orjson.OPT_SORT_KEYS)


def decode_query(method: Method, query: bytes) -> Parameters:
    """Decode a URL's query: arrays are repeated fields, booleans `true` or `false`. Raise InvalidRequest."""
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=MAX_FIELDS,
        )
    except ValueError:
        raise InvalidRequest("The query string must be percent-encoded UTF-8 of a bounded number of fields.") from None
    fields: dict[str, list[str]] = {}
    for name, text in pairs:
        fields.setdefault(name, []).append(text)
    return _decode(
        method, ((name, _from_texts(name, _declared(method, name), texts)) for name, texts in fields.items())
    )


def decode_body(method: Method, body: bytes) -> Parameters:
    """Decode one JSON object of the same parameters. Raise InvalidRequest."""
    given = read_object(body).items()
    return _decode(method, ((name, read_json(name, _declared(method, name), value)) for name, value in given))


def read_object(body: bytes) -> dict[str, object]:
    """The fields of a body that is one JSON object. Raise InvalidRequest."""
    try:
        fields: object = orjson.loads(body)
        # Of two fields with one name, that decoder takes the last: what was meant by the other, nobody would know.
        json.loads(body, object_pairs_hook=_refuse_repeated, parse_int=str, parse_float=str)
    except RecursionError:
        raise InvalidRequest("The body is nested too deep.") from None
    except ValueError:
        raise InvalidRequest("The body must be JSON in UTF-8.") from None
    if not isinstance(fields, dict):
        raise InvalidRequest("The body must be one JSON object.")
    return cast("dict[str, object]", fields)


def _refuse_repeated(pairs: list[tuple[str, object]]) -> None:
    names = {name for name, _ in pairs}
    if len(names) < len(pairs):
        raise InvalidRequest("A field stands twice in the body.")


def _decode(method: Method, given: Iterable[tuple[str, Value]]) -> Parameters:
    values = dict(given)
    for name in sorted(method.parameters.required):
        if name not in values:
            raise InvalidRequest(f"The parameter {name} is required.")
    for name, schema in method.parameters.properties.items():
        match schema:
            case StringType() | IntegerType() | BooleanType() if schema.default is not None:
                values.setdefault(name, schema.default)
            case _:
                pass
    return Parameters(values)


def _declared(method: Method, name: str) -> Type:
    # An unknown one is refused, not ignored: a filter that is ignored widens results.
    schema = method.parameters.properties.get(name)
    if schema is None:
        known = ", ".join(sorted(method.parameters.properties))
        raise InvalidRequest(f"There is no parameter {name[:60]!r}; known are {known}.")
    return schema


def _from_texts(name: str, schema: Type, texts: list[str]) -> Value:
    if isinstance(schema, ArrayType):
        return _array(name, schema, texts)
    if len(texts) > 1:
        raise InvalidRequest(f"The parameter {name} may be given once only.")
    match schema:
        case BooleanType():
            flag = _BOOLEANS.get(texts[0])
            if flag is None:
                raise InvalidRequest(f"The parameter {name} must be true or false.")
            return flag
        case IntegerType():
            # Digits only: int() would also take signs, spaces, underscores and other scripts.
            digits = texts[0].removeprefix("-")
            if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
                raise InvalidRequest(f"The parameter {name} must be an integer.")
            return _integer(name, schema, int(texts[0]))
        case _:
            return _scalar(name, schema, texts[0])


def read_json(name: str, schema: Type, value: object) -> Value:
    """Read one decoded JSON value as a parameter of that type. Raise InvalidRequest, which names it."""
    match schema, value:
        case ArrayType(), list():
            return _array(name, schema, value)  # pyright: ignore[reportUnknownArgumentType]
        case ArrayType(), _:
            raise InvalidRequest(f"The parameter {name} must be an array of strings.")
        case BooleanType(), bool():
            return value
        case BooleanType(), _:
            raise InvalidRequest(f"The parameter {name} must be true or false.")
        case IntegerType(), int() if not isinstance(value, bool):
            return _integer(name, schema, value)
        case IntegerType(), _:
            raise InvalidRequest(f"The parameter {name} must be an integer.")
        case _:
            return _scalar(name, schema, value)


def _integer(name: str, schema: IntegerType, value: int) -> int:
    low, high = schema.minimum, schema.maximum
    if (low is not None and value < low) or (high is not None and value > high):
        raise InvalidRequest(f"The parameter {name} must be from {low} to {high}.")
    return value


def _array(name: str, schema: ArrayType, values: list[object] | list[str]) -> tuple[str, ...]:
    if schema.max_length is not None and len(values) > schema.max_length:
        raise InvalidRequest(f"The parameter {name} takes at most {schema.max_length} values.")
    return tuple(_text(name, schema.items, value) for value in values)


def _scalar(name: str, schema: Type, value: object) -> Value:
    text = _text(name, schema, value)
    match schema:
        case StringType(format="datetime") if (moment := parse_datetime(text)) is not None:
            return moment
        case StringType(format="at-uri") if (uri := parse_record_uri(text)) is not None:
            return uri
        case _:
            return text


def _text(name: str, schema: Type, value: object) -> str:
    if not isinstance(schema, StringType):
        raise TypeError(name)  # a lexicon with parameters of other types would refuse to load in a test
    if not isinstance(value, str):
        raise InvalidRequest(f"The parameter {name} must be a string.")
    if "\0" in value:
        raise InvalidRequest(f"The parameter {name} must not have NUL characters.")
    problem = problem_with_text(schema, value)
    if problem is not None:
        raise InvalidRequest(f"The parameter {name} {problem}.")
    # Handles are not case-sensitive, and stored in lower case; DIDs are.
    return value.lower() if schema.format == "at-identifier" and not value.startswith("did:") else value
