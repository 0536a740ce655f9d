"""The parts of the page at `/docs` that tell of the faces without lexicons, written out from their OpenAPI."""

from __future__ import annotations

from html import escape
from typing import Final, TypeAlias, cast

Document: TypeAlias = dict[str, object]

_OPTIONAL: Final = "?"


def describe_operations(paths: Document) -> str:
    """A section for each operation."""
    return "".join(
        _operation(path, verb, operation)
        for path, item in paths.items()
        for verb, operation in _documents(item).items()
    )


def describe_objects(schemas: Document) -> str:
    """A section for each object that answers are made of."""
    return "".join(
        f'<section id="{escape(name)}">\n<h3>{escape(name)}</h3>\n{_prose_of(schema)}{_properties(schema)}</section>\n'
        for name, schema in _documents(schemas).items()
    )


def describe_statuses(paths: Document) -> str:
    """A table of the errors that any of the operations answers, by HTTP status."""
    described: dict[str, str] = {}
    for item in paths.values():
        for operation in _documents(item).values():
            for status, response in _documents(operation["responses"]).items():
                described.setdefault(status, str(response["description"]))
    rows = "".join(
        _row(status, "", "", description) for status, description in sorted(described.items()) if status != "200"
    )
    return f"<table>\n{rows}</table>\n"


def prose(text: str) -> str:
    """A description in HTML: what stands between backquotes is code."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if index % 2 else piece for index, piece in enumerate(pieces))


def _operation(path: str, verb: str, operation: Document) -> str:
    name = escape(str(operation["operationId"]))
    description = operation.get("description") or operation["summary"]
    answer = _json_schema(_documents(operation["responses"])["200"])
    told = f"<p>{_type(answer)}</p>\n" if "$ref" in answer else _properties(answer)
    return (
        f'<section id="{name}">\n<h3>{name}</h3>\n<p>{prose(str(description))}</p>\n'
        f"<p><code>{verb.upper()} {escape(path)}</code></p>\n"
        f"<h4>{'Fields' if 'requestBody' in operation else 'Parameters'}</h4>\n{_asked(operation)}"
        f"<h4>Answer</h4>\n{told}</section>\n"
    )


def _asked(operation: Document) -> str:
    if "requestBody" in operation:
        return _properties(_json_schema(cast("Document", operation["requestBody"])))
    parameters = cast("list[Document]", operation["parameters"])
    if not parameters:
        return "<p>None.</p>\n"
    rows = "".join(
        _row(
            str(parameter["name"]),
            "" if parameter["required"] else _OPTIONAL,
            _type(cast("Document", parameter["schema"])),
            str(parameter.get("description", "")),
        )
        for parameter in parameters
    )
    return f"<table>\n{rows}</table>\n"


def _properties(schema: Document) -> str:
    required = _required(schema)
    rows = "".join(
        _row(name, "" if name in required else _OPTIONAL, _type(item), str(item.get("description", "")))
        for name, item in _documents(schema.get("properties", {})).items()
    )
    return f"<table>\n{rows}</table>\n"


def _required(schema: Document) -> list[str]:
    """What must be there; of names of which one must be, the first, for the others say that they are the same."""
    either = [cast("list[Document]", each["anyOf"])[0] for each in cast("list[Document]", schema.get("allOf", []))]
    return [name for each in (schema, *either) for name in cast("list[str]", each.get("required", []))]


def _row(name: str, mark: str, kind: str, description: str) -> str:
    return f"<tr><th><code>{escape(name)}</code>{mark}</th><td>{kind}</td><td>{prose(description)}</td></tr>\n"


def _type(schema: Document) -> str:
    """What a value may be, in few words."""
    match schema:
        case {"$ref": str(reference)}:
            name = escape(reference.rpartition("/")[2])
            return f'<a href="#{name}">{name}</a>'
        case {"anyOf": alternatives}:
            # That null counts as absent is said once for all.
            kinds = [_type(each) for each in cast("list[Document]", alternatives) if each != {"type": "null"}]
            return " or ".join(kinds)
        case {"const": value}:
            return f"<code>{escape(str(value))}</code>" if value else "empty"
        case {"enum": values}:
            return " or ".join(f"<code>{escape(value)}</code>" for value in cast("list[str]", values))
        case {"type": "array", "items": items}:
            return f"array of {_type(cast('Document', items))}"
        case {"type": "object", "properties": properties, "additionalProperties": False}:
            return "object of " + ", ".join(f"<code>{escape(name)}</code>" for name in cast("Document", properties))
        case {"type": list()}:
            return escape(" or ".join(cast("list[str]", schema["type"])))
        case _:
            return _plain_type(schema)


def _plain_type(schema: Document) -> str:
    name = str(schema.get("format") or schema["type"])
    bounds = f" {schema['minimum']}–{schema['maximum']}" if "minimum" in schema and "maximum" in schema else ""
    default = f" = {str(schema['default']).lower()}" if "default" in schema else ""
    return escape(f"{name}{bounds}{default}")


def _prose_of(schema: Document) -> str:
    return f"<p>{prose(str(schema['description']))}</p>\n" if "description" in schema else ""


def _json_schema(body: Document) -> Document:
    return _documents(_documents(body["content"])["application/json"])["schema"]


def _documents(value: object) -> dict[str, Document]:
    return cast("dict[str, Document]", value)
