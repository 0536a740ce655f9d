"""What the methods that answer in pages share."""

from __future__ import annotations

from appview.access import require_readable
from appview.answers.pages import resolve_repos
from appview.call import Call
from appview.filters import Filters
from appview.parameters import Parameters
from memory.queries import Connection
from memory.space import ReadableSpaces


def readable_spaces(call: Call) -> ReadableSpaces:
    """The Spaces that the viewer may read. Raise SpaceNotReadable if one was asked for that is not among them.

    Which of them the answer draws on is decided by the filters.
    """
    require_readable(call.viewer.spaces, call.parameters.texts("space") or ())
    return call.viewer.spaces


async def read_filters(conn: Connection, parameters: Parameters) -> Filters:
    """The filters of a request, handles resolved to DIDs."""
    repos = parameters.texts("repo")
    return Filters(
        repos=None if repos is None else await resolve_repos(conn, repos),
        spaces=parameters.texts("space"),
        public_only=parameters.flag("publicOnly"),
        scopes=parameters.texts("scope"),
        kinds=parameters.texts("kind"),
        agents=parameters.texts("agent"),
        clients=parameters.texts("client"),
        created_after=parameters.instant("createdAfter"),
        created_before=parameters.instant("createdBefore"),
        occurred_after=parameters.instant("occurredAfter"),
        occurred_before=parameters.instant("occurredBefore"),
        as_of=parameters.instant("asOf"),
        superseded=parameters.flag("includeSuperseded"),
    )
