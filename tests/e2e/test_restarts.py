"""A daemon that dies, sleeps or is cut off comes back to all that was written meanwhile."""

from __future__ import annotations

from indexer.follower import Patience
from tests.builders import memory
from tests.e2e.comparison import shown_by_index
from tests.e2e.daemon import until
from tests.e2e.world import World, open_world, replacing

TAKEOVER_S = 15.0
_PATIENCE = Patience()


async def test_killed_daemon_is_taken_over_from_in_time(world: World) -> None:
    alice = await world.account()
    first = await alice.create(memory("Likes tea."))
    await world.same(alice)
    await world.daemon.kill()
    await alice.create(replacing("Likes coffee.", alice, first))
    await world.daemon.start()
    await world.same(alice)
    # Whoever comes next waits for no more than the lease of the dead and one look at it.
    assert _PATIENCE.lease_ttl.total_seconds() + _PATIENCE.lease_renewal_s < TAKEOVER_S


async def test_stopped_daemon_goes_on_where_it_was(world: World) -> None:
    alice, bob = await world.account(), await world.account(1)
    first = await alice.create(memory("Likes tea."))
    await bob.create(memory("Plays the cello."))
    await world.same(alice, bob)
    await world.daemon.stop()
    await alice.put(first, memory("Likes coffee."))
    await bob.deactivate()
    for number in range(20):
        await alice.create(memory(f"number {number}"))
    carol = await world.account()
    await carol.create(memory("New here."))
    await world.daemon.start()
    await world.same(alice, bob, carol)


async def test_daemon_killed_again_and_again_loses_and_doubles_nothing(world: World) -> None:
    alice = await world.account()
    keys = [await alice.create(memory("number 0"))]
    for number in range(1, 4):
        for part in range(10):
            keys.append(await alice.create(replacing(f"number {number}.{part}", alice, keys[-1])))
        durable = await world.cursor(alice.pds.url)
        await until(lambda durable=durable: world.is_beyond(alice.pds.url, durable), "any progress")
        await world.let_time_pass()
    await world.same(alice)
    async with world.database.connection() as conn:
        versions = await conn.fetch("select rkey, count(*) from memory_versions group by rkey")
    assert {row["rkey"]: row["count"] for row in versions} == dict.fromkeys(keys, 1)


async def test_cut_streams_are_taken_up_again(world: World) -> None:
    alice, bob = await world.account(), await world.account(1)
    for number in range(3):
        await alice.create(memory(f"number {number}"))
        await bob.create(memory(f"number {number}"))
        world.cut()
        await world.same(alice, bob)


async def test_outage_of_the_directory_delays_strangers_only(world: World) -> None:
    alice, bob = await world.account(), await world.account(1)
    await alice.create(memory("Likes tea."))
    await world.same(alice)
    await world.network.set_outage(True)
    try:
        await bob.create(memory("Plays the cello."))
        await alice.create(memory("Likes coffee."))

        async def alice_shows() -> bool:
            return len((await shown_by_index(world.database, alice.did)).records) == 2

        await until(alice_shows, "what a known author wrote")
    finally:
        await world.network.set_outage(False)
    await world.let_time_pass()
    await world.same(alice, bob)


async def until_begun(world: World) -> None:
    """Makes the PDSes say something until they are heard: they accept a subscription a little before it is served."""
    for number, source in enumerate(world.sources):

        async def is_heard(number: int = number, source: str = source) -> bool:
            await world.account(number)
            return await world.cursor(source) > 0

        await until(is_heard, f"the first frame of {source}")


async def test_first_start_follows_what_comes_from_then_on(network, database, database_url, tmp_path) -> None:
    async with open_world(network, database, database_url, tmp_path) as world:
        async with database.connection() as conn:
            await conn.execute("delete from sources")
        old = await world.account()
        await old.create(memory("Before the first start."))
        await world.daemon.start()
        await world.daemon.connected(*world.sources)
        await until_begun(world)
        alice, bob = await world.account(), await world.account(1)
        await alice.create(memory("Likes tea."))
        await bob.create(memory("Plays the cello."))
        await world.same(alice, bob)
        await until(world.daemon.ready, "a daemon that is ready")
        status = await world.daemon.status()
        assert {cursor["source"] for cursor in status["cursors"]} == set(world.sources)
        # A PDS may still send what was written in the second before.
        assert status["memories"]["current"] in (2, 3)


async def test_relay_and_pds_of_the_same_frames_apply_them_once(network, database, database_url, tmp_path) -> None:
    async with open_world(network, database, database_url, tmp_path, relayed=[0]) as world:
        await world.daemon.start()
        alice = await world.account()
        keys = [await alice.create(memory(f"number {number}")) for number in range(5)]
        await alice.put(keys[0], memory("changed"))
        await world.same(alice)
        async with database.connection() as conn:
            assert await conn.fetchval("select count(*) from memory_versions") == 6
