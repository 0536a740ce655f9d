"""Where a page of an answer ends."""

from __future__ import annotations

from collections.abc import Iterable

from appview.store.views import MAX_PAGE_BYTES


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
