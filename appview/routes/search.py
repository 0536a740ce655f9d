"""searchRecords."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from typing import Final

import orjson

from appview.call import Call
from appview.filters import Filters
from appview.keys import Key, uri_of
from appview.lexicon import JSON
from appview.page_cursor import Place
from appview.parameters import Parameters
from appview.refusals import InvalidCursor, ModeUnavailable, RecordNotFound, ResultWindowExceeded
from appview.routes.pages import fill_page, read_filters, readable_spaces
from appview.routes.records import asked_key
from appview.search.candidates import Candidates, Explained
from appview.search.explain import explain_memory
from appview.search.highlight import highlights
from appview.search.lexical import MAX_SUPPRESSED, Hit, Ranking, rank_candidates
from appview.search.query import ParsedQuery, parse_query
from appview.search.ranking import Corpus
from appview.store.search import explain_candidate, find_candidates, load_contents
from appview.store.views import StoredMemory, load_memories
from appview.views import datetime_text, record_view
from memory.data_model import record_json
from memory.queries import Connection
from memory.space import ReadableSpaces

WINDOW: Final = 1_000
"""Hits that one search can be paged through."""

MAX_DUPLICATES: Final = 100

_DIGEST_BYTES: Final = 6
_NO_CANDIDATES: Final = Candidates((), Corpus(0, 0.0, {}), capped=False, any_of=())


async def search_records(call: Call) -> bytes:
    """Answer `searchRecords`."""
    asked = call.parameters
    if asked.text("mode") == "semantic":
        raise ModeUnavailable
    spaces = readable_spaces(call)
    explain_key = asked_key(call, "explainUri") if asked.record_uri("explainUri") is not None else None
    served = _read_served(call.open_cursor())
    if served.count >= WINDOW:
        raise ResultWindowExceeded
    limit = min(asked.integer("limit"), WINDOW - served.count)
    answer: dict[str, object] = {}
    # One snapshot for statistics, candidates and views.
    async with (
        call.resources.searches.turn(),
        call.resources.database.transaction(isolation="repeatable_read", readonly=True) as conn,
    ):
        search = await _search(conn, asked, served, limit, explain_key, spaces)
        page = await _fill(conn, search, served, limit, spaces)
        if explain_key is not None:
            answer["explanation"] = await _explanation(conn, search, explain_key, spaces)
    answer["records"] = [orjson.Fragment(view) for view in page.views]
    if page.goes_on:
        answer["cursor"] = call.seal_cursor(_seal_served(served.with_page(page.hits, search.watermark)))
    answer["mode"] = "lexical"
    if search.filters.as_of is not None:
        answer["asOf"] = datetime_text(search.filters.as_of)
    suppressed = search.ranking.count_suppressed_above(page.hits[-1] if page.hits else None)
    answer["suppressed"] = min(suppressed, MAX_SUPPRESSED)
    if suppressed > MAX_SUPPRESSED:
        answer["suppressedCapped"] = True
    if search.candidates.capped or search.ranking.capped:
        answer["matchesCapped"] = True
    return orjson.dumps(answer)


@dataclass(frozen=True, slots=True, repr=False)
class _Served:
    """What earlier pages showed, so that no hit comes twice, whatever changes between pages.

    `watermark`: what was indexed later has no place on later pages; None on the first. `digests` of all hits, joined.
    """

    watermark: datetime | None = None
    digests: bytes = b""

    @property
    def count(self) -> int:
        """How many hits were shown."""
        return len(self.digests) // _DIGEST_BYTES

    def unseen(self, hits: Sequence[Hit]) -> list[Hit]:
        """The hits that were not shown yet."""
        starts = range(0, len(self.digests), _DIGEST_BYTES)
        shown = {self.digests[start : start + _DIGEST_BYTES] for start in starts}
        return [hit for hit in hits if _digest(hit.key) not in shown] if shown else list(hits)

    def with_page(self, hits: Sequence[Hit], watermark: datetime) -> _Served:
        """The same after one more page."""
        return _Served(self.watermark or watermark, self.digests + b"".join(_digest(hit.key) for hit in hits))


@dataclass(frozen=True, slots=True, repr=False)
class _Search:
    """One search, done."""

    query: ParsedQuery
    filters: Filters
    min_score: int
    explain: bool
    candidates: Candidates
    ranking: Ranking
    explained: Explained | None

    @property
    def watermark(self) -> datetime:
        """The last time at which one of the candidates was indexed."""
        return max(candidate.indexed_at for candidate in self.candidates.memories)


@dataclass(frozen=True, slots=True, repr=False)
class _Page:
    """Views of hits, and the hits that were gone through for them (of some, the memory is gone meanwhile)."""

    views: list[bytes]
    hits: Sequence[Hit]
    goes_on: bool


async def _search(
    conn: Connection, asked: Parameters, served: _Served, limit: int, explain_key: Key | None, spaces: ReadableSpaces
) -> _Search:
    query = parse_query(asked.text("q") or "", prefix=asked.flag("prefix"))
    filters = await read_filters(conn, asked)
    candidates = _NO_CANDIDATES
    if not query.is_empty:
        candidates = await find_candidates(conn, query, filters, watermark=served.watermark, spaces=spaces)
    explained = None
    if explain_key is not None:
        explained = await explain_candidate(conn, query, filters, explain_key, spaces=spaces)
    min_score = asked.integer("minScore")
    # Here and below, what may take long is done by a thread: meanwhile others are answered.
    ranking = await asyncio.to_thread(
        rank_candidates,
        query,
        candidates,
        min_score=min_score,
        wanted=served.count + limit + 1,  # one more, to know whether it goes on
        through=None if explained is None else explained.candidate,
    )
    while undecided := ranking.undecided:
        contents = await load_contents(conn, undecided, spaces=spaces)
        await asyncio.to_thread(ranking.decide, contents)
    return _Search(query, filters, min_score, asked.flag("explain"), candidates, ranking, explained)


async def _fill(conn: Connection, search: _Search, served: _Served, limit: int, spaces: ReadableSpaces) -> _Page:
    unseen = served.unseen(search.ranking.hits)
    hits = unseen[:limit]
    memories = await load_memories(conn, [hit.key for hit in hits], as_of=search.filters.as_of, spaces=spaces)
    views = (
        None if memory is None else _hit_view(search, hit, memory) for hit, memory in zip(hits, memories, strict=False)
    )
    page, reached = await asyncio.to_thread(fill_page, views)
    return _Page(page, hits[:reached], len(unseen) > reached)


def _hit_view(search: _Search, hit: Hit, memory: StoredMemory) -> bytes:
    more: dict[str, JSON] = {}
    if hit.duplicates:
        more["duplicates"] = [uri_of(key) for key in hit.duplicates[:MAX_DUPLICATES]]
        if len(hit.duplicates) > MAX_DUPLICATES:
            more["duplicatesCapped"] = True
    more["score"] = search.ranking.scorer.calibrate(hit.raw_score)
    if search.explain:
        more["scores"] = _scores(search, hit.raw_score, search.ranking.rank_of(hit.order))
    content = record_json(memory.record).get("content")
    if isinstance(content, str):  # in every valid record
        slices = highlights(content, search.query)
        more["highlights"] = [{"byteStart": start, "byteEnd": end} for start, end in slices]
    return record_view(memory, as_of=search.filters.as_of, more=more)


async def _explanation(conn: Connection, search: _Search, key: Key, spaces: ReadableSpaces) -> dict[str, object]:
    """Why one memory was recalled, or was not. Raise RecordNotFound for one that cannot be read."""
    [memory] = await load_memories(conn, [key], as_of=search.filters.as_of, spaces=spaces)
    if search.explained is None or memory is None:
        raise RecordNotFound
    verdict = await asyncio.to_thread(
        explain_memory,
        search.explained,
        search.query,
        search.candidates,
        search.ranking,
        min_score=search.min_score,
        window=WINDOW,
    )
    view: dict[str, object] = {"uri": uri_of(key), "recalled": verdict.failed is None}
    if verdict.failed is not None:
        view["failedFilter"] = verdict.failed
    if verdict.raw_score is not None and verdict.rank is not None:
        view["score"] = search.ranking.scorer.calibrate(verdict.raw_score)
        view["scores"] = _scores(search, verdict.raw_score, verdict.rank)
    view["maskedBy"] = [uri_of(key._replace(rkey=rkey)) for rkey in memory.replacers]
    return view


def _scores(search: _Search, raw_score: float, rank: int) -> dict[str, JSON]:
    # With one arm, the order goes by its share of what the query could reach.
    fused = raw_score / search.ranking.scorer.maximum if search.ranking.scorer.maximum else 0.0
    return {"lexical": {"rank": rank, "raw": f"{raw_score:.6f}"}, "fused": f"{fused:.6f}"}


def _digest(key: Key) -> bytes:
    return blake2b("\0".join(key).encode(), digest_size=_DIGEST_BYTES).digest()


def _seal_served(served: _Served) -> Place:
    assert served.watermark is not None
    return [served.watermark.isoformat(), b64encode(served.digests).decode()]


def _read_served(place: Place) -> _Served:
    match place:
        case None:
            return _Served()
        case [str(watermark), str(digests)]:
            return _Served(datetime.fromisoformat(watermark), b64decode(digests))
        case _:
            raise InvalidCursor
