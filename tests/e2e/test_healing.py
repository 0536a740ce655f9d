"""What the stream did not bring is asked of the hosts: the index ends as the PDSes' repos, whatever was missed."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from indexer.store import leases
from memory.database import Database
from tests.builders import memory
from tests.e2e.accounts import Account
from tests.e2e.comparison import Shown, assert_same, not_healed, shown_by_index
from tests.e2e.node import ROOT
from tests.e2e.servers import Network
from tests.e2e.world import World, open_world, replacing

POST = "app.bsky.feed.post"


async def history(world: World, pds: int, memories: int = 3) -> Account:
    """Someone who wrote long ago."""
    account = await world.account(pds)
    keys = [await account.create(memory(f"{number} of {account.handle}")) for number in range(memories)]
    await account.create({"$type": POST, "text": "Hello."}, collection=POST)
    await account.create(replacing("the newest", account, keys[0]))
    await account.delete(keys[1])
    return account


async def lose(world: World, writes: Sequence[asyncio.Task[object]] = ()) -> None:
    """Nothing of what was written up to now comes by the stream: the daemon goes on behind it."""
    await asyncio.gather(*writes)
    async with world.database.transaction() as conn:
        for url, pds in world.sources.items():
            await leases.set_cursor(conn, url, pds.last_seq(), datetime.now(UTC))


async def test_history_from_before_the_index_is_backfilled(world: World) -> None:
    await world.daemon.kill()
    people = [await history(world, number % 2) for number in range(4)]
    posts_only = await world.account()
    await posts_only.create({"$type": POST, "text": "Hello."}, collection=POST)
    await lose(world)
    for pds in world.network.pdses:
        said = json.loads((await world.daemon.command("backfill", "--discover", pds.url, "--json")).splitlines()[-1])
        assert said["failed"] == 0, said
    await world.daemon.start()
    await world.same(*people)
    assert not await world.is_followed(posts_only)
    await people[0].create(memory("and it goes on"))
    await world.same(*people)


async def test_backfill_that_is_killed_again_and_again_gets_through(world: World) -> None:
    await world.daemon.kill()
    people = [await history(world, 0) for _ in range(6)]
    await lose(world)
    arguments = (sys.executable, "-m", "indexer", "backfill", "--discover", world.network.pdses[0].url)
    for patience_s in (0.8, 1.0, 1.2, 1.4):
        process = await asyncio.create_subprocess_exec(
            *arguments, env=world.daemon.environment, cwd=ROOT, stdout=DEVNULL, stderr=DEVNULL
        )
        try:
            async with asyncio.timeout(patience_s):
                await process.wait()
        except TimeoutError:
            process.send_signal(signal.SIGKILL)
            await process.wait()
    await world.daemon.command("backfill", "--discover", world.network.pdses[0].url)
    await world.daemon.start()
    await world.same(*people)


async def test_commits_that_were_missed_while_nobody_listened_are_fetched(world: World) -> None:
    alice, bob, idle = await world.account(), await world.account(1), await world.account()
    first = await alice.create(memory("one"))
    await bob.create(memory("one"))
    await idle.create(memory("nothing new"))
    await world.same(alice, bob, idle)
    await world.daemon.kill()
    await alice.create(replacing("two", alice, first))
    await bob.delete_account()
    await lose(world)
    await world.daemon.start()
    await world.same(alice, bob, idle)
    assert await shown_by_index(world.database, bob.did) == Shown()


async def test_move_that_nobody_told_of_is_noticed(world: World) -> None:
    alice = await world.account()
    await alice.create(memory("Written at home."))
    await world.same(alice)
    await world.daemon.kill()
    await alice.move(world.network.pdses[1])
    await alice.create(memory("Written abroad."))
    await lose(world)
    await world.let_time_pass()
    await world.same(alice)
    assert len((await shown_by_index(world.database, alice.did)).records) == 2


async def test_hidden_and_shown_again_while_nobody_listened(world: World) -> None:
    alice, bob = await world.account(), await world.account(1)
    await alice.create(memory("one"))
    await bob.create(memory("one"))
    await world.same(alice, bob)
    await alice.deactivate()
    await bob.take_down()
    await world.same(alice, bob)
    await world.daemon.kill()
    await alice.activate()
    await bob.restore()
    await alice.create(memory("two"))
    await bob.create(memory("two"))
    await world.revive()
    await world.same(alice, bob)


async def test_index_that_is_lost_comes_back_whole(
    network: Network, database: Database, database_url: str, tmp_path: Path
) -> None:
    async with open_world(network, database, database_url, tmp_path) as world:
        people = [await history(world, number % 2) for number in range(3)]
        await lose(world)
        await world.daemon.start()
        await world.daemon.connected(*world.sources)
        late = await history(world, 0)
        await world.daemon.command("backfill", *(person.did for person in people))
        await world.same(*people, late)
        status = await world.daemon.status()
        assert {repo["state"] for repo in status["repos"]} == {"active"}
        assert await not_healed(world.database) == {}
        await assert_same(world.database, [*people, late])


async def test_status_says_what_it_heals(world: World) -> None:
    alice = await world.account()
    await alice.create(memory("one"))
    await world.same(alice)
    await world.kill()
    async with world.database.transaction() as conn:
        await conn.execute("update repos set state = 'desynchronized', reason = 'sync' where repo = $1", alice.did)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "indexer", "status", env=world.daemon.environment, cwd=ROOT, stdout=PIPE, stderr=DEVNULL
    )
    said, _ = await process.communicate()
    assert b"desynchronized" in said
    assert b"sync" in said
    await world.revive()
    await world.same(alice)
