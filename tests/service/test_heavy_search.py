"""Searches that are a lot of work: others are answered meanwhile, and too many at once are sent away."""

from __future__ import annotations

import asyncio
import threading

import pytest

from appview.call import Turns
from appview.filters import Filters
from appview.refusals import TooBusy
from appview.search.query import ParsedQuery, parse_query
from memory.database import Database
from memory.space import ReadableSpaces
from tests.api_client import NAMESPACE, Api, refused
from tests.deadline import DEADLINE_S
from tests.memory_rows import ALICE, MemoryRows
from tests.searching import find_candidates

SEARCH = f"/xrpc/{NAMESPACE}searchRecords"


class Held:
    """A recheck of contents that goes on only when it is let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = asyncio.Event()
        self.let_go = threading.Event()
        loop, admits = asyncio.get_running_loop(), ParsedQuery.admits

        def admit_later(query: ParsedQuery, content: str) -> bool:
            loop.call_soon_threadsafe(self.reached.set)
            assert self.let_go.wait(DEADLINE_S)
            return admits(query, content)

        monkeypatch.setattr(ParsedQuery, "admits", admit_later)


async def test_others_are_answered_while_a_heavy_search_runs(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = MemoryRows()
    rows.put(ALICE, "green tea")
    await rows.write(database)
    api = Api(database)
    held = Held(monkeypatch)
    try:
        search = asyncio.create_task(api.send("GET", SEARCH, params={"q": '"green tea"'}))
        await asyncio.wait_for(held.reached.wait(), DEADLINE_S)
        assert (await api.send("GET", "/xrpc/_health")).status_code == 200
        assert len((await api.get("listRecords"))["records"]) == 1
        assert len((await api.get("searchRecords", q="tea"))["records"]) == 1
        assert not search.done()
    finally:
        held.let_go.set()
    assert len((await search).json()["records"]) == 1


async def test_too_many_searches_at_once_are_sent_away_at_once(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = MemoryRows()
    rows.put(ALICE, "green tea")
    await rows.write(database)
    api = Api(database, searches=Turns(at_once=1, waiting=1))
    held = Held(monkeypatch)
    try:
        running = asyncio.create_task(api.send("GET", SEARCH, params={"q": '"green tea"'}))
        await asyncio.wait_for(held.reached.wait(), DEADLINE_S)
        others = [asyncio.create_task(api.send("GET", SEARCH, params={"q": "tea"})) for _ in range(2)]
        [sent_away], [waiting] = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED, timeout=DEADLINE_S)
        response = await sent_away
        assert (refused(response).status, refused(response).error) == (503, "NotEnoughResources")
        assert response.headers["retry-after"] == "5"
        assert (await api.send("GET", "/xrpc/_health")).status_code == 200
    finally:
        held.let_go.set()
    assert [(await search).status_code for search in (running, waiting)] == [200, 200]
    assert (await api.send("GET", SEARCH, params={"q": "tea"})).status_code == 200


async def test_a_turn_is_free_again_whatever_became_of_it() -> None:
    turns = Turns(at_once=1, waiting=0)
    with pytest.raises(ZeroDivisionError):
        async with turns.turn():
            with pytest.raises(TooBusy):
                async with turns.turn():
                    pass
            raise ZeroDivisionError
    async with turns.turn():
        pass


async def test_who_gives_up_waiting_takes_no_place() -> None:
    turns = Turns(at_once=1, waiting=1)

    async def take_turn() -> None:
        async with turns.turn():
            pass

    async with turns.turn():
        for _ in range(3):
            waiting = asyncio.create_task(take_turn())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
    await take_turn()


@pytest.mark.parametrize("repos", [None, (ALICE,)])
async def test_of_a_memory_with_many_words_of_one_beginning_only_their_sum_is_read(
    database: Database, repos: tuple[str, ...] | None
) -> None:
    rows = MemoryRows()
    rows.put(ALICE, " ".join(f"wine{number}" for number in range(200)) + " wine wine")
    await rows.write(database)
    query = parse_query("wine", prefix=True)
    async with database.transaction(readonly=True) as conn:
        spaces = ReadableSpaces.public_only()
        found = await find_candidates(conn, query, Filters(repos=repos), watermark=None, spaces=spaces)
    [memory] = found.memories
    assert dict(memory.occurrences) == {"wine": 2, "wine\U0010ffff": 200}


@pytest.mark.parametrize("repos", [None, (ALICE,)])
async def test_a_word_counts_for_the_longest_of_several_beginnings(
    database: Database, repos: tuple[str, ...] | None
) -> None:
    rows = MemoryRows()
    rows.put(ALICE, "wine winery winter")
    await rows.write(database)
    wine, win = (parse_query(word, prefix=True).terms[0] for word in ("wine", "win"))
    query = ParsedQuery((win, wine), (), ())
    async with database.transaction(readonly=True) as conn:
        spaces = ReadableSpaces.public_only()
        found = await find_candidates(conn, query, Filters(repos=repos), watermark=None, spaces=spaces)
    [memory] = found.memories
    assert dict(memory.occurrences) == {"wine": 1, "wine\U0010ffff": 1, "win\U0010ffff": 1}
