"""Reading a list of repos to its end, page by page, and telling an end that does not come."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from indexer.resync.answers import Refused, RepoPage
from memory.errors import Rejected

_SEEN_BITS: Final = 2**24  # 2 MiB


@dataclass(frozen=True, slots=True)
class SweepLimits:
    """What no honest list reaches."""

    pages: int = 1_000_000
    repos: int = 200_000_000  # several times the network
    pages_without_news: int = 100


class EndlessList(Rejected):
    """A list of repos does not come to an end."""

    reason = "endless_list"


class CursorRefused(Rejected):
    """A host does not take the cursor that it gave: the list has to be read from its beginning."""

    reason = "cursor_refused"


async def sweep(
    ask: Callable[[str | None], Awaitable[RepoPage]], cursor: str | None = None, limits: SweepLimits | None = None
) -> AsyncGenerator[RepoPage]:
    """Every page from `cursor` on; null: from the beginning. The last one, and only that, has no cursor.

    `ask` gives the page at a cursor. Raises what it raises, EndlessList and CursorRefused.
    """
    limits = limits or SweepLimits()
    progress = _Progress(limits)
    while True:
        try:
            page = await ask(cursor)
        except Refused as refused:
            if cursor is None or not refused.bad_request:
                raise
            raise CursorRefused(host=refused.host) from refused
        yield page
        progress.note(cursor, page)
        if page.cursor is None:
            return
        cursor = page.cursor


class _Progress:
    """Whether a sweep gets anywhere, judged in little memory."""

    def __init__(self, limits: SweepLimits) -> None:
        self._limits = limits
        self._pages = self._repos = self._pages_without_news = 0
        self._seen = bytearray(_SEEN_BITS // 8)
        # Brent's way to find a circle: compare with one cursor, and take a later one each time twice as many passed.
        self._landmark: str | None = None
        self._next_landmark = 1

    def note(self, cursor: str | None, page: RepoPage) -> None:
        """Raises EndlessList."""
        self._pages += 1
        self._repos += len(page.repos)
        # Many repos share a bit once a list is long: a repo may pass for a known one, a page of them does not.
        news = sum([self._is_new(repo.did) for repo in page.repos])
        self._pages_without_news = 0 if news else self._pages_without_news + 1
        if page.cursor is None:
            return
        if page.cursor in (cursor, self._landmark):
            raise EndlessList("A list of repos leads back to where it was.")
        if self._pages == self._next_landmark:
            self._landmark, self._next_landmark = page.cursor, self._next_landmark * 2
        if self._pages_without_news >= self._limits.pages_without_news:
            raise EndlessList(f"A list of repos had nothing new on {self._pages_without_news} pages on end.")
        if self._pages >= self._limits.pages or self._repos >= self._limits.repos:
            raise EndlessList(f"A list of repos has no end after {self._pages} pages with {self._repos} repos.")

    def _is_new(self, did: str) -> bool:
        place = hash(did) % _SEEN_BITS
        byte, bit = place >> 3, 1 << (place & 7)
        new = not self._seen[byte] & bit
        self._seen[byte] |= bit
        return new
