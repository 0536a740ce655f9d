"""Parts of the OpenAPI document that all faces describe alike: answers, references and small schemas."""

from __future__ import annotations

from typing import TypeAlias

Document: TypeAlias = dict[str, object]
"""An object of the document."""


def present(**properties: object) -> Document:
    """Those properties that there are: None is left out."""
    return {name: value for name, value in properties.items() if value is not None}


def reference(component: str) -> Document:
    """In place of a schema: the component that has it."""
    return {"$ref": f"#/components/schemas/{component}"}


def json_answer(description: str, schema: Document, example: Document | None = None) -> Document:
    """A response with a JSON body."""
    return {"description": description, "content": {"application/json": present(schema=schema, example=example)}}


def text(description: str) -> Document:
    """The schema of any string."""
    return {"type": "string", "description": description}


def time(description: str) -> Document:
    """The schema of a datetime."""
    return {"type": "string", "format": "date-time", "description": description}
