"""Whoever writes about the repos of a Space takes rows in one order: none waits for another in a circle."""

from __future__ import annotations

import asyncio
import random

from indexer.arrivals import AccountChanged, Batch, Place
from memory.database import Database
from memory.errors import Unavailable
from tests.builders import memory
from tests.feed import RELAY, rkey
from tests.spaces_world import spaces_world


async def test_accounts_pulls_listings_and_purges_wait_in_no_circle(database: Database, seed: int):
    draw = random.Random(seed)
    async with spaces_world(database, slice_ops=2) as world:
        home, away = await world.host(), await world.host()
        alice = home.add("alice")
        authors = [away.add(f"author {number}") for number in range(8)]
        spaces = [home.create_space(alice, f"space{number}", *authors) for number in range(4)]
        for space in spaces:
            for author in authors:
                author.create(space, rkey(0), memory("first"))
            await world.open(space, alice)
        world.start()
        world.start(world.new_worker())
        conflicts: list[str | None] = []

        async def accounts(first_seq: int) -> None:
            """Batches that each change many accounts, in an order of their own."""
            for seq in range(first_seq, first_seq + 400, 10):
                chosen = draw.sample(authors, 5)
                words = [
                    AccountChanged(Place(RELAY, seq + place, world.clock()), author.did, seq % 20 < 10, "deactivated")
                    for place, author in enumerate(chosen)
                ]
                try:
                    await world.writer.apply(Batch(list(words)), world.clock())
                except Unavailable as outage:
                    conflicts.append(outage.context.get("sqlstate"))  # type: ignore[arg-type]

        async def writes() -> None:
            for number in range(1, 40):
                space, author = draw.choice(spaces), draw.choice(authors)
                author.create(space, rkey(number), memory(f"{number}"))
                await world.note_write(space, author)
                world.clock.advance(seconds=1)
                await asyncio.sleep(0)

        await asyncio.gather(accounts(1), accounts(1001), writes())
        spaces[0].delete()
        await world.note(spaces[0], "deleted")
        await asyncio.gather(accounts(5001), world.until(lambda: world.left_of(spaces[0]), {}))
        assert conflicts == []
        await world.writer.apply(
            Batch(
                [
                    AccountChanged(Place(RELAY, 9000 + n, world.clock()), a.did, True, None)
                    for n, a in enumerate(authors)
                ]
            ),
            world.clock(),
        )
        shown = "select count(*) from repos where visible"
        await world.pass_time_until(lambda: world.value(shown), 24, seconds=5)
