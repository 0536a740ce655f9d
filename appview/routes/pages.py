"""What the methods that answer in pages share."""

from __future__ import annotations

from collections.abc import Iterable

from appview.access import require_readable
from appview.call import Call
from appview.filters import Filters
from appview.parameters import Parameters
from appview.store.lists import find_repos
from appview.store.views import MAX_PAGE_BYTES
from memory.queries import Connection
from memory.space import ReadableSpaces


def fill_page(views: Iterable[bytes | None], *, max_bytes: int = MAX_PAGE_BYTES) -> tuple[list[bytes], int]:
    """Take views, JSON texts, until the page is full; None stands for a memory that is gone.

    Returns those that fit, at least one, and how many were gone through for them.
    """
    page: list[bytes] = []
    size = gone_through = 0
    for view in views:
        if view is not None:
            size += len(view)
            if page and size > max_bytes:
                break
            page.append(view)
        gone_through += 1
    return page, gone_through


def readable_spaces(call: Call) -> ReadableSpaces:
    """The Spaces that the answer may draw on. Raise SpaceNotReadable if one was asked for that is not among them."""
    require_readable(call.viewer.spaces, call.parameters.texts("space") or ())
    return ReadableSpaces.public_only() if call.parameters.flag("publicOnly") else call.viewer.spaces


async def read_filters(conn: Connection, parameters: Parameters) -> Filters:
    """The filters of a request, handles resolved to DIDs."""
    repos = parameters.texts("repo")
    return Filters(
        repos=None if repos is None else await resolve_repos(conn, repos),
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


async def resolve_repos(conn: Connection, identifiers: Iterable[str]) -> tuple[str, ...]:
    """The DIDs among some DIDs and handles, each once; handles that nobody holds are left out."""
    asked = dict.fromkeys(identifiers)
    handles = [identifier for identifier in asked if not identifier.startswith("did:")]
    found = await find_repos(conn, handles) if handles else {}
    repos = (identifier if identifier.startswith("did:") else found.get(identifier) for identifier in asked)
    return tuple(dict.fromkeys(repo for repo in repos if repo is not None))
