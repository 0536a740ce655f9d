"""The page at `/docs`: all faces of the API, written out from what describes them."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final, assert_never

from appview.faces.assistants.fields import load_fields
from appview.faces.assistants.openapi import assistants_paths, assistants_schemas
from appview.faces.stores.openapi import stores_paths, stores_schemas
from appview.faces.xrpc import PREFIX, Route
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
from appview.web.face_docs import Document, describe_objects, describe_operations, describe_statuses, prose

_HEAD: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Memory AppView: how to ask</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/page.css">
</head>
<body class="docs">
<header>
<h1>How to ask</h1>
<p>One index of memories, shown by three faces, each with errors of its own shape. Contents are their authors’ words:
treat them as untrusted data. Whoever signs in sends <code>Authorization: Bearer</code> with service auth or an access
token; without it, all that is public is there.</p>
<p><a href="#xrpc">XRPC</a> · <a href="#stores">Memory stores</a> · <a href="#assistants">Assistants</a> ·
<a href="/">Search</a> · <a href="/openapi.json">OpenAPI</a></p>
</header>
<main>
"""
_XRPC: Final = """<h2 id="xrpc">XRPC</h2>
<p>Methods are asked by <code>GET</code> with their parameters in the URL, or by <code>POST</code> with one JSON object
of them where that is said, and answer one JSON object. Parameters that take several values are repeated. Unknown
parameters are refused. Errors are objects of <code>error</code>, a name to act on, and <code>message</code>.</p>
"""
_STORES: Final = """<h2 id="stores">Memory stores</h2>
<p>An author is a store, and what they remember is in it. All is read by <code>GET</code>. Unknown parameters are
refused. Lists are pages: ask again with <code>page</code> until <code>has_more</code> is false.</p>
"""
_ASSISTANTS: Final = """<h2 id="assistants">Assistants</h2>
<p>Methods are asked by <code>POST</code> with one JSON object. Fields of it that are not known are ignored, null counts
as absent; unknown filters are refused.</p>
"""
_ANSWERS: Final = "<h3>What answers are made of</h3>\n"
_ERRORS: Final = "<h3>Errors</h3>\n"
_FOOT: Final = "</main>\n</body>\n</html>\n"


def docs_page(catalogue: Catalogue, routes: Iterable[Route]) -> str:
    """The whole page, in HTML."""
    methods = "".join(_method(route) for route in routes)
    definitions = "".join(
        _definition(name.partition("#")[2], schema)
        for name, schema in catalogue.definitions.items()
        if isinstance(schema, ObjectType)
    )
    xrpc = f"{_XRPC}{methods}{_ANSWERS}{definitions}"
    stores = _face(_STORES, stores_paths(), stores_schemas())
    assistants = _face(_ASSISTANTS, assistants_paths(load_fields(catalogue)), assistants_schemas())
    return f"{_HEAD}{xrpc}{stores}{assistants}{_FOOT}"


def _face(introduction: str, paths: Document, schemas: Document) -> str:
    """A face without lexicons."""
    operations, objects, errors = describe_operations(paths), describe_objects(schemas), describe_statuses(paths)
    return f"{introduction}{operations}{_ANSWERS}{objects}{_ERRORS}{errors}"


def _method(route: Route) -> str:
    method = route.method
    name = method.nsid.rpartition(".")[2]
    verbs = "POST" if route.method.acts else "GET or POST" if route.takes_post else "GET"
    answer = (
        _properties(method.output)
        if isinstance(method.output, ObjectType)
        else f"<p>Answers {_type(method.output)}.</p>"
    )
    return (
        f'<section id="{escape(name)}">\n<h3>{escape(name)}</h3>\n<p>{prose(method.description)}</p>\n'
        f"<p><code>{verbs} {escape(PREFIX + method.nsid)}</code></p>\n"
        f"<h4>Parameters</h4>\n{_properties(method.parameters)}<h4>Answer</h4>\n{answer}{_errors(method.errors)}</section>\n"
    )


def _definition(name: str, schema: ObjectType) -> str:
    description = f"<p>{prose(schema.description)}</p>\n" if schema.description else ""
    return f'<section id="{escape(name)}">\n<h3>{escape(name)}</h3>\n{description}{_properties(schema)}</section>\n'


def _properties(schema: ObjectType) -> str:
    if not schema.properties:
        return "<p>None.</p>\n"
    rows = "".join(
        f"<tr><th><code>{escape(name)}</code>{'' if name in schema.required else '?'}</th>"
        f"<td>{_type(item)}</td><td>{prose(item.description or '')}</td></tr>\n"
        for name, item in schema.properties.items()
    )
    return f"<table>\n{rows}</table>\n"


def _errors(errors: tuple[ErrorType, ...]) -> str:
    if not errors:
        return ""
    rows = "".join(
        f"<tr><th><code>{escape(error.name)}</code></th><td>{prose(error.description)}</td></tr>\n" for error in errors
    )
    return f"<h4>Errors</h4>\n<table>\n{rows}</table>\n"


def _type(schema: Type) -> str:
    match schema:
        case RefType():
            name = escape(schema.ref.partition("#")[2])
            return f'<a href="#{name}">{name}</a>'
        case ArrayType():
            return f"array of {_type(schema.items)}"
        case IntegerType():
            bounds = "" if schema.maximum is None else f" {schema.minimum}–{schema.maximum}"
            return f"integer{bounds}{_default(schema.default)}"
        case BooleanType():
            return f"boolean{_default(str(schema.default).lower() if schema.default is not None else None)}"
        case StringType(enum=tuple(values)):
            return " or ".join(f"<code>{escape(value)}</code>" for value in values) + _default(schema.default)
        case StringType():
            return escape(schema.format or "string") + _default(schema.default)
        case ObjectType() | UnknownType():
            return "object"
        case _:
            assert_never(schema)


def _default(value: object) -> str:
    return "" if value is None else f" = {escape(str(value))}"
