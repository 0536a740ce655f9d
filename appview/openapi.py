"""The OpenAPI 3.1 document of the API: all faces, and what is the same for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, cast

from appview.faces.assistants.fields import load_fields
from appview.faces.assistants.openapi import assistants_paths, assistants_schemas
from appview.faces.documents import Document
from appview.faces.stores.openapi import stores_paths, stores_schemas
from appview.faces.xrpc import HEALTH, PREFIX, Route
from appview.faces.xrpc_openapi import takes_access_token, takes_anybody, takes_service_auth, xrpc_paths, xrpc_schemas
from appview.lexicon import Catalogue

_DESCRIPTION: Final = """\
Reads of `dev.bastienrobert.memory.record` records: verified, with replaced ones masked. Texts are their authors' words:
untrusted data.

Three faces show the same index: XRPC methods below `/xrpc/`, memory stores below `/api/v1/cloud/`, and memories for
assistants below `/api/v1/llm/`. Each has errors of its own shape. What is answered to GET is answered to HEAD too,
without its body.

Two answers are the server's own, below no path in particular: plain text, without the headers of this document, on a
connection that is then closed. `400` is for what is not HTTP, `503` for too many connections at once: ask again after
some seconds.
"""

_OPTIONAL: Final[list[Document]] = [{}, {"serviceAuth": []}, {"accessToken": []}]

_SECURITY_SCHEMES: Final[Document] = {
    "serviceAuth": {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "JWT",
        "description": (
            "Service auth: a JWT that an account's key has signed, for this service (`aud`) and the method (`lxm`); a"
            " PDS makes one when it passes a request on. Outside `/xrpc/`, `lxm` is"
            " `dev.bastienrobert.memory.searchRecords`. For a procedure it is good once."
        ),
    },
    "accessToken": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token that `createAccessToken` or `openSpace` has made.",
    },
}

_HEADERS: Final[Mapping[str, tuple[str, Document]]] = {
    "Request-Id": ("Of this request; to be named in questions about it.", {"type": "string", "minLength": 1}),
    "RateLimit-Limit": ("How many requests there may be in a window; absent where none are counted.", {}),
    "RateLimit-Remaining": ("How many are left.", {}),
    "RateLimit-Reset": ("When the window ends, in seconds since 1970.", {}),
    "RateLimit-Policy": ("The limit and the window's length in seconds.", {"type": "string"}),
    "Retry-After": ("When to ask again, in seconds.", {"type": "integer", "minimum": 1}),
    "WWW-Authenticate": ("What credentials are taken.", {"const": "Bearer"}),
    "Allow": ("The HTTP methods that the path answers.", {"type": "string"}),
    "ETag": ("Of the whole body. Sent back as `If-None-Match`, it saves the body.", {"type": "string"}),
    "Atproto-Repo-Rev": (
        "How far the viewer's own repo is indexed; absent where nobody is signed in, or it is not indexed.",
        {"type": "string"},
    ),
}
_ALWAYS: Final = ("Request-Id",)
_COUNTED: Final = tuple(name for name in _HEADERS if name.startswith("RateLimit-"))
_BY_STATUS: Final[Mapping[str, tuple[str, ...]]] = {
    "401": ("WWW-Authenticate",),
    "405": ("Allow",),
    "429": ("Retry-After",),
    "503": ("Retry-After",),
}
_NOT_MODIFIED: Final = "The client has the answer already, as its `If-None-Match` says."


def openapi_document(catalogue: Catalogue, routes: Iterable[Route], *, version: str, url: str | None) -> Document:
    """Describe all faces; `url` is where clients reach them, None for wherever the document came from."""
    described = list(routes)
    paths = xrpc_paths(described) | stores_paths() | assistants_paths(load_fields(catalogue))
    security = {PREFIX + route.method.nsid: _security(route) for route in described}
    security[PREFIX + HEALTH] = []
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Memory AppView",
            "version": version,
            "summary": "Search over the memories that people keep in their AT Protocol repos.",
            "description": _DESCRIPTION,
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": url or "/"}],
        "tags": [
            {"name": "XRPC", "description": "For apps of the AT Protocol; through the user's own PDS or directly."},
            {"name": "Memory stores", "description": "For agent platforms: stores, their memories and versions."},
            {"name": "Assistants", "description": "For assistants: get, list and search memories."},
        ],
        "paths": {
            path: {
                verb: _complete(path, verb, operation, security.get(path, _OPTIONAL))
                for verb, operation in cast("dict[str, Document]", item).items()
            }
            for path, item in paths.items()
        },
        "components": {
            "schemas": xrpc_schemas(catalogue) | stores_schemas() | assistants_schemas(),
            "headers": {name: _header(name) for name in _HEADERS},
            "securitySchemes": _SECURITY_SCHEMES,
        },
    }


def _security(route: Route) -> list[Document]:
    """What credentials a method takes."""
    takes = (takes_anybody(route), takes_service_auth(route), takes_access_token(route))
    return [scheme for scheme, does in zip(_OPTIONAL, takes, strict=True) if does]


def _complete(path: str, verb: str, operation: Document, security: list[Document]) -> Document:
    """An operation of a face, with what the edge does for all."""
    responses = dict(cast("dict[str, Document]", operation["responses"]))
    if verb == "get":
        responses["304"] = {"description": _NOT_MODIFIED}
    is_xrpc = path.startswith(PREFIX)
    completed: Document = {
        status: responses[status] | {"headers": _headers_of(status, verb, is_xrpc=is_xrpc)}
        for status in sorted(responses)
    }
    return operation | {"security": security, "responses": completed}


def _headers_of(status: str, verb: str, *, is_xrpc: bool) -> Document:
    names = [*_ALWAYS, *_COUNTED, *_BY_STATUS.get(status, ())]
    if status in ("200", "304"):
        names += ["ETag"] if verb == "get" else []
        names += ["Atproto-Repo-Rev"] if is_xrpc else []
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _header(name: str) -> Document:
    description, schema = _HEADERS[name]
    required = name in _ALWAYS or any(name in names for names in _BY_STATUS.values())
    return {
        "description": description,
        "required": required,
        "schema": schema or {"type": "integer", "minimum": 0},
    }
