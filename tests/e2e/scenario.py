"""People live their lives at random, the network and the daemon fail at random; in the end the index shows what is."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta

from tests.builders import START, tid
from tests.e2e.accounts import Account, create_of, delete_of, update_of
from tests.e2e.daemon import until
from tests.e2e.trouble import Lag, Odds, Trouble
from tests.e2e.world import World, replacing

ROUNDS = 4
HARMLESS = (
    Odds(),
    Odds(cut=0.15),
    Odds(truncated=0.15),
    Odds(late=0.3, repeated=0.4),
    Odds(cut=0.05, truncated=0.05, late=0.1, repeated=0.1),
)
HARMFUL = (Odds(spoilt=0.1), Odds(lost=0.1), Odds(cut=0.1, repeated=0.1, spoilt=0.05, lost=0.05))


@dataclass
class Person:
    """An account, and what its owner knows of it."""

    account: Account
    keys: list[str] = field(default_factory=list[str])
    away: str = ""  # deactivated, taken down or deleted; '' = active


class Scenario:
    """One life of a few people, a daemon, and the network between them."""

    def __init__(self, world: World, draw: random.Random, trouble: Trouble, lag: Lag) -> None:
        self.log: list[str] = []
        self._world = world
        self._draw = draw
        self._trouble = trouble
        self._lag = lag
        self._people: list[Person] = []
        self._written = 0
        self._outage_is_on = False

    async def run(self) -> None:
        """All of it, and the comparison in the end."""
        for _ in range(self._draw.randint(3, 4)):
            await self._arrive()
        harmful = self._draw.random() < 0.5
        for _ in range(ROUNDS):
            self._trouble.odds = self._draw.choice(HARMFUL if harmful else HARMLESS)
            await self._round()
        await self._end_trouble()
        for person in self._people:
            if not person.away:
                await self._write(person)
        await self._world.same(*(person.account for person in self._people))
        for person in self._people:
            if not person.away:
                await self._world.named(person.account)

    async def _round(self) -> None:
        happens = self._draw.choice([self._cut, self._kill, self._kill, self._outage, self._nothing])
        self.log.append(f"round: {happens.__name__} {self._trouble.odds}")
        self._lag.let_pass(self._draw.randint(0, 15))
        live = self._draw.randint(4, 12)
        middle = self._draw.randrange(live)
        before = {url: await self._world.cursor(url) for url in self._pds_urls()}
        for number in range(live):
            await self._live()
            if number == middle:
                await happens()
        # Enough came through that what happens next falls into the midst of it.
        await until(lambda: self._moved(before), f"any progress\n{await self._world.told()}")

    def _pds_urls(self) -> list[str]:
        return [pds.url for pds in self._world.network.pdses]

    async def _moved(self, before: dict[str, int]) -> bool:
        wanted = {pds.url: pds.last_seq() for pds in self._world.network.pdses}
        return any(
            [await self._world.is_beyond(url, seq) for url, seq in before.items() if wanted[url] > seq] or [True]
        )

    # The network and the daemon

    async def _nothing(self) -> None:
        pass

    async def _cut(self) -> None:
        self._world.cut()

    async def _kill(self) -> None:
        await self._world.revive()

    async def _outage(self) -> None:
        await self._set_outage(self._draw.random() < 0.7)

    async def _set_outage(self, on: bool) -> None:
        self._outage_is_on = on
        await self._world.network.set_outage(on)

    async def _end_trouble(self) -> None:
        self._trouble.odds = Odds()
        self._lag.end()
        await self._set_outage(False)
        await self._world.let_time_pass()

    # People

    async def _arrive(self) -> None:
        account = await self._world.account(self._draw.randrange(2))
        self._people.append(Person(account))
        self.log.append(f"{account.did} arrives at {account.pds.domain}")

    async def _live(self) -> None:
        """One thing that someone does; what takes the directory is not tried while that is down."""
        person = self._draw.choice(self._people)
        if person.away:
            await self._return(person)
            return
        # Of who is not followed yet all commits may be parked: what else they did by then is asked of their host.
        is_followed = await self._world.is_followed(person.account)
        doings: list[tuple[int, Callable[[Person], Awaitable[None]]]] = [
            (6, self._write),
            (3, self._change),
            (2, self._delete),
            (3, self._write_several),
            (1, self._write_nonsense),
            (1 if is_followed else 0, self._post),
            (0 if self._outage_is_on else 1, self._rename),
            (2 if is_followed and not self._outage_is_on else 0, self._go_away),
        ]
        (doing,) = self._draw.choices([doing for _, doing in doings], [weight for weight, _ in doings])
        self.log.append(f"{person.account.did} {doing.__name__}")
        await doing(person)

    def _next(self, person: Person) -> dict[str, object]:
        """A memory that was not written before, and may replace others."""
        self._written += 1
        older = self._draw.sample(person.keys, min(len(person.keys), self._draw.choice([0, 0, 1, 2])))
        return replacing(f"number {self._written}", person.account, *older)

    def _new_key(self) -> str:
        return tid(START + timedelta(seconds=self._draw.randrange(10**6), microseconds=self._draw.randrange(10**6)))

    async def _write(self, person: Person) -> None:
        person.keys.append(await person.account.create(self._next(person)))

    async def _change(self, person: Person) -> None:
        key = self._draw.choice(person.keys or [self._new_key()])
        await person.account.put(key, self._next(person))
        person.keys = [*{*person.keys, key}] if key not in person.keys else person.keys

    async def _delete(self, person: Person) -> None:
        if person.keys:
            await person.account.delete(person.keys.pop(self._draw.randrange(len(person.keys))))

    async def _write_several(self, person: Person) -> None:
        new = [self._new_key() for _ in range(self._draw.randint(1, 4))]
        old = self._draw.sample(person.keys, min(len(person.keys), self._draw.randint(0, 3)))
        writes = [create_of(key, self._next(person)) for key in new]
        for key in old:
            if self._draw.random() < 0.5:
                writes.append(update_of(key, self._next(person)))
            else:
                writes.append(delete_of(key))
                person.keys.remove(key)
        person.keys += new
        await person.account.apply(writes)

    async def _write_nonsense(self, person: Person) -> None:
        await person.account.create({"content": "When was this?"})

    async def _post(self, person: Person) -> None:
        await person.account.create({"$type": "app.bsky.feed.post", "text": "Hello."}, collection="app.bsky.feed.post")

    async def _rename(self, person: Person) -> None:
        await person.account.rename(f"{self._draw.getrandbits(48):x}.{person.account.pds.domain}")

    async def _go_away(self, person: Person) -> None:
        person.away = self._draw.choice(["deactivated", "deactivated", "taken down", "taken down", "deleted"])
        self.log[-1] += f" {person.away}"
        match person.away:
            case "deactivated":
                await person.account.deactivate()
            case "taken down":
                await person.account.take_down()
            case _:
                await person.account.delete_account()
                await self._arrive()

    async def _return(self, person: Person) -> None:
        match person.away:
            case "deactivated" if not self._outage_is_on:
                await person.account.activate()
            case "taken down":
                await person.account.restore()
            case _:
                return
        person.away = ""
        self.log.append(f"{person.account.did} returns")
