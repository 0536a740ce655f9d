"""searchRecords."""

from __future__ import annotations

import asyncio
from functools import partial

import orjson

from appview.answers.arms import search_snapshot
from appview.answers.asked import asked_key, read_filters, readable_spaces
from appview.answers.search import (
    MAX_DUPLICATES,
    WINDOW,
    Mode,
    Search,
    SearchQuestion,
    fill_search_page,
    read_served,
    search_memories,
    seek_meaning,
    write_served,
)
from appview.call import Call
from appview.keys import Key, uri_of
from appview.lexicon import JSON
from appview.refusals import RecordNotFound
from appview.search.explain import explain_memory
from appview.search.highlight import highlights
from appview.search.hits import MAX_SUPPRESSED, Hit, OrderKey
from appview.search.marks import Marks
from appview.search.query import parse_query
from appview.store.views import StoredMemory, load_memories
from appview.views import datetime_text, record_view
from memory.data_model import record_json
from memory.queries import Connection
from memory.space import ReadableSpaces


async def search_records(call: Call) -> bytes:
    """Answer `searchRecords`."""
    asked = call.parameters
    spaces = readable_spaces(call)
    explain_key = asked_key(call, "explainUri") if asked.record_uri("explainUri") is not None else None
    served = read_served(call.open_cursor())
    limit = served.room_for(asked.integer("limit"))
    answer: dict[str, object] = {}
    query = parse_query(asked.text("q") or "", prefix=asked.flag("prefix"))
    mode = Mode(asked.text("mode") or Mode.HYBRID)
    seeking_meaning = seek_meaning(call.resources, query, mode, asked, spaces=spaces)
    # One snapshot for statistics, candidates and views.
    async with seeking_meaning as seeking, search_snapshot(call.resources) as snapshot:
        conn = snapshot.conn
        question = SearchQuestion(
            query,
            limit,
            seeking,
            asked.integer_if_given("minScore"),
            served,
            explain_key,
            mode,
            tells_ranks=asked.flag("explain"),
        )
        search = await search_memories(snapshot, question, await read_filters(conn, asked), spaces=spaces)
        view = partial(_hit_view, search, asked.flag("explain"))
        page = await fill_search_page(conn, search, view=view, spaces=spaces)
        if explain_key is not None:
            answer["explanation"] = await _explanation(conn, search, explain_key, spaces)
    answer["records"] = [orjson.Fragment(view) for view in page.views]
    if page.goes_on:
        answer["cursor"] = call.seal_cursor(write_served(search.served_with(page.hits)))
    answer["mode"] = search.mode
    if search.filters.as_of is not None:
        answer["asOf"] = datetime_text(search.filters.as_of)
    suppressed = search.ranking.count_suppressed_above(page.hits[-1] if page.hits else None)
    answer["suppressed"] = min(suppressed, MAX_SUPPRESSED)
    if suppressed > MAX_SUPPRESSED:
        answer["suppressedCapped"] = True
    if search.is_capped:
        answer["matchesCapped"] = True
    return orjson.dumps(answer)


def _hit_view(search: Search, explain: bool, hit: Hit, memory: StoredMemory) -> bytes:  # noqa: FBT001  as partial gives it
    more: dict[str, JSON] = {}
    if hit.duplicates:
        more["duplicates"] = [uri_of(key) for key in hit.duplicates[:MAX_DUPLICATES]]
        if len(hit.duplicates) > MAX_DUPLICATES:
            more["duplicatesCapped"] = True
    more["score"] = hit.marks.score
    if explain:
        more["scores"] = _scores(search, hit.marks, hit.order)
    content = record_json(memory.record).get("content")
    if isinstance(content, str):  # in every valid record
        slices = highlights(content, search.query)
        more["highlights"] = [{"byteStart": start, "byteEnd": end} for start, end in slices]
    return record_view(memory, as_of=search.filters.as_of, more=more)


async def _explanation(conn: Connection, search: Search, key: Key, spaces: ReadableSpaces) -> dict[str, object]:
    """Why one memory was recalled, or was not. Raise RecordNotFound for one that cannot be read."""
    [memory] = await load_memories(conn, [key], as_of=search.filters.as_of, spaces=spaces)
    explained = search.findings.explained
    if explained is None or memory is None:
        raise RecordNotFound
    verdict = await asyncio.to_thread(
        explain_memory,
        explained,
        search.query,
        search.findings.words,
        search.ranking,
        min_score=search.min_score,
        window=WINDOW,
    )
    view: dict[str, object] = {"uri": uri_of(key), "recalled": verdict.failed is None}
    if verdict.failed is not None:
        view["failedFilter"] = verdict.failed
    if verdict.marks is not None:
        view["score"] = verdict.marks.score
        view["scores"] = _scores(
            search, verdict.marks, search.ranking.seating.order_of(explained.candidate, verdict.marks)
        )
    view["maskedBy"] = [uri_of(key._replace(rkey=rkey)) for rkey in memory.replacers]
    if memory.replacers_capped:
        view["maskedByCapped"] = True
    return view


def _scores(search: Search, marks: Marks, order: OrderKey) -> dict[str, JSON]:
    scores: dict[str, JSON] = {}
    by_words, by_meaning = search.ranking.ranks_in_arms(marks, order)
    if by_words is not None:
        scores["lexical"] = {"rank": by_words, "raw": f"{marks.lexical:.6f}"}
    if by_meaning is not None:
        scores["semantic"] = {"rank": by_meaning, "raw": f"{marks.likeness:.6f}"}
    return {**scores, "fused": f"{-order[0]:.6f}"}
