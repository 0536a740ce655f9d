"""The OpenAPI 3.1 document of the API, made from its lexicons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias, assert_never

from appview.faces.xrpc import HEALTH, PREFIX, Route
from appview.lexicon import (
    ArrayType,
    BooleanType,
    Catalogue,
    IntegerType,
    ObjectType,
    RefType,
    StringType,
    Type,
    UnknownType,
)

Document: TypeAlias = dict[str, object]

GENERAL_ERRORS: Final[Mapping[int, tuple[str, str]]] = {
    408: ("InvalidRequest", "The body took too long to come."),
    413: ("PayloadTooLarge", "The body is too large."),
    414: ("InvalidRequest", "The URL is too long."),
    500: ("InternalServerError", "Something went wrong here."),
    503: ("NotEnoughResources", "The index cannot answer at the moment; `Retry-After` says when to ask again."),
}

# Lexicon formats that JSON Schema also has a name for; the others keep their own.
_FORMATS: Final = {"datetime": "date-time"}


def openapi_document(catalogue: Catalogue, routes: Iterable[Route], *, version: str, url: str | None) -> Document:
    """Describe all routes; `url` is where clients reach them, None for wherever the document came from."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Memory AppView",
            "version": version,
            "summary": "Search over the memories that people keep in their AT Protocol repos.",
            "description": (
                "Reads of `dev.bastienrobert.memory.record` records: verified, with replaced ones masked. Texts are"
                " their authors' words: untrusted data. Errors are JSON objects of `error` and `message`."
            ),
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": url or "/"}],
        "paths": {PREFIX + route.method.nsid: _path_item(route) for route in routes} | {PREFIX + HEALTH: _health()},
        "components": {
            "schemas": {_component(name): _schema(schema) for name, schema in catalogue.definitions.items()}
            | {"error": _error_schema()},
        },
    }


def _path_item(route: Route) -> Document:
    nsid, parameters = route.method.nsid, route.method.parameters
    body: Document = {
        "requestBody": {"required": True, "content": {"application/json": {"schema": _schema(parameters)}}}
    }
    if route.acts:
        return {"post": _operation(route, nsid) | body}
    item: Document = {"get": _operation(route, nsid) | {"parameters": _parameters(parameters)}}
    if route.takes_post:
        item["post"] = _operation(route, f"{nsid}.post") | body
    return item


def _operation(route: Route, operation_id: str) -> Document:
    method = route.method
    errors = "".join(f"\n- `{error.name}`: {error.description}" for error in method.errors)
    invalid = f"The request is refused:\n- `InvalidRequest`: A parameter is missing, unknown or malformed.{errors}"
    lines: Document = {"application/x-ndjson": {"schema": {"type": "string"}}} if route.stream is not None else {}
    responses: Document = {
        "200": _json_response("The answer.", _schema(method.output), lines),
        "400": _error_response(invalid),
    }
    for status, (name, description) in GENERAL_ERRORS.items():
        responses[str(status)] = _error_response(f"`{name}`: {description}")
    return {"operationId": operation_id, "description": method.description, "responses": responses}


def _parameters(parameters: ObjectType) -> list[Document]:
    return [
        _present(
            name=name,
            **{"in": "query"},
            required=name in parameters.required,
            style="form" if isinstance(schema, ArrayType) else None,
            explode=isinstance(schema, ArrayType) or None,  # repeated fields
            description=schema.description,
            schema={key: value for key, value in _schema(schema).items() if key != "description"},
        )
        for name, schema in parameters.properties.items()
    ]


def _schema(schema: Type) -> Document:
    described: Document = {} if schema.description is None else {"description": schema.description}
    match schema:
        case RefType():
            return described | {"$ref": f"#/components/schemas/{_component(schema.ref)}"}
        case UnknownType():
            return described | {"type": "object", "additionalProperties": True}
        case BooleanType():
            return described | _present(type="boolean", default=schema.default)
        case IntegerType():
            return described | _present(
                type="integer", minimum=schema.minimum, maximum=schema.maximum, default=schema.default
            )
        case StringType():
            return described | _string_schema(schema)
        case ArrayType():
            return described | _present(type="array", items=_schema(schema.items), maxItems=schema.max_length)
        case ObjectType():
            return described | {
                "type": "object",
                "required": sorted(schema.required),
                "properties": {name: _schema(item) for name, item in schema.properties.items()},
            }
        case _:
            assert_never(schema)


def _string_schema(schema: StringType) -> Document:
    # JSON Schema counts code points: no text has fewer of them than graphemes, nor more than bytes.
    return _present(
        type="string",
        format=None if schema.format is None else _FORMATS.get(schema.format, schema.format),
        enum=None if schema.enum is None else list(schema.enum),
        examples=None if schema.known_values is None else list(schema.known_values),
        minLength=schema.min_length or None,
        maxLength=schema.max_length,
        default=schema.default,
    )


def _present(**properties: object) -> Document:
    return {name: value for name, value in properties.items() if value is not None}


def _component(name: str) -> str:
    """The name of a definition without its NSID: they all come from one file."""
    return name.partition("#")[2]


def _health() -> Document:
    schema: Document = {"type": "object", "required": ["version"], "properties": {"version": {"type": "string"}}}
    return {
        "get": {
            "operationId": HEALTH,
            "description": "Whether the API runs, and which version of it.",
            "responses": {"200": _json_response("It runs.", schema)},
        }
    }


def _json_response(description: str, schema: Document, more: Document | None = None) -> Document:
    return {"description": description, "content": {"application/json": {"schema": schema}} | (more or {})}


def _error_response(description: str) -> Document:
    return _json_response(description, {"$ref": "#/components/schemas/error"})


def _error_schema() -> Document:
    return {
        "type": "object",
        "required": ["error", "message"],
        "properties": {
            "error": {"type": "string", "description": "A name to act on."},
            "message": {"type": "string", "description": "A sentence for people."},
        },
    }
