from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.resync.answers import ListedRepo, Refused, RefusedReason, RepoPage
from indexer.resync.sweeps import CursorRefused, EndlessList, SweepLimits, sweep
from memory.errors import Rejected
from memory.outbound_errors import HostUnavailable

HOST = "https://relay.example"
FEW = SweepLimits(pages=50, repos=1000, pages_without_news=5)

Ask = Callable[[str | None], Awaitable[RepoPage]]


def page(cursor: str | None, *dids: int | str) -> RepoPage:
    return RepoPage([ListedRepo(f"did:web:{did}.example") for did in dids], cursor)


def list_of(pages: Sequence[RepoPage]) -> Ask:
    """The pages in their order, whatever their cursors are; the last for good."""
    following = iter(pages)

    async def ask(cursor: str | None) -> RepoPage:
        return next(following, pages[-1])

    return ask


async def swept(ask: Ask, cursor: str | None = None, limits: SweepLimits = FEW) -> list[RepoPage]:
    return [page async for page in sweep(ask, cursor, limits)]


class Swept:
    """What came before the sweep gave up."""

    def __init__(self) -> None:
        self.pages: list[RepoPage] = []

    async def until(self, error: type[Rejected], ask: Ask, limits: SweepLimits = FEW) -> str:
        with pytest.raises(error) as caught:
            async for page in sweep(ask, None, limits):
                self.pages.append(page)
        return caught.value.message


@given(st.lists(st.lists(st.integers(0, 10**6), max_size=5), min_size=1, max_size=30))
async def test_every_page_comes_once_and_the_one_without_a_cursor_is_the_last(contents: list[list[int]]):
    pages = {
        None if number == 0 else f"{number}": page(f"{number + 1}" if number + 1 < len(contents) else None, *dids)
        for number, dids in enumerate(contents)
    }
    asked: list[str | None] = []

    async def ask(cursor: str | None) -> RepoPage:
        asked.append(cursor)
        return pages[cursor]

    assert await swept(ask, limits=SweepLimits()) == list(pages.values())
    assert asked == list(pages)


async def test_sweep_goes_on_at_a_cursor():
    asked: list[str | None] = []

    async def ask(cursor: str | None) -> RepoPage:
        asked.append(cursor)
        return page(None, 1)

    assert await swept(ask, "17") == [page(None, 1)]
    assert asked == ["17"]


async def test_empty_pages_are_no_end():
    pages = [page("a", 1), page("b"), page("c"), page(None, 2)]
    assert await swept(list_of(pages)) == pages


async def test_page_that_leads_to_itself_ends_the_sweep_after_it_was_given():
    so_far = Swept()
    message = await so_far.until(EndlessList, list_of([page("a", 1), page("a", 2), page("a", 3)]))
    assert "back to where it was" in message
    assert so_far.pages == [page("a", 1), page("a", 2)]


@pytest.mark.parametrize("before", [0, 1, 7])
@pytest.mark.parametrize("length", [2, 3, 10])
async def test_circle_of_cursors_is_found_whatever_its_pages_hold(before: int, length: int):
    numbers = iter(range(10**6))

    async def ask(cursor: str | None) -> RepoPage:
        at = 0 if cursor is None else int(cursor)
        return page(str(at + 1 if at < before + length else before + 1), next(numbers))

    assert "back to where it was" in await Swept().until(EndlessList, ask, SweepLimits())


async def test_pages_without_news_on_end_end_the_sweep():
    numbers = iter(range(10**6))

    async def ask(cursor: str | None) -> RepoPage:
        return page(f"{next(numbers)}", *range(100))

    so_far = Swept()
    assert "nothing new on 5 pages" in await so_far.until(EndlessList, ask)
    assert len(so_far.pages) == 6


async def test_single_new_repo_now_and_then_lets_a_sweep_go_on():
    pages = [page(f"{number}", 1, 2 + number // 5) for number in range(40)] + [page(None)]
    assert await swept(list_of(pages)) == pages


async def test_list_longer_than_the_network_ends_the_sweep():
    numbers = iter(range(10**6))

    async def ask(cursor: str | None) -> RepoPage:
        return page(f"{next(numbers)}", *(next(numbers) for _ in range(100)))

    so_far = Swept()
    assert "no end after 10 pages with 1000 repos" in await so_far.until(EndlessList, ask)
    assert len(so_far.pages) == 10


async def test_pages_without_number_end_the_sweep():
    numbers = iter(range(10**6))

    async def ask(cursor: str | None) -> RepoPage:
        return page(f"{next(numbers)}", next(numbers))

    assert "no end after 50 pages" in await Swept().until(EndlessList, ask)


async def test_long_honest_list_is_read_to_its_end():
    """A million repos share the bits by which news are told: none of the pages may seem old."""
    pages = [page(f"{number}", *range(number * 1000, number * 1000 + 1000)) for number in range(300)] + [page(None)]
    assert len(await swept(list_of(pages), limits=SweepLimits(pages_without_news=1))) == 301


async def test_cursor_that_a_host_does_not_take_any_more_is_told_from_a_refusal():
    async def ask(cursor: str | None) -> RepoPage:
        raise Refused(HOST, RefusedReason.HOST_REFUSED, bad_request=True)

    with pytest.raises(CursorRefused) as caught:
        await swept(ask, "17")
    assert caught.value.reason == "cursor_refused"
    with pytest.raises(Refused):
        await swept(ask)


async def test_refusal_of_another_kind_is_not_the_cursors_fault():
    async def ask(cursor: str | None) -> RepoPage:
        raise Refused(HOST, RefusedReason.HOST_REFUSED)

    with pytest.raises(Refused):
        await swept(ask, "17")


async def test_outage_ends_the_sweep_where_it_is():
    async def ask(cursor: str | None) -> RepoPage:
        if cursor is None:
            return page("a", 1)
        raise HostUnavailable("down", host=HOST)

    pages = sweep(ask)
    assert await anext(pages) == page("a", 1)
    with pytest.raises(HostUnavailable):
        await anext(pages)
