"""What answers in pages share: where a page ends, and whose memories are meant."""

from __future__ import annotations

from collections.abc import Iterable

from appview.store.lists import find_repos
from appview.store.views import MAX_PAGE_BYTES
from memory.queries import Connection


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


async def resolve_repos(conn: Connection, identifiers: Iterable[str]) -> tuple[str, ...]:
    """The DIDs among some DIDs and handles, each once; handles that nobody holds are left out."""
    asked = dict.fromkeys(identifiers)
    handles = [identifier for identifier in asked if not identifier.startswith("did:")]
    found = await find_repos(conn, handles) if handles else {}
    repos = (identifier if identifier.startswith("did:") else found.get(identifier) for identifier in asked)
    return tuple(dict.fromkeys(repo for repo in repos if repo is not None))
