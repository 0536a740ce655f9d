"""Hosts that keep us waiting, however many, keep those waiting little that answer at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest

from indexer.spaces.lanes import LARGE_S_MAX, QUICK_BYTES_PER_S, QUICK_S, HostTooSlow, Lanes, Turn
from memory.database import Database
from memory.errors import Rejected
from memory.outbound_errors import HostUnavailable
from memory.tasks import TaskGroup
from tests.builders import START, memory
from tests.fakes.space_host import SpaceHost
from tests.fakes.space_host_faults import Fault
from tests.feed import rkey
from tests.spaces_world import SpacesWorld, setting, spaces_world

AT_ONCE = 16
STRANGERS = AT_ONCE // 2
SLOW_HOSTS = 64
A, B, C = "https://a.first.test", "https://b.first.test", "https://c.second.test"


# Pulls


@asynccontextmanager
async def waiting_world(database: Database) -> AsyncGenerator[SpacesWorld]:
    """Where what is waited for takes as long as the test's clock moves on meanwhile."""
    worlds: list[SpacesWorld] = []

    def monotonic() -> float:
        return (worlds[0].clock() - START).total_seconds() if worlds else 0.0

    async with spaces_world(database, monotonic=monotonic) as world:
        worlds.append(world)
        yield world


async def besiege(world: SpacesWorld, fault: Fault, authors: int = 2) -> list[SpaceHost]:
    """A Space whose authors are on ever so many hosts, each of which holds on to whoever asks until it is released."""
    home = await world.host()
    eve = home.add("eve")
    hosts = [await world.host() for _ in range(SLOW_HOSTS)]
    people = [host.add(f"person {number} of {host.port}") for host in hosts for number in range(authors)]
    space = home.create_space(eve, "trap", *people)
    for person in people:
        person.create(space, rkey(1), memory("bait"))
    for host in hosts:
        host.misbehave(fault, "getRepo")
        host.misbehave(fault, "listRepoOps")
    await world.open(space, eve)
    return hosts


async def until_held_up(world: SpacesWorld, hosts: list[SpaceHost], methods: tuple[str, ...], times: int) -> None:
    """Waits until so many requests are held on to."""

    async def held() -> bool:
        return sum(host.at_once[method] for host in hosts for method in methods) >= times

    await world.until(held, True)


@pytest.mark.parametrize("fault", [Fault.SLOW, Fault.STALLED])
async def test_ever_so_many_slow_hosts_do_not_delay_what_is_written_at_a_quick_one(database: Database, fault: Fault):
    async with waiting_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        hosts = await besiege(world, fault)
        await until_held_up(world, hosts, ("getRepo",), STRANGERS)
        for number in range(1, 4):
            here.bob.create(here.space, rkey(number), memory(f"{number}"))
            await world.note_write(here.space, here.bob)
            await world.until_contents(here.space, here.bob, [f"{each}" for each in range(number + 1)])
        assert sum(host.at_once["getRepo"] for host in hosts) == STRANGERS


async def test_space_at_a_host_that_was_never_asked_is_ready_while_slow_ones_hold_on(database: Database):
    async with waiting_world(database) as world:
        hosts = await besiege(world, Fault.SLOW)
        world.start()
        await until_held_up(world, hosts, ("getRepo",), STRANGERS)
        here = await setting(world)
        here.bob.create(here.space, rkey(0), memory("0"))
        await world.open(here.space, here.bob)
        await world.pass_time_until(lambda: world.contents(here.space, here.bob), ["0"], seconds=0.5)
        assert await world.is_served(here.space)
        assert world.worker.failures["host_too_slow"] > 0


async def test_hosts_that_were_quick_and_hold_on_now_leave_room_for_others(database: Database):
    async with waiting_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        hosts = [await world.host() for _ in range(4)]
        people = [host.add(f"person {number} of {host.port}") for host in hosts for number in range(8)]
        trap = hosts[0].create_space(hosts[0].add("eve"), "trap", *people)
        for person in people:
            person.create(trap, rkey(1), memory("bait"))
        await world.open(trap, people[0])
        shown = "select count(*) from repos where space = $1 and visible"
        await world.pass_time_until(lambda: world.value(shown, str(trap)), len(people), seconds=0.1)
        world.clock.advance(minutes=1)  # nobody rests any more
        for host in hosts:
            host.misbehave(Fault.SLOW, "listRepoOps")
        for person in people:
            person.create(trap, rkey(2), memory("bait"))
            await world.note_write(trap, person)
        await until_held_up(world, hosts, ("listRepoOps",), AT_ONCE)
        here.bob.create(here.space, rkey(1), memory("1"))
        await world.note_write(here.space, here.bob)
        await world.pass_time_until(lambda: world.contents(here.space, here.bob), ["0", "1"], seconds=0.5)


async def test_slow_host_that_means_well_gets_through(database: Database):
    async with waiting_world(database) as world:
        hosts = await besiege(world, Fault.SLOW, authors=1)
        here = await setting(world)
        here.bob.create(here.space, rkey(0), memory("0"))
        here.away.misbehave(Fault.SLOW, "getRepo", times=2)
        await world.open(here.space, here.bob)
        world.start()
        await until_held_up(world, [here.away], ("getRepo",), 1)
        await world.pass_time_until(lambda: world.contents(here.space, here.bob), ["0"], seconds=0.5)
        assert sum(host.at_once["getRepo"] for host in hosts) > 0


# Listings


async def test_slow_hosts_of_many_spaces_do_not_delay_those_of_quick_ones(database: Database):
    async with waiting_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        hosts = [await world.host() for _ in range(4)]
        for host in hosts:
            host.misbehave(Fault.SLOW, "listRepos")
            for number in range(5):
                eve = host.add(f"eve {number} of {host.port}")
                await world.open(host.create_space(eve, "trap"), eve)
        await until_held_up(world, hosts, ("listRepos",), STRANGERS)
        here.bob.create(here.space, rkey(1), memory("1"))
        await world.note_write(here.space, here.bob)
        await world.until_contents(here.space, here.bob, ["0", "1"])
        assert sum(host.at_once["listRepos"] for host in hosts) == STRANGERS
        other = await world.host()
        carol = other.add("carol")
        new = other.create_space(carol, "new", carol)
        carol.create(new, rkey(1), memory("of carol"))
        await world.open(new, carol)
        await world.pass_time_until(lambda: world.contents(new, carol), ["of carol"], seconds=0.5)
        failed = await world.rows("select distinct failure from spaces where failure is not null")
        assert [row["failure"] for row in failed] == ["host_too_slow"]


# Whom is waited for


class Time:
    """A monotonic clock."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def ask(lanes: Lanes, time: Time, host: str, *, takes_s: float, size: int = 0) -> None:
    with lanes.turn(1) as turn:
        async with turn.waiting():
            with turn.asking(host):
                time.now += takes_s
            turn.received(size)


async def test_host_is_quick_from_its_first_quick_answer_until_a_slow_one():
    time = Time()
    lanes = Lanes(AT_ONCE, monotonic=time)
    assert not lanes.is_quick(A)
    assert not lanes.is_slow(A)
    await ask(lanes, time, A, takes_s=QUICK_S)
    assert lanes.is_quick(A)
    assert lanes.quick() == [A]
    await ask(lanes, time, A, takes_s=QUICK_S * 2)
    assert not lanes.is_quick(A)
    assert lanes.is_slow(A)
    assert lanes.quick() == []


async def test_host_that_was_never_asked_is_slow_if_another_of_its_site_is():
    time = Time()
    lanes = Lanes(AT_ONCE, monotonic=time)
    await ask(lanes, time, A, takes_s=QUICK_S * 2)
    assert lanes.is_slow(B)
    assert not lanes.is_slow(C)
    assert not lanes.is_slow("")
    await ask(lanes, time, B, takes_s=0)
    assert not lanes.is_slow(B)


async def test_large_answers_may_take_longer_but_not_for_ever():
    time = Time()
    lanes = Lanes(AT_ONCE, monotonic=time)
    await ask(lanes, time, A, takes_s=QUICK_S + 4, size=4 * QUICK_BYTES_PER_S)
    assert lanes.is_quick(A)
    await ask(lanes, time, A, takes_s=QUICK_S + LARGE_S_MAX + 1, size=1000 * QUICK_BYTES_PER_S)
    assert not lanes.is_quick(A)


async def test_what_is_done_with_an_answer_is_no_waiting():
    time = Time()
    lanes = Lanes(AT_ONCE, monotonic=time)
    with lanes.turn(1) as turn:
        async with turn.waiting():
            time.now += LARGE_S_MAX  # whom to ask is looked up
            with turn.asking(A):
                time.now += QUICK_S
            turn.received(0)
            time.now += 1000
            assert not turn.is_over
    assert lanes.is_quick(A)


async def test_refusal_is_an_answer_and_an_outage_is_none():
    time = Time()
    lanes = Lanes(AT_ONCE, monotonic=time)
    for failure in (Rejected(reason="x"), HostUnavailable("x", host=B)):
        with pytest.raises(type(failure)), lanes.turn(1) as turn:
            async with turn.waiting():
                with turn.asking(A if isinstance(failure, Rejected) else B):
                    raise failure
    assert lanes.is_quick(A)
    assert not lanes.is_quick(B)


class Waiting:
    """Turns that wait until they are let go, or broken off."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.turns: dict[str, Turn] = {}
        self.ended: list[str] = []
        self.done = asyncio.Event()

    async def __call__(self, host: str, attempts: int = 1) -> None:
        try:
            with self.lanes.turn(attempts) as turn:
                self.turns[host] = turn
                async with turn.waiting():
                    with turn.asking(host):
                        await self.done.wait()
        except HostTooSlow as failure:
            self.ended.append(failure.host)


@asynccontextmanager
async def under_way(waiting: Waiting) -> AsyncGenerator[TaskGroup]:
    async with TaskGroup() as tasks:
        yield tasks
        waiting.done.set()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_whoever_waited_longest_beyond_their_trial_is_broken_off_for_the_next():
    time = Time()
    lanes = Lanes(4, monotonic=time)
    waiting = Waiting(lanes)
    async with under_way(waiting) as tasks:
        for host in (A, C):
            tasks.create_task(waiting(host))
            await settled()
            time.now += 1
        assert (lanes.free, lanes.room) == (0, 0)
        lanes.make_room(1)
        await settled()
        assert waiting.ended == [], "nobody's trial is over"
        time.now += QUICK_S
        assert (lanes.free, lanes.room) == (0, 2)
        lanes.make_room()
        await settled()
        assert waiting.ended == [], "nobody else waits"
        lanes.make_room(1)
        await settled()
        assert waiting.ended == [A]
        assert lanes.free == 1
    assert lanes.broken_off == 1


async def test_trial_is_longer_with_each_attempt():
    time = Time()
    lanes = Lanes(4, monotonic=time)
    waiting = Waiting(lanes)
    async with under_way(waiting) as tasks:
        tasks.create_task(waiting(A, 1))
        tasks.create_task(waiting(C, 3))
        await settled()
        time.now += QUICK_S * 4
        assert waiting.turns[A].is_over
        assert not waiting.turns[C].is_over
        time.now += 1
        assert waiting.turns[C].is_over


async def test_failure_of_a_turn_is_its_own():
    lanes = Lanes(4, monotonic=Time())
    with pytest.raises(TimeoutError), lanes.turn(1) as turn:
        async with turn.waiting():
            raise TimeoutError
    assert lanes.free == 2
