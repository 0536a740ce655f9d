"""Masking across Spaces: a memory replaces others of the same author in the same Space, and no others."""

from __future__ import annotations

from memory.database import Database
from memory.identifiers import COLLECTION
from tests.builders import RepoBuilder, memory
from tests.fakes.space_host_spaces import Space
from tests.fakes.space_host_world import Account
from tests.feed import LONG_AGO, Feed, rkey
from tests.spaces_world import SpacesWorld, setting, spaces_world


def uri(author: Account, number: int, space: Space | None = None) -> str:
    at = f"at://{author.did}" if space is None else f"{space}/{author.did}"
    return f"{at}/{COLLECTION}/{rkey(number)}"


async def masked(world: SpacesWorld, author: str, space: object = "") -> set[str]:
    """The contents that another replaces."""
    query = "select content from memories where repo = $1 and space = $2 and masked_from is not null"
    return {row["content"] for row in await world.rows(query, author, str(space))}


async def test_memory_masks_in_its_own_space_only(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        other = here.home.create_space(here.alice, "other", here.bob)
        for space in (here.space, other):
            here.bob.create(space, rkey(1), memory("old"))
            here.bob.create(space, rkey(2), memory("old too"))
        new = memory("new", supersedes=[uri(here.bob, 1, here.space), uri(here.bob, 2, other)])
        here.bob.create(here.space, rkey(3), new)
        world.start()
        await world.open(here.space, here.bob)
        await world.open(other, here.bob)
        await world.until_contents(here.space, here.bob, ["old", "old too", "new"])
        await world.until_contents(other, here.bob, ["old", "old too"])
        assert await masked(world, here.bob.did, here.space) == {"old"}
        assert await masked(world, here.bob.did, other) == set()


async def test_memory_masks_its_own_authors_only(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        carol = here.away.add("carol")
        here.space.admit(carol)
        for author in (here.bob, carol):
            author.create(here.space, rkey(1), memory("old"))
        targets = [uri(here.bob, 1, here.space), uri(carol, 1, here.space)]
        carol.create(here.space, rkey(2), memory("new", supersedes=targets))
        world.start()
        await world.open(here.space, here.bob)
        await world.until_contents(here.space, here.bob, ["old"])
        await world.until_contents(here.space, carol, ["old", "new"])
        assert await masked(world, here.bob.did, here.space) == set()
        assert await masked(world, carol.did, here.space) == {"old"}


async def test_public_and_space_mask_nothing_of_each_other(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        feed = Feed(database)
        public = RepoBuilder("bob")
        feed.directory.announce(public, LONG_AGO)
        both = [uri(here.bob, 1), uri(here.bob, 1, here.space)]
        await feed.send(
            public.create(rkey(1), memory("old in public")),
            public.create(rkey(2), memory("new in public", supersedes=[both[1]])),
        )
        assert public.did == here.bob.did
        assert len(await feed.memories(public)) == 2
        here.bob.create(here.space, rkey(1), memory("old in the Space"))
        here.bob.create(here.space, rkey(2), memory("new in the Space", supersedes=[both[0]]))
        world.start()
        await world.open(here.space, here.bob)
        await world.until_contents(here.space, here.bob, ["old in the Space", "new in the Space"])
        assert await masked(world, public.did) == set()
        assert await masked(world, public.did, here.space) == set()
        await feed.send(public.update(rkey(2), memory("new in public", supersedes=both)))
        here.bob.update(here.space, rkey(2), memory("newer in the Space", supersedes=both))
        await world.note_write(here.space, here.bob)
        await world.until_contents(here.space, here.bob, ["old in the Space", "newer in the Space"])
        assert await masked(world, public.did) == {"old in public"}
        assert await masked(world, public.did, here.space) == {"old in the Space"}


async def test_deletion_of_what_masks_brings_back_what_it_masked(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        here.bob.create(here.space, rkey(8), memory("new", supersedes=[uri(here.bob, 0, here.space)]))
        await here.begin("old", shown=["old", "new"])
        assert await masked(world, here.bob.did, here.space) == {"old"}
        here.bob.delete(here.space, rkey(8))
        await world.note_write(here.space, here.bob)
        await world.until_contents(here.space, here.bob, ["old"])
        assert await masked(world, here.bob.did, here.space) == set()


async def test_overwritten_and_deleted_versions_are_told_as_in_public(database: Database):
    async with spaces_world(database) as world:
        here = await setting(world)
        await here.begin("first", "other")
        here.bob.update(here.space, rkey(0), memory("second"))
        await world.note_write(here.space, here.bob)
        await world.until_contents(here.space, here.bob, ["second", "other"])
        here.bob.delete(here.space, rkey(1))
        await world.note_write(here.space, here.bob)
        await world.until_contents(here.space, here.bob, ["second"])
        query = (
            "select rkey, number, operation, record is not null, redacted_at is not null from memory_versions"
            " where space = $1 order by rkey, number"
        )
        assert [tuple(row) for row in await world.rows(query, str(here.space))] == [
            (rkey(0), 1, "created", True, False),
            (rkey(0), 2, "updated", False, False),
            (rkey(1), 1, "created", False, True),
            (rkey(1), 2, "deleted", False, True),
        ]
        assert await world.value("select count(*) from deletions") == 0
