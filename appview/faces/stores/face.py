"""The memory-store face: reads below `/api/v1/cloud/`, and errors in its shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import orjson

from appview.access import Viewer
from appview.call import Resources
from appview.faces.stores.calls import ObjectNotFound, StoresCall
from appview.faces.stores.endpoints import ENDPOINTS, PREFIX, find_endpoint
from appview.faces.stores.ids import Ids
from appview.faces.stores.parameters import read_query
from appview.http import JSON, Action, Request
from appview.refusals import InvalidCursor, InvalidRequest, MethodNotAllowed, Refusal
from appview.representation import Reply
from memory.identifiers import COLLECTION, NAMESPACE

READS: Final = "GET, HEAD"

WRITTEN_ELSEWHERE: Final = (
    "Memories are read here, and written elsewhere: to their author's own repo, as records of the collection"
    f" {COLLECTION} (com.atproto.repo.createRecord, putRecord and deleteRecord of the author's PDS). They are indexed"
    " from there."
)

ERROR_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}

_ACTION: Final = Action(f"{NAMESPACE}searchRecords")
_UNKNOWN: Final = "memory_stores.unknown"


@dataclass(frozen=True, slots=True)
class StoresFace:
    """The face. `ids` has the key of the index."""

    resources: Resources
    ids: Ids

    @property
    def prefix(self) -> str:
        """See Face."""
        return PREFIX

    def label(self, path: str) -> str:
        """See Face."""
        found = find_endpoint(path)
        return _UNKNOWN if found is None else f"memory_stores.{found.endpoint.name}"

    def action_of(self, request: Request) -> Action | None:
        """See Face."""
        return None if find_endpoint(request.path) is None else _ACTION

    async def answer(self, request: Request, viewer: Viewer) -> Reply:
        """See Face."""
        if request.method not in ("GET", "HEAD"):
            raise MethodNotAllowed(READS)
        found = find_endpoint(request.path)
        if found is None:
            raise ObjectNotFound(f"There is no such path; known are {', '.join(each.path for each in ENDPOINTS)}.")
        asked = read_query(request.query, found.endpoint.parameters)
        call = StoresCall(viewer, request.path, found.store_id, found.object_id, asked, self.resources, self.ids)
        return Reply(200, await found.endpoint.answer(call), JSON)

    def refuse(self, refusal: Refusal, request: Request) -> Reply:
        """See Face."""
        error = {"type": error_type(refusal.status), "message": refusal.message}
        match refusal:
            case MethodNotAllowed():
                error["message"] = WRITTEN_ELSEWHERE
            case InvalidCursor():
                error["param"] = "page"
            case InvalidRequest(param=str(param)):
                error["param"] = param
            case _:
                pass
        body = {"type": "error", "request_id": request.id, "error": error}
        return Reply(refusal.status, orjson.dumps(body), JSON)


def error_type(status: int) -> str:
    """How this face names the errors of an HTTP status."""
    return ERROR_TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
