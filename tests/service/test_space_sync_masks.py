"""Masking across Spaces: a memory replaces others of the same author in the same Space, and no others."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from memory.database import Database
from memory.identifiers import COLLECTION, cid_text
from tests.builders import START, RepoBuilder, memory
from tests.fakes.space_host_spaces import Space
from tests.fakes.space_host_world import Account
from tests.feed import LONG_AGO, Feed, rkey
from tests.masking_model import ModelMemory, is_masked
from tests.memory_rows import text
from tests.spaces_world import SpacesWorld, setting, spaces_world

CASES: Final = int(os.environ.get("TEST_MASK_CASES", "6"))
KEYS: Final = [rkey(number) for number in range(5)]


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


# Whatever points wherever


@dataclass
class Pair:
    """An author in public (null) or in a Space, and what is there: by rkey, when it was made, and what it replaces."""

    author: Account
    public: RepoBuilder
    space: Space | None
    records: dict[str, tuple[int, frozenset[str]]] = field(default_factory=dict[str, tuple[int, frozenset[str]]])

    def uri(self, key: str) -> str:
        at = f"at://{self.author.did}" if self.space is None else f"{self.space}/{self.author.did}"
        return f"{at}/{COLLECTION}/{key}"

    def masked(self) -> set[str]:
        """By the plain model: of this author, here, and by nothing else."""
        own = {self.uri(key): key for key in KEYS}
        world = {
            key: ModelMemory(key, age, age, frozenset(own[target] for target in targets if target in own) - {key})
            for key, (age, targets) in self.records.items()
        }
        return {key for key in world if is_masked(world, key)}


class Play:
    """Two authors in public and in two Spaces, under the same record keys, with entries that point anywhere."""

    def __init__(self, world: SpacesWorld, feed: Feed, draw: random.Random, case: int) -> None:
        self.world, self.feed, self.draw = world, feed, draw
        home = world.hosts.hosts[0]
        self.alice = home.add(f"alice {case}")
        names = [f"{name} {case}" for name in ("bob", "carol")]
        authors = [(world.hosts.hosts[1].add(name), RepoBuilder(name)) for name in names]
        self.spaces = [
            home.create_space(self.alice, f"{name}{case}", *(author for author, _ in authors)) for name in "ab"
        ]
        self.pairs = [Pair(author, public, space) for author, public in authors for space in (None, *self.spaces)]
        for _, public in authors:
            feed.directory.announce(public, LONG_AGO)

    async def write(self, times: int) -> None:
        for _ in range(times):
            pair, key = self.draw.choice(self.pairs), self.draw.choice(KEYS)
            if key not in pair.records:
                await self._apply(pair, "create", key)
            else:
                await self._apply(pair, self.draw.choice(("update", "update", "delete")), key)

    async def _apply(self, pair: Pair, action: str, key: str) -> None:
        record = None if action == "delete" else self._record(pair, key)
        more = () if record is None else (record,)
        if pair.space is None:
            await self.feed.send(getattr(pair.public, action)(key, *more))
        else:
            getattr(pair.author, action)(pair.space, key, *more)
        if record is None:
            del pair.records[key]

    def _record(self, pair: Pair, key: str) -> dict[str, Any]:
        draw = self.draw
        made = pair.records[key][0] if key in pair.records else draw.randrange(20)
        anywhere = [each.uri(other) for each in self.pairs for other in KEYS]
        here = [pair.uri(other) for other in KEYS if other != key]
        targets = frozenset(draw.sample(anywhere, k=draw.randrange(4)) + draw.sample(here, k=draw.randrange(3)))
        pair.records[key] = made, targets
        created_at = text(START - timedelta(days=30) + timedelta(minutes=made))
        return memory(f"{draw.random()}", created_at, supersedes=sorted(targets))

    async def sync(self) -> None:
        for space in self.spaces:
            await self.world.open(space, self.alice)
        for pair in self.pairs:
            if pair.space is not None and str(pair.space) in pair.author.repos:
                await self.world.note_write(pair.space, pair.author)
        await self.world.pass_time_until(self._differing, [], seconds=20)

    async def _differing(self) -> list[str]:
        return [
            pair.author.handle
            for pair in self.pairs
            if pair.space is not None
            and await self.world.cids(pair.space, pair.author)
            != {path.rpartition("/")[2]: cid_text(cid) for path, cid in pair.author.cids(pair.space).items()}
        ]

    async def assert_masked(self) -> int:
        """All of them, and nothing else; says how many."""
        count = 0
        for pair in self.pairs:
            query = "select rkey, masked_from is not null as masked from memories where repo = $1 and space = $2"
            rows = await self.world.rows(query, pair.author.did, str(pair.space or ""))
            assert {row["rkey"] for row in rows} == set(pair.records)
            assert {row["rkey"] for row in rows if row["masked"]} == pair.masked(), (
                pair.author.handle,
                str(pair.space),
            )
            count += len(pair.masked())
        return count


async def test_entries_that_point_anywhere_mask_within_one_repo_in_one_space_only(database: Database, seed: int):
    draw, masked_in_all = random.Random(seed), 0
    async with spaces_world(database, slice_ops=3) as world:
        for _ in range(2):
            await world.host()
        feed = Feed(database)
        world.start()
        for case in range(CASES):
            play = Play(world, feed, draw, case)
            for _ in range(3):
                await play.write(25)
                await play.sync()
                masked_in_all += await play.assert_masked()
    assert masked_in_all > CASES
