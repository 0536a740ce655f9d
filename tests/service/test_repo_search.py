"""Searches through lists of repos: where they go on after whatever ended them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from indexer.resync.discovery import OPERATOR, DiscoveryPage, Found
from indexer.resync.search import ATTEMPTS, LONGEST_WAIT_S, pages_of
from indexer.resync.sweeps import CursorRefused
from indexer.resync.worker import CLAIM
from memory.database import Database
from memory.outbound_errors import HostUnavailable
from tests.backfilling import World, backfilling
from tests.builders import RepoBuilder

CLAIM_ENDS = CLAIM + timedelta(seconds=1)
PAGES = 3  # of the list that is read here, with two repos each; the reference's last one has none


class Killed(BaseException):
    """As by kill -9: nothing is tidied up."""


class DyingDatabase(Database):
    """Lets so many transactions commit."""

    __slots__ = ("_left",)

    def __init__(self, database: Database, commits: int) -> None:
        super().__init__(database.pool)
        object.__setattr__(self, "_left", [None] * commits)

    @asynccontextmanager
    async def transaction(self, **options: Any) -> AsyncGenerator[Any]:
        async with super().transaction(**options) as conn:
            yield conn
            if not self._left:
                raise Killed
            self._left.pop()


@pytest.fixture
async def world(database: Database) -> AsyncGenerator[World]:
    async with backfilling(database) as opened:
        opened.relay.lists.page_repos = 2
        for number in range(PAGES * 2 - 1):
            opened.account(f"person {number}")
        yield opened


def pages_asked(world: World) -> int:
    return world.relay.asked_for("listReposByCollection")


async def sweep_row(world: World) -> Any:
    [row] = await world.rows("select page_cursor, repos_found, started_at, finished_at from discoveries")
    return row


async def test_whole_list_is_read_and_its_end_is_kept(world: World):
    search = world.search(world.relay.url)
    await search.prepare()
    await search.run()
    assert search.progress.finished
    assert (search.progress.listed, search.progress.found, search.progress.new, search.progress.asked) == (5, 5, 5, 5)
    row = await sweep_row(world)
    assert (row["page_cursor"], row["repos_found"], row["finished_at"]) == (None, 5, world.clock.now)


@pytest.mark.parametrize("commits", range(2 * (PAGES + 1)))
async def test_killed_at_any_transaction_it_goes_on_where_it_was(database: Database, world: World, commits: int):
    with pytest.raises(Killed):
        await world.search(world.relay.url, database=DyingDatabase(database, commits)).run()
    whole_pages = commits // 2
    asked_before = pages_asked(world)
    search = world.search(world.relay.url)
    await search.prepare()
    assert (search.progress.continued_from is not None) == (whole_pages > 0)
    await search.run()
    assert pages_asked(world) - asked_before == PAGES + 1 - whole_pages
    assert (await sweep_row(world))["repos_found"] == 5
    assert (await world.states()).keys() == world.relay.repos.keys()
    assert await world.value("select count(*) from requests where kind = 'fetch'") == 5


@pytest.mark.parametrize("commits", range(2 * (PAGES + 1)))
async def test_run_that_was_killed_is_finished_by_the_next(database: Database, world: World, commits: int):
    with pytest.raises(Killed):
        await world.prepared(world.search(world.relay.url, database=DyingDatabase(database, commits))).run([])
    world.clock.now += CLAIM_ENDS
    report = await world.backfill(world.relay.url)
    assert report.succeeded
    assert set((await world.states()).values()) == {"active"}
    assert await world.contents() == [f"person {number} 0" for number in range(5)]
    assert await world.value("select count(*) from requests") == 0


# Servers that do not answer well

HOST = "https://relay.test"
AWAY = HostUnavailable("https://relay.test is away", host=HOST)
ALICE, BOB, CAROL = (RepoBuilder(name).did for name in ("alice", "bob", "carol"))


class Script:
    """Pages, and what comes instead of one, in their order; whoever asks anew goes on in it."""

    def __init__(self, *steps: DiscoveryPage | Exception) -> None:
        self.asked: list[str | None] = []
        self._steps = list(steps)

    async def pages(self, position: str | None) -> AsyncGenerator[DiscoveryPage]:
        self.asked.append(position)
        while True:
            step = self._steps.pop(0)
            if isinstance(step, Exception):
                raise step
            yield step
            if step.position is None:
                return


def page(did: str, position: str | None) -> DiscoveryPage:
    return DiscoveryPage([Found(did, None, HOST)], position, 1)


async def test_server_that_is_away_for_a_while_is_asked_again_from_where_it_was(world: World):
    script = Script(page(ALICE, "x"), AWAY, AWAY, page(BOB, None))
    search = world.search(HOST, pages=script.pages)
    await search.run()
    assert script.asked == [None, "x", "x"]
    assert len(world.slept) == 2
    assert world.slept[0] < world.slept[1]
    assert (search.progress.found, search.progress.waits_s) == (2, None)


async def test_server_is_given_as_long_as_it_asks_for(world: World):
    busy = HostUnavailable("busy", host=HOST, retry_after_s=120.0)
    await world.search(HOST, pages=Script(busy, page(ALICE, None)).pages).run()
    assert world.slept[0] >= 120.0


@pytest.mark.parametrize(
    "failures",
    [[AWAY] * ATTEMPTS, [HostUnavailable("busy", host=HOST, retry_after_s=LONGEST_WAIT_S + 1)]],
    ids=["again and again", "for long"],
)
async def test_server_that_stays_away_ends_the_search_where_it_is(world: World, failures: list[Exception]):
    with pytest.raises(HostUnavailable):
        await world.search(HOST, pages=Script(page(ALICE, "x"), *failures).pages).run()
    row = await sweep_row(world)
    assert (row["page_cursor"], row["repos_found"], row["finished_at"]) == ("x", 1, None)


async def test_page_that_comes_makes_up_for_failures_before(world: World):
    steps = [step for number in range(ATTEMPTS) for step in (AWAY, page(ALICE, f"{number}"))]
    await world.search(HOST, pages=Script(*steps, page(ALICE, None)).pages).run()
    assert len(world.slept) == ATTEMPTS


async def test_list_whose_cursor_is_not_taken_any_more_is_read_anew(world: World):
    script = Script(page(ALICE, "x"), CursorRefused(host=HOST), page(ALICE, "y"), page(BOB, None))
    await world.search(HOST, pages=script.pages).run()
    assert script.asked == [None, None]
    assert (await sweep_row(world))["repos_found"] == 2


async def test_list_whose_cursors_are_never_taken_ends_the_search(world: World):
    refused = CursorRefused(host=HOST)
    with pytest.raises(CursorRefused):
        await world.search(HOST, pages=Script(page(ALICE, "x"), refused, page(ALICE, "x"), refused).pages).run()


async def test_run_whose_search_breaks_off_fetches_what_was_found(world: World):
    alice = world.account("alice")
    search = world.search(HOST, pages=Script(page(alice.did, "x"), *[AWAY] * ATTEMPTS).pages)
    report = await world.prepared(search).run([])
    assert (report.found, report.fetched, report.broken_off, report.succeeded) == (1, 1, AWAY.message, False)


async def test_run_whose_search_finds_nothing_at_all_fails(world: World):
    with pytest.raises(HostUnavailable):
        await world.prepared(world.search(HOST, pages=Script(*[AWAY] * ATTEMPTS).pages)).run([])


# An operator's own list


async def positions(dids: set[str], position: str | None, page_repos: int) -> list[tuple[list[str], str | None]]:
    pages = pages_of(dids, page_repos)
    return [([found.did for found in page.found], page.position) async for page in pages(position)]


async def test_own_list_is_read_in_order_and_ends():
    first, second, third = sorted((ALICE, BOB, CAROL))
    assert await positions({ALICE, BOB, CAROL}, None, 2) == [([first, second], second), ([third], None)]
    assert await positions({ALICE, BOB, CAROL}, second, 2) == [([third], None)]
    assert await positions({ALICE, BOB}, None, 2) == [(sorted((ALICE, BOB)), None)]
    assert await positions(set(), None, 2) == [([], None)]


@pytest.mark.parametrize(
    "did",
    ["did:example:alice", "did:plc:short", "did:web:alice.test:path", f"did:web:{('a' * 62 + '.') * 4}x"],
    ids=["method", "plc", "path", "length"],
)
async def test_did_that_nobody_can_resolve_is_not_tracked(world: World, did: str):
    search = world.search(HOST, pages=pages_of([ALICE, did]))
    await search.run()
    assert await world.rows("select repo from repos") == [(ALICE,)]
    assert (search.progress.listed, search.progress.found) == (2, 1)


async def test_own_list_is_tracked_and_asked_for(world: World):
    search = world.search(HOST, pages=pages_of([ALICE, BOB]))
    await search.run()
    assert (search.progress.found, search.progress.asked) == (2, 2)
    found = [found async for page in pages_of([ALICE])(None) for found in page.found]
    assert found == [Found(ALICE, None, OPERATOR)]
