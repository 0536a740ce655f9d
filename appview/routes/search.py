"""searchRecords."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import blake2b
from itertools import islice
from typing import Final

import orjson

from appview.call import Call
from appview.filters import Filters
from appview.lexicon import JSON
from appview.page_cursor import Place
from appview.refusals import InvalidCursor, ModeUnavailable, RecordNotFound, ResultWindowExceeded
from appview.routes.pages import fill_page, read_filters, readable_spaces
from appview.routes.records import asked_key
from appview.search.explain import Verdict, explain_memory
from appview.search.highlight import highlights
from appview.search.lexical import Hit, Ranking, rank_candidates
from appview.search.query import ParsedQuery, parse_query
from appview.search.ranking import Corpus, LexicalScorer
from appview.store.keys import Key, uri_of
from appview.store.search import Candidates, explain_candidate, find_candidates
from appview.store.views import StoredMemory, load_memories
from appview.views import datetime_text, record_view
from memory.data_model import record_json
from memory.queries import Connection
from memory.space import ReadableSpaces

WINDOW: Final = 1_000
"""Hits that one search can be paged through."""

MAX_SUPPRESSED: Final = 100
MAX_DUPLICATES: Final = 100

_DIGEST_BYTES: Final = 6
_NO_CANDIDATES: Final = Candidates((), Corpus(0, 0.0, {}), capped=False, any_of=())


@dataclass(frozen=True, slots=True)
class _Served:
    """What earlier pages showed: so no hit comes twice, whatever changes between pages.

    `watermark`: what was indexed later has no place on later pages. `digests`: `_DIGEST_BYTES` for each hit, joined.
    """

    watermark: datetime | None = None
    digests: bytes = b""

    @property
    def count(self) -> int:
        """How many hits were shown."""
        return len(self.digests) // _DIGEST_BYTES

    def with_hits(self, hits: Sequence[Hit], watermark: datetime | None) -> _Served:
        """The same after one more page."""
        return _Served(self.watermark or watermark, self.digests + b"".join(_digest(hit.key) for hit in hits))

    def each(self) -> frozenset[bytes]:
        """The digests, apart."""
        starts = range(0, len(self.digests), _DIGEST_BYTES)
        return frozenset(self.digests[start : start + _DIGEST_BYTES] for start in starts)


async def search_records(call: Call) -> bytes:
    """Answer `searchRecords`."""
    asked = call.parameters
    if asked.text("mode") == "semantic":
        raise ModeUnavailable
    spaces = readable_spaces(call)
    explained_key = asked_key(call, "explainUri") if asked.record_uri("explainUri") is not None else None
    served = _read_served(call.open_cursor())
    if served.count >= WINDOW:
        raise ResultWindowExceeded
    query = parse_query(asked.text("q") or "", prefix=asked.flag("prefix"))
    min_score = asked.integer("minScore")
    limit = min(asked.integer("limit"), WINDOW - served.count)
    answer: dict[str, object] = {}
    async with call.resources.database.connection() as conn:
        filters = await read_filters(conn, asked)
        candidates = (
            _NO_CANDIDATES
            if query.is_empty
            else await find_candidates(conn, query, filters, watermark=served.watermark, spaces=spaces)
        )
        ranking = rank_candidates(query, candidates, min_score=min_score)
        if explained_key is not None:
            search = _Search(query, filters, candidates, ranking, min_score)
            answer["explanation"] = await _explain(conn, search, explained_key, spaces)
        shown_before = served.each()
        unseen = [hit for hit in ranking.hits if _digest(hit.key) not in shown_before]
        hits = unseen[:limit]
        memories = await load_memories(conn, [hit.key for hit in hits], as_of=filters.as_of, spaces=spaces)
    views = (
        None if memory is None else _hit_view(memory, hit, ranking, query, filters, explain=asked.flag("explain"))
        for memory, hit in zip(memories, hits, strict=False)
    )
    page, reached = fill_page(views)
    answer["records"] = [orjson.Fragment(view) for view in page]
    if len(unseen) > reached:
        watermark = max(candidate.indexed_at for candidate in candidates.memories)
        answer["cursor"] = call.seal_cursor(_seal_served(served.with_hits(hits[:reached], watermark)))
    answer["mode"] = "lexical"
    if filters.as_of is not None:
        answer["asOf"] = datetime_text(filters.as_of)
    suppressed = ranking.count_suppressed_above(hits[reached - 1] if reached else None)
    answer["suppressed"] = min(suppressed, MAX_SUPPRESSED)
    if suppressed > MAX_SUPPRESSED:
        answer["suppressedCapped"] = True
    if candidates.capped:
        answer["matchesCapped"] = True
    return orjson.dumps(answer)
