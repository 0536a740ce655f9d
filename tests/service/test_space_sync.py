"""Spaces in step: what authors write there is held, from their own hosts, and nothing else."""

from __future__ import annotations

import pytest

from indexer.spaces.apply import Change, SpaceApplier
from indexer.store.space_repos import Pulled
from memory.database import Database
from memory.errors import Unavailable
from memory.identifiers import COLLECTION, cid_text
from tests.builders import Write, memory
from tests.fakes.space_host_faults import Fault
from tests.fakes.space_host_spaces import Space
from tests.fakes.space_host_world import Account
from tests.feed import rkey
from tests.spaces_world import Setting, SpacesWorld, setting, spaces_world

OTHER = "com.example.note"


def cids_at_host(author: Account, space: Space) -> dict[str, str]:
    """Rkey → CID of our collection's records."""
    cids = {path.partition("/"): cid for path, cid in author.cids(space).items()}
    return {rkey: cid_text(cid) for (collection, _, rkey), cid in cids.items() if collection == COLLECTION}


# What is held


async def test_space_that_is_opened_is_read_and_served(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("Likes green tea.")
        assert await world.is_served(here.space)
        assert (await world.space_row(here.space))["state"] == "ready"
        [row] = await world.rows("select state, rev, visible from repos where space = $1", str(here.space))
        assert tuple(row) == ("active", here.bob.repo(here.space).rev, True)


async def test_space_that_nobody_opened_is_not_asked_for(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        here.bob.create(here.space, rkey(1), memory("secret"))
        await world.note_write(here.space, here.bob)
        other = here.home.create_space(here.alice, "other", here.bob)
        await world.open(other, here.bob)
        world.start()
        await world.until_idle(other)
        assert {asked.space for asked in here.home.asked} == {str(other)}
        assert here.away.asked == []


async def test_writes_are_pulled_by_their_ops(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0", "1", "2")
        here.bob.update(here.space, rkey(0), memory("changed"))
        here.bob.delete(here.space, rkey(1))
        here.bob.create(here.space, rkey(3), memory("3"))
        await world.note_write(here.space, here.bob)
        await world.until_contents(here.space, here.bob, ["changed", "2", "3"])
        assert here.away.asked_for("getRepo") == 1
        assert here.away.asked_for("listRepoOps") == 1


async def test_records_of_other_collections_count_in_the_hash_and_are_not_held(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        here.bob.create(here.space, "note", {"$type": OTHER, "text": "other"}, collection=OTHER)
        await here.begin("mine")
        here.bob.update(here.space, "note", {"$type": OTHER, "text": "another"}, collection=OTHER)
        here.bob.create(here.space, rkey(1), memory("more"))
        await world.note_write(here.space, here.bob)
        await world.until_contents(here.space, here.bob, ["mine", "more"])
        assert here.away.asked_for("getRepo") == 1
        assert set(await world.cids(here.space, here.bob)) == {rkey(0), rkey(1)}


async def test_write_in_another_collection_is_confirmed_without_a_change(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("mine")
        here.bob.create(here.space, "note", {"$type": OTHER}, collection=OTHER)
        await world.note_write(here.space, here.bob)
        await world.until(lambda: in_step(world, here.space, here.bob), True)
        assert await world.contents(here.space, here.bob) == ["mine"]


async def in_step(world: SpacesWorld, space: Space, author: Account) -> bool:
    row = await world.repo_row(space, author)
    return row["in_step"] and row["hash"] == author.repo(space).digest


async def test_invalid_record_in_a_space_is_kept_with_its_reason(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        here.bob.create(here.space, rkey(9), {"$type": COLLECTION})
        await here.begin("valid")
        [row] = await world.rows("select rkey, reason from invalid_records where space = $1", str(here.space))
        assert row["rkey"] == rkey(9)


async def test_sweep_finds_what_no_notification_told(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        here.bob.create(here.space, rkey(1), memory("1"))
        await world.until_idle(here.space)
        assert await world.contents(here.space, here.bob) == ["0"]
        world.clock.advance(minutes=5)
        await world.until_contents(here.space, here.bob, ["0", "1"])


async def test_idle_sweep_asks_no_author(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        asked = len(here.away.asked)
        world.clock.advance(minutes=5)
        await here.home.until_asked("listRepos", 2)
        await world.until_idle(here.space)
        assert len(here.away.asked) == asked
        assert await world.is_served(here.space)


async def test_listing_of_several_pages_is_read_to_its_end(database: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("indexer.spaces.reads.PAGE_ITEMS_MAX", 2)
    async with spaces_world(database) as world:
        here = await setting(world)
        others = [here.away.add(f"author {number}") for number in range(5)]
        here.space.admit(*others)
        for other in others:
            other.create(here.space, rkey(1), memory("mine"))
        await here.begin("0")
        for other in others:
            await world.until_contents(here.space, other, ["mine"])
        assert here.home.asked_for("listRepos") > 2


async def test_author_who_writes_for_the_first_time_is_listed_before_being_believed(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        carol = here.away.add("carol")
        here.space.admit(carol)
        carol.create(here.space, rkey(5), memory("new"))
        world.clock.advance(seconds=10)
        await world.note_write(here.space, carol)
        await world.until_contents(here.space, carol, ["new"])
        assert here.home.asked_for("listRepos") == 2


async def test_author_who_is_not_listed_is_never_pulled(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        stranger = here.away.add("stranger")
        stranger.create(here.space, rkey(5), memory("forged"), announced=False)
        world.clock.advance(seconds=10)
        await world.note_write(here.space, stranger)
        await here.home.until_asked("listRepos", 2)
        await world.until_idle(here.space)
        assert here.away.asked_for("getRepo", stranger.did) == 0
        assert await world.contents(here.space, stranger, shown=False) == []


async def test_what_is_written_during_a_pull_is_pulled_after_it(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        here.bob.create(here.space, rkey(1), memory("1"))
        here.away.misbehave(Fault.STALLED, "listRepoOps", times=1)
        await world.note_write(here.space, here.bob)
        await here.away.until_asked("listRepoOps")
        here.bob.create(here.space, rkey(2), memory("2"))
        await world.note_write(here.space, here.bob)
        await world.until(lambda: world.value("select count(*) from space_inbox"), 0)
        here.away.faults.release.set()
        await world.until_contents(here.space, here.bob, ["0", "1", "2"])
        assert here.away.asked_for("listRepoOps") == 2


async def test_write_of_somebody_who_was_given_up_for_long_is_looked_at_before_long(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        async with world.database.connection() as conn:
            await conn.execute(
                "update space_repos set in_step = false, attempts = 12, failure = 'host_unavailable',"
                " pull_after = $1::timestamptz + interval '1 hour'",
                world.clock(),
            )
        here.bob.create(here.space, rkey(1), memory("1"))
        await world.note_write(here.space, here.bob)
        await world.until(lambda: world.value("select count(*) from space_inbox"), 0)
        world.clock.advance(seconds=31)
        await world.until_contents(here.space, here.bob, ["0", "1"])


# Recovery


async def test_compacted_oplog_is_made_good_by_the_whole_repo(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0", "1")
        here.bob.delete(here.space, rkey(0))
        here.bob.create(here.space, rkey(2), memory("2"))
        here.bob.create(here.space, rkey(3), memory("3"))
        here.bob.compact(here.space)
        await world.note_write(here.space, here.bob)
        await world.until_contents(here.space, here.bob, ["1", "2", "3"])
        assert here.away.asked_for("getRepo") == 2
        assert await world.cids(here.space, here.bob) == cids_at_host(here.bob, here.space)


async def test_record_that_ops_do_not_bring_is_made_good_by_the_whole_repo(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        block = memory("floats are no data")
        here.bob.create(here.space, rkey(1), block)
        here.away.misbehave(Fault.WRONG_RECORDS, "listRepoOps")
        await world.note_write(here.space, here.bob)
        await world.until_contents(here.space, here.bob, ["0", "floats are no data"])
        assert here.away.asked_for("getRepo") == 2


async def test_torn_snapshot_is_asked_for_again_and_hides_nothing(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        here.bob.create(here.space, rkey(1), memory("1"))
        here.bob.compact(here.space, 0)
        here.away.misbehave(Fault.TORN, "getRepo", times=2)
        await world.note_write(here.space, here.bob)
        await here.away.until_asked("getRepo", 2)
        await world.until_idle(here.space)
        assert await world.contents(here.space, here.bob) == ["0"]
        await world.pass_time_until(lambda: world.contents(here.space, here.bob), ["0", "1"])
        assert here.away.asked_for("getRepo") == 4


@pytest.mark.parametrize(
    "fault",
    [
        Fault.WRONG_HASH,
        Fault.WRONG_SIGNATURE,
        Fault.WRONG_MAC,
        Fault.WRONG_RECORDS,
        Fault.UNORDERED,
        Fault.TRUNCATED,
        Fault.CUT,
        Fault.GIBBERISH,
        Fault.BROKEN,
        Fault.REFUSING,
        Fault.BOASTING,
        Fault.MOVED,
    ],
)
async def test_what_a_host_says_wrongly_changes_nothing_and_is_asked_for_again(database: Database, fault: Fault):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        held = await world.cids(here.space, here.bob)
        here.bob.create(here.space, rkey(1), memory("1"))
        here.bob.compact(here.space, 0)
        for method in ("listRepoOps", "getRepo"):
            here.away.misbehave(fault, method)
        await world.note_write(here.space, here.bob)
        await world.until(lambda: failed(world, here), True)
        assert await world.cids(here.space, here.bob) == held
        assert await world.contents(here.space, here.bob) == ["0"]
        for method in ("listRepoOps", "getRepo"):
            here.away.misbehave(None, method)
        await world.pass_time_until(lambda: world.contents(here.space, here.bob), ["0", "1"], seconds=20)


async def failed(world: SpacesWorld, here: Setting) -> bool:
    return await world.value(
        "select count(*) = 1 from space_repos"
        " where space = $1 and repo = $2 and pull_token is null and attempts > 0 and failure is not null",
        *(str(here.space), here.bob.did),
    )


async def test_answer_about_another_author_is_refused(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        eve = here.away.add("eve")
        here.space.admit(eve)
        eve.create(here.space, rkey(7), memory("of eve"))
        here.away.misbehave(Fault.FOREIGN, None, here.bob.did)
        here.bob.create(here.space, rkey(0), memory("of bob"))
        await world.open(here.space, here.bob)
        world.start()
        await world.until(lambda: failed(world, here), True)
        assert await world.contents(here.space, here.bob, shown=False) == []
        here.away.misbehave(None, None, here.bob.did)
        await world.pass_time_until(lambda: world.contents(here.space, here.bob), ["of bob"], minutes=1)


async def test_rev_far_ahead_is_refused(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        ahead = world.clock().replace(year=2030)
        here.bob.apply(here.space, [Write("create", rkey(1), memory("1"))], at=ahead)
        await world.note_write(here.space, here.bob)
        await world.until(lambda: failed(world, here), True)
        assert (await world.repo_row(here.space, here.bob))["failure"] == "rev_in_future"
        assert await world.contents(here.space, here.bob) == ["0"]


async def test_new_key_of_an_author_is_asked_for(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        here.bob.rotate_key("new key")
        here.bob.create(here.space, rkey(1), memory("1"))
        await world.note_write(here.space, here.bob)
        await world.until_contents(here.space, here.bob, ["0", "1"])


async def test_repo_that_was_set_back_at_its_host_is_followed_by_its_hash(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0", "1")
        repo = here.bob.repos.pop(str(here.space))
        here.bob.create(here.space, rkey(0), memory("0"), at=world.clock().replace(year=2025))
        assert (here.bob.repo(here.space).rev or "") < (repo.rev or "")
        await world.note_write(here.space, here.bob)
        await world.until_contents(here.space, here.bob, ["0"])


async def test_pull_that_broke_off_between_slices_is_made_good_by_the_whole_repo(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    """By ops alone, what came and went since would be no change at all."""
    async with spaces_world(database, slice_ops=2) as world:
        here = await setting(world)
        await here.begin("0")
        breaks = [Unavailable("broken off")]
        finish = SpaceApplier.finish

        async def finish_later(self: SpaceApplier, change: Change, pulled: Pulled) -> None:
            if breaks:
                raise breaks.pop()
            await finish(self, change, pulled)

        monkeypatch.setattr(SpaceApplier, "finish", finish_later)
        for number in range(1, 7):
            here.bob.create(here.space, rkey(number), memory(f"{number}"))
        await world.note_write(here.space, here.bob)
        await world.until(lambda: failed(world, here), True)
        assert len(await world.contents(here.space, here.bob)) > 1
        for number in range(1, 7):
            here.bob.delete(here.space, rkey(number))
        await world.pass_time_until(lambda: world.contents(here.space, here.bob), ["0"])
        assert here.away.asked_for("getRepo") == 2


async def test_pull_whose_claim_ran_out_writes_nothing_any_more(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("0")
        here.bob.create(here.space, rkey(1), memory("1"))
        here.away.misbehave(Fault.STALLED, "listRepoOps", times=1)
        await world.note_write(here.space, here.bob)
        await here.away.until_asked("listRepoOps")
        world.clock.advance(minutes=2)
        await world.until_contents(here.space, here.bob, ["0", "1"])
        here.bob.delete(here.space, rkey(1))
        await world.note_write(here.space, here.bob)
        await world.until_contents(here.space, here.bob, ["0"])
        here.away.faults.release.set()

        async def under_way() -> int:
            return len(world.worker._pulls._under_way)

        await world.until(under_way, 0)
        assert await world.cids(here.space, here.bob) == cids_at_host(here.bob, here.space)
        assert await in_step(world, here.space, here.bob)


async def test_repo_of_many_records_is_taken_in_slices(database: Database):
    async with spaces_world(database, slice_ops=7) as world:
        here = await setting(world)
        contents = [f"{number}" for number in range(40)]
        await here.begin(*contents)
        for number in range(0, 40, 2):
            here.bob.delete(here.space, rkey(number))
        await world.note_write(here.space, here.bob)
        await world.until_contents(here.space, here.bob, contents[1::2])
        [row] = await world.rows("select state, memory_count from repos where space = $1", str(here.space))
        assert tuple(row) == ("active", 20)
