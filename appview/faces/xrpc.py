"""The XRPC face: the methods of the lexicons under `/xrpc/`, errors as `{error, message}`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import orjson

from appview.access import Viewer
from appview.call import Answer, Call, Resources, Stream
from appview.http import JSON, Action, Request
from appview.lexicon import Method
from appview.parameters import Parameters, decode_body, decode_query
from appview.refusals import AuthenticationRequired, InvalidRequest, MethodNotAllowed, MethodNotImplemented, Refusal
from appview.representation import Headers, Reply
from appview.routes.notices import NOTICES, Hear
from appview.store.service import load_repo_rev

PREFIX: Final = "/xrpc/"
HEALTH: Final = "_health"

_UNKNOWN: Final = "unknown"  # one label for all methods that do not exist

_LINES: Final[Headers] = (
    (b"content-type", b"application/x-ndjson"),
    (b"x-content-type-options", b"nosniff"),
)


@dataclass(frozen=True, slots=True)
class Route:
    """A method of a lexicon and what answers it.

    `takes_post`: its parameters may also come as one JSON object in a body; a procedure takes them in no other way.
    `stream`: who accepts `application/x-ndjson`, and no JSON, gets all records, one a line, instead of a page.
    `sealed`: the answer is for its viewer only, whatever it draws on.
    """

    method: Method
    answer: Answer
    takes_post: bool = False
    stream: Stream | None = None
    sealed: bool = False

    @property
    def allowed(self) -> str:
        """The HTTP methods that it answers, as in an `Allow` header."""
        if self.method.acts:
            return "POST"
        return "GET, HEAD, POST" if self.takes_post else "GET, HEAD"


@dataclass(frozen=True, slots=True)
class XrpcFace:
    """The face; `routes` by NSID. Authorities of Spaces call here too, as their own protocol says."""

    routes: Mapping[str, Route]
    resources: Resources
    version: str

    @property
    def prefix(self) -> str:
        """See Face."""
        return PREFIX

    def label(self, path: str) -> str:
        """See Face."""
        name = path.removeprefix(PREFIX)
        return name if name in self.routes or name in NOTICES or name == HEALTH else _UNKNOWN

    def action_of(self, request: Request) -> Action | None:
        """See Face."""
        name = request.path.removeprefix(PREFIX)
        if name in NOTICES:
            return Action(name, acts=True, of_authority=True)
        route = self.routes.get(name)
        return None if route is None else Action(route.method.nsid, acts=route.method.acts, sealed=route.sealed)

    async def answer(self, request: Request, viewer: Viewer) -> Reply:
        """See Face."""
        name = request.path.removeprefix(PREFIX)
        if name == HEALTH:
            if request.method not in ("GET", "HEAD"):
                raise MethodNotAllowed("GET, HEAD")
            return Reply(200, orjson.dumps({"version": self.version}), JSON)
        if (hear := NOTICES.get(name)) is not None:
            return await self._hear(hear, request, viewer)
        route = self.routes.get(name)
        if route is None:
            raise MethodNotImplemented
        call = Call(name, viewer, await _read_parameters(route, request), self.resources, request.address or "")
        headers = await self._repo_rev(viewer)
        if route.stream is not None and request.method == "GET" and _wants_lines(request):
            lines = route.stream(call)
            return Reply(200, await anext(lines, b""), _LINES + headers, lines)
        return Reply(200, await route.answer(call), JSON + headers)

    def refuse(self, refusal: Refusal, request: Request) -> Reply:  # noqa: ARG002  every error looks alike here
        """See Face."""
        return Reply(refusal.status, orjson.dumps({"error": refusal.error, "message": refusal.message}), JSON)

    async def _hear(self, hear: Hear, request: Request, authority: Viewer) -> Reply:
        if request.method != "POST":
            raise MethodNotAllowed("POST")
        if authority.did is None:
            raise AuthenticationRequired
        await hear(self.resources, authority, await _read_json(request))
        return Reply(200, b"{}", JSON)

    async def _repo_rev(self, viewer: Viewer) -> Headers:
        """How far the viewer's own repo is indexed, so that a client can tell whether its last write is in the answer.

        Read before the answer is made: what is told is never more than what is shown.
        """
        if viewer.did is None:
            return ()
        async with self.resources.database.connection() as conn:
            rev = await load_repo_rev(conn, viewer.did)
        return () if rev is None else ((b"atproto-repo-rev", rev.encode()),)


async def _read_parameters(route: Route, request: Request) -> Parameters:
    match request.method:
        case "GET" | "HEAD" if not route.method.acts:
            return decode_query(route.method, request.query)
        case "POST" if route.takes_post or route.method.acts:
            return decode_body(route.method, await _read_json(request))
        case _:
            raise MethodNotAllowed(route.allowed)


async def _read_json(request: Request) -> bytes:
    if request.query:
        raise InvalidRequest("A POST takes its parameters in the body only.")
    if not request.is_json():
        raise InvalidRequest("The body's Content-Type must be application/json.")
    return await request.read_body()


def _wants_lines(request: Request) -> bool:
    """Not whoever takes both: clients that are made of the OpenAPI document name all that it has, and mean the page."""
    ranges = request.header(b"accept").lower().split(b",")
    accepted = {media_range.partition(b";")[0].strip() for media_range in ranges}
    return b"application/x-ndjson" in accepted and b"application/json" not in accepted
