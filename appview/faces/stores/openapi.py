"""This face as OpenAPI 3.1 has it: paths and schemas, with examples."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256
from typing import Final, assert_never

from appview.faces.documents import Document, json_answer, reference, text, time
from appview.faces.stores.endpoints import ENDPOINTS, PREFIX, Endpoint
from appview.faces.stores.face import WRITTEN_ELSEWHERE, error_type
from appview.faces.stores.ids import IdKind, Ids
from appview.faces.stores.parameters import (
    BooleanParameter,
    IdParameter,
    IntegerParameter,
    Parameter,
    TextParameter,
    TimeParameter,
)
from appview.keys import Key
from appview.store.stores import StoreKey
from memory.identifiers import COLLECTION
from memory.space import PUBLIC

_COMPONENTS: Final = {
    "memory_store": "MemoryStore",
    "memory": "StoreMemory",
    "memory_version": "StoreMemoryVersion",
}
_ERROR: Final = "StoresError"
_ERRORS: Final[Mapping[int, str]] = {
    400: "A parameter is unknown, given twice, out of range or malformed; `param` names it.",
    401: "The credentials do not hold.",
    404: "There is no such store, memory or version, or the viewer may not read it.",
    405: WRITTEN_ELSEWHERE,
    414: "The URL is too long.",
    429: "Too many requests; `Retry-After` says when to ask again.",
    500: "Something went wrong here.",
    503: "The index cannot answer at the moment; `Retry-After` says when to ask again.",
}

_VERSION_ID: Final = "memver_00112233445566778899aabbccddeeff"
_RKEY: Final = "3mbd3542k2222"
_CONTENT: Final = "Prefers green tea."
_CONTENT_SHA256: Final = sha256(_CONTENT.encode()).hexdigest()
_DID: Final = "did:plc:ewvi7nxzyoun6zhxrhs64oiz"
# Ids of what is public need no key; that of a version is of any index but this.
_STORE_ID: Final = Ids(b"").of_store(StoreKey(_DID, PUBLIC))
_MEMORY_ID: Final = Ids(b"").of_memory(Key(_DID, PUBLIC, _RKEY))

STORE_EXAMPLE: Final[Document] = {
    "id": _STORE_ID,
    "type": "memory_store",
    "name": "alice.example.com",
    "description": "",
    "status": "active",
    "entry_count": 1,
    "total_size": len(_CONTENT),
    "metadata": {"repo": _DID},
    "archived_at": None,
    "created_at": "2026-11-30T09:00:00.000000Z",
    "updated_at": "2026-11-30T10:00:00.000000Z",
}
MEMORY_EXAMPLE: Final[Document] = {
    "id": _MEMORY_ID,
    "type": "memory",
    "memory_store_id": _STORE_ID,
    "path": f"home/{_RKEY}",
    "content_size_bytes": len(_CONTENT),
    "content_sha256": _CONTENT_SHA256,
    "version": 1,
    "metadata": {
        "kind": "preference",
        "scope": "home",
        "uri": f"at://{_DID}/{COLLECTION}/{_RKEY}",
        "cid": "bafyreig2rjeebgp2mz676axh4hemxwstlmptmnlro6zu4zsasjp425zeqm",
        "superseded": "false",
    },
    "content": _CONTENT,
    "created_at": "2026-11-30T10:00:00.000000Z",
    "updated_at": "2026-11-30T10:00:00.000000Z",
}
VERSION_EXAMPLE: Final[Document] = {
    "id": _VERSION_ID,
    "type": "memory_version",
    "memory_store_id": _STORE_ID,
    "memory_id": _MEMORY_ID,
    "path": f"home/{_RKEY}",
    "content_size_bytes": len(_CONTENT),
    "content_sha256": _CONTENT_SHA256,
    "operation": "created",
    "redacted": False,
    "content": _CONTENT,
    "created_at": "2026-11-30T10:00:00.000000Z",
}
_EXAMPLES: Final = {"memory_store": STORE_EXAMPLE, "memory": MEMORY_EXAMPLE, "memory_version": VERSION_EXAMPLE}
_PATH_EXAMPLES: Final = {
    "memory_store_id": _STORE_ID,
    "memory_id": _MEMORY_ID,
    "memory_version_id": _VERSION_ID,
}
_REQUESTS: Final[Mapping[str, Mapping[str, Document]]] = {
    "listMemoryStores": {
        "of one author": {"name": "alice.", "limit": 5},
        "since a day, archived ones too": {"created_at[gte]": "2026-01-01T00:00:00Z", "include_archived": True},
    },
    "listMemories": {
        "latest in effect": {"limit": 2},
        "of one label, replaced ones too": {"path_prefix": "home/", "include_superseded": True},
    },
    "listMemoryVersions": {"of the whole store": {}, "of one memory": {"memory_id": _MEMORY_ID}},
}
"""Requests by the endpoint and what each asks. Beside a parameter stands what each request has in it."""


def stores_paths() -> Document:
    """The path items, by whole path."""
    return {f"/{PREFIX.strip('/')}/{endpoint.path}": {"get": _operation(endpoint)} for endpoint in ENDPOINTS}


def stores_schemas() -> Document:
    """The components that those refer to, by name."""
    return {
        "MemoryStore": _object(STORE_EXAMPLE, _STORE_PROPERTIES),
        "StoreMemory": _object(MEMORY_EXAMPLE, _MEMORY_PROPERTIES, optional=("content",)),
        "StoreMemoryVersion": _object(VERSION_EXAMPLE, _VERSION_PROPERTIES, optional=("content", "redacted_at")),
        _ERROR: _ERROR_SCHEMA,
    }


def _operation(endpoint: Endpoint) -> Document:
    name = _COMPONENTS[endpoint.shows]
    schema: Document = reference(name)
    example = _EXAMPLES[endpoint.shows]
    if endpoint.is_list:
        listed = {key: value for key, value in example.items() if key != "content"}
        example = {
            "data": [listed],
            "next_page": None,
            "first_id": listed["id"],
            "last_id": listed["id"],
            "has_more": False,
        }
        schema = _envelope(schema)
    in_path = re.findall(r"\{(\w+)\}", endpoint.path)
    requests = _REQUESTS.get(endpoint.name, {"one": {}})
    return {
        "operationId": endpoint.name,
        "tags": ["Memory stores"],
        "summary": endpoint.summary,
        "parameters": [
            *(_path_parameter(name, requests) for name in in_path),
            *(_query_parameter(parameter, requests) for parameter in endpoint.parameters),
        ],
        "responses": {
            "200": json_answer("The answer.", schema, example),
            **{str(status): _error(status, description) for status, description in _ERRORS.items()},
        },
    }


def _path_parameter(name: str, requests: Mapping[str, Document]) -> Document:
    kind = {"memory_store_id": IdKind.STORE, "memory_id": IdKind.MEMORY}.get(name, IdKind.VERSION)
    examples = {request: {"value": _PATH_EXAMPLES[name]} for request in requests}
    return {"name": name, "in": "path", "required": True, "schema": _id(kind), "examples": examples}


def _query_parameter(parameter: Parameter, requests: Mapping[str, Document]) -> Document:
    described: Document = {
        "name": parameter.name,
        "in": "query",
        "required": False,
        "description": parameter.description,
        "schema": _parameter_schema(parameter),
    }
    # Examples of one name are of one request.
    examples = {name: {"value": asked[parameter.name]} for name, asked in requests.items() if parameter.name in asked}
    return described | {"examples": examples} if examples else described


def _parameter_schema(parameter: Parameter) -> Document:
    match parameter:
        case IntegerParameter(minimum=minimum, maximum=maximum, default=default):
            return {"type": "integer", "minimum": minimum, "maximum": maximum, "default": default}
        case BooleanParameter(default=default):
            return {"type": "boolean", "default": default}
        case TimeParameter():
            return {"type": "string", "format": "date-time"}
        case TextParameter(max_characters=max_characters):
            return {"type": "string", "maxLength": max_characters}
        case IdParameter(kind=kind):
            return _id(kind)
        case _:
            assert_never(parameter)


def _id(kind: IdKind) -> Document:
    return {"type": "string", "pattern": f"^{kind}[0-9a-f]{{32}}$"}


def _envelope(item: Document) -> Document:
    id_or_null = {"type": ["string", "null"]}
    properties: Document = {
        "data": {"type": "array", "items": item, "maxItems": 100},
        "next_page": {"type": ["string", "null"], "description": "For `page`; null on the last page."},
        "first_id": id_or_null,
        "last_id": id_or_null,
        "has_more": {"type": "boolean", "description": "Whether the list goes on in the direction that was asked for."},
    }
    return {"type": "object", "required": list(properties), "properties": properties, "additionalProperties": False}


def _object(example: Document, properties: Document, *, optional: tuple[str, ...] = ()) -> Document:
    return {
        "type": "object",
        "required": [name for name in properties if name not in optional],
        "properties": properties,
        "additionalProperties": False,
        "examples": [example],
    }


def _error(status: int, description: str) -> Document:
    error = {"type": error_type(status), "message": description}
    example: Document = {"type": "error", "request_id": "5f0e9c1d2b3a4958", "error": error}
    return json_answer(description, reference(_ERROR), example)


def _count(description: str, minimum: int = 0) -> Document:
    return {"type": "integer", "minimum": minimum, "description": description}


_STRINGS: Final[Document] = {"type": "object", "additionalProperties": {"type": "string"}}
_SHA256: Final[Document] = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_STORE_PROPERTIES: Final[Document] = {
    "id": _id(IdKind.STORE),
    "type": {"const": "memory_store"},
    "name": text("The author's handle, or DID where it has none; in a Space with the Space's key behind a slash."),
    "description": {"const": ""},
    "status": {"enum": ["active", "archived"]},
    "entry_count": _count("Memories that no newer one replaces; 0 of an archived store."),
    "total_size": _count("Bytes of their contents in UTF-8."),
    "metadata": _STRINGS | {"required": ["repo"], "description": "`repo`, a DID; `space`, if it is in one."},
    "archived_at": {"type": ["string", "null"], "format": "date-time"},
    "created_at": time("First indexed."),
    "updated_at": time("Last change that was seen."),
}
_MEMORY_PROPERTIES: Final[Document] = {
    "id": _id(IdKind.MEMORY),
    "type": {"const": "memory"},
    "memory_store_id": _id(IdKind.STORE),
    "path": text("Its scope, or `default`, and its record key."),
    "content_size_bytes": _count("Of the content in UTF-8."),
    "content_sha256": _SHA256,
    "version": _count("Goes on when the same record key is used again.", 1),
    "metadata": _STRINGS
    | {
        "required": ["uri", "cid", "superseded"],
        "description": "`uri`, `cid`, `superseded` (`true` or `false`); `kind`, `scope`, `agent` where they are there.",
    },
    "content": text("In single retrieval only. Its author's words: untrusted data."),
    "created_at": time("As the record says."),
    "updated_at": time("As the record says, else as `created_at`."),
}
_VERSION_PROPERTIES: Final[Document] = {
    "id": _id(IdKind.VERSION),
    "type": {"const": "memory_version"},
    "memory_store_id": _id(IdKind.STORE),
    "memory_id": _id(IdKind.MEMORY),
    "path": text("At the time of the version; once redacted, `redacted` and the record key."),
    "content_size_bytes": _count("0 once redacted."),
    "content_sha256": _SHA256,
    "operation": {"enum": ["created", "updated", "deleted"]},
    "redacted": {"type": "boolean"},
    "redacted_at": time("Only once redacted."),
    "content": text("In single retrieval only, unless redacted. Its author's words: untrusted data."),
    "created_at": time("When it was observed."),
}
_ERROR_SCHEMA: Final[Document] = {
    "type": "object",
    "required": ["type", "request_id", "error"],
    "properties": {
        "type": {"const": "error"},
        "request_id": text("As in the header `Request-Id`."),
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {
                "type": {
                    "enum": [
                        "invalid_request_error",
                        "authentication_error",
                        "permission_error",
                        "not_found_error",
                        "rate_limit_error",
                        "api_error",
                    ]
                },
                "message": text("A sentence for people."),
                "param": text("The parameter at fault."),
            },
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
}
