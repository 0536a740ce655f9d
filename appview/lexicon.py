"""The lexicons of `appview/lexicons`: what each method takes and answers.

They are the single source of truth: parameters are decoded by them, answers are checked against them in tests, and the
OpenAPI document is made from them. Only the lexicon features that they use are known here; others refuse to load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias, assert_never, cast

import orjson
import regex

from memory.at_uri import parse_record_uri
from memory.datetimes import parse_datetime
from memory.errors import Misconfigured
from memory.identifiers import is_cid, is_did, is_handle, is_tid

JSON: TypeAlias = "Mapping[str, JSON] | list[JSON] | str | int | float | bool | None"

LEXICONS: Final = Path(__file__).parent / "lexicons"

_CHECKED_AS: Final = {"uri": "at-uri"}
"""Formats that are checked as narrower ones. Every URI here is a record's at-uri, but validators take that of a record
in a Space for none, so the lexicons only say that it is a URI."""

_GRAPHEME: Final = regex.compile(r"\X")


@dataclass(frozen=True, slots=True)
class StringType:
    """A string; `max_length` counts bytes of UTF-8, `max_graphemes` what people call characters."""

    description: str | None
    format: str | None
    enum: tuple[str, ...] | None
    known_values: tuple[str, ...] | None
    min_length: int
    max_length: int | None
    max_graphemes: int | None
    default: str | None


@dataclass(frozen=True, slots=True)
class IntegerType:
    """A whole number within inclusive bounds."""

    description: str | None
    minimum: int | None
    maximum: int | None
    default: int | None


@dataclass(frozen=True, slots=True)
class BooleanType:
    """True or false."""

    description: str | None
    default: bool | None


@dataclass(frozen=True, slots=True)
class UnknownType:
    """Any object of the data model, such as a whole record."""

    description: str | None


@dataclass(frozen=True, slots=True)
class ArrayType:
    """A list of one type; `max_length` counts items."""

    description: str | None
    items: Type
    max_length: int | None


@dataclass(frozen=True, slots=True)
class ObjectType:
    """Named properties. Here answers hold no others, although lexicons allow it."""

    description: str | None
    required: frozenset[str]
    properties: Mapping[str, Type]


@dataclass(frozen=True, slots=True)
class RefType:
    """Another definition, named `nsid#name`."""

    description: str | None
    ref: str


Type: TypeAlias = StringType | IntegerType | BooleanType | UnknownType | ArrayType | ObjectType | RefType


@dataclass(frozen=True, slots=True)
class ErrorType:
    """One of the errors, beside the general ones, that a method may answer."""

    name: str
    description: str


@dataclass(frozen=True, slots=True)
class Method:
    """One query or procedure: its parameters, its answer and its own errors.

    `acts`: it is a procedure, which changes something; its `parameters` are the properties of its body.
    """

    nsid: str
    description: str
    acts: bool
    parameters: ObjectType
    output: Type
    errors: tuple[ErrorType, ...]


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All methods by NSID, and all shared definitions by `nsid#name`."""

    methods: Mapping[str, Method]
    definitions: Mapping[str, Type]


def load_catalogue(folder: Path = LEXICONS) -> Catalogue:
    """Read every lexicon below `folder`; raise Misconfigured for one that uses what is not known here."""
    methods: dict[str, Method] = {}
    definitions: dict[str, Type] = {}
    for path in sorted(folder.rglob("*.json")):
        document = _mapping(orjson.loads(path.read_bytes()))
        nsid = str(document["id"])
        for name, definition in _mapping(document["defs"]).items():
            source = _mapping(definition)
            if source["type"] in ("query", "procedure"):
                methods[nsid] = _parse_method(nsid, source)
            else:
                definitions[f"{nsid}#{name}"] = _parse_type(source)
    return Catalogue(methods, definitions)


def _parse_method(nsid: str, source: Mapping[str, JSON]) -> Method:
    acts = source["type"] == "procedure"
    parameters = _parse_object(_mapping(_mapping(source["input"])["schema"] if acts else source["parameters"]))
    output = _parse_type(_mapping(_mapping(source["output"])["schema"]))
    errors = [_mapping(error) for error in cast("list[JSON]", source["errors"])]
    return Method(
        nsid=nsid,
        description=str(source["description"]),
        acts=acts,
        parameters=parameters,
        output=output,
        errors=tuple(ErrorType(str(error["name"]), str(error["description"])) for error in errors),
    )


def _parse_type(source: Mapping[str, JSON]) -> Type:
    description = _optional_text(source, "description")
    match source["type"]:
        case "string":
            return StringType(
                description=description,
                format=_format(source),
                enum=_optional_texts(source, "enum"),
                known_values=_optional_texts(source, "knownValues"),
                min_length=_optional_integer(source, "minLength") or 0,
                max_length=_optional_integer(source, "maxLength"),
                max_graphemes=_optional_integer(source, "maxGraphemes"),
                default=_optional_text(source, "default"),
            )
        case "integer":
            return IntegerType(
                description=description,
                minimum=_optional_integer(source, "minimum"),
                maximum=_optional_integer(source, "maximum"),
                default=_optional_integer(source, "default"),
            )
        case "boolean":
            default = source.get("default")
            return BooleanType(description, default if isinstance(default, bool) else None)
        case "unknown":
            return UnknownType(description)
        case "array":
            return ArrayType(
                description, _parse_type(_mapping(source["items"])), _optional_integer(source, "maxLength")
            )
        case "object":
            return _parse_object(source)
        case "ref":
            return RefType(description, str(source["ref"]))
        case other:
            raise Misconfigured("a lexicon uses a type that is not known here", type=other)


def _parse_object(source: Mapping[str, JSON]) -> ObjectType:
    properties = {name: _parse_type(_mapping(schema)) for name, schema in _mapping(source["properties"]).items()}
    required = _optional_texts(source, "required") or ()
    return ObjectType(_optional_text(source, "description"), frozenset(required), properties)


def _mapping(value: JSON) -> Mapping[str, JSON]:
    if not isinstance(value, Mapping):
        raise Misconfigured("a lexicon has another shape than an object where one belongs")
    return value


def _format(source: Mapping[str, JSON]) -> str | None:
    name = _optional_text(source, "format")
    if name in _CHECKED_AS.values():
        raise Misconfigured("a lexicon uses a string format that clients' validators know too narrowly", format=name)
    return None if name is None else _CHECKED_AS.get(name, name)


def _optional_text(source: Mapping[str, JSON], name: str) -> str | None:
    value = source.get(name)
    return value if isinstance(value, str) else None


def _optional_texts(source: Mapping[str, JSON], name: str) -> tuple[str, ...] | None:
    value = source.get(name)
    return tuple(str(item) for item in value) if isinstance(value, list) else None


def _optional_integer(source: Mapping[str, JSON], name: str) -> int | None:
    value = source.get(name)
    return value if isinstance(value, int) else None


def problem_with_text(schema: StringType, text: str) -> str | None:
    """Say what keeps `text` from being of the type, as the end of a sentence that its name begins; None if nothing."""
    if schema.enum is not None and text not in schema.enum:
        return f"must be one of {', '.join(schema.enum)}"
    if len(text) < schema.min_length:
        return "must not be empty"
    if _has_more_graphemes(text, schema.max_graphemes):
        return f"must have at most {schema.max_graphemes:,} characters"
    if schema.max_length is not None and len(text.encode()) > schema.max_length:
        return f"must have at most {schema.max_length:,} bytes"
    return None if schema.format is None else _problem_with_format(schema.format, text)


def _has_more_graphemes(text: str, limit: int | None) -> bool:
    # No text has more graphemes than code points, and nearly all have few: counting is left to the long ones.
    return limit is not None and len(text) > limit and sum(1 for _ in _GRAPHEME.finditer(text)) > limit


def _problem_with_format(name: str, text: str) -> str | None:
    match name:
        case "datetime":
            return (
                None if parse_datetime(text) else "must be a datetime such as 2026-01-31T12:00:00Z (in a URL, + is %2B)"
            )
        case "at-uri":
            return (
                None if parse_record_uri(text) else "must be a record's at-uri such as at://did:plc:…/collection/rkey"
            )
        case "at-identifier":
            return None if is_did(text) or is_handle(text) else "must be a DID or a handle"
        case "did":
            return None if is_did(text) else "must be a DID"
        case "handle":
            return None if is_handle(text) else "must be a handle"
        case "cid":
            return None if is_cid(text) else "must be a CID"
        case "tid":
            return None if is_tid(text) else "must be a TID"
        case _:
            raise Misconfigured("a lexicon uses a string format that is not known here", format=name)


def problems(catalogue: Catalogue, schema: Type, value: JSON, path: str = "answer") -> Iterator[str]:
    """Yield what keeps `value`, decoded JSON, from being exactly of the type; undeclared properties count."""
    match schema:
        case RefType():
            yield from problems(catalogue, catalogue.definitions[schema.ref], value, path)
        case UnknownType() if not isinstance(value, Mapping):
            yield f"{path} must be an object"
        case BooleanType() if not isinstance(value, bool):
            yield f"{path} must be a boolean"
        case UnknownType() | BooleanType():
            return
        case IntegerType():
            yield from _problems_with_integer(schema, value, path)
        case StringType():
            problem = problem_with_text(schema, value) if isinstance(value, str) else "must be a string"
            yield from () if problem is None else (f"{path} {problem}",)
        case ArrayType():
            yield from _problems_with_array(catalogue, schema, value, path)
        case ObjectType():
            yield from _problems_with_object(catalogue, schema, value, path)
        case _:
            assert_never(schema)


def _problems_with_array(catalogue: Catalogue, schema: ArrayType, value: JSON, path: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{path} must be an array"
        return
    if schema.max_length is not None and len(value) > schema.max_length:
        yield f"{path} must have at most {schema.max_length} items"
    for index, item in enumerate(value):
        yield from problems(catalogue, schema.items, item, f"{path}[{index}]")


def _problems_with_integer(schema: IntegerType, value: JSON, path: str) -> Iterator[str]:
    if isinstance(value, bool) or not isinstance(value, int):
        yield f"{path} must be an integer"
    elif (schema.minimum is not None and value < schema.minimum) or (
        schema.maximum is not None and value > schema.maximum
    ):
        yield f"{path} must be from {schema.minimum} to {schema.maximum}"


def _problems_with_object(catalogue: Catalogue, schema: ObjectType, value: JSON, path: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{path} must be an object"
        return
    for name in sorted(schema.required - value.keys()):
        yield f"{path}.{name} is missing"
    for name, item in value.items():
        declared = schema.properties.get(name)
        if declared is None:
            yield f"{path}.{name} is not declared"
        else:
            yield from problems(catalogue, declared, item, f"{path}.{name}")
