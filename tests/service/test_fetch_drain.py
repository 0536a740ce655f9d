"""What waited for a fetch is joined piece by piece: nothing that comes in between overtakes it, and no lock is long."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from indexer.arrivals import TakedownOrdered
from indexer.resync import drain
from indexer.resync.apply import Applier, at_hosts
from indexer.resync.drain import DRAINED_COMMITS_MAX, Begin, Drain, Seam
from memory.database import Database
from tests.builders import RepoBuilder, Write, memory
from tests.fakes.pds import Fault
from tests.feed import rkey
from tests.mending import Mending, mending
from tests.service.test_fetch_records import BROKEN_TERMS, unstorable
from tests.service.test_fetch_seam import OTHER_RELAY, assert_whole, begun, fetching, spoil

__all__ = ["BROKEN_TERMS", "unstorable"]

NUMBERS = range(5, 12)
LOCK = "select from repos where repo = $1 for update nowait"

Happen = Callable[[], Awaitable[None]]


@pytest.fixture
async def world(database: Database) -> AsyncGenerator[Mending]:
    async with mending(database) as opened:
        yield opened


class Pieces:
    """How the drains of all fetches go: what pieces are, and what happens before each but the first."""

    def __init__(self) -> None:
        self.units = 1
        self.commits_max = DRAINED_COMMITS_MAX
        self.taken = 0
        self.between: Happen | None = None
        self.judged: Happen | None = None


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> Pieces:
    """Pieces of one commit."""
    given = Pieces()
    monkeypatch.setattr(drain, "BYTES_A_UNIT", 10**6)

    class Watched(Drain):
        async def _take_piece(self, begin: Begin, room: int) -> bool:
            if self._between is not None and given.between is not None:
                await given.between()
            taken = await super()._take_piece(begin, room)
            given.taken += taken
            return taken

        async def judge(self) -> None:
            await super().judge()
            if given.judged is not None:
                await given.judged()

    def watched(applier: Applier, seam: Seam) -> Drain:
        database, writer, clock = applier._database, applier._writer, applier._clock
        return Watched(database, writer, clock, seam, piece_units=given.units, commits_max=given.commits_max)

    monkeypatch.setattr(Applier, "_drain", watched)
    return given


async def waits(world: Mending, alice: RepoBuilder) -> None:
    """Commits that come while the repo is fetched, each with one memory."""
    await world.live(*(alice.create(rkey(number), memory(f"{number}")) for number in NUMBERS))


async def test_each_piece_is_of_one_commit_at_least(world: Mending, pieces: Pieces):
    alice = await begun(world, "active")
    async with fetching(world, alice, Fault.STALLED):
        await waits(world, alice)
    await assert_whole(world, alice, "1", *(f"{number}" for number in NUMBERS))
    assert pieces.taken == len(NUMBERS)


async def test_pieces_are_as_large_as_they_may_be(world: Mending, pieces: Pieces):
    pieces.units = 4  # of two commits: each is one, and one for its memory
    alice = await begun(world, "active")
    async with fetching(world, alice, Fault.STALLED):
        await waits(world, alice)
    await assert_whole(world, alice, "1", *(f"{number}" for number in NUMBERS))
    assert pieces.taken == 4


async def test_repo_is_as_being_fetched_between_two_pieces(world: Mending, pieces: Pieces):
    seen: list[tuple[str, str | None, int]] = []

    async def look() -> None:
        row = await world.row(alice)
        assert (row["fetch_token"] is None, row["rev"] < alice.rev) == (False, True)
        seen.append((*await world.state(alice), await world.parked(alice)))
        assert await world.requests(alice) == {"fetch": "test"}, "killed now, it would be fetched again"

    pieces.between = look
    alice = await begun(world, "active")
    async with fetching(world, alice, Fault.STALLED):
        await waits(world, alice)
    await assert_whole(world, alice, "1", *(f"{number}" for number in NUMBERS))
    assert seen == [("resyncing", None, left) for left in range(len(NUMBERS) - 1, 0, -1)]


async def test_what_comes_between_two_pieces_waits_behind_the_rest(world: Mending, pieces: Pieces):
    numbers = iter(range(20, 25))

    async def write() -> None:
        if (number := next(numbers, None)) is not None:
            frame = alice.apply(
                [Write("create", rkey(number), memory(f"{number}")), Write("delete", rkey(number - 15))]
            )
            await world.live(frame)
            await world.live(frame, source=OTHER_RELAY)

    pieces.between = write
    alice = await begun(world, "active")
    async with fetching(world, alice, Fault.STALLED):
        await waits(world, alice)
    await assert_whole(world, alice, "1", "10", "11", *(f"{number}" for number in range(20, 25)))
    assert await world.rows("select from rejections where effect = 'desynchronized'") == []


@pytest.mark.parametrize("beginning", ["pending", "active"])
async def test_pieces_of_a_fetch_that_failed_leave_the_repo_as_it_was(world: Mending, pieces: Pieces, beginning: str):
    alice = await begun(world, beginning)
    before = await world.state(alice)
    async with fetching(world, alice, Fault.SLOW):
        await waits(world, alice)
        spoil(world, alice)
    assert await world.until_failed(alice) == "truncated_car"
    assert await world.state(alice) == before
    assert await world.contents(alice) == ["1", *(f"{number}" for number in NUMBERS)]
    assert pieces.taken == len(NUMBERS)


async def test_rest_behind_a_commit_that_does_not_chain_on_is_passed_over_at_once(world: Mending, pieces: Pieces):
    alice = await begun(world, "active")
    async with fetching(world, alice, Fault.STALLED):
        await world.live(alice.create(rkey(3), memory("3")))
        alice.create(rkey(4), memory("4"))  # a frame that was lost
        await waits(world, alice)
    await world.until_state(alice, "desynchronized", "since_mismatch")
    assert (await world.contents(alice), await world.parked(alice), pieces.taken) == (["1", "3"], 0, 2)
    [passed] = await world.rows("select times from rejections where reason = 'awaiting_resync'")
    assert passed["times"] == len(NUMBERS) - 1
    assert await world.requests(alice) == {"fetch": "since_mismatch"}
    world.clock.advance(minutes=10)
    await assert_whole(world, alice, "1", "3", "4", *(f"{number}" for number in NUMBERS))


async def test_whoever_writes_on_and_on_is_fetched_again(world: Mending, pieces: Pieces):
    pieces.commits_max = 3
    alice = await begun(world, "active")
    async with fetching(world, alice, Fault.STALLED):
        await waits(world, alice)
    await world.until_state(alice, "desynchronized", "parked_overflow")
    assert await world.contents(alice) == ["1", "5", "6", "7"]
    assert (await world.parked(alice), await world.requests(alice)) == (0, {"fetch": "parked_overflow"})
    world.clock.advance(minutes=10)
    await assert_whole(world, alice, "1", *(f"{number}" for number in NUMBERS))


async def test_what_waits_is_judged_while_nobody_waits_for_the_repo(world: Mending, pieces: Pieces):
    judged = 0

    async def lock() -> None:
        nonlocal judged
        judged += 1
        await world.rows(LOCK, alice.did)

    pieces.judged = lock
    alice = await begun(world, "active")
    async with fetching(world, alice, Fault.STALLED):
        await waits(world, alice)
    await assert_whole(world, alice, "1", *(f"{number}" for number in NUMBERS))
    assert judged > 0


async def test_drain_of_a_repo_that_is_taken_down_between_two_pieces_ends(world: Mending, pieces: Pieces):
    async def take_down() -> None:
        await world.write(TakedownOrdered(at_hosts(world.clock.now), alice.did, None))

    pieces.between = take_down
    alice = await begun(world, "active")
    async with fetching(world, alice, Fault.STALLED):
        await waits(world, alice)
    await world.until_state(alice, "pending", "denied")
    await world.stop()
    assert (await world.contents(alice), await world.parked(alice)) == ([], 0)


@pytest.mark.parametrize("units", [1, 1000])
async def test_commit_that_the_database_cannot_hold_takes_nothing_else_along(
    world: Mending, pieces: Pieces, unstorable: set[str], units: int
):
    pieces.units = units
    unstorable.add("8")
    alice = await begun(world, "active")
    async with fetching(world, alice, Fault.STALLED):
        await waits(world, alice)
    await world.until_state(alice, "desynchronized", "unstorable")
    assert (await world.contents(alice), await world.parked(alice)) == (["1", "5", "6", "7"], 0)
    world.clock.advance(minutes=10)
    await assert_whole(world, alice, "1", *(f"{number}" for number in NUMBERS if number != 8))
