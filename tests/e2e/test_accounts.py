"""What people do with their memories and accounts at a real PDS is what the index shows."""

from __future__ import annotations

from datetime import timedelta

from tests.builders import START, memory, tid
from tests.e2e.accounts import create_of, delete_of, update_of
from tests.e2e.comparison import Shown, shown_by_index
from tests.e2e.world import World, replacing

LINK = {"$link": "bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy"}
FIRST, SECOND, THIRD = (tid(START + timedelta(days=day)) for day in range(3))


async def test_memories_are_written_updated_and_deleted(world: World) -> None:
    alice, bob = await world.account(), await world.account(1)
    tea = await alice.create(memory("Likes green tea."))
    gone = await alice.create(memory("Lives in Porto."))
    await alice.put(tea, memory("Likes black tea.", unknown=LINK))
    await alice.create(replacing("Lives in Lisbon.", alice, gone, tea))
    await alice.delete(gone)
    await bob.create({"content": "When was this?"})
    await bob.create(memory("Plays the cello."))
    await world.same(alice, bob)
    shown = await shown_by_index(world.database, alice.did)
    assert shown.masked == {tea}
    assert len((await shown_by_index(world.database, bob.did)).invalid) == 1


async def test_several_writes_in_one_commit_and_circles(world: World) -> None:
    alice = await world.account()
    await alice.apply([create_of(FIRST, memory("a")), create_of(SECOND, replacing("b", alice, FIRST))])
    await alice.apply(
        [
            update_of(FIRST, replacing("a again", alice, SECOND)),
            create_of(THIRD, replacing("c", alice, THIRD, SECOND)),
            create_of(tid(START), {"$type": "app.bsky.feed.post", "text": "d"}, "app.bsky.feed.post"),
        ]
    )
    await world.same(alice)
    await alice.apply([delete_of(THIRD), update_of(SECOND, memory("b alone"))])
    await world.same(alice)


async def test_deactivated_account_is_hidden_until_it_is_active_again(world: World) -> None:
    alice = await world.account()
    await alice.create(memory("Likes tea."))
    await world.same(alice)
    await alice.deactivate()
    await world.same(alice)
    assert await shown_by_index(world.database, alice.did) == Shown()
    await alice.activate()
    await alice.create(memory("Back again."))
    await world.same(alice)
    assert len((await shown_by_index(world.database, alice.did)).records) == 2


async def test_taken_down_account_is_hidden_until_that_is_reversed(world: World) -> None:
    alice = await world.account()
    await alice.create(memory("Likes tea."))
    await world.same(alice)
    await alice.take_down()
    await world.same(alice)
    assert await shown_by_index(world.database, alice.did) == Shown()
    await alice.restore()
    await world.same(alice)
    await alice.create(memory("Back again."))
    await world.same(alice)


async def test_deleted_account_is_hidden_and_purged_once_its_host_confirms(world: World) -> None:
    alice, bob = await world.account(), await world.account()
    await alice.create(memory("Likes tea."))
    await bob.create(memory("Plays the cello."))
    await world.same(alice, bob)
    await alice.delete_account()
    await world.same(alice, bob)
    assert await shown_by_index(world.database, alice.did) == Shown()
    async with world.database.connection() as conn:
        assert await conn.fetchval("select count(*) from memory_versions where repo = $1", alice.did) == 0
        assert await conn.fetchval("select rev is not null from repos where repo = $1", alice.did), "the gate stays"


async def test_account_gone_before_it_was_seen_never_shows(world: World) -> None:
    await world.daemon.kill()
    alice = await world.account()
    await alice.create(memory("Likes tea."))
    await alice.delete_account()
    await world.let_time_pass()
    await world.same(alice)
    assert await shown_by_index(world.database, alice.did) == Shown()


async def test_handle_changes_are_verified_with_the_directory(world: World) -> None:
    alice = await world.account()
    await alice.create(memory("Likes tea."))
    await world.same(alice)
    await world.named(alice)
    await alice.rename(f"new-{alice.handle}")
    await world.caught_up()
    await world.let_time_pass()
    await world.named(alice)


async def test_handle_that_nobody_could_verify_during_a_takedown_is_shown_after_it(world: World) -> None:
    alice = await world.account()
    await alice.create(memory("Likes tea."))
    await world.same(alice)
    await world.named(alice)
    await world.daemon.kill()
    await alice.rename(f"new-{alice.handle}")
    await alice.take_down()
    await world.revive()
    await world.unnamed(alice)
    await alice.restore()
    await world.caught_up()
    await world.let_time_pass()
    await world.named(alice)


async def test_moved_account_is_followed_at_its_new_host(world: World) -> None:
    alice = await world.account()
    await alice.create(memory("Written at home."))
    await world.same(alice)
    await alice.move(world.network.pdses[1])
    await world.caught_up()
    await world.let_time_pass()
    await alice.create(memory("Written abroad."))
    await world.same(alice)
    await world.named(alice)
    assert len((await shown_by_index(world.database, alice.did)).records) == 2, await world.told()
