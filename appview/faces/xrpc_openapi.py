"""What the OpenAPI document says of the XRPC face: made from its lexicons, with examples that tests send."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, assert_never

from appview.faces.documents import Document, json_answer, present, reference, text
from appview.faces.xrpc import HEALTH, PREFIX, Route
from appview.faces.xrpc_examples import ANSWERS, REQUESTS
from appview.lexicon import (
    ArrayType,
    BooleanType,
    Catalogue,
    ErrorType,
    IntegerType,
    ObjectType,
    RefType,
    StringType,
    Type,
    UnknownType,
)
from appview.refusals import AccessTokenRequired, ServiceAuthRequired
from appview.spaces.refusals import SpaceHostUnavailable

_BAD_CREDENTIALS: Final = (
    "The credentials do not hold, or there are none where some are needed. Of a JWT also `BadJwt`, `BadJwtType`,"
    " `JwtExpired`, `BadJwtAudience`, `BadJwtLexiconMethod`, `BadJwtIss`, `BadJwtSignature` or `JwtReplayed`, of an"
    " access token `InvalidToken`."
)
GENERAL_ERRORS: Final[Mapping[int, tuple[str, str]]] = {
    401: ("AuthenticationRequired", _BAD_CREDENTIALS),
    405: ("InvalidRequest", "Another HTTP method than the path answers; `Allow` names those."),
    408: ("InvalidRequest", "The body took too long to come."),
    413: ("PayloadTooLarge", "The body is too large."),
    414: ("InvalidRequest", "The URL is too long."),
    429: ("RateLimitExceeded", "Too many requests; `Retry-After` says when to ask again."),
    500: ("InternalServerError", "Something went wrong here."),
    503: ("NotEnoughResources", "The index cannot answer at the moment; `Retry-After` says when to ask again."),
}

_OWN_STATUS: Final[Mapping[str, int]] = {
    kind.error: kind.status for kind in (ServiceAuthRequired, AccessTokenRequired, SpaceHostUnavailable)
}
"""Errors of methods whose status is another than 400."""

_OF_BODIES: Final = (408, 413)
_OF_CREDENTIALS: Final = 401

# Lexicon formats that JSON Schema also has a name for; the others keep their own.
_FORMATS: Final = {"datetime": "date-time"}
_ERROR: Final = "error"


def xrpc_paths(routes: Iterable[Route]) -> Document:
    """The path items, by whole path."""
    paths: Document = {PREFIX + route.method.nsid: _path_item(route) for route in routes}
    return paths | {PREFIX + HEALTH: _health()}


def xrpc_schemas(catalogue: Catalogue) -> Document:
    """The components that those refer to, by name."""
    schemas: Document = {_component(name): _schema(schema) for name, schema in catalogue.definitions.items()}
    return schemas | {_ERROR: _error_schema()}


def takes_anybody(route: Route) -> bool:
    """Whether the method answers those too who do not say who they are."""
    return not route.method.acts and takes_service_auth(route) and takes_access_token(route)


def takes_service_auth(route: Route) -> bool:
    """Whether it does for the method to be named by service auth."""
    return all(error.name != AccessTokenRequired.error for error in route.method.errors)


def takes_access_token(route: Route) -> bool:
    """Whether an access token does for the method."""
    return all(error.name != ServiceAuthRequired.error for error in route.method.errors)


def _path_item(route: Route) -> Document:
    nsid, parameters = route.method.nsid, route.method.parameters
    examples = REQUESTS.get(nsid.rpartition(".")[2], {})
    body: Document = {"schema": _schema(parameters) | {"additionalProperties": False}}
    if examples:
        body["examples"] = _examples(examples)
    posted: Document = {"requestBody": {"required": True, "content": {"application/json": body}}}
    if route.method.acts:
        return {"post": _operation(route, nsid, takes_body=True) | posted}
    item: Document = {"get": _operation(route, nsid) | {"parameters": _parameters(parameters, examples)}}
    if route.takes_post:
        item["post"] = _operation(route, f"{nsid}.post", takes_body=True) | posted
    return item


def _operation(route: Route, operation_id: str, *, takes_body: bool = False) -> Document:
    method = route.method
    apart = [error for error in method.errors if error.name in _OWN_STATUS]
    errors = "".join(f"\n- `{error.name}`: {error.description}" for error in method.errors if error not in apart)
    invalid = f"The request is refused:\n- `InvalidRequest`: A parameter is missing, unknown or malformed.{errors}"
    streams = route.stream is not None and not takes_body
    answers = ANSWERS[method.nsid.rpartition(".")[2]]
    page: Document = {"application/json": {"schema": _schema(method.output), "examples": _examples(answers)}}
    lines: Document = {"application/x-ndjson": {"schema": {"type": "string"}}} if streams else {}
    responses: Document = {
        "200": {"description": "The answer.", "content": page | lines},
        "400": _error_response(invalid),
    }
    responses |= _general_errors(takes_body=takes_body, of_method=apart)
    return {
        "operationId": operation_id,
        "tags": ["XRPC"],
        "description": method.description,
        "responses": dict(sorted(responses.items())),
    }


def _examples(values: Mapping[str, Document]) -> Document:
    """That of a request and that of its answer have the same name."""
    return {name: {"value": value} for name, value in values.items()}


def _general_errors(*, takes_body: bool, of_method: Iterable[ErrorType] = ()) -> Document:
    """Those of all methods, and of one whose status is not 400."""
    told = [
        (status, f"`{name}`: {description}")
        for status, (name, description) in GENERAL_ERRORS.items()
        if takes_body or status not in _OF_BODIES
    ]
    told += [(_OWN_STATUS[error.name], f"`{error.name}`: {error.description}") for error in of_method]
    by_status: dict[str, list[str]] = {}
    for status, text_of_one in told:
        by_status.setdefault(str(status), []).append(text_of_one)
    return {status: _error_response("\n\n".join(texts)) for status, texts in by_status.items()}


def _parameters(parameters: ObjectType, examples: Mapping[str, Document]) -> list[Document]:
    return [
        present(
            name=name,
            **{"in": "query"},
            required=name in parameters.required,
            style="form" if isinstance(schema, ArrayType) else None,
            explode=isinstance(schema, ArrayType) or None,  # repeated fields
            description=schema.description,
            schema={key: value for key, value in _schema(schema).items() if key != "description"},
            # Examples of one name are of one request: here stands what that has in this parameter.
            examples={of: {"value": request[name]} for of, request in examples.items() if name in request} or None,
        )
        for name, schema in parameters.properties.items()
    ]


def _schema(schema: Type) -> Document:
    described: Document = {} if schema.description is None else {"description": schema.description}
    match schema:
        case RefType():
            return described | reference(_component(schema.ref))
        case UnknownType():
            return described | {"type": "object", "additionalProperties": True}
        case BooleanType():
            return described | present(type="boolean", default=schema.default)
        case IntegerType():
            return described | present(
                type="integer", minimum=schema.minimum, maximum=schema.maximum, default=schema.default
            )
        case StringType():
            return described | _string_schema(schema)
        case ArrayType():
            return described | present(type="array", items=_schema(schema.items), maxItems=schema.max_length)
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
    return present(
        type="string",
        format=None if schema.format is None else _FORMATS.get(schema.format, schema.format),
        enum=None if schema.enum is None else list(schema.enum),
        examples=None if schema.known_values is None else list(schema.known_values),
        minLength=schema.min_length or None,
        maxLength=schema.max_length,
        default=schema.default,
    )


def _component(name: str) -> str:
    """The name of a definition without its NSID: they all come from one file."""
    return name.partition("#")[2]


def _health() -> Document:
    schema: Document = {"type": "object", "required": ["version"], "properties": {"version": {"type": "string"}}}
    errors = _general_errors(takes_body=False)
    return {
        "get": {
            "operationId": HEALTH,
            "tags": ["XRPC"],
            "description": "Whether the API runs, and which version of it. Whoever asks is not looked at.",
            "responses": {"200": json_answer("It runs.", schema, {"version": "0.1.0"})}
            | {status: response for status, response in errors.items() if status != str(_OF_CREDENTIALS)},
        }
    }


def _error_response(description: str) -> Document:
    return json_answer(description, reference(_ERROR))


def _error_schema() -> Document:
    return {
        "type": "object",
        "required": ["error", "message"],
        "properties": {
            "error": text("A name to act on."),
            "message": text("A sentence for people."),
        },
    }
