"""The process that keeps Spaces in step, as a command runs it: on the database's clock, and stopped by its parent."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

from indexer.spaces.process import SpaceWork, run
from memory.database import Database
from tests.builders import memory
from tests.deadline import until
from tests.fakes.internet import LOOPBACK
from tests.feed import LIMITS, rkey
from tests.spaces_world import BUDGET, sealing_keys, setting, spaces_world


async def test_space_is_followed_by_the_databases_clock(database: Database):
    async with spaces_world(database) as world:
        world.clock.now = datetime.now(UTC) + timedelta(seconds=1)
        here = await setting(world)
        here.bob.create(here.space, rkey(1), memory("0"))
        await world.open(here.space, here.bob)
        work = SpaceWork(
            plc_url=world.directory.url,
            handle_resolvers=[world.directory.url],
            private_networks=LOOPBACK,
            limits=LIMITS,
            keys=sealing_keys(),
            clock=lambda: datetime.now(UTC),
            random_bytes=random.SystemRandom().randbytes,
            budget=BUDGET,
        )

        @asynccontextmanager
        async def connect() -> AsyncGenerator[Database]:
            yield database

        running = asyncio.create_task(run(work, connect, with_parent=False))
        await until(lambda: world.contents(here.space, here.bob), lambda contents: contents == ["0"])
        fresh = "select fresh_until > clock_timestamp() and state = 'ready' from spaces"
        await until(lambda: world.value(fresh))
        here.bob.create(here.space, rkey(2), memory("1"))
        await world.note_write(here.space, here.bob)
        await until(lambda: world.contents(here.space, here.bob), lambda contents: contents == ["0", "1"])
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
