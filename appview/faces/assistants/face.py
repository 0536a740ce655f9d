"""The face itself: paths, bodies, errors as `{code, message}`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from appview.access import Viewer
from appview.call import Call, Resources
from appview.faces.assistants.answers import get_memory, list_memories, search_for_memories
from appview.faces.assistants.bodies import read_parameters
from appview.faces.assistants.fields import GET, LIST, SEARCH, Field
from appview.http import JSON, Action, Request
from appview.parameters import read_object
from appview.refusals import (
    InvalidRequest,
    MethodNotAllowed,
    MethodNotImplemented,
    RecordNotFound,
    Refusal,
    ResultWindowExceeded,
    SpaceNotReadable,
)
from appview.representation import Reply
from memory.identifiers import NAMESPACE

PREFIX: Final = "/api/v1/llm/"

CODES: Final[Mapping[int, str]] = {
    400: "invalid_argument",
    401: "unauthenticated",
    403: "permission_denied",
    404: "not_found",
    405: "unimplemented",
    408: "deadline_exceeded",
    413: "invalid_argument",
    414: "invalid_argument",
    429: "resource_exhausted",
    500: "internal",
    503: "unavailable",
}
"""What `code` is, by the HTTP status."""

OUT_OF_RANGE: Final = "out_of_range"
"""The `code` of a search that has been paged to its end."""

_ANSWERS: Final[Mapping[str, Callable[[Call], Awaitable[bytes]]]] = {
    GET: get_memory,
    LIST: list_memories,
    SEARCH: search_for_memories,
}
_ACTION: Final = Action(f"{NAMESPACE}searchRecords")
_UNKNOWN: Final = "llm/unknown"


@dataclass(frozen=True, slots=True)
class AssistantsFace:
    """The face; `fields` of each method by its name, as `load_fields` gives them."""

    resources: Resources
    fields: Mapping[str, tuple[Field, ...]]

    @property
    def prefix(self) -> str:
        """See Face."""
        return PREFIX

    def label(self, path: str) -> str:
        """See Face."""
        name = path.removeprefix(PREFIX)
        return f"llm/{name}" if name in self.fields else _UNKNOWN

    def action_of(self, request: Request) -> Action | None:
        """See Face."""
        return _ACTION if request.path.removeprefix(PREFIX) in self.fields else None

    async def answer(self, request: Request, viewer: Viewer) -> Reply:
        """See Face."""
        name = request.path.removeprefix(PREFIX)
        fields = self.fields.get(name)
        if fields is None:
            raise MethodNotImplemented
        if request.method != "POST":
            raise MethodNotAllowed("POST")
        if request.query:
            raise InvalidRequest("This path takes all that it is asked in the body.")
        if not request.is_json():
            raise InvalidRequest("The body's Content-Type must be application/json.")
        parameters = read_parameters(fields, read_object(await request.read_body()), viewer=viewer.did)
        return Reply(200, await _ANSWERS[name](Call(name, viewer, parameters, self.resources)), JSON)

    def refuse(self, refusal: Refusal, request: Request) -> Reply:  # noqa: ARG002  every error looks alike here
        """See Face."""
        status, message = refusal.status, refusal.message
        match refusal:
            case RecordNotFound():
                status = 404
            case SpaceNotReadable():
                status = 403
            case MethodNotImplemented():
                status = 404
            case ResultWindowExceeded():
                message = "A search ends after 1,000 memories; narrow it, or go through all with list-memories."
            case _:
                pass
        code = OUT_OF_RANGE if isinstance(refusal, ResultWindowExceeded) else CODES[status]
        return Reply(status, orjson.dumps({"code": code, "message": message}), JSON)
