"""What a call asks about: Spaces, memories, authors and filters, each judged or looked up."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from appview.access import require_readable
from appview.call import Call
from appview.filters import Filters
from appview.keys import Key, key_of
from appview.parameters import Parameters
from appview.refusals import InvalidRequest, RecordNotFound
from appview.store.lists import find_repos
from memory.queries import Connection
from memory.space import ReadableSpaces

_NARROWING: Final = (
    "scope",
    "kind",
    "agent",
    "client",
    "createdAfter",
    "createdBefore",
    "occurredAfter",
    "occurredBefore",
    "asOf",
)
"""Filters for which a list may have to walk past everything: they are not what it goes by."""


def is_narrowed(parameters: Parameters) -> bool:
    """Whether a list may have to walk past much to find little."""
    return any(name in parameters.values for name in _NARROWING)


def readable_spaces(call: Call) -> ReadableSpaces:
    """The Spaces that the viewer may read. Raise SpaceNotReadable if one was asked for that is not among them.

    Which of them the answer draws on is decided by the filters.
    """
    require_readable(call.viewer.spaces, call.parameters.texts("space") or ())
    return call.viewer.spaces


def asked_key(call: Call, name: str) -> Key:
    """The memory that a parameter names. Raise SpaceNotReadable, or RecordNotFound for what can be no memory."""
    uri = call.parameters.record_uri(name)
    if uri is None:
        raise InvalidRequest(f"The parameter {name} is required.")
    require_readable(call.viewer.spaces, [uri.space_uri])
    key = key_of(uri)
    if key is None:
        raise RecordNotFound
    return key


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


async def resolve_repos(conn: Connection, identifiers: Iterable[str]) -> tuple[str, ...]:
    """The DIDs among some DIDs and handles, each once; handles that nobody holds are left out."""
    asked = dict.fromkeys(identifiers)
    handles = [identifier for identifier in asked if not identifier.startswith("did:")]
    found = await find_repos(conn, handles) if handles else {}
    repos = (identifier if identifier.startswith("did:") else found.get(identifier) for identifier in asked)
    return tuple(dict.fromkeys(repo for repo in repos if repo is not None))
