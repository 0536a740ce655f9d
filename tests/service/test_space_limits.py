"""How often Spaces are opened: nobody takes the turns of others, whatever accounts and names they make up."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from appview.call import SpaceOpening
from appview.issuers import Issuers, LookUpBudget, Pace
from appview.rates import WINDOW_S, Rates
from appview.routes.spaces import SHARE_WEIGHT, STRANGERS_WEIGHT
from appview.spaces.let_in import KEPT_FOR, LetIn
from memory.database import Database
from tests.api_client import refused
from tests.builders import START
from tests.fakes.identities import INSTANT, world_at
from tests.fakes.space_host import space_world
from tests.fakes.space_host_world import Account
from tests.opening import Door

OF_AUTHORITY = 40
OF_VIEWER = 10
SHARE = OF_VIEWER // SHARE_WEIGHT
OF_STRANGERS = OF_AUTHORITY // STRANGERS_WEIGHT
MANY = Pace(burst=10_000, per_s=1.0)
WINDOW = timedelta(seconds=WINDOW_S)


class Lasting(Door):
    """One process of the API, which remembers who was let in. It looks up as many accounts as come."""

    kept: SpaceOpening | None = None

    @property
    def opening(self) -> SpaceOpening | None:
        self.kept = self.kept or super().opening
        return self.kept

    def restart(self) -> None:
        self.limit()
        self.kept = None

    def limit(self) -> None:
        clock = self.world.clock
        self.issuers = Issuers(self.world.resolver, LookUpBudget(lambda: 0.0, address_pace=MANY, pace_in_all=MANY))
        self.viewers, self.of_authorities = Rates(limit=OF_VIEWER, clock=clock), Rates(limit=OF_AUTHORITY, clock=clock)

    def crowd(self, count: int, *, admitted: bool = False) -> list[Account]:
        """Accounts that nobody has seen yet; strangers unless they are members."""
        made = [self.host.add(f"one of {len(self.spaces.accounts)} and {number}") for number in range(count)]
        if admitted:
            self.space.admit(*made)
        return made

    def know(self, *members: Account) -> None:
        """As if the authority had let them in just now."""
        assert self.opening is not None
        for member in members:
            self.opening.exchange._let_in.remember(self.noor.did, member.did)

    async def said(self, account: Account, space: object = None) -> str:
        """By what name it is refused to open the Space; "opened": it is not."""
        response = await self.ask_to_open(account, space=space)
        return "opened" if response.status_code == 200 else refused(response).error

    @property
    def asked(self) -> int:
        return self.host.asked_for("getSpaceCredential")


@asynccontextmanager
async def lasting_door(database: Database) -> AsyncGenerator[Lasting]:
    async with world_at(database) as world, space_world(clock=world.clock, directory=world.fake) as spaces:
        door = Lasting(world, database, spaces, await spaces.host())
        door.limit()
        yield door


@pytest.fixture
async def door(database: Database) -> AsyncGenerator[Lasting]:
    async with lasting_door(database) as made:
        yield made


async def test_viewer_has_a_share_of_what_an_authority_is_asked(door: Lasting):
    other = door.crowd(1, admitted=True)[0]
    assert [await door.said(door.mara) for _ in range(SHARE + 2)] == ["opened"] * SHARE + ["RateLimitExceeded"] * 2
    assert await door.said(other) == "opened"
    assert door.asked == SHARE + 1
    door.world.wait(WINDOW)
    assert await door.said(door.mara) == "opened"


async def test_names_for_one_host_give_no_further_share(door: Lasting):
    """Whoever governs a name of their own says where its Spaces are, and may name a stranger's host."""
    names = [door.host.add(f"name {number}") for number in range(SHARE + 1)]
    spaces = [door.host.create_space(name, "main", door.mara) for name in names]
    said = [await door.said(door.mara, space) for space in spaces]
    assert said == ["opened"] * SHARE + ["RateLimitExceeded"]
    away = await door.spaces.host()
    elsewhere = away.create_space(away.add("governs elsewhere"), "main", door.mara)
    assert await door.said(door.mara, elsewhere) == "opened"


async def test_strangers_take_no_turn_of_who_was_let_in(door: Lasting):
    """However many they are: the authority has to let somebody in before they count as one whom it knows."""
    assert await door.said(door.mara) == "opened"
    said = [await door.said(stranger) for stranger in door.crowd(OF_STRANGERS + 3)]
    assert said == ["UserNotAuthorized"] * (OF_STRANGERS - 1) + ["RateLimitExceeded"] * 4
    assert await door.said(door.noor) == "RateLimitExceeded"  # let in never before, and so a stranger too
    assert await door.said(door.mara) == "opened"
    assert door.asked == OF_STRANGERS + 1
    door.world.wait(WINDOW)
    assert await door.said(door.noor) == "opened"


async def test_strangers_of_other_names_at_the_host_are_strangers_there_too(door: Lasting):
    assert await door.said(door.mara) == "opened"
    for number, stranger in enumerate(door.crowd(OF_STRANGERS + 3)):
        await door.said(stranger, door.host.create_space(door.host.add(f"name {number}"), "main"))
    assert await door.said(door.mara) == "opened"
    assert door.asked == OF_STRANGERS + 1


async def test_authority_is_asked_so_often_in_all(door: Lasting):
    """By those whom it has let in too."""
    members = door.crowd(OF_AUTHORITY + 5, admitted=True)
    door.know(*members)
    said = Counter([await door.said(member) for member in members])
    assert said == {"opened": OF_AUTHORITY, "RateLimitExceeded": 5}
    assert door.asked == OF_AUTHORITY
    door.world.wait(WINDOW)
    assert await door.said(members[-1]) == "opened"


async def test_who_is_refused_for_the_sake_of_all_has_nothing_of_their_own_taken(door: Lasting):
    *strangers, late = door.crowd(OF_STRANGERS + 1)
    for stranger in strangers:
        await door.said(stranger)
    door.world.wait(WINDOW / 2)
    assert [await door.said(late) for _ in range(SHARE)] == ["RateLimitExceeded"] * SHARE
    door.world.wait(WINDOW / 2)
    assert [await door.said(late) for _ in range(SHARE)] == ["UserNotAuthorized"] * SHARE


async def test_who_is_let_in_and_refused_for_the_sake_of_all_has_nothing_of_their_own_taken(door: Lasting):
    door.of_authorities = Rates(limit=2, clock=door.world.clock)
    first, late = door.crowd(2, admitted=True)
    door.know(first, late)
    for _ in range(2):
        assert await door.said(first) == "opened"
    door.world.wait(WINDOW / 2)
    assert [await door.said(late) for _ in range(SHARE)] == ["RateLimitExceeded"] * SHARE
    door.world.wait(WINDOW / 2)
    assert [await door.said(late) for _ in range(SHARE)] == ["opened"] * SHARE


async def test_who_was_let_in_is_known_for_a_day(door: Lasting):
    for hours in (12, 24):
        assert await door.said(door.mara) == "opened"
        door.world.wait(timedelta(hours=hours) - INSTANT)
    for stranger in door.crowd(OF_STRANGERS):
        await door.said(stranger)
    assert await door.said(door.mara) == "opened"
    door.world.wait(KEPT_FOR)
    for stranger in door.crowd(OF_STRANGERS):
        await door.said(stranger)
    assert await door.said(door.mara) == "RateLimitExceeded"


async def test_process_that_starts_anew_knows_nobody(door: Lasting):
    assert await door.said(door.mara) == "opened"
    door.restart()
    for stranger in door.crowd(OF_STRANGERS):
        await door.said(stranger)
    assert await door.said(door.mara) == "RateLimitExceeded"


async def test_without_a_limit_nothing_is_counted(door: Lasting):
    clock = door.world.clock
    door.viewers, door.of_authorities = Rates(limit=0, clock=clock), Rates(limit=0, clock=clock)
    assert [await door.said(door.mara) for _ in range(SHARE + 1)] == ["opened"] * (SHARE + 1)


async def test_whatever_is_asked_nobody_has_more_than_theirs(door: Lasting, seed: int):
    """Random members, strangers and names within one window."""
    draw = random.Random(seed)
    members, strangers = door.crowd(6, admitted=True), door.crowd(6)
    own = door.host.create_space(door.lukas, "own", *members, *strangers)
    opened: Counter[str] = Counter()
    before = door.asked
    for _ in range(120):
        account = draw.choice([*members, *strangers])
        counted = door.asked
        await door.said(account, draw.choice([door.space, own]))
        opened[account.did] += door.asked - counted
    assert max(opened.values()) == SHARE
    assert door.asked - before == sum(opened.values()) <= 12 * SHARE


def test_no_more_are_remembered_than_have_room():
    """Who was let in last stays."""
    let_in = LetIn(clock=lambda: START, capacity=3)
    for viewer in ("a", "b", "c", "a", "d"):
        let_in.remember("authority", viewer)
    assert [viewer for viewer in "abcd" if let_in.knows("authority", viewer)] == ["a", "c", "d"]
    assert not let_in.knows("another", "a")
