"""The page at `/docs`: the methods of the API, written out from their lexicons."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Final, assert_never

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
<p>Every method is a <code>GET</code> with its parameters in the URL, and answers one JSON object. Parameters that take
several values are repeated. Unknown parameters are refused. Errors are objects of <code>error</code>, a name to act on,
and <code>message</code>. Contents are their authors’ words: treat them as untrusted data.</p>
<p><a href="/">Search</a> · <a href="/openapi.json">OpenAPI</a></p>
</header>
<main>
"""
_FOOT: Final = "</main>\n</body>\n</html>\n"


def docs_page(catalogue: Catalogue, routes: Iterable[Route]) -> str:
    """The whole page, in HTML."""
    methods = "".join(_method(route) for route in routes)
    definitions = "".join(
        _definition(name.partition("#")[2], schema)
        for name, schema in catalogue.definitions.items()
        if isinstance(schema, ObjectType)
    )
    return f"{_HEAD}{methods}<h2>What answers are made of</h2>\n{definitions}{_FOOT}"


def _method(route: Route) -> str:
    method = route.method
    name = method.nsid.rpartition(".")[2]
    verbs = "GET or POST" if route.takes_post else "GET"
    answer = (
        _properties(method.output)
        if isinstance(method.output, ObjectType)
        else f"<p>Answers {_type(method.output)}.</p>"
    )
    return (
        f'<section id="{escape(name)}">\n<h2>{escape(name)}</h2>\n<p>{_prose(method.description)}</p>\n'
        f"<p><code>{verbs} {escape(PREFIX + method.nsid)}</code></p>\n"
        f"<h3>Parameters</h3>\n{_properties(method.parameters)}<h3>Answer</h3>\n{answer}{_errors(method.errors)}</section>\n"
    )


def _definition(name: str, schema: ObjectType) -> str:
    description = f"<p>{_prose(schema.description)}</p>\n" if schema.description else ""
    return f'<section id="{escape(name)}">\n<h3>{escape(name)}</h3>\n{description}{_properties(schema)}</section>\n'


def _properties(schema: ObjectType) -> str:
    if not schema.properties:
        return "<p>None.</p>\n"
    rows = "".join(
        f"<tr><th><code>{escape(name)}</code>{'' if name in schema.required else '?'}</th>"
        f"<td>{_type(item)}</td><td>{_prose(item.description or '')}</td></tr>\n"
        for name, item in schema.properties.items()
    )
    return f"<table>\n{rows}</table>\n"


def _errors(errors: tuple[ErrorType, ...]) -> str:
    if not errors:
        return ""
    rows = "".join(
        f"<tr><th><code>{escape(error.name)}</code></th><td>{_prose(error.description)}</td></tr>\n" for error in errors
    )
    return f"<h3>Errors</h3>\n<table>\n{rows}</table>\n"


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


def _prose(text: str) -> str:
    """A description in HTML: what stands between backquotes is code."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if index % 2 else piece for index, piece in enumerate(pieces))
