"""Pages of searches: candidates found and ranked, memories loaded, views made until the page is full."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from appview.answers.arms import Findings, Inquiry, Seeking, Snapshot, ask_arms, no_meaning, seek
from appview.answers.pages import fill_page
from appview.call import Resources
from appview.filters import Filters
from appview.keys import Key
from appview.page_cursor import Place
from appview.parameters import Parameters
from appview.refusals import (
    InvalidCursor,
    ModeUnavailable,
    NotEnoughResources,
    Refusal,
    ResultWindowExceeded,
)
from appview.search.hits import Hit, Ranking, rank_candidates
from appview.search.query import ParsedQuery
from appview.store.search import load_contents
from appview.store.views import StoredMemory, load_memories
from memory.queries import Connection
from memory.query_embedding import NoVector
from memory.space import ReadableSpaces

WINDOW: Final = 1_000
"""Hits that one search can be paged through."""

MIN_RANKED: Final = 150
"""Memories that each arm brings at least, if it finds so many."""

MIN_SCORE_BY_MEANING: Final = 200
"""What is left out below, unless one asks otherwise: everything is a little like everything. `docs/retrieval.md`."""

MAX_DUPLICATES: Final = 100
"""Duplicates that a view names; more are only said to be there."""

_DIGEST_BYTES: Final = 6


class Mode(StrEnum):
    """Which arms a search has."""

    HYBRID = "hybrid"
    LEXICAL = "lexical"
    SEMANTIC = "semantic"


@dataclass(frozen=True, slots=True, repr=False)
class Served:
    """What earlier pages showed, so that no hit comes twice, whatever changes between pages.

    `watermark`: what was indexed later has no place on later pages; None on the first. `digests` of all hits, joined.
    """

    watermark: datetime | None = None
    digests: bytes = b""

    @property
    def count(self) -> int:
        """How many hits were shown."""
        return len(self.digests) // _DIGEST_BYTES

    def room_for(self, limit: int) -> int:
        """How many of `limit` more hits the window has room for. Raise ResultWindowExceeded if for none."""
        if self.count >= WINDOW:
            raise ResultWindowExceeded
        return min(limit, WINDOW - self.count)

    def unseen(self, hits: Sequence[Hit]) -> list[Hit]:
        """The hits that were not shown yet."""
        starts = range(0, len(self.digests), _DIGEST_BYTES)
        shown = {self.digests[start : start + _DIGEST_BYTES] for start in starts}
        return [hit for hit in hits if _digest(hit.key) not in shown] if shown else list(hits)

    def with_page(self, hits: Sequence[Hit], watermark: datetime) -> Served:
        """The same after one more page."""
        return Served(self.watermark or watermark, self.digests + b"".join(_digest(hit.key) for hit in hits))


@dataclass(frozen=True, slots=True, repr=False)
class SearchQuestion:
    """What one page of a search is asked for.

    `min_score` is of 0–1000, None for what fits the arms that took part; up to `limit` hits are wanted beside those
    that were `served`. `explained`: a memory of which the search has to tell where it stands; `tells_ranks`: it has to
    of all hits.
    """

    query: ParsedQuery
    limit: int
    seeking: Seeking
    min_score: int | None = None
    served: Served = field(default_factory=Served)
    explained: Key | None = None
    mode: Mode = Mode.HYBRID
    tells_ranks: bool = False

    @property
    def wanted(self) -> int:
        """How many hits this page and those before it take, and one more, to know whether it goes on."""
        return self.served.count + self.limit + 1


@dataclass(frozen=True, slots=True, repr=False)
class Search:
    """One search, done."""

    question: SearchQuestion
    filters: Filters
    findings: Findings
    ranking: Ranking

    @property
    def query(self) -> ParsedQuery:
        """What was searched for."""
        return self.question.query

    @property
    def is_capped(self) -> bool:
        """Whether there are more matches than were ranked, or than were looked through for phrases and exclusions."""
        return self.findings.words.capped or self.ranking.capped or self.lacks_some

    @property
    def lacks_some(self) -> bool:
        """Whether hits were left out that belong to this page, for the sake of others of which then some fell away."""
        left_out = self.findings.left_out
        return left_out is not None and left_out >= self.min_score and len(self.ranking.hits) < self.question.wanted

    @property
    def min_score(self) -> int:
        """What scores lower is left out."""
        return _min_score(self.question, self.findings)

    @property
    def mode(self) -> Mode:
        """How it was done: without a model at hand, by words alone."""
        return self.question.mode if self.findings.no_vector is None else Mode.LEXICAL

    def served_with(self, hits: Sequence[Hit]) -> Served:
        """What will have been shown when these hits were, of which there is one at least."""
        assert self.findings.indexed_at is not None
        return self.question.served.with_page(hits, self.findings.indexed_at)


@dataclass(frozen=True, slots=True, repr=False)
class SearchPage:
    """Views of hits, and the hits that were gone through for them (of some, the memory is gone meanwhile)."""

    views: list[bytes]
    hits: Sequence[Hit]
    goes_on: bool


@asynccontextmanager
async def seek_meaning(
    resources: Resources, query: ParsedQuery, mode: Mode, parameters: Parameters, *, spaces: ReadableSpaces
) -> AsyncGenerator[Seeking]:
    """Ask what a query means, where that counts; before a snapshot is taken."""
    if mode is Mode.LEXICAL:
        yield no_meaning(NoVector.ABSENT)
        return
    private = bool(spaces.spaces) and not parameters.flag("publicOnly")
    async with seek(resources, query, private=private) as seeking:
        yield seeking


async def search_memories(
    snapshot: Snapshot, question: SearchQuestion, filters: Filters, *, spaces: ReadableSpaces
) -> Search:
    """Find and rank as many memories as the page needs. Raise ModeUnavailable without the model that it takes."""
    query, served = question.query, question.served
    # Each page is ranked anew among more than it needs: of equal contents some are shown together, others are replaced.
    # What has to be looked into, or told the place of, may be anywhere.
    places = question.tells_ranks or question.explained is not None
    anywhere = places or bool(query.phrases or query.exclusions)
    inquiry = Inquiry(
        query,
        filters,
        served.watermark,
        by_words=question.mode is not Mode.SEMANTIC,
        seeking=question.seeking,
        kept=None if anywhere else max(MIN_RANKED, 2 * question.wanted),
        explained=question.explained,
    )
    search = await _ask_and_rank(snapshot, question, filters, inquiry, spaces=spaces)
    if search.lacks_some:
        # Most of the best are replaced, or say the same.
        search = await _ask_and_rank(snapshot, question, filters, replace(inquiry, kept=None), spaces=spaces)
    return search


async def _ask_and_rank(
    snapshot: Snapshot,
    question: SearchQuestion,
    filters: Filters,
    inquiry: Inquiry,
    *,
    spaces: ReadableSpaces,
) -> Search:
    findings = await ask_arms(snapshot, inquiry, spaces=spaces)
    if question.mode is Mode.SEMANTIC and findings.no_vector is not None and not question.query.is_empty:
        raise _refusal(findings.no_vector)
    # Here and below, what may take long is done by a thread: meanwhile others are answered.
    ranking = await asyncio.to_thread(
        rank_candidates,
        question.query,
        findings.candidates,
        findings.judge,
        min_score=_min_score(question, findings),
        wanted=question.wanted,
        through=None if findings.explained is None else findings.explained.candidate,
    )
    while undecided := ranking.undecided:
        contents = await load_contents(snapshot.conn, undecided, spaces=spaces)
        await asyncio.to_thread(ranking.decide, contents)
    return Search(question, filters, findings, ranking)


def _min_score(question: SearchQuestion, findings: Findings) -> int:
    if question.min_score is not None:
        return question.min_score
    return MIN_SCORE_BY_MEANING if findings.no_vector is None else 0


def _refusal(reason: NoVector) -> Refusal:
    if reason is NoVector.PRIVATE:
        return ModeUnavailable("The embedding model is elsewhere and may not be asked about Spaces; use mode lexical.")
    if reason is NoVector.ABSENT:
        return ModeUnavailable()
    return NotEnoughResources("The embedding model cannot answer at the moment; try again, or use mode hybrid.")


async def fill_search_page(
    conn: Connection, search: Search, *, view: Callable[[Hit, StoredMemory], bytes], spaces: ReadableSpaces
) -> SearchPage:
    """The page of a search, each hit as `view` shows it, which is called in a thread."""
    unseen = search.question.served.unseen(search.ranking.hits)
    hits = unseen[: search.question.limit]
    memories = await load_memories(conn, [hit.key for hit in hits], as_of=search.filters.as_of, spaces=spaces)
    views = (None if memory is None else view(hit, memory) for hit, memory in zip(hits, memories, strict=False))
    page, reached = await asyncio.to_thread(fill_page, views)
    return SearchPage(page, hits[:reached], len(unseen) > reached)


def write_served(served: Served) -> Place:
    """What was served by now, as page cursors hold it."""
    assert served.watermark is not None
    return [served.watermark.isoformat(), b64encode(served.digests).decode()]


def read_served(place: Place) -> Served:
    """What a page cursor holds; nothing without one. Raise InvalidCursor for that of another method."""
    match place:
        case None:
            return Served()
        case [str(watermark), str(digests)]:
            return Served(datetime.fromisoformat(watermark), b64decode(digests))
        case _:
            raise InvalidCursor


def _digest(key: Key) -> bytes:
    return blake2b("\0".join(key).encode(), digest_size=_DIGEST_BYTES).digest()
